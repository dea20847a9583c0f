"""Three-way merge of columns: each property by itself, by the rule that the schema gives it.

Pure. Rows are aligned: row n of every table is the same entity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.changes.equal import Mask, equal_values
from omnigraph.lang.catalog import EdgeType, MergeRule, NodeType
from omnigraph.rules.delta import NO_IDS, Ids, is_among, one_array
from omnigraph.rules.kernels import Column, Numbers, arrays, pc


@dataclass(frozen=True, slots=True)
class Unit:
    """Columns that change together: a property, or the two ends of an edge."""

    columns: tuple[str, ...]
    rule: MergeRule


@dataclass(frozen=True, slots=True)
class Unknown:
    """What of a virtual base is undetermined, because the states it was joined from disagree: ids by columns of a unit.

    An undetermined value differs from every other, so both sides count as changed there. An entity of which even the
    existence is undetermined is there, with nothing known of it.
    """

    by_unit: Mapping[tuple[str, ...], Ids] = field(default_factory=dict)

    @property
    def ids(self) -> Ids:
        """The entities of which anything is undetermined."""
        return pc.unique(pa.concat_arrays([NO_IDS, *self.by_unit.values()]))

    def among(self, unit: Unit, ids: Ids) -> Mask:
        """Return for which of some entities a unit is undetermined."""
        return np.asarray(is_among(ids, self.by_unit.get(unit.columns, NO_IDS)), bool)

    def joined(self, others: Iterable[tuple[Unit, Ids]]) -> Unknown:
        """Return this and more."""
        found = dict(self.by_unit)
        for unit, ids in others:
            if len(ids):
                found[unit.columns] = pc.unique(pa.concat_arrays([found.get(unit.columns, NO_IDS), ids]))
        return Unknown(found)

    def known_of(self, row: pa.Table) -> pa.Table:
        """Return a table of one row without the columns that are undetermined in it."""
        ids = one_array(row.column("id"))
        gone = [name for columns, own in self.by_unit.items() if is_among(ids, own).any() for name in columns]
        return row.drop_columns(gone) if gone else row


NOTHING_UNKNOWN: Final = Unknown()


def units_of(type_: NodeType | EdgeType) -> tuple[Unit, ...]:
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
    ids = one_array(ours.column("id"))
    merged: dict[str, Column] = {}
    unsettled: list[tuple[Unit, Mask]] = []
    for unit in units:
        differs = ~_same(unit, ours, theirs)
        if not differs.any():
            continue
        known = np.zeros(len(differs), bool) if base is None else ~unknown.among(unit, ids)
        kept = known if base is None else known & _same(unit, base, ours)
        gone_back = known if base is None else known & _same(unit, base, theirs)
        diverged = differs & ~kept & ~gone_back
        if unit.rule is MergeRule.FAIL and diverged.any():
            unsettled.append((unit, diverged))
        for name in unit.columns:
            mine, yours = (one_array(one.column(name)) for one in (ours, theirs))
            older = None if base is None else _where(known, one_array(base.column(name)))
            merged[name] = _settled(unit.rule, older, mine, yours, differs & kept, diverged)
    columns = [merged.get(name, column) for name, column in zip(ours.schema.names, ours.columns, strict=True)]
    return pa.Table.from_arrays(columns, schema=ours.schema), unsettled


def _where(known: Mask, values: Column) -> Column:
    """Return values where they are known, and null elsewhere."""
    return values if known.all() else values.take(pa.array(np.arange(len(values)), mask=~known))


def _same(unit: Unit, one: pa.Table, two: pa.Table) -> Mask:
    pairs = [(one_array(one.column(name)), one_array(two.column(name))) for name in unit.columns]
    return np.logical_and.reduce([equal_values(*pair) for pair in pairs])  # type: ignore[no-any-return]


def _settled(rule: MergeRule, base: Column, ours: Column, theirs: Column, taken: Mask, diverged: Mask) -> Column:
    """Return a merged column: theirs where it is taken, what the rule says where both sides changed, else ours."""
    from_theirs = taken.copy()
    if rule is MergeRule.THEIRS:
        from_theirs |= diverged
    elif rule in (MergeRule.MAX, MergeRule.MIN):
        from_theirs |= diverged & _wins(rule, ours, theirs)
    count = len(ours)
    places = np.arange(count) + np.where(from_theirs, count, 0)
    parts = [ours, theirs]
    if rule is MergeRule.UNION and diverged.any():
        rows = pa.array(np.flatnonzero(diverged))
        older = pa.nulls(len(rows), ours.type) if base is None else base.take(rows)
        parts.append(union_lists(older, ours.take(rows), theirs.take(rows)))
        places[diverged] = 2 * count + np.arange(len(rows))
    return pa.concat_arrays(parts).take(pa.array(places))


def _wins(rule: MergeRule, ours: Column, theirs: Column) -> Mask:
    """Return where their value is the larger or smaller one; any value wins over none."""
    compare = pc.greater if rule is MergeRule.MAX else pc.less
    wins = pc.or_(pc.fill_null(compare(theirs, ours), False), pc.and_(pc.is_null(ours), pc.is_valid(theirs)))
    return np.asarray(wins.to_numpy(zero_copy_only=False), bool)


def union_lists(base: Column, ours: Column, theirs: Column) -> Column:
    """Return for each row what either side added and neither removed: each item once, ours first. Null is empty.

    >>> lists = [pa.array([value]) for value in (["a", "b"], ["b", "c"], ["a", "d", "b"])]
    >>> union_lists(*lists).to_pylist()
    [['b', 'c', 'd']]
    """
    items = pa.concat_arrays([one.flatten() for one in (ours, theirs, base)])
    codes = items.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
    rows = np.concatenate([pc.list_parent_indices(one).to_numpy() for one in (ours, theirs, base)])
    # One number says which item of which row; equal numbers are equal items.
    keys = rows.astype(np.int64) * (codes.max(initial=0) + 1) + codes
    counts = [len(one.flatten()) for one in (ours, theirs)]
    mine, yours, older = np.split(keys, np.cumsum(counts))
    removed = np.concatenate([np.setdiff1d(older, mine), np.setdiff1d(older, yours)])
    places = _first_of_each(np.concatenate([mine, yours]))
    places = places[~np.isin(keys[places], removed)]
    places = places[np.argsort(rows[places], kind="stable")]
    lengths = np.bincount(rows[places].astype(np.int64), minlength=len(ours))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return arrays.ListArray.from_arrays(pa.array(offsets), items.take(pa.array(places)), type=ours.type)


def _first_of_each(keys: Numbers) -> Numbers:
    _, first = np.unique(keys, return_index=True)
    found: Any = np.sort(first)
    return found
