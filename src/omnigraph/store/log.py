"""Logs: append-only datasets that stand outside of the catalog.

No commit depends on reading one; whoever finds its next version taken appends after it.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

from omnigraph import failpoints
from omnigraph.errors import ConflictError, StorageError, StorageKind
from omnigraph.failpoints import Point
from omnigraph.limits import REPREPARE_MAX
from omnigraph.store import change
from omnigraph.store.store import LostRace, StaleBase, Store


def append(store: Store, path: str, rows: pa.Table) -> None:
    """Append rows durably; the first append creates the log."""
    for _ in range(REPREPARE_MAX):
        # Another appender may be faster each time; it has then written its rows, and ours go after them.
        with suppress(LostRace, StaleBase):
            _append_once(store, path, rows)
            return
    raise ConflictError(f"other writers kept appending to `{path}`; run it again later", object=path)


def _append_once(store: Store, path: str, rows: pa.Table) -> None:
    try:
        log = store.open_latest(path, None)
    except StorageError as error:
        if error.storage_kind is not StorageKind.NOT_FOUND:
            raise
        store.create(path, rows.schema, rows)
        return
    staged = store.commit(log, [change.append(log, rows)], {})
    failpoints.hit(Point.DURABLE_BEFORE, f"append {path}")
    store.take_name(staged)
    store.meter.count("append", path)
    failpoints.hit(Point.DURABLE_AFTER, f"append {path}")


def read(store: Store, path: str) -> pa.Table | None:
    """Return all rows of a log, or None while nobody has written to it."""
    try:
        return store.open_latest(path, None).read()
    except StorageError as error:
        if error.storage_kind is StorageKind.NOT_FOUND:
            return None
        raise
