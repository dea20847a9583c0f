"""Embedding cache beside a graph: vectors by text hash, shared by all branches and later runs.

Files are immutable and uniquely named, vectors before the keys that refer to them, so concurrent writers are safe and a
crash loses at most the file being written. The cache may be deleted at any time.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from functools import partial
from hashlib import blake2b
from operator import add
from threading import Lock
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.key_buckets.hashes import mix_bits
from omnigraph.engine.query.embedders import Embedder, Matrix, Purpose
from omnigraph.errors import OmniGraphError
from omnigraph.ids import new_ulid
from omnigraph.limits import (
    EMBED_CACHE_FILES_MAX,
    EMBED_REQUEST_BYTES_MAX,
    EMBED_REQUESTS_MAX,
    EMBED_TEXTS_MAX,
    EMBED_WINDOW_TEXTS,
)
from omnigraph.lru import LruCache
from omnigraph.public_values import PublicValue, named
from omnigraph.store.store import Store

Hashes = NDArray[np.uint64]

_DIGEST_BYTES: Final = 16
_SLICE_ROWS: Final = 1_024
_U64: Final = np.uint64
_PARSER: Final = Lock()


def text_digests(texts: Sequence[str]) -> Hashes:
    """Return a 128-bit hash of each text as two integers.

    >>> text_digests(["a", "b", "a"]).shape
    (3, 2)
    """
    # A collision would silently give a wrong vector, so the hash must be cryptographic.
    joined = b"".join(blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest() for text in texts)
    return np.frombuffer(joined, "<u8").reshape(len(texts), 2).astype(np.uint64)


def vector_fingerprints(vectors: Matrix) -> Hashes:
    """Return a 64-bit fingerprint of each vector; equal numbers give equal fingerprints.

    >>> one, other, again = vector_fingerprints(np.array([[1, 0], [0, 1], [1, -0.0]], np.float32)).tolist()
    >>> one == again, one == other
    (True, False)
    """
    count, dimension = vectors.shape
    factors = mix_bits(np.arange(1, dimension + 1, dtype=np.uint64)) | _U64(1)
    prints = np.empty(count, np.uint64)
    for start in range(0, count, _SLICE_ROWS):
        # Adding zero makes both zeros the same one; in a damaged file there may be anything.
        with np.errstate(invalid="ignore"):
            bits = (vectors[start : start + _SLICE_ROWS] + np.float32(0)).view(np.uint32)
        prints[start : start + _SLICE_ROWS] = (bits * factors).sum(axis=1, dtype=np.uint64)
    mixed: Hashes = mix_bits(prints)
    return mixed


def pair_fingerprints(prints: Hashes, digests: Hashes) -> Hashes:
    """Return a fingerprint of each vector and the text it was made from."""
    mixed: Hashes = mix_bits(prints ^ mix_bits(digests[:, 0]))
    return mixed


FOLDER: Final = "_embeddings"
_KEYS: Final = ".keys.npy"
_VECTORS: Final = ".vectors.npy"
_OPEN_FILES: Final = 4

# For each text the file and the row in it that hold its vector; -1 where there is none.
VectorLocations = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class VectorSpace:
    """Vectors of one model of one provider, of one length."""

    provider: str
    model: str
    dimension: int

    @classmethod
    def of(cls, embedder: Embedder, dimension: int) -> VectorSpace:
        return cls(embedder.name, embedder.model, dimension)

    @property
    def folder(self) -> str:
        named = blake2b(f"{self.provider}\0{self.model}".encode(), digest_size=8).hexdigest()
        return f"{FOLDER}/{self.dimension}-{named}"


@dataclass(frozen=True, slots=True)
class GeneratedVectors:
    """Fingerprints of vectors that OmniGraph generated, alone and with their texts; both sorted."""

    prints: Hashes
    pairs: Hashes


def read_generated(store: Store, dimension: int, space: VectorSpace | None = None) -> GeneratedVectors:
    """Return the generated vectors of a dimension; with a space, text pairs of that space only."""
    paths = [path for path in _key_paths(store, FOLDER) if path.startswith(f"{FOLDER}/{dimension}-")]
    files = dict(zip(paths, _read_key_files(store, paths), strict=True))
    counted = [keys for path, keys in files.items() if space is None or path.startswith(f"{space.folder}/")]
    no_keys = np.empty((0, 3), np.uint64)
    keys, space_keys = np.concatenate([no_keys, *files.values()]), np.concatenate([no_keys, *counted])
    return GeneratedVectors(np.unique(keys[:, 2]), np.unique(pair_fingerprints(space_keys[:, 2], space_keys[:, :2])))


@dataclass(frozen=True, slots=True)
class _Segment:
    """Digests sorted by their first half, and the locations of their vectors."""

    digests: Hashes
    locations: VectorLocations

    @classmethod
    def of(cls, digests: Hashes, locations: VectorLocations) -> _Segment:
        order = np.argsort(digests[:, 0], kind="stable")
        return cls(digests[order], locations[order])

    def find(self, digests: Hashes, locations: VectorLocations) -> None:
        """Fill in the locations of the digests that are in this index."""
        positions = np.minimum(np.searchsorted(self.digests[:, 0], digests[:, 0]), len(self.digests) - 1)
        is_match = (self.digests[positions] == digests).all(axis=1)
        locations[is_match] = self.locations[positions[is_match]]


@dataclass
class VectorCache:
    """The vectors of one space; threads may share it."""

    store: Store
    space: VectorSpace
    _paths: list[str] = field(default_factory=list)
    _segments: list[_Segment] = field(default_factory=list)
    _files: LruCache[str, Matrix | None] = field(default_factory=lambda: LruCache(_OPEN_FILES))
    _lock: Lock = field(default_factory=Lock)

    def refresh(self) -> None:
        """Load keys that other processes have added."""
        paths = _key_paths(self.store, self.space.folder)
        with self._lock:
            known_paths = set(self._paths)
            new = [path for path in paths if path not in known_paths]
            for path, keys in zip(new, _read_key_files(self.store, new), strict=True):
                self._note(path, keys)

    def find(self, digests: Hashes) -> VectorLocations:
        """Return the locations of the cached vectors of texts."""
        locations = np.full((len(digests), 2), -1, np.int64)
        with self._lock:
            segments = list(self._segments)
        for segment in segments:
            segment.find(digests, locations)
        return locations

    def read(self, digests: Hashes, vectors: Matrix) -> NDArray[np.bool_]:
        """Fill in the cached vectors of texts, and return a mask of them."""
        locations = self.find(digests)
        is_known = locations[:, 0] >= 0
        for file in np.unique(locations[is_known, 0]).tolist():
            rows = np.flatnonzero(locations[:, 0] == file)
            stored = self.vectors_of(self._paths[file])
            if stored is None or len(stored) <= locations[rows, 1].max():
                # The file was deleted or is damaged; request the texts again.
                is_known[rows] = False
            else:
                vectors[rows] = stored[locations[rows, 1]]
        return is_known

    def add(self, digests: Hashes, vectors: Matrix) -> None:
        """Keep vectors of texts, durably."""
        if len(digests) == 0:
            return
        stem = f"{self.space.folder}/{new_ulid()}"
        keys = np.column_stack([digests, vector_fingerprints(vectors)])
        self.store.objects.write(stem + _VECTORS, _encode_npy(vectors))
        self.store.objects.write(stem + _KEYS, _encode_npy(keys))
        with self._lock:
            if stem + _KEYS not in self._paths:
                self._note(stem + _KEYS, keys)

    def _note(self, path: str, keys: Hashes) -> None:
        self._paths.append(path)
        if len(keys) == 0:
            return
        rows = np.arange(len(keys), dtype=np.int64)
        locations = np.column_stack([np.full(len(keys), len(self._paths) - 1, np.int64), rows])
        self._segments.append(_Segment.of(keys[:, :2], locations))
        # Log-structured merge: each segment is over twice the next, so lookups visit few segments.
        while len(self._segments) > 1 and len(self._segments[-2].digests) <= 2 * len(self._segments[-1].digests):
            last, before = self._segments.pop(), self._segments.pop()
            merged = np.concatenate([before.digests, last.digests]), np.concatenate([before.locations, last.locations])
            self._segments.append(_Segment.of(*merged))

    def vectors_of(self, keys_path: str) -> Matrix | None:
        """Return the vectors of a file, if they match its keys."""
        path = keys_path.removesuffix(_KEYS) + _VECTORS
        return self._files.get_or_create(path, partial(self._read_vectors, keys_path, path))

    def _read_vectors(self, keys_path: str, path: str) -> Matrix | None:
        [keys] = _read_key_files(self.store, [keys_path])
        body = self.store.objects.read_if_exists(path)
        vectors = None if body is None else _decode_npy(body)
        if vectors is None or vectors.dtype != np.float32 or vectors.shape != (len(keys), self.space.dimension):
            return None
        return vectors if np.array_equal(vector_fingerprints(vectors), keys[:, 2]) else None


def compact_caches(store: Store, spaces: Iterable[VectorSpace | None]) -> None:
    """Compact the cache files of some spaces; errors are ignored, since small files are only slower."""
    for space in set(spaces):
        if space is not None:
            with suppress(OmniGraphError):
                compact_cache(store, space)


def compact_cache(store: Store, space: VectorSpace) -> None:
    """Merge many small cache files into few larger ones."""
    # The header of a file, and three numbers of eight bytes for each text.
    small_bytes = 128 + 24 * EMBED_WINDOW_TEXTS // 16
    entries = store.objects.list(space.folder)
    small = [entry.path for entry in entries if entry.path.endswith(_KEYS) and entry.size_bytes <= small_bytes]
    if len(small) <= EMBED_CACHE_FILES_MAX:
        return
    for start in range(0, len(small), EMBED_CACHE_FILES_MAX):
        _merge_files(VectorCache(store, space), small[start : start + EMBED_CACHE_FILES_MAX])


def _merge_files(cache: VectorCache, paths: Sequence[str]) -> None:
    keys = _read_key_files(cache.store, paths)
    files = [cache.vectors_of(path) for path in paths]
    readable = [
        (file_keys[:, :2], vectors) for file_keys, vectors in zip(keys, files, strict=True) if vectors is not None
    ]
    if readable:
        cache.add(
            np.concatenate([file_keys for file_keys, _ in readable]),
            np.concatenate([vectors for _, vectors in readable]),
        )
    # Delete keys first: a dangling key is worse than an orphan vector file. Readers that miss ask the provider.
    for path in paths:
        cache.store.objects.delete(path)
        cache.store.objects.delete(path.removesuffix(_KEYS) + _VECTORS)


def _key_paths(store: Store, folder: str) -> list[str]:
    return [entry.path for entry in store.objects.list(folder) if entry.path.endswith(_KEYS)]


def _read_key_files(store: Store, paths: Sequence[str]) -> list[Hashes]:
    return store.in_parallel([partial(_read_keys, store, path) for path in paths]) if paths else []


def _read_keys(store: Store, path: str) -> Hashes:
    body = store.objects.read_if_exists(path)
    keys = None if body is None else _decode_npy(body)
    if keys is None or keys.dtype != np.uint64 or keys.ndim != 2 or keys.shape[1] != 3:
        # Ignore a file that a crash left incomplete.
        return np.empty((0, 3), np.uint64)
    return keys


def _encode_npy(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _decode_npy(body: bytes) -> NDArray[Any] | None:
    try:
        # NumPy parses the header as Python, which fails in some releases of CPython when two threads do it at once.
        with _PARSER:
            array: NDArray[Any] = np.load(io.BytesIO(body), allow_pickle=False)
    except (ValueError, EOFError, OSError):
        return None
    return array


@dataclass(frozen=True, slots=True)
class EmbedCounts(PublicValue):
    """Counts of an embedding: vectors filled in, texts sent to the provider, cache hits, and vectors cleared."""

    filled: int = 0
    asked: int = field(default=0, metadata=named("texts_asked"))
    cached: int = field(default=0, metadata=named("texts_cached"))
    cleared: int = 0

    def __add__(self, other: EmbedCounts) -> EmbedCounts:
        return EmbedCounts(*map(add, astuple(self), astuple(other)))


def sum_counts(parts: Iterable[Mapping[str, EmbedCounts]]) -> dict[str, EmbedCounts]:
    """Return the sum of what tasks have counted by property."""
    totals: dict[str, EmbedCounts] = {}
    for part in parts:
        for name, counts in part.items():
            totals[name] = totals.get(name, EmbedCounts()) + counts
    return totals


def add_retry_counts(earlier: Mapping[str, EmbedCounts], now: Mapping[str, EmbedCounts]) -> dict[str, EmbedCounts]:
    """Add the counts of a retried task; requests of the failed attempt still count.

    >>> add_retry_counts({"vec": EmbedCounts(filled=2, asked=2)}, {"vec": EmbedCounts(filled=1, cached=1)})["vec"]
    EmbedCounts(filled=1, asked=2, cached=1, cleared=0)
    """
    return sum_counts([now, {name: EmbedCounts(asked=counts.asked) for name, counts in earlier.items()}])


@dataclass(frozen=True)
class VectorFetcher:
    """Makes vectors of one space."""

    cache: VectorCache
    embedder: Embedder

    def vectors(self, texts: pa.Array[Any]) -> tuple[Matrix, EmbedCounts]:
        """Return the vector of each text; raises DataError with rule E13 when the provider does not give one."""
        parts: list[Matrix] = [np.empty((0, self.cache.space.dimension), np.float32)]
        counts = EmbedCounts()
        for start in range(0, len(texts), EMBED_WINDOW_TEXTS):
            vectors, batch_counts = self._window(texts.slice(start, EMBED_WINDOW_TEXTS))
            parts.append(vectors)
            counts += batch_counts
        return np.concatenate(parts), counts

    def _window(self, texts: pa.Array[Any]) -> tuple[Matrix, EmbedCounts]:
        encoded: Any = texts.dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        digests = text_digests(distinct)
        vectors = np.zeros((len(distinct), self.cache.space.dimension), np.float32)
        is_known = self.cache.read(digests, vectors)
        if not is_known.all():
            # Another process may have cached them meanwhile; checking is cheaper than a request.
            self.cache.refresh()
            is_known = self.cache.read(digests, vectors)
        missing = np.flatnonzero(~is_known)
        error = self._ask(distinct, missing, vectors, is_known)
        answered = missing[is_known[missing]]
        self.cache.add(digests[answered], vectors[answered])
        if error is not None:
            raise error
        counts = EmbedCounts(len(texts), len(missing), len(distinct) - len(missing))
        return vectors[encoded.indices.to_numpy()], counts

    def _ask(self, texts: Sequence[str], missing: Any, vectors: Matrix, is_known: Any) -> Exception | None:
        """Fill in the provider's vectors; return the first error, once all requests have ended."""
        requests = _batch_requests(texts, missing.tolist())
        fetch = lambda rows: self.embedder.embed(  # noqa: E731 - it is handed to threads
            [texts[row] for row in rows], self.cache.space.dimension, Purpose.DOCUMENT
        )
        first: Exception | None = None
        with ThreadPoolExecutor(EMBED_REQUESTS_MAX, thread_name_prefix="omnigraph-embed") as pool:
            futures = [pool.submit(fetch, rows) for rows in requests]
            for rows, future in zip(requests, futures, strict=True):
                error = None if future.cancelled() else future.exception()
                if error is None and not future.cancelled():
                    vectors[rows] = future.result()
                    is_known[rows] = True
                elif isinstance(error, Exception) and first is None:
                    first = error
                    # If one request fails, those that have not started would most likely fail as well.
                    pool.shutdown(wait=False, cancel_futures=True)
        return first


def _batch_requests(texts: Sequence[str], rows: Sequence[int]) -> list[list[int]]:
    """Share texts out among requests that are neither too many texts nor too many bytes.

    >>> _batch_requests(["a", "b"], [0, 1])
    [[0, 1]]
    """
    requests: list[list[int]] = []
    size = 0
    for row in rows:
        text_bytes = len(texts[row].encode())
        if not requests or len(requests[-1]) == EMBED_TEXTS_MAX or size + text_bytes > EMBED_REQUEST_BYTES_MAX:
            requests.append([])
            size = 0
        requests[-1].append(row)
        size += text_bytes
    return requests
