"""Data that a merge would lose: of a type or property that one side dropped from the schema and the other changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from omnigraph.display import count_of
from omnigraph.engine.changes.row_diff import RowChanges, equal_values
from omnigraph.engine.merge.row_merge import Unit, Unknown, ids_of
from omnigraph.engine.merge.schema_merge import MergedSchema, OpenConflict
from omnigraph.engine.merge.three_way import ThreeWayState
from omnigraph.engine.past_schemas import compare, compare_columns
from omnigraph.engine.session import View
from omnigraph.lang.catalog import MergeRule
from omnigraph.lang.schema.merge import Key, Side
from omnigraph.public_values import Conflict, ConflictKind


def lost_changes(merged: MergedSchema, takes: Mapping[Key, Side], *, is_revert: bool) -> list[OpenConflict]:
    """Return a conflict for everything that one side dropped from the schema while the other changed its data.

    What a revert takes back does not count, nor what was decided: the side that dropped it is taken.
    """
    sides = [(merged.ours, "we")] if is_revert else [(merged.ours, "we"), (merged.theirs, "they")]
    lost = [item for side, pronoun in sides for item in _lost_by(merged, side, pronoun)]
    return [item for item in lost if item.key is None or takes.get(item.key) not in item.sides]


def _lost_by(merged: MergedSchema, side: View, pronoun: str) -> Iterator[OpenConflict]:
    dropper = "they" if pronoun == "we" else "we"
    sides: tuple[Side, ...] = ("theirs",) if pronoun == "we" else ("ours",)
    reshaping = compare(side.catalog, merged.catalog)
    # Read under its own schema, the side has what the merged one dropped.
    side_state = ThreeWayState.under(MergedSchema(side.snapshot.state.schema, side.catalog, merged.base, side, side))
    for type_ in reshaping.dropped:
        if count := side_state.our_changes(type_)[0].count:
            message = f"`{type_.name}`: {dropper} dropped the type, {pronoun} changed {count_of(count, 'entity')} of it"
            conflict = Conflict(type_.table_key, None, ConflictKind.DROP_VS_UPDATE, message)
            yield OpenConflict(conflict, ("type", type_.type_id), sides)
    for type_, successor in reshaping.kept:
        dropped = compare_columns(type_, successor).dropped
        changes = side_state.our_changes(type_) if dropped else None
        for name in dropped:
            count = 0 if changes is None else _count_values(*changes, name)
            if count:
                entities = count_of(count, "entity")
                message = f"`{type_.name}.{name}`: {dropper} dropped the property, {pronoun} set it on {entities}"
                conflict = Conflict(successor.table_key, None, ConflictKind.DROP_VS_UPDATE, message, (name,))
                key = ("property", type_.type_id, type_.properties[name].property_id)
                yield OpenConflict(conflict, key, sides)


def _count_values(changes: RowChanges, unknown: Unknown, name: str) -> int:
    """Return how many entities have another value of a property than before; a value unknown before counts."""
    inserted = changes.inserted.num_rows - changes.inserted.column(name).null_count
    before, after = (table.column(name).combine_chunks() for table in (changes.before, changes.after))
    is_undetermined = unknown.among(Unit((name,), MergeRule.FAIL), ids_of(changes.before))
    return inserted + int(np.count_nonzero(~equal_values(before, after) | is_undetermined))
