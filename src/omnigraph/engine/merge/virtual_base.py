"""Virtual merge bases: join several best common ancestors into one state, for the rows of one type.

Pure. As in git's recursive strategy, the ancestors are merged with each other, using their own merge base. Values they
disagree about become undetermined: they equal no value of a side, so the merge sees a change on both sides and
resolves it only if they agree or the schema has a rule. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa

from omnigraph.engine.changes.row_diff import RowChanges
from omnigraph.engine.merge.ancestry import MergeBase
from omnigraph.engine.merge.row_merge import (
    NOTHING_UNKNOWN,
    Contest,
    RowMerge,
    Type,
    Unit,
    Unknown,
    changed_rows,
    merge_rows,
    merge_sides,
    units_of,
)
from omnigraph.lang.catalog import MergeRule
from omnigraph.rules.arrow_typing import pc
from omnigraph.rules.delta import Ids, is_among, last_of_each, one_array

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

_DIRECTED = (MergeRule.OURS, MergeRule.THEIRS)


@dataclass(frozen=True, slots=True)
class Image:
    """The affected entities in one state, and their undetermined values."""

    rows: pa.Table
    unknown: Unknown = NOTHING_UNKNOWN


def merge_from_virtual(type_: Type, base: Image, ours: pa.Table, theirs: pa.Table) -> RowMerge:
    """Merge the rows of two sides, as far as they are in question, from a virtual base."""
    our_changes, their_changes = (difference(type_, base, Image(side)) for side in (ours, theirs))
    return merge_rows(type_, our_changes, their_changes, base.unknown)


def build_image(type_: Type, base: MergeBase[T], rows_of: Callable[[T], pa.Table]) -> Image:
    """Return a base as an image, from the rows that each of its states has of the entities in question."""
    image, undirected = Image(rows_of(base.first)), _undirected(type_)
    # A left fold, as in git's recursive strategy: each further ancestor is merged into what was joined so far, from the
    # merge base of the two.
    for joined in base.joined:
        below = None if joined.base is None else build_image(type_, joined.base, rows_of)
        image = _join(undirected, image, Image(rows_of(joined.state)), below)
    return image


def images(deltas: Mapping[K, RowChanges]) -> tuple[pa.Table, dict[K, pa.Table]]:
    """Return the rows that differ in any state, in the reference and in each state.

    Deltas lead from one reference to each state; entities that no delta names are equal everywhere.
    """
    # What a delta replaced or deleted is the state of the reference, so several deltas agree on it and any one will do.
    olds = [rows for delta in deltas.values() for rows in (delta.before, delta.deleted)]
    old = pa.concat_tables(olds).combine_chunks()
    old = old.take(last_of_each(_ids(old)))
    result = {}
    for key, delta in deltas.items():
        touched = pa.concat_arrays([_ids(rows) for rows in (delta.before, delta.deleted)])
        others = old.filter(pa.array(~is_among(_ids(old), touched)))
        result[key] = pa.concat_tables([delta.inserted, delta.after, others]).combine_chunks()
    return old, result


def difference(type_: Type, before: Image, after: Image) -> RowChanges:
    """Return the changes between two images; entities with undetermined values count as updated."""
    indices = pc.index_in(_ids(before.rows), value_set=_ids(after.rows))
    is_there = np.asarray(pc.is_valid(indices).to_numpy(zero_copy_only=False), bool)
    old, new = before.rows.filter(pa.array(is_there)), after.rows.take(indices.drop_null())
    ids = _ids(old)
    changed = np.asarray(changed_rows(units_of(type_), old, new), bool)
    changed |= is_among(ids, before.unknown.ids) | is_among(ids, after.unknown.ids)
    return RowChanges(
        inserted=after.rows.filter(pa.array(~is_among(_ids(after.rows), _ids(before.rows)))),
        deleted=before.rows.filter(pa.array(~is_there)),
        before=old.filter(pa.array(changed)),
        after=new.filter(pa.array(changed)),
    )


def _join(type_: Type, left: Image, right: Image, base: Image | None) -> Image:
    units = units_of(type_)
    # Without a base what both have counts as inserted by both, and of the rest it is open whether it exists.
    below = Image(left.rows.slice(0, 0)) if base is None else base
    left_changes, right_changes = (difference(type_, below, side) for side in (left, right))
    merge = merge_sides(type_, left_changes, right_changes, below.unknown)
    placed = [merge.updated, merge.inserted, *(_placed(contested) for contested in merge.contests)]
    gone = pa.concat_arrays([merge.deleted, *map(_ids, placed)])
    rows = pa.concat_tables([left.rows.filter(pa.array(~is_among(_ids(left.rows), gone))), *placed]).combine_chunks()
    # What either side did not determine stays so, and what they contest becomes so: existence, with all units.
    unknown = left.unknown.joined(
        (Unit(columns, MergeRule.FAIL), ids) for columns, ids in right.unknown.by_unit.items()
    )
    for contest in merge.contests:
        ids = _ids(_placed(contest))
        unknown = unknown.joined(
            [(unit, ids.filter(pa.array(is_open))) for unit, is_open in contest.unsettled]
            if contest.merged is not None
            else [(unit, ids) for unit in units]
        )
    if base is None:
        alone = difference(type_, left, right)
        ids = pa.concat_arrays([_ids(alone.inserted), _ids(alone.deleted)])
        unknown = unknown.joined((unit, ids) for unit in units)
    return Image(rows, unknown)


def _placed(contest: Contest) -> pa.Table:
    """Return the rows that represent contested entities: the merged part, or those of one side."""
    [rows, *_] = [
        rows_of_side for rows_of_side in (contest.merged, contest.ours, contest.theirs) if rows_of_side is not None
    ]
    return rows


def _undirected(type_: Type) -> Type:
    """Return a type whose rules know no direction: of two ancestors, neither is merged into the other."""
    properties = {
        name: replace(property_, merge=MergeRule.FAIL) if property_.merge in _DIRECTED else property_
        for name, property_ in type_.properties.items()
    }
    merge = MergeRule.FAIL if type_.merge in _DIRECTED else type_.merge
    return replace(type_, properties=properties, merge=merge)


def _ids(rows: pa.Table) -> Ids:
    return one_array(rows.column("id"))
