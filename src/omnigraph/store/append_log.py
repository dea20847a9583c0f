"""Append-only logs: Lance datasets that no catalog version pins.

An append that loses the race for the next version is retried after it. Appends compact the small files of earlier
ones, so that a log of any age has few files.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import pyarrow as pa

from omnigraph.errors import ConflictError, StorageError, StorageKind
from omnigraph.failpoints import around_change
from omnigraph.limits import REPREPARE_MAX, TAIL_FRAGMENTS_MAX
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.store import LostRace, StaleBase, Store
from omnigraph.store.write import transaction
from omnigraph.store.write.compaction import fold_tail

# The property of a version's transaction that holds the checksums of all files of the log.
CHECKSUMS: Final = "omnigraph.checksums"


def append(store: Store, path: str, rows: pa.Table) -> None:
    """Append rows durably; the first append creates the log."""
    for _ in range(REPREPARE_MAX):
        # An append that loses the race is retried on top of the winner.
        with suppress(LostRace, StaleBase):
            _append_once(store, path, rows)
            return
    raise ConflictError(f"other writers kept appending to `{path}`; retry later", object=path)


def _append_once(store: Store, path: str, rows: pa.Table) -> None:
    log = open_log(store, path)
    if log is None:
        store.create(path, rows.schema, rows, checksums_as=CHECKSUMS)
        return
    fold = fold_tail(log, TAIL_FRAGMENTS_MAX)
    if fold is not None:
        # A separate version: a commit of both would advance by two, and not conflict with a concurrent append.
        _commit_next_version(store, log, fold, f"fold {path}")
        log = store.open_latest(path, None)
    _commit_next_version(store, log, transaction.append(log, rows), f"append {path}")
    store.meter.count("append", path)


def _commit_next_version(store: Store, log: Dataset, change: transaction.Change, step: str) -> None:
    # Each version records the checksums of all files, since there are few.
    checksums = store.pack_checksums(change.proofs.result(), _recorded(log))
    staged = store.commit(log, [change], {CHECKSUMS: checksums})
    with around_change(step):
        store.take_name(staged)


def _recorded(log: Dataset) -> str:
    transaction = log.transaction(log.version)
    properties = transaction.transaction_properties if transaction is not None else None
    return (properties or {}).get(CHECKSUMS, "")


def recorded_checksums(store: Store, path: str) -> str:
    """Return the checksums of a log's files that its newest version records; an empty string without a log."""
    log = open_log(store, path)
    return "" if log is None else _recorded(log)


def read(store: Store, path: str) -> pa.Table | None:
    """Return all rows of a log, or None before its first append."""
    log = open_log(store, path)
    return None if log is None else log.read()


def open_log(store: Store, path: str) -> Dataset | None:
    """Return a log as it is now, or None before its first append."""
    try:
        return store.open_latest(path, None)
    except StorageError as error:
        if error.storage_kind is StorageKind.NOT_FOUND:
            return None
        raise
