"""Merge bases: the best common ancestors of two commits, and the recursive virtual base built from several.

Pure: commits are read through a lookup, so that a walk reads only as far back as necessary. Timestamps order the walk
but never decide the result, because writers' clocks may be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Final, Generic, TypeVar

import numpy as np
import pyarrow as pa

from omnigraph.engine.changes.row_diff import RowChanges
from omnigraph.engine.merge.row_merge import (
    NOTHING_UNKNOWN,
    Contest,
    RowMerge,
    Unit,
    Unknown,
    changed_rows,
    ids_of,
    merge_rows,
    merge_sides,
    rows_without,
    units_of,
)
from omnigraph.ids import CommitId
from omnigraph.lang.catalog import MergeRule, Type
from omnigraph.limits import MERGE_BASE_COMMITS_MAX
from omnigraph.manifest.history import Commits
from omnigraph.manifest.model import Commit
from omnigraph.rules.arrow_typing import pc
from omnigraph.rules.delta import is_among, last_of_each

T = TypeVar("T")
V = TypeVar("V")
K = TypeVar("K", bound=Hashable)

_LEFT: Final = 1
_RIGHT: Final = 2
_COMMON: Final = _LEFT | _RIGHT
# STALE: an ancestor of a common ancestor, therefore not among the best ones.
_STALE: Final = 4


@dataclass(frozen=True, slots=True)
class Joined(Generic[T]):
    """A further state of a virtual base, and the merge base of it and the states before it.

    Without a `base`, it is unknown which of two differing values is the older one.
    """

    state: T
    base: MergeBase[T] | None


@dataclass(frozen=True, slots=True)
class MergeBase(Generic[T]):
    """The base of a merge: one state, or a virtual one joined from several."""

    first: T
    joined: tuple[Joined[T], ...] = ()

    @property
    def is_virtual(self) -> bool:
        return bool(self.joined)

    @property
    def best(self) -> tuple[T, ...]:
        """The best common ancestors, without their own ancestors."""
        return (self.first, *(joined.state for joined in self.joined))

    def states(self) -> Iterator[T]:
        """Yield all states, including nested bases, as often as they occur."""
        yield self.first
        for joined in self.joined:
            yield joined.state
            if joined.base is not None:
                yield from joined.base.states()

    def map(self, function: Callable[[T], V]) -> MergeBase[V]:
        joined = (
            Joined(function(ancestor.state), None if ancestor.base is None else ancestor.base.map(function))
            for ancestor in self.joined
        )
        return MergeBase(function(self.first), tuple(joined))

    def reduced(self, key: Callable[[T], Hashable]) -> MergeBase[T]:
        """Return the base without joins of states that have the same key and therefore the same content."""
        base = MergeBase(self.first)
        for joined in self.joined:
            below = None if joined.base is None else joined.base.reduced(key)
            # The trivial cases of a three-way merge: a state that equals its base, or the state so far, adds nothing;
            # if the state so far equals the base, the other one is the result.
            base_key = None if below is None or below.is_virtual else key(below.first)
            if key(joined.state) == base_key or (not base.is_virtual and key(joined.state) == key(base.first)):
                continue
            if not base.is_virtual and key(base.first) == base_key:
                base = MergeBase(joined.state)
            else:
                base = MergeBase(base.first, (*base.joined, Joined(joined.state, below)))
        return base


def is_ancestor(commits: Commits, older: CommitId, newer: CommitId) -> bool:
    """Return True if a commit is an ancestor of another, or the same."""
    return older in _paint_down(commits, (older,), (newer,))


def merge_base(commits: Commits, ours: CommitId, theirs: CommitId) -> MergeBase[CommitId] | None:
    """Return the merge base of two commits; None if their histories are unrelated.

    Several best common ancestors are joined one by one, each with the merge base of the previous ones and the next, as
    in git's recursive strategy. Beyond `MERGE_BASE_COMMITS_MAX` commits, older ancestors are ignored.
    """
    left = MERGE_BASE_COMMITS_MAX

    def join(ours: tuple[CommitId, ...], theirs: CommitId) -> MergeBase[CommitId] | None:
        nonlocal left
        best = _best(commits, ours, (theirs,))
        left -= len(best)
        if not best:
            return None
        joined: list[Joined[CommitId]] = []
        for number, commit_id in enumerate(best[1:], start=1):
            # Histories that crossed again and again would be followed to their beginning.
            below = join(best[:number], commit_id) if left > 0 else None
            joined.append(Joined(commit_id, below))
        return MergeBase(best[0], tuple(joined))

    return join((ours,), theirs)


def _best(commits: Commits, ours: Collection[CommitId], theirs: Collection[CommitId]) -> tuple[CommitId, ...]:
    """Return the best common ancestors, newest first, as `git merge-base --all` does.

    Best means: no ancestor of another common ancestor. A commit counts as its own ancestor. Criss-cross merges give
    several, unrelated histories none. The cost is nearly linear in the number of commits newer than the result.
    """
    common = _paint_down(commits, ours, theirs)
    if len(common) > 1:
        # Clocks that were wrong can leave an ancestor of another among them.
        common = {
            commit_id
            for commit_id in common
            if commit_id not in _paint_down(commits, (commit_id,), common - {commit_id})
        }
    return tuple(sorted(common, key=lambda commit_id: (commits[commit_id].created_at_us, commit_id), reverse=True))


def _paint_down(commits: Commits, ours: Collection[CommitId], theirs: Collection[CommitId]) -> set[CommitId]:
    """Return a superset of the best common ancestors of two sets of commits.

    Paint-down-to-common, as in git: each side paints its ancestors, newest first; ancestors of a commit with both
    colours are stale. The walk ends when only stale commits are queued. Invariant: no path to a best common ancestor
    leads through a stale commit, so all of them are found regardless of the visiting order.
    """
    queue, colours = _Queue(commits), dict[CommitId, int]()
    for starts, colour in ((ours, _LEFT), (theirs, _RIGHT)):
        for commit_id in starts:
            colours[commit_id] = colours.get(commit_id, 0) | colour
            queue.push(commit_id, colours)
    candidates: set[CommitId] = set()
    while queue.fresh:
        commit_id = queue.pop()
        colour = colours[commit_id]
        if colour & _COMMON == _COMMON:
            if not colour & _STALE:
                candidates.add(commit_id)
            if not queue.fresh:
                break
            colour |= _STALE
        # Colours only grow, and a commit is queued again only when it gains one, so the walk ends.
        for parent in _parents(commits[commit_id]):
            painted = colours.get(parent, 0)
            if painted | colour != painted:
                colours[parent] = painted | colour
                queue.push(parent, colours)
    # A commit may have met both sides before a better one was seen to descend from it.
    return {commit_id for commit_id in candidates if not colours[commit_id] & _STALE}


class _Queue:
    """Commits to visit, newest first; `fresh` are those of them that are not stale."""

    def __init__(self, commits: Commits) -> None:
        self.fresh: set[CommitId] = set()
        self._commits = commits
        self._heap: list[tuple[int, CommitId]] = []
        self._waiting: set[CommitId] = set()

    def push(self, commit_id: CommitId, colours: dict[CommitId, int]) -> None:
        if commit_id not in self._waiting:
            self._waiting.add(commit_id)
            heappush(self._heap, (-self._commits[commit_id].created_at_us, commit_id))
        if colours[commit_id] & _STALE:
            self.fresh.discard(commit_id)
        else:
            self.fresh.add(commit_id)

    def pop(self) -> CommitId:
        _, commit_id = heappop(self._heap)
        self._waiting.discard(commit_id)
        self.fresh.discard(commit_id)
        return commit_id


def _parents(commit: Commit) -> Iterator[CommitId]:
    yield from (parent for parent in (commit.parent, commit.merged_parent) if parent is not None)


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
    old = old.take(last_of_each(ids_of(old)))
    result = {}
    for key, delta in deltas.items():
        touched = pa.concat_arrays([ids_of(rows) for rows in (delta.before, delta.deleted)])
        result[key] = pa.concat_tables([delta.inserted, delta.after, rows_without(old, touched)]).combine_chunks()
    return old, result


def difference(type_: Type, before: Image, after: Image) -> RowChanges:
    """Return the changes between two images; entities with undetermined values count as updated."""
    indices = pc.index_in(ids_of(before.rows), value_set=ids_of(after.rows))
    is_there = np.asarray(pc.is_valid(indices).to_numpy(zero_copy_only=False), bool)
    old, new = before.rows.filter(pa.array(is_there)), after.rows.take(indices.drop_null())
    ids = ids_of(old)
    changed = np.asarray(changed_rows(units_of(type_), old, new), bool)
    changed |= is_among(ids, before.unknown.ids) | is_among(ids, after.unknown.ids)
    return RowChanges(
        inserted=rows_without(after.rows, ids_of(before.rows)),
        deleted=before.rows.filter(pa.array(~is_there)),
        before=old.filter(pa.array(changed)),
        after=new.filter(pa.array(changed)),
    )


def _join(type_: Type, left: Image, right: Image, base: Image | None) -> Image:
    units = units_of(type_)
    # Without a base what both have counts as inserted by both, and of the rest it is open whether it exists.
    below = Image(left.rows.slice(0, 0)) if base is None else base
    left_changes, right_changes = (difference(type_, below, side) for side in (left, right))
    merge, contests = merge_sides(type_, left_changes, right_changes, below.unknown)
    placed = [merge.updated, merge.inserted, *(_placed(contested) for contested in contests)]
    deleted_ids = pa.concat_arrays([merge.deleted, *map(ids_of, placed)])
    rows = pa.concat_tables([rows_without(left.rows, deleted_ids), *placed]).combine_chunks()
    # What either side did not determine stays so, and what they contest becomes so: existence, with all units.
    unknown = left.unknown.joined(
        (Unit(columns, MergeRule.FAIL), ids) for columns, ids in right.unknown.by_unit.items()
    )
    for contest in contests:
        ids = ids_of(_placed(contest))
        unknown = unknown.joined(
            [(unit, ids.filter(pa.array(is_open))) for unit, is_open in contest.unsettled]
            if contest.merged is not None
            else [(unit, ids) for unit in units]
        )
    if base is None:
        differing = difference(type_, left, right)
        ids = pa.concat_arrays([ids_of(differing.inserted), ids_of(differing.deleted)])
        unknown = unknown.joined((unit, ids) for unit in units)
    return Image(rows, unknown)


def _placed(contest: Contest) -> pa.Table:
    """Return the rows that represent contested entities: the merged part, or those of one side."""
    return next(rows for rows in (contest.merged, contest.ours, contest.theirs) if rows is not None)


def _undirected(type_: Type) -> Type:
    """Return a type whose rules know no direction: of two ancestors, neither is merged into the other."""
    properties = {
        name: replace(property_, merge=MergeRule.FAIL) if property_.merge in _DIRECTED else property_
        for name, property_ in type_.properties.items()
    }
    merge = MergeRule.FAIL if type_.merge in _DIRECTED else type_.merge
    return replace(type_, properties=properties, merge=merge)
