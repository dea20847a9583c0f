"""What a merge of one type means, said once more in plain Python: one entity and one property at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from omnigraph.engine.changes.row_diff import RowChanges
from omnigraph.engine.merge.row_merge import RowMerge
from omnigraph.lang.catalog import EdgeType, MergeRule, NodeType
from omnigraph.lang.schema.arrow_schema import arrow_schema

Row = dict[str, Any]
State = Mapping[str, Row]
Conflicts = set[tuple[str, str, tuple[str, ...]]]
Type = NodeType | EdgeType


def merge_states(type_: Type, base: State, ours: State, theirs: State) -> tuple[dict[str, Row], Conflicts]:
    """Return the merged entities, ours where there is a conflict, and the conflicts as (id, kind, columns)."""
    result: dict[str, Row] = {}
    conflicts: Conflicts = set()
    for entity in sorted({*base, *ours, *theirs}):
        row, kind, columns = _merge_entity(type_, base.get(entity), ours.get(entity), theirs.get(entity))
        if kind is not None:
            conflicts.add((entity, kind, columns))
        if row is not None:
            result[entity] = row
    return result, conflicts


def _merge_entity(
    type_: Type, base: Row | None, ours: Row | None, theirs: Row | None
) -> tuple[Row | None, str | None, tuple[str, ...]]:
    if theirs in (base, ours):
        return ours, None, ()
    if ours == base:
        return theirs, None, ()
    if ours is None or theirs is None:
        if type_.merge is MergeRule.FAIL:
            return ours, "DeleteVsUpdate", ()
        return (ours if type_.merge is MergeRule.OURS else theirs), None, ()
    row, columns = dict(ours), list[str]()
    for names, rule in _parts(type_):
        values = [None if side is None else [side[name] for name in names] for side in (base, ours, theirs)]
        merged = _merge_value(rule, *values)
        if merged is None:
            columns += names
        else:
            row.update(zip(names, merged, strict=True))
    if not columns:
        return row, None, ()
    return ours, "DivergentInsert" if base is None else "DivergentUpdate", tuple(columns)


def _parts(type_: Type) -> list[tuple[tuple[str, ...], MergeRule]]:
    ends = [(("src", "dst"), type_.merge)] if isinstance(type_, EdgeType) else []
    return [*ends, *(((name,), one.merge or type_.merge) for name, one in sorted(type_.properties.items()))]


def _merge_value(rule: MergeRule, base: Any, ours: Any, theirs: Any) -> Any:
    if theirs in (base, ours):
        return ours
    if ours == base:
        return theirs
    if rule in (MergeRule.OURS, MergeRule.THEIRS):
        return ours if rule is MergeRule.OURS else theirs
    if rule is MergeRule.FAIL:
        return None
    if rule is MergeRule.UNION:
        [mine], [yours], [older] = ours, theirs, base or [None]
        removed = [item for item in older or [] if item not in (mine or []) or item not in (yours or [])]
        union: list[Any] = []
        for item in [*(mine or []), *(yours or [])]:
            if item not in union and item not in removed:
                union.append(item)
        return [union]
    present = [value for value in (ours[0], theirs[0]) if value is not None]
    return [max(present) if rule is MergeRule.MAX else min(present)]


def changes(type_: Type, before: State, after: State) -> RowChanges:
    """Return the difference between two states as a comparison of datasets would."""
    both = sorted(one for one in {*before} & {*after} if before[one] != after[one])
    return RowChanges(
        _table(type_, after, sorted({*after} - {*before})),
        _table(type_, before, sorted({*before} - {*after})),
        _table(type_, before, both),
        _table(type_, after, both),
    )


def _table(type_: Type, state: State, ids: list[str]) -> pa.Table:
    rows = [{"id": one, **state[one]} for one in ids]
    return pa.Table.from_pylist(rows, schema=arrow_schema(type_))


def applied(ours: State, merge: RowMerge) -> dict[str, Row]:
    """Return our state after a merge; the merge must not insert what is there, nor update or delete what is not."""
    result = {one: dict(row) for one, row in ours.items()}
    for row in merge.inserted.to_pylist():
        assert row["id"] not in result, "inserted, and yet there"
        result[row.pop("id")] = row
    for row in merge.updated.to_pylist():
        assert ours.get(row["id"]) not in (None, {k: v for k, v in row.items() if k != "id"}), "updated without need"
        result[row.pop("id")] = row
    for entity in merge.deleted.to_pylist():
        del result[entity]
    return result
