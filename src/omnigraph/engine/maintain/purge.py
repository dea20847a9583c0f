"""Purge hard-dropped types and properties: erase their values from every file, in all versions.

Values of a property are overwritten in place, so that all commits, tags and branches stay readable without them; of a
type, every file is overwritten. Files keep their names and sizes, so no reference has to change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from omnigraph.engine.embed.cache import FOLDER
from omnigraph.errors import OmniGraphError, StorageError, StorageKind
from omnigraph.limits import PURGE_BATCH_BYTES, STAGED_SECONDS_MAX
from omnigraph.manifest.intents import CLEANUP, pending
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, Purge
from omnigraph.manifest.plan import CommitPolicy, Plan
from omnigraph.manifest.updates import SetPurges
from omnigraph.public_values import PublicValue, named
from omnigraph.store.files.shredding import Span, Unread, fields_in, shred_columns, stored_versions
from omnigraph.store.read.dataset import Dataset
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
        files, size, error = _overwrite(kernel.store, drop)
        is_done = error is None and _is_settled(kernel, drop, now_us)
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


def _overwrite(store: Store, purge: Purge) -> tuple[int, int, str | None]:
    """Overwrite a type or property in the files of a dataset and its forks; return files, bytes and the error."""
    files = size = 0
    try:
        changes = _property_files(store, purge) if purge.property_id is not None else _type_files(store, purge.path)
        for batch in _batches(changes):
            # Record first: until the write is done, a recorded file may have its old or its new checksum.
            record_overwritten(store, batch)
            for file, data in batch.items():
                store.objects.write(file, data)
                files, size = files + 1, size + len(data)
        if purge.is_embedded:
            # The cache maps hashes of texts to vectors; it does not record which property a text belongs to.
            files += store.objects.delete_prefix(FOLDER)
    except OmniGraphError as error:
        return files, size, error.message
    return files, size, None


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


def _property_files(store: Store, purge: Purge) -> Iterator[tuple[str, bytes]]:
    paths = [info.path for info in store.objects.list(purge.path)]
    versions = list(stored_versions(store, purge.path, paths))
    unread = Unread(versions, frozenset(purge.field_ids)) if purge.is_blob else None
    for file in paths:
        if "/data/" in file and file.endswith(".lance"):
            yield from _shredded(store, file, purge, None if unread is None else unread.spans(file))
        elif unread is not None and file.endswith(".blob"):
            yield from _zeroed(store, file, unread.blob_spans(file))
    for index in sorted({uuid for version in versions for uuid in _indexes(version, purge)}):
        for file in paths:
            if f"/_indices/{index}/" in file:
                yield from _zeroed(store, file)


def _shredded(store: Store, file: str, purge: Purge, readable: list[Span] | None) -> Iterator[tuple[str, bytes]]:
    raw = store.objects.read(file)
    if readable is not None or not fields_in(raw).isdisjoint(purge.field_ids):
        shredded = shred_columns(raw, purge.field_ids, readable)
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
