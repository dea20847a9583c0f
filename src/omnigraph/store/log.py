"""Logs: append-only datasets that stand outside of the catalog.

No commit depends on reading one, so Lance's own rebasing of appends is all the coordination they need.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
from lance import LanceDataset
from lance.fragment import write_fragments

from omnigraph import failpoints
from omnigraph.errors import StorageError, StorageKind
from omnigraph.failpoints import Point
from omnigraph.store.dataset import Dataset, DatasetRef, lance_errors
from omnigraph.store.store import LostRace, Store


def append(store: Store, path: str, rows: pa.Table) -> None:
    """Append rows durably; the first append creates the log."""
    try:
        log = store.open_latest(path, None)
    except StorageError as error:
        if error.storage_kind is not StorageKind.NOT_FOUND:
            raise
        with suppress(LostRace):
            store.sync_version(store.create(path, rows.schema, rows))
            return
        log = store.open_latest(path, None)
    options = store.lance_options or None
    failpoints.hit(Point.DURABLE_BEFORE, f"append {path}")
    with lance_errors(f"appending to {path}"):
        transaction = write_fragments(rows, log.lance, mode="append", return_transaction=True, storage_options=options)
        store.sync_rows(path, transaction.operation.fragments)  # type: ignore[attr-defined]  # it is an Append
        lance = LanceDataset.commit(log.lance, transaction, storage_options=options)
    store.meter.count("append", path)
    failpoints.hit(Point.DURABLE_AFTER, f"append {path}")
    store.sync_version(Dataset(store, DatasetRef(path, None, lance.version), lance))


def read(store: Store, path: str) -> pa.Table | None:
    """Return all rows of a log, or None while nobody has written to it."""
    try:
        return store.open_latest(path, None).read()
    except StorageError as error:
        if error.storage_kind is StorageKind.NOT_FOUND:
            return None
        raise
