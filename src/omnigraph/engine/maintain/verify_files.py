"""Compare stored files with the checksums recorded when they were written.

On a disk all bytes are read. An object store checks its own bytes, so one listing with ETags shows whether the objects
are unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from threading import Lock
from typing import Final, TypeAlias, TypeVar

from omnigraph.errors import GraphError, OmniGraphError
from omnigraph.ids import CommitId
from omnigraph.limits import VERIFY_BATCH_FILES
from omnigraph.manifest import encoding, history
from omnigraph.manifest.history import LOG_PATH
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MANIFEST_PATH, Commit, Pin
from omnigraph.manifest.recovery import AUDIT_PATH
from omnigraph.store.append_log import recorded_checksums
from omnigraph.store.files.manifest_file import UnknownManifest, decode_manifest
from omnigraph.store.files.reachability import manifest_ref
from omnigraph.store.objects.backend import ObjectInfo
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.read.live_rows import deletion_paths
from omnigraph.store.write.file_proof import (
    ChecksumKind,
    etag_checksum,
    is_inlined,
    path_key,
    read_overwritten_checksums,
    unpack,
)

# Recorded checksums, by the key of a path.
Recorded: TypeAlias = dict[int, tuple[ChecksumKind, int]]

T = TypeVar("T")
_LOGS: Final = (LOG_PATH, AUDIT_PATH)
_FOLDERS: Final = ("data", "_deletions", "_indices", "_versions")


@dataclass(frozen=True, slots=True)
class FilesReport:
    """How many files were compared with their checksums, how many have none, and what is wrong, by path."""

    checked: int
    unchecked: int
    faults: Mapping[str, str]


def verify_files(kernel: Kernel, pins: Iterable[Pin]) -> FilesReport:
    """Compare all files with their checksums; `pins` have the checksums of published dataset versions."""
    infos = {info.path: info for info in kernel.store.objects.list("") if _is_covered(info.path)}
    catalogs = [path for path in infos if path.startswith(f"{MANIFEST_PATH}/") and path.endswith(".manifest")]
    recorded: Recorded = {}
    faults: dict[str, str] = {}
    try:
        for commit in kernel.all_commits().values():
            add_packed(recorded, commit.checksums)
    except OmniGraphError as error:
        faults[LOG_PATH] = f"history cannot be read, and with it checksums: {error.message}"
    # Retained versions have the checksums of what they publish; the oldest of them also pin what came before.
    oldest = kernel.store.in_parallel([partial(_oldest_pins, kernel, path) for path in _oldest(catalogs)])
    for pin in chain(*oldest, pins):
        _add_text(recorded, pin.ref.manifest_path, pin.checksum)
    for log in _LOGS:
        try:
            add_packed(recorded, recorded_checksums(kernel.store, log))
        except OmniGraphError as error:
            faults[log] = error.message
    read = partial(_catalog_checksums, kernel)
    for path, checksums in zip(catalogs, _run_batched(kernel, catalogs, read), strict=True):
        if isinstance(checksums, OmniGraphError):
            faults[path] = checksums.message
            continue
        add_packed(recorded, checksums.rows)
        for version, checksum in checksums.versions.items():
            _add_text(recorded, version, checksum)
    paths_with_checksum = [path for path in infos if path_key(path) in recorded]
    overwritten = read_overwritten_checksums(kernel.store)

    def compare(path: str) -> str | None:
        return find_fault(kernel, infos[path], recorded, overwritten)

    compared = dict(zip(paths_with_checksum, _run_batched(kernel, paths_with_checksum, compare), strict=True))
    faults |= {path: fault for path, fault in compared.items() if fault}
    faults |= dict(_transaction_faults(kernel, infos))
    checked = sum(fault is not None for fault in compared.values())
    return FilesReport(checked, len(infos) - checked, faults)


def _is_covered(path: str) -> bool:
    """Return True if a file belongs to a dataset of the graph and is neither staged, detached nor a Lance hint."""
    parts = path.split("/")
    is_dataset_file = parts[0] in ("nodes", "edges", MANIFEST_PATH, *_LOGS) and not set(parts).isdisjoint(_FOLDERS)
    return is_dataset_file and ("_versions" not in parts or manifest_ref(path) is not None)


def _oldest(catalogs: Iterable[str]) -> list[str]:
    """Return the path of the oldest version of each branch; names are newest first."""
    by_folder: dict[str, str] = {}
    for path in sorted(catalogs):
        by_folder[path.rpartition("/")[0]] = path
    return list(by_folder.values())


def _oldest_pins(kernel: Kernel, path: str) -> Sequence[Pin]:
    try:
        return [*kernel.at_ref(_version(path)).state.pins.values()]
    except OmniGraphError:
        # Faults of this file are reported when it is checked itself.
        return ()


def _version(path: str) -> DatasetRef:
    ref = manifest_ref(path)
    assert ref is not None, "only numbered versions are covered"
    return ref


def _catalog_checksums(kernel: Kernel, path: str) -> encoding.FileChecksums | OmniGraphError:
    try:
        # Rows are not read here: their file has its own checksum.
        return encoding.checksums_of(kernel.store.open(_version(path)).schema)
    except OmniGraphError as error:
        return error
    except ValueError as error:
        return GraphError(f"its metadata is damaged: {error}", code="graph.corrupt")


def find_fault(
    kernel: Kernel, info: ObjectInfo, recorded: Recorded, overwritten: Mapping[int, Collection[int]]
) -> str | None:
    """Return what is wrong with a file, an empty string if nothing is, or None if its ETag cannot be compared."""
    path = info.path
    kind, checksum = recorded[path_key(path)]
    try:
        # Cheapest first: an ETag is in the listing, and an object that kept its ETag kept its bytes.
        if kind is ChecksumKind.ETAG and info.e_tag is not None and etag_checksum(info.e_tag) == checksum:
            return ""
        digests = kernel.store.objects.digests(path)
    except OmniGraphError as error:
        return error.message
    contents = overwritten.get(path_key(path), ())
    if digests.crc32 in contents or (kind is ChecksumKind.CONTENT and digests.crc32 == checksum):
        return ""
    # A copy of an object has its ETag only where that is the MD5 of the bytes.
    if kind is ChecksumKind.ETAG and etag_checksum(digests.md5) == checksum:
        return ""
    is_copy = kind is ChecksumKind.ETAG and not contents and ("/_versions/" in path or info.e_tag is None)
    return None if is_copy and (info.e_tag or "").strip('"') != digests.md5 else _DAMAGED


_DAMAGED: Final = "its bytes are not those that were written; restore it from a backup"


def _transaction_faults(kernel: Kernel, infos: Mapping[str, ObjectInfo]) -> Iterator[tuple[str, str]]:
    """Yield transaction files that differ from the copy inside their manifest; where files may be cut short."""
    if kernel.store.root.kind.keeps_objects_whole:
        return
    for path in (path for path in infos if path.endswith(".manifest")):
        manifest = kernel.store.objects.read_if_exists(path)
        if (log := _log_of(path, manifest or b"")) is None:
            continue
        # Others of the same number are leftovers: of a writer that died, or of the beginning of a fork.
        copy = kernel.store.objects.read_if_exists(log)
        if manifest and copy is not None and not is_inlined(copy, manifest):
            yield log, "it is not the transaction that its version was made by"


def _log_of(path: str, manifest: bytes) -> str | None:
    """Return the file of the transaction that a manifest names; None if it names none or cannot be read."""
    with suppress(UnknownManifest):
        for file in decode_manifest(manifest).others:
            if file.path.startswith("_transactions/"):
                return f"{path.partition('/_versions/')[0]}/{file.path}"
    return None


def _run_batched(kernel: Kernel, paths: list[str], work: Callable[[str], T]) -> list[T]:
    """Run `work` on every file, in parallel batches, and return the results in the order of the paths."""

    def run_batch(start: int) -> list[T]:
        return [work(path) for path in paths[start : start + VERIFY_BATCH_FILES]]

    starts = range(0, len(paths), VERIFY_BATCH_FILES)
    return list(chain.from_iterable(kernel.store.in_parallel([partial(run_batch, start) for start in starts])))


def add_packed(recorded: Recorded, text: str) -> None:
    """Add the checksums recorded by a commit or log."""
    if text:
        kind, checksums = unpack(text)
        recorded.update({key: (kind, checksum) for key, checksum in checksums.items()})


def _add_text(recorded: Recorded, path: str, text: str | None) -> None:
    if text is not None:
        kind, _, checksum = text.partition(":")
        recorded[path_key(path)] = (ChecksumKind(kind), int(checksum, 16))


@dataclass
class DeletionChecksums:
    """Compares deletion files with the checksums in commits: each file once, reading the commit log on demand."""

    kernel: Kernel
    _recorded: Recorded = field(default_factory=dict)
    _added_commits: set[CommitId] = field(default_factory=set)
    _faults: dict[str, str | None] = field(default_factory=dict)
    _is_log_read: bool = False
    _lock: Lock = field(default_factory=Lock)

    def add(self, commits: Iterable[Commit]) -> None:
        """Add the checksums of commits that the caller has loaded."""
        for commit in commits:
            if commit.commit_id not in self._added_commits:
                self._added_commits.add(commit.commit_id)
                add_packed(self._recorded, commit.checksums)

    def find_faults(self, dataset: Dataset) -> list[str]:
        """Return what is wrong with the deletion files of a version; files without a checksum are skipped."""
        faults = [(path, self._find_fault(path)) for path in deletion_paths(dataset)]
        return [f"`{path}`: {fault}" for path, fault in faults if fault]

    def _find_fault(self, path: str) -> str | None:
        with self._lock:
            if path in self._faults:
                return self._faults[path]
            if path_key(path) not in self._recorded and not self._is_log_read:
                self.add(history.read(self.kernel.store).values())
                self._is_log_read = True
            is_recorded = path_key(path) in self._recorded
        info = self.kernel.store.objects.info(path) if is_recorded else None
        # A missing file is reported when its rows are read.
        fault = None if info is None else find_fault(self.kernel, info, self._recorded, self._overwritten)
        with self._lock:
            return self._faults.setdefault(path, fault)

    @cached_property
    def _overwritten(self) -> dict[int, set[int]]:
        return read_overwritten_checksums(self.kernel.store)
