"""Three-way merge of the rows of one type, from what each side changed since the base.

Pure. Works on the changes alone; an entity that no side or only one side touched costs nothing, or next to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.changes.equal import Mask
from omnigraph.engine.changes.rows import RowChanges
from omnigraph.engine.merge.values import Unit, merge_columns, units_of
from omnigraph.lang.catalog import EdgeType, MergeRule, NodeType
from omnigraph.rules.delta import Ids, is_among, one_array, without
from omnigraph.rules.kernels import Numbers, pc


class Kind(StrEnum):
    """Every kind of conflict; the first three are between two sides, the others break a rule of the schema."""

    DIVERGENT_INSERT = "DivergentInsert"
    DIVERGENT_UPDATE = "DivergentUpdate"
    DELETE_VS_UPDATE = "DeleteVsUpdate"
    ORPHAN_EDGE = "OrphanEdge"
    UNIQUE_VIOLATION = "UniqueViolation"
    CARDINALITY_VIOLATION = "CardinalityViolation"
    VALUE_CONSTRAINT_VIOLATION = "ValueConstraintViolation"


@dataclass(frozen=True, slots=True)
class Clash:
    """One entity that the two sides left in different states, as tables of one row; None where it is absent.

    `merged` is what could be merged of it, with ours in the `columns` that nothing settles.
    """

    kind: Kind
    entity_id: str
    columns: tuple[str, ...]
    base: pa.Table | None
    ours: pa.Table | None
    theirs: pa.Table | None
    merged: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class RowMerge:
    """What a merge does to the rows of one type on our side, and what it could not settle."""

    inserted: pa.Table
    updated: pa.Table
    deleted: Ids
    clashes: tuple[Clash, ...] = ()

    @property
    def changes_nothing(self) -> bool:
        return not (self.inserted.num_rows or self.updated.num_rows or len(self.deleted))


def as_merge(theirs: RowChanges) -> RowMerge:
    """Return the merge of a type that our side did not touch: their change as it is."""
    return RowMerge(theirs.inserted, theirs.after, _ids(theirs.deleted))


def merge_rows(type_: NodeType | EdgeType, ours: RowChanges, theirs: RowChanges) -> RowMerge:
    """Merge what two sides did to the rows of a type since their base."""
    touched = pa.concat_arrays([_ids(one) for one in (ours.inserted, ours.after, ours.deleted)])
    both_inserted = _Pair.of(ours.inserted, theirs.inserted)
    both_updated = _Pair.of(ours.after, theirs.after)
    base = theirs.before.take(both_updated.right)
    settled_inserts, clashing_inserts = _merge_images(type_, both_inserted, None)
    settled_updates, clashing_updates = _merge_images(type_, both_updated, base)
    revived, removed, contested = _deletes_against_updates(type_, ours, theirs)
    return RowMerge(
        pa.concat_tables([_untouched(theirs.inserted, touched), revived]).combine_chunks(),
        pa.concat_tables([_untouched(theirs.after, touched), settled_inserts, settled_updates]).combine_chunks(),
        pa.concat_arrays([without(_ids(theirs.deleted), touched), removed]),
        tuple(sorted((*clashing_inserts, *clashing_updates, *contested), key=lambda one: one.entity_id)),
    )


@dataclass(frozen=True, slots=True)
class _Pair:
    """Rows of two tables that have the same id, and their places in each."""

    ours: pa.Table
    theirs: pa.Table
    left: Numbers
    right: Numbers

    @classmethod
    def of(cls, ours: pa.Table, theirs: pa.Table) -> _Pair:
        places = pc.index_in(_ids(ours), value_set=_ids(theirs))
        left = np.flatnonzero(pc.is_valid(places).to_numpy(zero_copy_only=False))
        right = places.drop_null().to_numpy(zero_copy_only=False)
        return cls(ours.take(left), theirs.take(right), left, right)


def _merge_images(type_: NodeType | EdgeType, pair: _Pair, base: pa.Table | None) -> tuple[pa.Table, list[Clash]]:
    """Return the rows to put in place of ours, and the entities in which something is left unsettled."""
    units = units_of(type_)
    merged, unsettled = merge_columns(units, base, pair.ours, pair.theirs)
    clashing = np.zeros(merged.num_rows, bool)
    for _, rows in unsettled:
        clashing |= rows
    kind = Kind.DIVERGENT_INSERT if base is None else Kind.DIVERGENT_UPDATE
    found = [
        Clash(
            kind,
            pair.ours.column("id")[row].as_py(),
            tuple(name for unit, rows in unsettled if rows[row] for name in unit.columns),
            base.slice(row, 1) if base is not None else None,
            pair.ours.slice(row, 1),
            pair.theirs.slice(row, 1),
            merged.slice(row, 1),
        )
        for row in np.flatnonzero(clashing).tolist()
    ]
    return merged.filter(pa.array(_changed(units, pair.ours, merged) & ~clashing)), found


def _changed(units: tuple[Unit, ...], ours: pa.Table, merged: pa.Table) -> Mask:
    """Return which rows are not what ours are; a merge with them as its own base finds out."""
    everything = [Unit(unit.columns, MergeRule.FAIL) for unit in units]
    _, differences = merge_columns(everything, None, ours, merged)
    changed = np.zeros(ours.num_rows, bool)
    for _, rows in differences:
        changed |= rows
    return changed


def _deletes_against_updates(
    type_: NodeType | EdgeType, ours: RowChanges, theirs: RowChanges
) -> tuple[pa.Table, Ids, list[Clash]]:
    """Return rows to bring back, ids to take out, and what neither is decided for; a type as a whole decides."""
    we_deleted = _Pair.of(ours.deleted, theirs.after)
    they_deleted = _Pair.of(ours.after, theirs.deleted)
    nothing, nobody = theirs.after.slice(0, 0), _ids(theirs.deleted).slice(0, 0)
    if type_.merge is MergeRule.OURS:
        return nothing, nobody, []
    if type_.merge is MergeRule.THEIRS:
        return we_deleted.theirs, _ids(they_deleted.theirs), []
    clashes = [*_contested(we_deleted.ours, None, we_deleted.theirs)]
    clashes += _contested(they_deleted.theirs, they_deleted.ours, None)
    return nothing, nobody, clashes


def _contested(base: pa.Table, ours: pa.Table | None, theirs: pa.Table | None) -> Iterator[Clash]:
    for row in range(base.num_rows):
        sides = [one.slice(row, 1) if one is not None else None for one in (ours, theirs)]
        yield Clash(Kind.DELETE_VS_UPDATE, base.column("id")[row].as_py(), (), base.slice(row, 1), *sides)


def _untouched(rows: pa.Table, touched: Ids) -> pa.Table:
    return rows.filter(pa.array(~is_among(_ids(rows), touched)))


def _ids(rows: pa.Table) -> Any:
    return one_array(rows.column("id"))
