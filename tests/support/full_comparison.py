"""Row changes found by comparing every row: the oracle of `row_changes`."""

from __future__ import annotations

import numpy as np

from omnigraph.engine.changes.row_diff import AS_BYTES, BlobColumns, RowChanges, all_rows, compare, read_rows
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.read.lookup import ROW_ID, RowIds


def all_row_ids(before: Dataset | None, after: Dataset | None) -> tuple[RowIds, RowIds]:
    """Return every row of two versions, instead of those that may have moved."""
    old, new = (np.sort(all_rows(dataset).column(ROW_ID).to_numpy()) for dataset in (before, after))
    return old, new


def row_changes_by_comparing(
    before: Dataset | None, after: Dataset | None, blobs: BlobColumns = AS_BYTES
) -> RowChanges:
    """Return what changed between two states, at a cost that follows the size of the type."""
    known = after or before
    assert known is not None
    old, new = all_row_ids(before, after)
    return compare(read_rows(before or known, old), read_rows(known, new), blobs)
