"""The cache of vectors beside a graph: what a provider said of a text is kept, for every branch and every later run.

Files are written once under fresh names, vectors before the keys that lead to them, so any number of writers may add to
it and a crash loses no more than the file being written. Nothing depends on it being there.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from threading import Lock
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.query.embedders import Embedder, Matrix
from omnigraph.errors import OmniGraphError
from omnigraph.ids import new_ulid
from omnigraph.limits import EMBED_CACHE_FILES_MAX, EMBED_WINDOW_TEXTS
from omnigraph.lru import LruCache
from omnigraph.store.store import Store

Words = NDArray[np.uint64]

_DIGEST_BYTES: Final = 16
_SLICE_ROWS: Final = 1_024
_U64: Final = np.uint64


def text_digests(texts: Sequence[str]) -> Words:
    """Return 128 bits for each text, as two numbers; no two texts that anybody has seen share them.

    >>> text_digests(["a", "b", "a"]).shape
    (3, 2)
    """
    # A wrong vector would be found by nobody, so this hash has to be a strong one, and numpy has none.
    joined = b"".join(blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest() for text in texts)
    return np.frombuffer(joined, "<u8").reshape(len(texts), 2).astype(np.uint64)


def vector_prints(vectors: Matrix) -> Words:
    """Return 64 bits for each vector, the same for the same numbers.

    >>> one, other, again = vector_prints(np.array([[1, 0], [0, 1], [1, -0.0]], np.float32)).tolist()
    >>> one == again, one == other
    (True, False)
    """
    count, dimension = vectors.shape
    factors = mixed(np.arange(1, dimension + 1, dtype=np.uint64)) | _U64(1)
    prints = np.empty(count, np.uint64)
    for start in range(0, count, _SLICE_ROWS):
        # Adding zero makes both zeros the same one; in a damaged file there may be anything.
        with np.errstate(invalid="ignore"):
            bits = (vectors[start : start + _SLICE_ROWS] + np.float32(0)).view(np.uint32)
        prints[start : start + _SLICE_ROWS] = (bits * factors).sum(axis=1, dtype=np.uint64)
    return mixed(prints)


def pairs(prints: Words, digests: Words) -> Words:
    """Return one number for each vector together with the text it was made from."""
    return mixed(prints ^ mixed(digests[:, 0]))


def among(values: Words, known: Words) -> NDArray[np.bool_]:
    """Tell which values are among known ones, which are in ascending order.

    >>> among(np.array([1, 3], np.uint64), np.array([2, 3], np.uint64)).tolist()
    [False, True]
    """
    if len(known) == 0:
        return np.zeros(len(values), np.bool_)
    places = np.minimum(np.searchsorted(known, values), len(known) - 1)
    found: NDArray[np.bool_] = known[places] == values
    return found


def mixed(words: Words) -> Words:
    """Spread the difference of two numbers over all bits."""
    words = (words ^ (words >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> _U64(27))) * _U64(0x94D049BB133111EB)
    return words ^ (words >> _U64(31))


FOLDER: Final = "_embeddings"
_KEYS: Final = ".keys.npy"
_VECTORS: Final = ".vectors.npy"
_OPEN_FILES: Final = 4

# For each text the file and the row in it that hold its vector; -1 where there is none.
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Space:
    """Vectors of one model of one provider, of one length."""

    provider: str
    model: str
    dimension: int

    @classmethod
    def of(cls, embedder: Embedder, dimension: int) -> Space:
        return cls(embedder.name, embedder.model, dimension)

    @property
    def folder(self) -> str:
        named = blake2b(f"{self.provider}\0{self.model}".encode(), digest_size=8).hexdigest()
        return f"{FOLDER}/{self.dimension}-{named}"


@dataclass(frozen=True, slots=True)
class Made:
    """Which vectors of a length were made here, and which of them from which texts; both in ascending order."""

    prints: Words
    pairs: Words


def read_made(store: Store, dimension: int, space: Space | None = None) -> Made:
    """Return what the cache knows of vectors of a length; with a space, only its own count for their texts."""
    paths = [path for path in _key_paths(store, FOLDER) if path.startswith(f"{FOLDER}/{dimension}-")]
    counted = [space is None or path.startswith(f"{space.folder}/") for path in paths]
    files = _read_all(store, paths)
    nothing = np.empty((0, 3), np.uint64)
    keys = np.concatenate([nothing, *files])
    own = np.concatenate([nothing, *(one for one, counts in zip(files, counted, strict=True) if counts)])
    return Made(np.unique(keys[:, 2]), np.unique(pairs(own[:, 2], own[:, :2])))


@dataclass(frozen=True, slots=True)
class _Segment:
    """Digests in ascending order of their first half, and where their vectors lie."""

    digests: Words
    places: Places

    @classmethod
    def of(cls, digests: Words, places: Places) -> _Segment:
        order = np.argsort(digests[:, 0], kind="stable")
        return cls(digests[order], places[order])

    def find(self, wanted: Words, found: Places) -> None:
        """Fill in the places of those that are here."""
        at = np.minimum(np.searchsorted(self.digests[:, 0], wanted[:, 0]), len(self.digests) - 1)
        here = (self.digests[at] == wanted).all(axis=1)
        found[here] = self.places[at[here]]


@dataclass
class VectorCache:
    """The vectors of one space; threads may share it."""

    store: Store
    space: Space
    _paths: list[str] = field(default_factory=list)
    _segments: list[_Segment] = field(default_factory=list)
    _files: LruCache[str, Matrix | None] = field(default_factory=lambda: LruCache(_OPEN_FILES))
    _lock: Lock = field(default_factory=Lock)

    def refresh(self) -> None:
        """Learn what others have added."""
        paths = _key_paths(self.store, self.space.folder)
        with self._lock:
            noted = set(self._paths)
            new = [path for path in paths if path not in noted]
            for path, keys in zip(new, _read_all(self.store, new), strict=True):
                self._note(path, keys)

    def find(self, digests: Words) -> Places:
        """Return where the vectors of texts are, as far as they are known."""
        found = np.full((len(digests), 2), -1, np.int64)
        with self._lock:
            segments = list(self._segments)
        for segment in segments:
            segment.find(digests, found)
        return found

    def read(self, digests: Words, vectors: Matrix) -> NDArray[np.bool_]:
        """Fill in the vectors of the texts that are known, and tell which these are."""
        places = self.find(digests)
        is_known = places[:, 0] >= 0
        for file in np.unique(places[is_known, 0]).tolist():
            rows = np.flatnonzero(places[:, 0] == file)
            stored = self.vectors_of(self._paths[file])
            if stored is None or len(stored) <= places[rows, 1].max():
                # Somebody took the file away, or it is damaged; the texts are asked for again.
                is_known[rows] = False
            else:
                vectors[rows] = stored[places[rows, 1]]
        return is_known

    def add(self, digests: Words, vectors: Matrix) -> None:
        """Keep vectors of texts, durably."""
        if len(digests) == 0:
            return
        stem = f"{self.space.folder}/{new_ulid()}"
        keys = np.column_stack([digests, vector_prints(vectors)])
        self.store.objects.write(stem + _VECTORS, _packed(vectors))
        self.store.objects.write(stem + _KEYS, _packed(keys))
        with self._lock:
            if stem + _KEYS not in self._paths:
                self._note(stem + _KEYS, keys)

    def _note(self, path: str, keys: Words) -> None:
        self._paths.append(path)
        if len(keys) == 0:
            return
        rows = np.arange(len(keys), dtype=np.int64)
        places = np.column_stack([np.full(len(keys), len(self._paths) - 1, np.int64), rows])
        self._segments.append(_Segment.of(keys[:, :2], places))
        # Few segments, each larger than the next: a text is found in a few steps, and added at a small cost.
        while len(self._segments) > 1 and len(self._segments[-2].digests) <= 2 * len(self._segments[-1].digests):
            last, before = self._segments.pop(), self._segments.pop()
            merged = np.concatenate([before.digests, last.digests]), np.concatenate([before.places, last.places])
            self._segments.append(_Segment.of(*merged))

    def vectors_of(self, keys_path: str) -> Matrix | None:
        """Return the vectors of a file, if they are the ones that its keys are for."""
        path = keys_path.removesuffix(_KEYS) + _VECTORS
        return self._files.get_or_create(path, partial(self._read_vectors, keys_path, path))

    def _read_vectors(self, keys_path: str, path: str) -> Matrix | None:
        [keys] = _read_all(self.store, [keys_path])
        body = self.store.objects.read_if_exists(path)
        vectors = None if body is None else _unpacked(body)
        if vectors is None or vectors.dtype != np.float32 or vectors.shape != (len(keys), self.space.dimension):
            return None
        return vectors if np.array_equal(vector_prints(vectors), keys[:, 2]) else None


def tidy(store: Store, spaces: Iterable[Space | None]) -> None:
    """Fold the files of some spaces; work that is done does not fail over it, as small files are only slower."""
    for space in set(spaces):
        if space is not None:
            with suppress(OmniGraphError):
                fold(store, space)


def fold(store: Store, space: Space) -> None:
    """Put the vectors of many small files into few larger ones."""
    # The header of a file, and three numbers of eight bytes for each text.
    small_bytes = 128 + 24 * EMBED_WINDOW_TEXTS // 16
    listed = store.objects.list(space.folder)
    small = [one.path for one in listed if one.path.endswith(_KEYS) and one.size_bytes <= small_bytes]
    if len(small) <= EMBED_CACHE_FILES_MAX:
        return
    for start in range(0, len(small), EMBED_CACHE_FILES_MAX):
        _fold(VectorCache(store, space), small[start : start + EMBED_CACHE_FILES_MAX])


def _fold(cache: VectorCache, paths: Sequence[str]) -> None:
    keys = _read_all(cache.store, paths)
    files = [cache.vectors_of(path) for path in paths]
    whole = [(one[:, :2], found) for one, found in zip(keys, files, strict=True) if found is not None]
    if whole:
        cache.add(np.concatenate([one for one, _ in whole]), np.concatenate([found for _, found in whole]))
    # Keys go first: what leads to nothing is worse than what nothing leads to. Whoever still reads asks again.
    for path in paths:
        cache.store.objects.delete(path)
        cache.store.objects.delete(path.removesuffix(_KEYS) + _VECTORS)


def _key_paths(store: Store, folder: str) -> list[str]:
    return [one.path for one in store.objects.list(folder) if one.path.endswith(_KEYS)]


def _read_all(store: Store, paths: Sequence[str]) -> list[Words]:
    return store.in_parallel([partial(_read_keys, store, path) for path in paths]) if paths else []


def _read_keys(store: Store, path: str) -> Words:
    body = store.objects.read_if_exists(path)
    keys = None if body is None else _unpacked(body)
    if keys is None or keys.dtype != np.uint64 or keys.ndim != 2 or keys.shape[1] != 3:
        # What a power cut left is as good as nothing.
        return np.empty((0, 3), np.uint64)
    return keys


def _packed(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _unpacked(body: bytes) -> NDArray[Any] | None:
    try:
        found: NDArray[Any] = np.load(io.BytesIO(body), allow_pickle=False)
    except (ValueError, EOFError, OSError):
        return None
    return found
