"""Upserts: whole rows staged by `id`, as an append when none of them exists yet.

Stages only; the caller has deduplicated the rows and commits the change. A replaced row is marked as gone where it
lies and written again, under a row id of its own: keeping the old one would make Lance look at every row there is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance import LanceOperation
from lance.fragment import FragmentMetadata

from omnigraph.store.blobs.cells import StoredBlobs, write_with_blobs
from omnigraph.store.blobs.shared import assembled, shared_paths
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.read.lookup import ROW_ADDRESS, find, ids_of, split_addresses
from omnigraph.store.write.transaction import Change, append, changed, replacing, staging


def delete_found(dataset: Dataset, rows: pa.Table) -> Change | None:
    """Stage the removal of rows whose addresses at this version are known."""
    if rows.num_rows == 0:
        return None
    updated, emptied = mark_gone(dataset, rows.column(ROW_ADDRESS).to_numpy())
    operation = LanceOperation.Delete(updated, emptied, f"{rows.num_rows} rows by address")
    return changed(dataset, operation, dataset.count() - rows.num_rows)


def mark_gone(dataset: Dataset, addresses: npt.NDArray[np.uint64]) -> tuple[list[FragmentMetadata], list[int]]:
    """Return the fragments that lose rows, without them, and the ids of those that have none left."""
    owners, offsets = split_addresses(np.sort(addresses))
    fragment_ids, starts = np.unique(owners, return_index=True)
    updated: list[FragmentMetadata] = []
    emptied: list[int] = []
    with staging(dataset, f"deleting rows of {dataset.ref}"):
        for fragment_id, gone in zip(fragment_ids.tolist(), np.split(offsets, starts[1:]), strict=True):
            left = dataset.fragment(fragment_id).delete_rows(gone.tolist())
            if left is None:
                emptied.append(fragment_id)
            else:
                updated.append(left)
    return updated, emptied


def upsert(
    dataset: Dataset, rows: pa.Table, existing: pa.Table | None = None, blobs: Sequence[StoredBlobs] = ()
) -> Change | None:
    """Stage rows that replace those of the same id and add the others.

    `existing` is what `find` says of the rows' ids at this version, if the caller has asked; a row that it leaves out
    would be there twice. `blobs` are stored ones that rows take over.
    """
    if rows.num_rows == 0:
        return None
    ids = ids_of(rows)
    if existing is None:
        existing = find(dataset, ids)
    if existing.num_rows == 0:
        # An append can be rebased onto a newer version without being staged again; an update cannot.
        return append_with_blobs(dataset, rows, blobs)
    leaving = existing.column(ROW_ADDRESS).to_numpy()
    written = write_with_blobs(dataset, rows, blobs, leaving)
    updated, emptied = mark_gone(dataset, np.concatenate([leaving, written.rewritten]))
    operation = replacing(dataset, emptied, updated, assembled(dataset, written.staged))
    row_count = dataset.count() + rows.num_rows - existing.num_rows
    return changed(dataset, operation, row_count, shared_paths(written.staged))


def append_with_blobs(dataset: Dataset, rows: pa.Table, blobs: Sequence[StoredBlobs]) -> Change:
    """Stage new rows of which some take over stored blobs; the caller vouches that no id among them exists."""
    if not blobs:
        return append(dataset, rows)
    staged = write_with_blobs(dataset, rows, blobs).staged
    fragments, row_count = assembled(dataset, staged), dataset.count() + rows.num_rows
    shared_files = shared_paths(staged)
    operation = replacing(dataset, [], [], fragments) if shared_files else LanceOperation.Append(fragments)
    return changed(dataset, operation, row_count, shared_files)
