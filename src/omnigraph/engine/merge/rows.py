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
from omnigraph.engine.merge.values import NOTHING_UNKNOWN, Unit, Unknown, merge_columns, units_of
from omnigraph.lang.catalog import EdgeType, MergeRule, NodeType
from omnigraph.rules.delta import Ids, is_among, one_array, without
from omnigraph.rules.kernels import Numbers, pc

Type = NodeType | EdgeType


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


def merge_rows(type_: Type, ours: RowChanges, theirs: RowChanges, unknown: Unknown = NOTHING_UNKNOWN) -> RowMerge:
    """Merge what two sides did to the rows of a type since their base, of which some may be unknown."""
    sides = merge_sides(type_, ours, theirs, unknown)
    clashes = [clash for one in sides.contests for clash in one.clashes(unknown)]
    return RowMerge(sides.inserted, sides.updated, sides.deleted, tuple(sorted(clashes, key=lambda one: one.entity_id)))


@dataclass(frozen=True, slots=True)
class Contest:
    """Entities that nothing settles in full, row by row the same in all tables; None where they are absent.

    `unsettled` tells in which rows a unit is left open; without any it is whether the entity exists at all.
    """

    kind: Kind
    base: pa.Table | None
    ours: pa.Table | None
    theirs: pa.Table | None
    merged: pa.Table | None = None
    unsettled: tuple[tuple[Unit, Mask], ...] = ()

    def clashes(self, unknown: Unknown) -> Iterator[Clash]:
        tables = (self.base, self.ours, self.theirs, self.merged)
        [rows, *_] = [one for one in tables if one is not None]
        ids: Any = rows.column("id").to_pylist()
        for row, entity_id in enumerate(ids):
            columns = tuple(name for unit, open_ in self.unsettled if open_[row] for name in unit.columns)
            base, *others = [None if one is None else one.slice(row, 1) for one in tables]
            yield Clash(self.kind, entity_id, columns, None if base is None else unknown.known_of(base), *others)


@dataclass(frozen=True, slots=True)
class SideMerge:
    """What a merge does to the rows of our side, and the entities it could not settle."""

    inserted: pa.Table
    updated: pa.Table
    deleted: Ids
    contests: tuple[Contest, ...]


def merge_sides(type_: Type, ours: RowChanges, theirs: RowChanges, unknown: Unknown) -> SideMerge:
    """Merge what two sides did to the rows of a type, at a cost in Python that does not grow with the conflicts."""
    touched = pa.concat_arrays([_ids(one) for one in (ours.inserted, ours.after, ours.deleted)])
    both_inserted = _Pair.of(ours.inserted, theirs.inserted)
    both_updated = _Pair.of(ours.after, theirs.after)
    base = theirs.before.take(both_updated.right)
    settled_inserts, open_inserts = _merge_images(type_, both_inserted, None, unknown)
    settled_updates, open_updates = _merge_images(type_, both_updated, base, unknown)
    revived, removed, contested = _deletes_against_updates(type_, ours, theirs)
    return SideMerge(
        pa.concat_tables([_untouched(theirs.inserted, touched), revived]).combine_chunks(),
        pa.concat_tables([_untouched(theirs.after, touched), settled_inserts, settled_updates]).combine_chunks(),
        pa.concat_arrays([without(_ids(theirs.deleted), touched), removed]),
        (open_inserts, open_updates, *contested),
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


def _merge_images(type_: Type, pair: _Pair, base: pa.Table | None, unknown: Unknown) -> tuple[pa.Table, Contest]:
    """Return the rows to put in place of ours, and the entities in which something is left unsettled."""
    units = units_of(type_)
    merged, unsettled = merge_columns(units, base, pair.ours, pair.theirs, unknown)
    is_open = np.zeros(merged.num_rows, bool)
    for _, rows in unsettled:
        is_open |= rows
    kind = Kind.DIVERGENT_INSERT if base is None else Kind.DIVERGENT_UPDATE
    ours, theirs, open_merged = (one.filter(pa.array(is_open)) for one in (pair.ours, pair.theirs, merged))
    older = None if base is None else base.filter(pa.array(is_open))
    contest = Contest(kind, older, ours, theirs, open_merged, tuple((unit, rows[is_open]) for unit, rows in unsettled))
    return merged.filter(pa.array(changed_rows(units, pair.ours, merged) & ~is_open)), contest


def changed_rows(units: tuple[Unit, ...], ours: pa.Table, merged: pa.Table) -> Mask:
    """Return which rows are not what ours are; a merge without a base finds out."""
    everything = [Unit(unit.columns, MergeRule.FAIL) for unit in units]
    _, differences = merge_columns(everything, None, ours, merged)
    changed = np.zeros(ours.num_rows, bool)
    for _, rows in differences:
        changed |= rows
    return changed


def _deletes_against_updates(
    type_: Type, ours: RowChanges, theirs: RowChanges
) -> tuple[pa.Table, Ids, tuple[Contest, ...]]:
    """Return rows to bring back, ids to take out, and what neither is decided for; a type as a whole decides."""
    we_deleted = _Pair.of(ours.deleted, theirs.after)
    they_deleted = _Pair.of(ours.after, theirs.deleted)
    nothing, nobody = theirs.after.slice(0, 0), _ids(theirs.deleted).slice(0, 0)
    if type_.merge is MergeRule.OURS:
        return nothing, nobody, ()
    if type_.merge is MergeRule.THEIRS:
        return we_deleted.theirs, _ids(they_deleted.theirs), ()
    by_us = Contest(Kind.DELETE_VS_UPDATE, we_deleted.ours, None, we_deleted.theirs)
    by_them = Contest(Kind.DELETE_VS_UPDATE, they_deleted.theirs, they_deleted.ours, None)
    return nothing, nobody, (by_us, by_them)


def _untouched(rows: pa.Table, touched: Ids) -> pa.Table:
    return rows.filter(pa.array(~is_among(_ids(rows), touched)))


def _ids(rows: pa.Table) -> Any:
    return one_array(rows.column("id"))
