"""Upserts: whole rows staged by `id`, as an append when none of them exists yet.

Stages only; the caller has deduplicated the rows and commits the change. A replaced row is marked as gone where it
lies and written anew, under a row id of its own: keeping the old one would make Lance look at every row there is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceOperation

from omnigraph.errors import KeyConflict, OmniGraphError
from omnigraph.store.blob_rows import StoredBlobs, write_with_blobs
from omnigraph.store.change import Change, append, changed, replacing
from omnigraph.store.dataset import Dataset
from omnigraph.store.delete import mark_gone
from omnigraph.store.lookup import ID, ROW_ADDRESS, find, ids_of
from omnigraph.store.shared_blobs import assembled, shared_paths


def upsert(
    dataset: Dataset, rows: pa.Table, found: pa.Table | None = None, blobs: Sequence[StoredBlobs] = ()
) -> Change | None:
    """Stage rows that replace those of the same id and add the others.

    `found` is what `find` says of the rows' ids at this version, if the caller has asked; a row that it leaves out
    would be there twice. `blobs` are stored ones that rows take over.
    """
    if rows.num_rows == 0:
        return None
    ids = ids_of(rows)
    if found is None:
        found = find(dataset, ids)
    if found.num_rows == 0:
        # An append can be rebased onto a newer version without being staged again; an update cannot.
        return append_with_blobs(dataset, rows, blobs)
    leaving = found.column(ROW_ADDRESS).to_numpy()
    written = write_with_blobs(dataset, rows, blobs, leaving)
    updated, emptied = mark_gone(dataset, np.concatenate([leaving, written.rewritten]))
    operation = replacing(dataset, emptied, updated, assembled(dataset, written.staged))
    row_count = dataset.count() + rows.num_rows - found.num_rows
    return changed(dataset, operation, row_count, shared_paths(written.staged))


def append_with_blobs(dataset: Dataset, rows: pa.Table, blobs: Sequence[StoredBlobs]) -> Change:
    """Stage new rows of which some take over stored blobs; the caller vouches that no id among them exists."""
    if not blobs:
        return append(dataset, rows)
    staged = write_with_blobs(dataset, rows, blobs).staged
    fragments, row_count = assembled(dataset, staged), dataset.count() + rows.num_rows
    known = shared_paths(staged)
    operation = replacing(dataset, [], [], fragments) if known else LanceOperation.Append(fragments)
    return changed(dataset, operation, row_count, known)


def update_only(dataset: Dataset, rows: pa.Table) -> Change | None:
    """Stage rows that replace existing ones; the caller has read them, so a missing one is a bug and says so."""
    if rows.num_rows == 0:
        return None
    ids = ids_of(rows)
    found = find(dataset, ids)
    if found.num_rows < rows.num_rows:
        missing = ids.filter(pc.invert(pc.is_in(ids, value_set=found.column(ID).combine_chunks())))[0].as_py()
        raise OmniGraphError(f"{dataset.ref} has no row with the id `{missing}` to update", entity_id=missing)
    return upsert(dataset, rows, found)


def strict_insert(dataset: Dataset, rows: pa.Table) -> Change | None:
    """Stage rows none of which may exist; `KeyConflict` names the first that does."""
    if rows.num_rows == 0:
        return None
    ids = ids_of(rows)
    existing = find(dataset, ids).column(ID).combine_chunks()
    if len(existing):
        first = ids.filter(pc.is_in(ids, value_set=existing))[0].as_py()
        raise KeyConflict(
            f"an entity with the id `{first}` already exists; update it, or write with mode `merge`", entity_id=first
        )
    return append(dataset, rows)
