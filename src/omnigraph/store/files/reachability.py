"""Reachability: which files the kept versions of a dataset need, computed twice by independent means.

`NeededFiles` follows the manifests' own content and the rules by which we write; `TrackedFiles` is what Lance lists. A
file is deleted only when neither reaches it. Read-only; callers decide what to delete.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.errors import StorageError, StorageKind
from omnigraph.limits import REACH_BATCH_VERSIONS
from omnigraph.store.files.manifest_file import (
    ManifestContent,
    NamedFile,
    UnknownManifest,
    decode_fragment,
    decode_manifest,
    path_inside,
)
from omnigraph.store.objects.backend import ObjectInfo
from omnigraph.store.read.dataset import MAX_VERSION, DatasetRef, lance_errors
from omnigraph.store.store import Store


@dataclass(frozen=True, slots=True)
class StoredManifest:
    """A manifest in storage, and the directory that its names are relative to; a staged one has another name."""

    directory: str
    path: str

    @property
    def dataset(self) -> str:
        return self.directory.partition("/tree/")[0]

    @classmethod
    def of(cls, ref: DatasetRef) -> StoredManifest:
        return cls(ref.directory, ref.manifest_path)


@dataclass
class NeededFiles:
    """Everything that some versions need: files by name, and folders that stay with all that is in them."""

    files: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)
    _decoded: set[bytes] = field(default_factory=set)

    def add(self, manifest: StoredManifest, raw: bytes) -> None:
        """Add what one version needs; `UnknownManifest` when that is not certain."""
        self.add_content(manifest, decode_manifest(raw))

    def add_content(self, manifest: StoredManifest, content: ManifestContent) -> None:
        """Add what one version needs, by its decoded manifest."""
        directories = {base: inherited_directory(manifest.dataset, path) for base, path in content.bases.items()}
        self._add_named(content.others, manifest.directory, directories)
        # A fragment names the same files in every version of the same place.
        context = repr((manifest.directory, sorted(directories.items()))).encode()
        for fragment in content.fragments:
            # Memoised by content: a fragment is decoded once, however many versions list it.
            key = blake2b(fragment, digest_size=16, key=blake2b(context, digest_size=16).digest()).digest()
            if key not in self._decoded:
                self._decoded.add(key)
                self._add_named(decode_fragment(fragment), manifest.directory, directories)
        self.files.add(manifest.path)

    def _add_named(self, named: Iterable[NamedFile], directory: str, directories: dict[int, str]) -> None:
        for file in named:
            # Unknown means keep: an uninterpretable name could be that of any file, so the dataset is left alone.
            if file.base is not None and file.base not in directories:
                raise UnknownManifest(f"it names a file of the unknown place {file.base}")
            path = f"{directory if file.base is None else directories[file.base]}/{file.path}"
            (self.folders if path.endswith("/") else self.files).add(path)

    def update(self, other: NeededFiles) -> None:
        self.files |= other.files
        self.folders |= other.folders

    def covers(self, path: str) -> bool:
        # An index, and the blobs beside a data file, are needed as folders: manifests do not name the files in them.
        return path in self.files or any(f"{folder}/" in self.folders for folder in _ancestors(path))


def inherited_directory(dataset: str, base: str) -> str:
    """Return a directory that a fork inherits files from, relative to the graph's root.

    Everything that a fork inherits lies in its own dataset, so an absolute path is known by its end, wherever the graph
    was when the fork was made.

    >>> inherited_directory("nodes/1", "/old/nodes/1/tree/f"), inherited_directory("nodes/1", "s3://b/g/nodes/1")
    ('nodes/1/tree/f', 'nodes/1')
    """
    inside = path_inside(dataset, base)
    if inside is None:
        raise UnknownManifest(f"it inherits files from `{base}`, which is not in `{dataset}`")
    return f"{dataset}/{inside}".rstrip("/")


def _ancestors(path: str) -> Iterable[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def read_needed(
    store: Store, manifests: Mapping[str, Sequence[StoredManifest]], known: Mapping[str, NeededFiles]
) -> dict[str, NeededFiles | UnknownManifest]:
    """Return what the versions of each dataset need, or why that is not certain.

    One request for each version that is not among those of `known`, which were read for another purpose.
    """
    needed: dict[str, NeededFiles | UnknownManifest] = {path: known.get(path) or NeededFiles() for path in manifests}
    unread = {
        path: [manifest for manifest in stored_manifests if path not in known or manifest.path not in known[path].files]
        for path, stored_manifests in manifests.items()
    }
    tasks = [
        partial(_read_batch, store, path, stored_manifests[begin : begin + REACH_BATCH_VERSIONS])
        for path, stored_manifests in unread.items()
        for begin in range(0, len(stored_manifests), REACH_BATCH_VERSIONS)
    ]
    for path, part in store.in_parallel(tasks):
        so_far = needed[path]
        # One version that cannot be interpreted keeps the whole dataset: a partial mark would delete live files.
        if isinstance(part, UnknownManifest):
            needed[path] = part
        elif isinstance(so_far, NeededFiles):
            so_far.update(part)
    return needed


def _read_batch(
    store: Store, path: str, manifests: Sequence[StoredManifest]
) -> tuple[str, NeededFiles | UnknownManifest]:
    needed = NeededFiles()
    for manifest in manifests:
        try:
            needed.add(manifest, _read_manifest(store, manifest.path))
        except UnknownManifest as error:
            return path, UnknownManifest(f"`{manifest.path}` cannot be interpreted: {error}")
    return path, needed


def _read_manifest(store: Store, path: str) -> bytes:
    try:
        return store.objects.read(path)
    except StorageError as error:
        final, is_staged, _ = path.rpartition(".manifest-")
        if error.storage_kind is not StorageKind.NOT_FOUND or not is_staged:
            raise
        # Another process has linked it since it was listed: the same bytes have their final name.
        return store.objects.read(f"{final}.manifest")


@dataclass
class TrackedFiles:
    """What Lance lists for some versions.

    Compared by name and by the unique part of a name wherever it stands in a path: the list leaves out files that go
    with a listed one, as the blobs beside a data file.
    """

    versions: set[int] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)

    def reaches(self, path: str) -> bool:
        """Return True if a stored file may belong to a listed one."""
        return path in self.paths or any(segment.partition(".")[0] in self.tokens for segment in path.split("/"))

    def update(self, other: TrackedFiles) -> None:
        self.paths |= other.paths
        self.tokens |= other.tokens

    def add(self, rows: pa.Table, dataset: str) -> None:
        """Add rows of Lance's list; each file comes with the absolute path of its directory."""
        # Distinct before Python sees them: a file is listed once for every version that has it.
        self.versions.update(map(int, pc.unique(rows["version"]).to_numpy()))
        named = rows.group_by(["base_uri", "path", "type"]).aggregate([])
        for base, path, kind in zip(*(named[name].to_pylist() for name in ("base_uri", "path", "type")), strict=True):
            self.paths.add(f"{inherited_directory(dataset, base)}/{path}")
            if kind == "data file":
                self.tokens.add(path.rpartition("/")[2].partition(".")[0])
            elif kind == "index file":
                self.tokens.add(path.removeprefix("_indices/").partition("/")[0])


def list_tracked(
    store: Store, path: str, fork: str | None, kept: Collection[int], gone: Collection[int]
) -> tuple[TrackedFiles, TrackedFiles, TrackedFiles]:
    """Return what Lance lists for the kept versions of a dataset or fork, for those that go, and for all others.

    The others were published after storage was listed.
    """
    newest = store.open_latest(path, fork)
    # Read after storage was listed, so a version published in between is in the third part and protects its files.
    tracked = (TrackedFiles(), TrackedFiles(), TrackedFiles())
    chosen = [np.array(sorted(chosen_versions), np.uint64) for chosen_versions in (kept, gone)]
    with lance_errors(f"listing the files of {newest.ref}"):
        for rows in _gathered(newest.lance.tracked_files()):
            versions = rows["version"].to_numpy().astype(np.uint64)
            is_kept, is_gone = (_is_among(versions, numbers) for numbers in chosen)
            for part, mask in zip(tracked, (is_kept, is_gone, ~(is_kept | is_gone)), strict=True):
                part.add(rows.filter(pa.array(mask)), path)
    return tracked


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the batches of several versions as one table, since Lance has a small batch for each version.

    Not all at once: a long history lists the same names over and over.
    """
    waiting = iter(batches)
    while group := list(islice(waiting, REACH_BATCH_VERSIONS)):
        # Each batch brings dictionaries of its own, which a grouping does not unify by itself.
        yield pa.Table.from_batches(group).unify_dictionaries()


def _is_among(numbers: NDArray[np.uint64], sorted_values: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return which numbers are among sorted ones, at a cost that hardly grows with these."""
    positions = np.searchsorted(sorted_values, numbers)
    mask = positions < len(sorted_values)
    mask[mask] = sorted_values[positions[mask]] == numbers[mask]
    return mask


# A dataset or one of its forks.
DatasetFork = tuple[str, str | None]

_MANIFEST: Final = re.compile(r"(?P<path>.+?)(?:/tree/(?P<fork>[^/]+))?/_versions/(?P<number>\d{20})\.manifest")


def manifest_ref(path: str) -> DatasetRef | None:
    """Return the version that a stored file is the manifest of, by its name; None for any other or a staged one."""
    match = _MANIFEST.fullmatch(path)
    return None if match is None else DatasetRef(match["path"], match["fork"], MAX_VERSION - int(match["number"]))


def versions_of(objects: Iterable[ObjectInfo]) -> dict[DatasetFork, dict[int, int]]:
    """Return when each listed version was written, by dataset or fork and by number; staged ones do not count.

    >>> versions_of([ObjectInfo("nodes/a/tree/B/_versions/18446744073709551613.manifest", 1, 5)])
    {('nodes/a', 'B'): {2: 5}}
    """
    versions: dict[DatasetFork, dict[int, int]] = {}
    for info in objects:
        if (ref := manifest_ref(info.path)) is not None:
            versions.setdefault((ref.path, ref.branch), {})[ref.version] = info.modified_us
    return versions


def stored_versions(store: Store, path: str, fork: str | None) -> set[int]:
    """List the versions that a dataset or fork has by path; staged ones do not count."""
    objects = store.objects.list(f"{DatasetRef(path, fork, 0).directory}/_versions")
    return set(versions_of(objects).get((path, fork), ()))


def missing_files(store: Store, manifest: StoredManifest) -> list[str]:
    """Return the files that a stored version needs and storage does not hold."""
    raw = store.objects.read_if_exists(manifest.path)
    if raw is None:
        return [manifest.path]
    needed = NeededFiles()
    needed.add(manifest, raw)
    stored = {info.path for info in store.objects.list(dataset_of(manifest.path))}
    # A manifest holds a copy of its transaction, whose own file is not synced: a power cut may take it.
    return sorted(path for path in needed.files - stored if "/_transactions/" not in path)


_LISTED_FORKS: Final = "_refs/branches/"


def dataset_of(path: str) -> str:
    """Return the dataset that a file belongs to by its path, or its first folder.

    >>> dataset_of("nodes/a/data/f.lance"), dataset_of("__manifest/_versions/1.manifest")
    ('nodes/a', '__manifest')
    """
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] in ("nodes", "edges") else parts[0]


def fork_of(path: str, dataset: str) -> str | None:
    """Return the fork that a file of a dataset belongs to, also its entry in Lance's list; None is the dataset itself.

    >>> fork_of("nodes/a/tree/B-1-x/data/f.lance", "nodes/a"), fork_of("nodes/a/data/f.lance", "nodes/a")
    ('B-1-x', None)
    >>> fork_of("nodes/a/_refs/branches/B-1-x.json", "nodes/a")
    'B-1-x'
    """
    inside = path.removeprefix(f"{dataset}/")
    if inside.startswith(_LISTED_FORKS):
        return inside.removeprefix(_LISTED_FORKS).removesuffix(".json")
    return inside.split("/")[1] if inside.startswith("tree/") else None


def is_kept_by_lance(path: str, dataset: str, live_forks: Collection[str | None]) -> bool:
    """Return True if Lance itself owns a file that no version lists: the version hint and the name of a live fork."""
    is_own = path.startswith(f"{dataset}/{_LISTED_FORKS}") or path.endswith("/latest_version_hint.json")
    return is_own and fork_of(path, dataset) in live_forks
