"""Row changes found by comparing every row: the oracle of `row_changes`."""

from __future__ import annotations

from omnigraph.engine.changes.row_diff import (
    AS_BYTES,
    BlobColumns,
    RowChanges,
    all_rows,
    compare,
    paired_rows,
)
from omnigraph.store.read.dataset import Dataset


def row_changes_by_comparing(
    before: Dataset | None, after: Dataset | None, blobs: BlobColumns = AS_BYTES
) -> RowChanges:
    """Return what changed between two states, at a cost that follows the size of the type."""
    return compare(before, after, paired_rows(all_rows(before), all_rows(after)), blobs)
