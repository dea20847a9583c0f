"""Three-way merge of the rows of one type, computed from what each side changed since the base.

Pure. Untouched entities cost nothing, and those that only one side touched next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.changes.row_diff import Mask, RowChanges, equal_values
from omnigraph.lang.catalog import EdgeType, MergeRule, Type
from omnigraph.public_values import ConflictKind
from omnigraph.rules.arrow_typing import Column, Numbers, arrays, pc
from omnigraph.rules.delta import NO_IDS, Ids, is_among, one_array, without


@dataclass(frozen=True, slots=True)
class Unit:
    """Columns that change together: a property, or the two ends of an edge."""

    columns: tuple[str, ...]
    rule: MergeRule


@dataclass(frozen=True, slots=True)
class Unknown:
    """The undetermined values of a virtual base, where its ancestors disagree: entity ids by the columns of a unit.

    An undetermined value differs from every value, so both sides count as changed there. An entity whose existence is
    undetermined is present with no known value.
    """

    by_unit: Mapping[tuple[str, ...], Ids] = field(default_factory=dict)

    @property
    def ids(self) -> Ids:
        """The entities of which anything is undetermined."""
        return pc.unique(pa.concat_arrays([NO_IDS, *self.by_unit.values()]))

    def among(self, unit: Unit, ids: Ids) -> Mask:
        return np.asarray(is_among(ids, self.by_unit.get(unit.columns, NO_IDS)), bool)

    def joined(self, others: Iterable[tuple[Unit, Ids]]) -> Unknown:
        by_unit = dict(self.by_unit)
        for unit, ids in others:
            if len(ids):
                by_unit[unit.columns] = pc.unique(pa.concat_arrays([by_unit.get(unit.columns, NO_IDS), ids]))
        return Unknown(by_unit)

    def known_of(self, row: pa.Table) -> pa.Table:
        """Return a one-row table without its undetermined columns."""
        ids = ids_of(row)
        undetermined = [
            name for columns, unit_ids in self.by_unit.items() if is_among(ids, unit_ids).any() for name in columns
        ]
        return row.drop_columns(undetermined) if undetermined else row


NOTHING_UNKNOWN: Final = Unknown()


def units_of(type_: Type) -> tuple[Unit, ...]:
    """Return what can change in an entity of a type, each with the rule that settles it."""
    ends = (Unit(("src", "dst"), type_.merge),) if isinstance(type_, EdgeType) else ()
    return (*ends, *(Unit((name,), item.merge or type_.merge) for name, item in sorted(type_.properties.items())))


def merge_columns(
    units: Sequence[Unit],
    base: pa.Table | None,
    ours: pa.Table,
    theirs: pa.Table,
    unknown: Unknown = NOTHING_UNKNOWN,
) -> tuple[pa.Table, list[tuple[Unit, Mask]]]:
    """Return the merged rows, and for each unit that no rule settles, in which rows; there the merge holds ours.

    Without a base, or where it is unknown, nothing is known to be older: every difference is a change on both sides.
    """
    if not ours.num_rows:
        return ours, []
    ids = ids_of(ours)
    merged: dict[str, Column] = {}
    unsettled: list[tuple[Unit, Mask]] = []
    for unit in units:
        differs = ~_same(unit, ours, theirs)
        if not differs.any():
            continue
        # The classic diff3 rule, per unit instead of per line: a side that equals the base did not change, so the other
        # side wins; only where neither equals it is there anything to decide. An unknown base equals no side.
        is_determined = np.zeros(len(differs), bool) if base is None else ~unknown.among(unit, ids)
        ours_unchanged = is_determined if base is None else is_determined & _same(unit, base, ours)
        theirs_unchanged = is_determined if base is None else is_determined & _same(unit, base, theirs)
        diverged = differs & ~ours_unchanged & ~theirs_unchanged
        if unit.rule is MergeRule.FAIL and diverged.any():
            unsettled.append((unit, diverged))
        for name in unit.columns:
            our_column, their_column = (one_array(side.column(name)) for side in (ours, theirs))
            base_column = None if base is None else _where(is_determined, one_array(base.column(name)))
            merged[name] = _merge_column(
                unit.rule, base_column, our_column, their_column, differs & ours_unchanged, diverged
            )
    columns = [merged.get(name, column) for name, column in zip(ours.schema.names, ours.columns, strict=True)]
    return pa.Table.from_arrays(columns, schema=ours.schema), unsettled


def _where(mask: Mask, values: Column) -> Column:
    """Return values where the mask is true, and null elsewhere."""
    return values if mask.all() else values.take(pa.array(np.arange(len(values)), mask=~mask))


def _same(unit: Unit, left: pa.Table, right: pa.Table) -> Mask:
    pairs = [(one_array(left.column(name)), one_array(right.column(name))) for name in unit.columns]
    return np.logical_and.reduce([equal_values(*pair) for pair in pairs])  # type: ignore[no-any-return]


def _merge_column(
    rule: MergeRule, base: Column, ours: Column, theirs: Column, takes_theirs: Mask, diverged: Mask
) -> Column:
    """Return a merged column: theirs where chosen, the result of the rule where both sides changed, else ours."""
    from_theirs = takes_theirs.copy()
    if rule is MergeRule.THEIRS:
        from_theirs |= diverged
    elif rule in (MergeRule.MAX, MergeRule.MIN):
        from_theirs |= diverged & _wins(rule, ours, theirs)
    # One gather from ours, theirs and the unions, laid end to end, takes every value from where it is decided.
    count = len(ours)
    indices = np.arange(count) + np.where(from_theirs, count, 0)
    parts = [ours, theirs]
    if rule is MergeRule.UNION and diverged.any():
        rows = pa.array(np.flatnonzero(diverged))
        older = pa.nulls(len(rows), ours.type) if base is None else base.take(rows)
        parts.append(union_lists(older, ours.take(rows), theirs.take(rows)))
        indices[diverged] = 2 * count + np.arange(len(rows))
    return pa.concat_arrays(parts).take(pa.array(indices))


def _wins(rule: MergeRule, ours: Column, theirs: Column) -> Mask:
    """Return where their value is larger or smaller than ours; any value wins over null."""
    compare = pc.greater if rule is MergeRule.MAX else pc.less
    wins = pc.or_(pc.fill_null(compare(theirs, ours), False), pc.and_(pc.is_null(ours), pc.is_valid(theirs)))
    return np.asarray(wins.to_numpy(zero_copy_only=False), bool)


def union_lists(base: Column, ours: Column, theirs: Column) -> Column:
    """Return for each row what either side added and neither removed: each item once, ours first. Null is empty.

    >>> lists = [pa.array([value]) for value in (["a", "b"], ["b", "c"], ["a", "d", "b"])]
    >>> union_lists(*lists).to_pylist()
    [['b', 'c', 'd']]
    """
    items = pa.concat_arrays([side.flatten() for side in (ours, theirs, base)])
    codes = items.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
    rows = np.concatenate([pc.list_parent_indices(side).to_numpy() for side in (ours, theirs, base)])
    # One number says which item of which row; equal numbers are equal items.
    keys = rows.astype(np.int64) * (codes.max(initial=0) + 1) + codes
    counts = [len(side.flatten()) for side in (ours, theirs)]
    our_keys, their_keys, base_keys = np.split(keys, np.cumsum(counts))
    # Three-way set merge: an item of the base that either side lacks was removed there, and stays removed.
    removed = np.concatenate([np.setdiff1d(base_keys, our_keys), np.setdiff1d(base_keys, their_keys)])
    # Indices point into ours and theirs laid end to end, which is how `keys`, `rows` and `items` begin.
    indices = np.sort(np.unique(np.concatenate([our_keys, their_keys]), return_index=True)[1])
    indices = indices[~np.isin(keys[indices], removed)]
    indices = indices[np.argsort(rows[indices], kind="stable")]
    lengths = np.bincount(rows[indices].astype(np.int64), minlength=len(ours))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return arrays.ListArray.from_arrays(pa.array(offsets), items.take(pa.array(indices)), type=ours.type)


@dataclass(frozen=True, slots=True)
class Clash:
    """An entity that the two sides left in different states, as one-row tables; None where it is absent.

    `merged` is the mergeable part, with our values in the conflicting `columns`.
    """

    kind: ConflictKind
    entity_id: str
    columns: tuple[str, ...]
    base: pa.Table | None
    ours: pa.Table | None
    theirs: pa.Table | None
    merged: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class RowMerge:
    """The changes of a merge to the rows of one type on our side, and the conflicts."""

    inserted: pa.Table
    updated: pa.Table
    deleted: Ids
    clashes: tuple[Clash, ...] = ()

    @property
    def changes_nothing(self) -> bool:
        return not (self.inserted.num_rows or self.updated.num_rows or len(self.deleted))

    @property
    def written(self) -> pa.Table:
        return pa.concat_tables([self.updated, self.inserted]).combine_chunks()

    @property
    def replaced_ids(self) -> Ids:
        """The entities whose rows go, because they are replaced or deleted."""
        return pa.concat_arrays([ids_of(self.updated), self.deleted])


def as_merge(theirs: RowChanges) -> RowMerge:
    """Return the merge of a type that our side did not touch: their change as it is."""
    return RowMerge(theirs.inserted, theirs.after, ids_of(theirs.deleted))


def merge_rows(type_: Type, ours: RowChanges, theirs: RowChanges, unknown: Unknown = NOTHING_UNKNOWN) -> RowMerge:
    """Merge what two sides did to the rows of a type since their base, of which some may be unknown."""
    merge, contests = merge_sides(type_, ours, theirs, unknown)
    clashes = [clash for contest in contests for clash in contest.clashes(unknown)]
    return replace(merge, clashes=tuple(sorted(clashes, key=lambda clash: clash.entity_id)))


@dataclass(frozen=True, slots=True)
class Contest:
    """Entities with unresolved conflicts, aligned row by row in all tables; None where they are absent.

    `unsettled` marks the rows in which a unit conflicts; if empty, the existence of the entity conflicts.
    """

    kind: ConflictKind
    base: pa.Table | None
    ours: pa.Table | None
    theirs: pa.Table | None
    merged: pa.Table | None = None
    unsettled: tuple[tuple[Unit, Mask], ...] = ()

    def clashes(self, unknown: Unknown) -> Iterator[Clash]:
        tables = (self.base, self.ours, self.theirs, self.merged)
        [rows, *_] = [table for table in tables if table is not None]
        ids: Any = rows.column("id").to_pylist()
        for row, entity_id in enumerate(ids):
            columns = tuple(name for unit, open_ in self.unsettled if open_[row] for name in unit.columns)
            base, *others = [None if table is None else table.slice(row, 1) for table in tables]
            yield Clash(self.kind, entity_id, columns, None if base is None else unknown.known_of(base), *others)


def merge_sides(
    type_: Type, ours: RowChanges, theirs: RowChanges, unknown: Unknown
) -> tuple[RowMerge, tuple[Contest, ...]]:
    """Return what two sides make of the rows of a type, and the contested entities.

    The cost in Python does not grow with the conflicts.
    """
    # Every entity that they touched falls into one case: we did not touch it (take theirs), both inserted it, both
    # updated it, or one deleted what the other updated. What both deleted is gone on our side already.
    touched = pa.concat_arrays([ids_of(rows) for rows in (ours.inserted, ours.after, ours.deleted)])
    both_inserted = _Pair.of(ours.inserted, theirs.inserted)
    both_updated = _Pair.of(ours.after, theirs.after)
    # Both sides started from the same base, so the old row is the same in either change.
    base = theirs.before.take(both_updated.right)
    # An insert on both sides has no base: equal values merge silently, and a difference needs a rule or a resolution.
    settled_inserts, open_inserts = _merge_images(type_, both_inserted, None, unknown)
    settled_updates, open_updates = _merge_images(type_, both_updated, base, unknown)
    revived, removed, contested = _deletes_against_updates(type_, ours, theirs)
    merge = RowMerge(
        pa.concat_tables([rows_without(theirs.inserted, touched), revived]).combine_chunks(),
        pa.concat_tables([rows_without(theirs.after, touched), settled_inserts, settled_updates]).combine_chunks(),
        pa.concat_arrays([without(ids_of(theirs.deleted), touched), removed]),
    )
    return merge, (open_inserts, open_updates, *contested)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Rows of two tables that have the same id, and their places in each."""

    ours: pa.Table
    theirs: pa.Table
    left: Numbers
    right: Numbers

    @classmethod
    def of(cls, ours: pa.Table, theirs: pa.Table) -> _Pair:
        indices = pc.index_in(ids_of(ours), value_set=ids_of(theirs))
        left = np.flatnonzero(pc.is_valid(indices).to_numpy(zero_copy_only=False))
        right = indices.drop_null().to_numpy(zero_copy_only=False)
        return cls(ours.take(left), theirs.take(right), left, right)


def _merge_images(type_: Type, pair: _Pair, base: pa.Table | None, unknown: Unknown) -> tuple[pa.Table, Contest]:
    """Return the rows that replace ours, and the entities with a conflict."""
    units = units_of(type_)
    merged, unsettled = merge_columns(units, base, pair.ours, pair.theirs, unknown)
    is_open = np.logical_or.reduce([np.zeros(merged.num_rows, bool), *(rows for _, rows in unsettled)])
    kind = ConflictKind.DIVERGENT_INSERT if base is None else ConflictKind.DIVERGENT_UPDATE
    ours, theirs, open_merged = (side.filter(pa.array(is_open)) for side in (pair.ours, pair.theirs, merged))
    older = None if base is None else base.filter(pa.array(is_open))
    contest = Contest(kind, older, ours, theirs, open_merged, tuple((unit, rows[is_open]) for unit, rows in unsettled))
    return merged.filter(pa.array(changed_rows(units, pair.ours, merged) & ~is_open)), contest


def changed_rows(units: tuple[Unit, ...], ours: pa.Table, merged: pa.Table) -> Mask:
    changed = np.zeros(ours.num_rows, bool)
    for unit in units:
        changed |= ~_same(unit, ours, merged)
    return changed


def _deletes_against_updates(
    type_: Type, ours: RowChanges, theirs: RowChanges
) -> tuple[pa.Table, Ids, tuple[Contest, ...]]:
    """Return rows to restore, ids to delete, and undecided ones; delete-versus-update is decided per type."""
    # A pure delete never conflicts with an unchanged row: those are not in `after`, so only real changes meet here.
    we_deleted = _Pair.of(ours.deleted, theirs.after)
    they_deleted = _Pair.of(ours.after, theirs.deleted)
    nothing, no_ids = theirs.after.slice(0, 0), ids_of(theirs.deleted).slice(0, 0)
    if type_.merge is MergeRule.OURS:
        return nothing, no_ids, ()
    if type_.merge is MergeRule.THEIRS:
        return we_deleted.theirs, ids_of(they_deleted.theirs), ()
    by_us = Contest(ConflictKind.DELETE_VS_UPDATE, we_deleted.ours, None, we_deleted.theirs)
    by_them = Contest(ConflictKind.DELETE_VS_UPDATE, they_deleted.theirs, they_deleted.ours, None)
    return nothing, no_ids, (by_us, by_them)


def rows_without(rows: pa.Table, ids: Ids) -> pa.Table:
    return rows.filter(pa.array(~is_among(ids_of(rows), ids)))


def ids_of(rows: pa.Table) -> Ids:
    return one_array(rows.column("id"))
