"""Purges: the values of properties and types that were dropped for good, overwritten in every file that holds them.

Values of a property are overwritten in place, so that all commits, tags and branches stay readable without them; of a
type, every file is overwritten. Files keep their names and sizes, so no reference has to change.

A field id says which property a column of a file holds only together with the version that reads the file: a dataset
that is overwritten numbers its columns again, and each fork goes on numbering on its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from omnigraph.engine.embed.cache import FOLDER
from omnigraph.errors import OmniGraphError, StorageError, StorageKind
from omnigraph.lang.schema import catalog_of
from omnigraph.limits import PURGE_BATCH_BYTES, STAGED_SECONDS_MAX
from omnigraph.manifest.intents import CLEANUP, pending
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, MANIFEST_PATH, Purge
from omnigraph.manifest.plan import CommitPolicy, Plan
from omnigraph.manifest.updates import SetPurges
from omnigraph.public_values import PublicValue, named
from omnigraph.store.files.reachability import manifest_ref
from omnigraph.store.files.shredding import Span, Unread, fields_in, file_stem, open_versions, shred_columns
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.store import Store
from omnigraph.store.write.file_proof import record_overwritten


@dataclass(frozen=True, slots=True)
class Purged(PublicValue):
    """The outcome for one hard-dropped type or property.

    `is_done` means that no file holds its values. Otherwise there is an error, or writers from before the drop may
    still be running, and the next cleanup retries.
    """

    name: str = field(metadata=named("dropped"))
    files: int = field(default=0, metadata=named("files_overwritten"))
    bytes: int = field(default=0, metadata=named("bytes_overwritten"))
    is_done: bool = False
    error: str | None = None


def preview_purges(kernel: Kernel) -> tuple[Purged, ...]:
    """Return the hard drops whose bytes the next cleanup overwrites."""
    return tuple(Purged(purge.name) for purge in _unfinished(kernel))


def purge(kernel: Kernel, now_us: int) -> tuple[Purged, ...]:
    """Erase the values of hard drops that earlier cleanups have not finished.

    `now_us` is storage's time, as in every decision about deletion.
    """
    waiting = _unfinished(kernel)
    purged: list[Purged] = []
    finished: list[Purge] = []
    for drop in sorted(waiting, key=lambda drop: (drop.path, drop)):
        files, size, error, is_complete = _overwrite(kernel, drop)
        is_done = error is None and is_complete and _is_settled(kernel, drop, now_us)
        purged.append(Purged(drop.name, files, size, is_done, error))
        finished += [replace(drop, is_done=True)] if is_done else []
    if finished:
        try:
            kernel.commit(MAIN, lambda _: Plan(None, updates=(SetPurges(tuple(finished)),)), CommitPolicy.CONTROL)
        except StorageError as error:
            # The bytes are erased; the next cleanup records that once there is space.
            if error.storage_kind is not StorageKind.FULL:
                raise
            purged = [replace(outcome, is_done=False, error=outcome.error or error.message) for outcome in purged]
    return tuple(purged)


def _unfinished(kernel: Kernel) -> list[Purge]:
    return sorted(purge for purge in kernel.snapshot(MAIN).state.purges if not purge.is_done)


def _is_settled(kernel: Kernel, purge: Purge, now_us: int) -> bool:
    """Return True if no writer from before the drop can still stage files of it."""
    intents, unreadable = pending(kernel.store)
    alive = [intent for intent in intents if not intent.is_dead and intent.kind != CLEANUP]
    is_old = now_us - purge.dropped_at_us > STAGED_SECONDS_MAX * 1_000_000
    return is_old and not unreadable and all(intent.began_us > purge.dropped_at_us for intent in alive)


def _overwrite(kernel: Kernel, purge: Purge) -> tuple[int, int, str | None, bool]:
    """Overwrite a type or property in a dataset and its forks; return files, bytes, error, and whether that is all."""
    files, size, store, is_complete = 0, 0, kernel.store, True
    try:
        property_files = None if purge.property_id is None else PropertyFiles(kernel, purge)
        changes = _type_files(store, purge.path) if property_files is None else property_files.changed()
        for batch in _batches(changes):
            # Record first: until the write is done, a recorded file may have its old or its new checksum.
            record_overwritten(store, batch)
            for file, data in batch.items():
                store.objects.write(file, data)
                files, size = files + 1, size + len(data)
        if purge.is_embedded:
            # The cache maps hashes of texts to vectors; it does not record which property a text belongs to.
            files += store.objects.delete_prefix(FOLDER)
        is_complete = property_files is None or property_files.is_complete
    except OmniGraphError as error:
        return files, size, error.message, False
    return files, size, None, is_complete


def _batches(changes: Iterator[tuple[str, bytes]]) -> Iterator[dict[str, bytes]]:
    batch: dict[str, bytes] = {}
    for file, data in changes:
        batch[file] = data
        if sum(map(len, batch.values())) >= PURGE_BATCH_BYTES:
            yield batch
            batch = {}
    if batch:
        yield batch


def _type_files(store: Store, path: str) -> Iterator[tuple[str, bytes]]:
    for info in store.objects.list(path):
        if "/data/" in info.path or "/_indices/" in info.path:
            yield from _zeroed(store, info.path)


@dataclass(frozen=True, slots=True)
class FileColumns:
    """The fields of one data file, as the versions that read it see them."""

    purged: set[int] = field(default_factory=set)
    others: set[int] = field(default_factory=set)

    def to_shred(self, purge: Purge) -> set[int]:
        """Return the fields to overwrite: also those that no version reads any more, but none that one does."""
        return (self.purged | set(purge.field_ids)) - self.others


class PropertyFiles:
    """The files that hold the values of a dropped property, without these values."""

    def __init__(self, kernel: Kernel, purge: Purge) -> None:
        self._store, self._purge = kernel.store, purge
        self._paths = [info.path for info in kernel.store.objects.list(purge.path)]
        self._versions = list(open_versions(kernel.store, purge.path, self._paths))
        self._pinned = _names_by_version(kernel, purge)
        self._names = {**self._names_of_others(), **self._pinned}
        # False if values may be left where a writer is at work: in a version or a file that no catalog knows.
        self.is_complete = True

    def changed(self) -> Iterator[tuple[str, bytes]]:
        """Yield each file that has to be written again, with its new content."""
        columns, unread = self._columns_by_file(), self._unread_blobs()
        for file in self._paths:
            # What no version names may be a file that a writer is staging; a sweep removes it if it is not.
            if "/data/" in file and file.endswith(".lance"):
                raw = self._store.objects.read(file)
                field_ids, read = fields_in(raw), columns.get(file_stem(file))
                if read is not None:
                    yield from _shredded(file, raw, field_ids & read.to_shred(self._purge), unread)
                elif not field_ids.isdisjoint(self._purge.field_ids):
                    self.is_complete = False
            elif unread is not None and file.endswith(".blob") and file.split("/")[-2] in columns:
                yield from _zeroed(self._store, file, unread.blob_spans(file))
        for index in sorted({uuid for version in self._versions for uuid in _indexes(version, self._purge)}):
            for file in self._paths:
                if f"/_indices/{index}/" in file:
                    yield from _zeroed(self._store, file)

    def _names_of_others(self) -> dict[DatasetRef, set[str]]:
        """Return the names in versions that no catalog pins, such as the first of a fork: as pinned ones have them."""
        purged, others, unpinned = set[tuple[str, int]](), set[tuple[str, int]](), list[Dataset]()
        for version in self._versions:
            names = self._pinned.get(version.ref)
            if names is None:
                unpinned.append(version)
                continue
            for column in version.field_ids.items():
                (purged if column[0] in names else others).add(column)
        return {
            version.ref: {name for name, _ in (purged - others) & version.field_ids.items()} for version in unpinned
        }

    def _unread_blobs(self) -> Unread | None:
        if not self._purge.is_blob:
            return None
        return Unread(self._versions, lambda version: self._names[version.ref])

    def _columns_by_file(self) -> dict[str, FileColumns]:
        """Return the columns of every data file that a version names, by the stem of its name."""
        columns: dict[str, FileColumns] = defaultdict(FileColumns)
        for version in self._versions:
            purged, others = _fields_of(version, self._names[version.ref])
            if version.ref not in self._pinned and not others.isdisjoint(self._purge.field_ids):
                self.is_complete = False
            for fragment in version.lance.get_fragments():
                for file in fragment.metadata.files:
                    read = columns[file_stem(file.path)]
                    read.purged.update(purged.intersection(file.fields))
                    read.others.update(others.intersection(file.fields))
        return dict(columns)


def _names_by_version(kernel: Kernel, purge: Purge) -> dict[DatasetRef, set[str]]:
    """Return what the property is called in each version that a stored catalog pins; nothing where it is not there."""
    names: dict[DatasetRef, set[str]] = defaultdict(set)
    for info in kernel.store.objects.list(MANIFEST_PATH):
        ref = manifest_ref(info.path)
        if ref is None or ref.path != MANIFEST_PATH:
            continue
        state = kernel.at_ref(ref).state
        for pin in state.pins.values():
            if pin.identity == purge.identity:
                properties = catalog_of(state.schema.parse()).type_of(pin.table_key).properties
                names[pin.ref].update(
                    name for name, item in properties.items() if item.property_id == purge.property_id
                )
    return names


def _fields_of(version: Dataset, names: Collection[str]) -> tuple[set[int], set[int]]:
    """Return the fields of some columns of a version, and those of all others."""
    fields = {name: version.nested_field_ids(name) for name in version.field_ids}
    purged = {number for name in names for number in fields.get(name, ())}
    return purged, {number for numbers in fields.values() for number in numbers} - purged


def _shredded(file: str, raw: bytes, field_ids: Collection[int], unread: Unread | None) -> Iterator[tuple[str, bytes]]:
    if unread is not None or field_ids:
        shredded = shred_columns(raw, field_ids, None if unread is None else unread.spans(file))
        if shredded != raw:
            yield file, shredded


def _zeroed(store: Store, file: str, readable: Sequence[Span] = ()) -> Iterator[tuple[str, bytes]]:
    """Yield a file with all bytes zeroed except the readable spans."""
    raw = store.objects.read(file)
    data = bytearray(len(raw))
    for start, end in readable:
        data[start:end] = raw[start:end]
    if data != raw:
        yield file, bytes(data)


def _indexes(version: Dataset, purge: Purge) -> Iterator[str]:
    # Indexes are named after the property that they are of.
    for index in version.lance.describe_indices():
        if str(index.name).startswith(f"p{purge.property_id}_"):
            yield from (str(segment.uuid) for segment in index.segments)
