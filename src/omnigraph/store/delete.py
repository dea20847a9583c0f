"""Deletes: rows marked as gone in the fragments that hold them; no data file is rewritten.

Stages only; the rows are found at the pinned version, so the count is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance import LanceOperation
from lance.fragment import FragmentMetadata

from omnigraph import failpoints
from omnigraph.failpoints import Point
from omnigraph.store.change import Change, changed
from omnigraph.store.dataset import Dataset, Filter, lance_errors
from omnigraph.store.lookup import ROW_ADDRESS, find


def delete_ids(dataset: Dataset, ids: pa.Array[Any]) -> Change | None:
    """Stage the removal of the rows with these ids; ids that are not there are passed over."""
    return delete_found(dataset, find(dataset, ids)) if len(ids) else None


def delete_where(dataset: Dataset, filter: Filter) -> Change | None:  # noqa: A002 - the word every scan API uses
    """Stage the removal of the rows for which a predicate is true; where it is null the row stays."""
    return delete_found(dataset, dataset.read([], filter, with_row_address=True))


def delete_found(dataset: Dataset, found: pa.Table) -> Change | None:
    """Stage the removal of rows whose addresses at this version are known."""
    if found.num_rows == 0:
        return None
    updated, emptied = mark_gone(dataset, found.column(ROW_ADDRESS).to_numpy())
    operation = LanceOperation.Delete(updated, emptied, f"{found.num_rows} rows by address")
    return changed(dataset, operation, dataset.count() - found.num_rows)


def mark_gone(dataset: Dataset, addresses: npt.NDArray[np.uint64]) -> tuple[list[FragmentMetadata], list[int]]:
    """Return the fragments that lose rows, without them, and the ids of those that have none left."""
    # A row address is the fragment's id in the high and the offset within it in the low 32 bits.
    addresses = np.sort(addresses)
    fragment_ids, starts = np.unique(addresses >> np.uint64(32), return_index=True)
    offsets = np.split(addresses & np.uint64(0xFFFF_FFFF), starts[1:])
    updated: list[FragmentMetadata] = []
    emptied: list[int] = []
    failpoints.hit(Point.DURABLE_BEFORE, f"stage {dataset.ref.path}")
    with lance_errors(f"deleting rows of {dataset.ref}"):
        for fragment_id, gone in zip(fragment_ids.tolist(), offsets, strict=True):
            fragment = dataset.lance.get_fragment(fragment_id)
            assert fragment is not None, f"no fragment {fragment_id}, though a row address names it"
            left = fragment.delete_rows(gone.tolist())
            if left is None:
                emptied.append(fragment_id)
            else:
                updated.append(left)
    dataset.store.meter.count("stage", dataset.ref.path)
    failpoints.hit(Point.DURABLE_AFTER, f"stage {dataset.ref.path}")
    return updated, emptied
