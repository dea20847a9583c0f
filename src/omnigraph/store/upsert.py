"""Upserts: whole rows staged by `id`, as an append when none of them exists yet.

Stages only; the caller has deduplicated the rows and commits the change.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceOperation

from omnigraph import failpoints
from omnigraph.errors import KeyConflict, OmniGraphError
from omnigraph.failpoints import Point
from omnigraph.store.change import Change, append, changed
from omnigraph.store.dataset import Dataset, lance_errors
from omnigraph.store.lookup import ID, find, ids_of

# Lance probes its key index once per row; a hash join over the id column overtakes that at about a hundred rows.
PROBED_ROWS_MAX: Final = 100


def upsert(dataset: Dataset, rows: pa.Table, known: pa.Array[Any] | None = None) -> Change | None:
    """Stage rows that replace those of the same id and add the others.

    `known` holds those of the rows' ids that exist, if the caller has looked; leaving one out would duplicate it.
    """
    if rows.num_rows == 0:
        return None
    if known is not None and len(known) == 0:
        return append(dataset, rows)
    merge = dataset.lance.merge_insert(ID).when_matched_update_all().when_not_matched_insert_all()
    operation, counts = _stage(dataset, merge, rows)
    inserted = int(counts["num_inserted_rows"])
    if inserted == rows.num_rows:
        # An append can be rebased onto a newer version without being staged again; an update cannot.
        operation = LanceOperation.Append(operation.new_fragments)
    return changed(dataset, operation, dataset.count() + inserted)


def update_only(dataset: Dataset, rows: pa.Table) -> Change | None:
    """Stage rows that replace existing ones; the caller has read them, so a missing one is a bug and says so."""
    if rows.num_rows == 0:
        return None
    operation, counts = _stage(dataset, dataset.lance.merge_insert(ID).when_matched_update_all(), rows)
    if int(counts["num_updated_rows"]) < rows.num_rows:
        ids = ids_of(rows)
        missing = ids.filter(pc.invert(pc.is_in(ids, value_set=_existing(dataset, ids))))[0].as_py()
        raise OmniGraphError(f"{dataset.ref} has no row with the id `{missing}` to update", entity_id=missing)
    return changed(dataset, operation, dataset.count())


def strict_insert(dataset: Dataset, rows: pa.Table) -> Change | None:
    """Stage rows none of which may exist; `KeyConflict` names the first that does."""
    if rows.num_rows == 0:
        return None
    ids = ids_of(rows)
    existing = _existing(dataset, ids)
    if len(existing):
        first = ids.filter(pc.is_in(ids, value_set=existing))[0].as_py()
        raise KeyConflict(
            f"an entity with the id `{first}` already exists; update it, or write with mode `merge`", entity_id=first
        )
    return append(dataset, rows)


def _existing(dataset: Dataset, ids: pa.Array[Any]) -> pa.Array[Any]:
    return find(dataset, ids).column(ID).combine_chunks()


def _stage(dataset: Dataset, merge: Any, rows: pa.Table) -> tuple[Any, dict[str, int]]:
    # Lance inserts a new id twice if the source holds it twice.
    ids_of(rows)
    merge = merge.conflict_retries(0).use_index(rows.num_rows <= PROBED_ROWS_MAX)
    failpoints.hit(Point.DURABLE_BEFORE, f"stage {dataset.ref.path}")
    with lance_errors(f"staging rows of {dataset.ref}"):
        transaction, counts = merge.execute_uncommitted(rows)
    dataset.store.meter.count("stage", dataset.ref.path)
    failpoints.hit(Point.DURABLE_AFTER, f"stage {dataset.ref.path}")
    return transaction.operation, counts
