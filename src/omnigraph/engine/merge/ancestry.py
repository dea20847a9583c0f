"""Merge bases: the best common ancestors of two commits, and the recursive virtual base built from several.

Pure: commits are read through a lookup, so that a walk reads only as far back as necessary. Timestamps order the walk
but never decide the result, because writers' clocks may be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, Generic, TypeVar

from omnigraph.ids import CommitId
from omnigraph.limits import MERGE_BASE_COMMITS_MAX
from omnigraph.manifest.history import Commits
from omnigraph.manifest.model import Commit

T = TypeVar("T")
V = TypeVar("V")

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
        """The best common ancestors, without what lies below them."""
        return (self.first, *(joined.state for joined in self.joined))

    def states(self) -> Iterator[T]:
        """Yield all states, including nested bases, as often as they occur."""
        yield self.first
        for joined in self.joined:
            yield joined.state
            if joined.base is not None:
                yield from joined.base.states()

    def map(self, function: Callable[[T], V]) -> MergeBase[V]:
        """Return the base with every state mapped by a function."""
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
            known = None if below is None or below.is_virtual else key(below.first)
            if key(joined.state) == known or (not base.is_virtual and key(joined.state) == key(base.first)):
                continue
            if not base.is_virtual and key(base.first) == known:
                base = MergeBase(joined.state)
            else:
                base = MergeBase(base.first, (*base.joined, Joined(joined.state, below)))
        return base


def best_common_ancestors(commits: Commits, ours: CommitId, theirs: CommitId) -> tuple[CommitId, ...]:
    """Return the best common ancestors, newest first, as `git merge-base --all` does.

    Best means: no ancestor of another common ancestor. A commit counts as its own ancestor. Criss-cross merges give
    several, unrelated histories none. The cost is nearly linear in the number of commits newer than the result.
    """
    return _best(commits, (ours,), (theirs,))


def is_ancestor(commits: Commits, older: CommitId, newer: CommitId) -> bool:
    """Return True if a commit is an ancestor of another, or the same."""
    return older in _paint_down(commits, (older,), (newer,))


def merge_base(commits: Commits, ours: CommitId, theirs: CommitId) -> MergeBase[CommitId] | None:
    """Return the merge base of two commits; None if their histories are unrelated.

    Several best common ancestors are joined one by one, each with the merge base of the previous ones and the next, as
    in git's recursive strategy. Beyond `MERGE_BASE_COMMITS_MAX` commits, older ancestors are ignored.
    """
    return _Joining(commits).base((ours,), theirs)


class _Joining:
    """Builds the merge base of two commits within a budget of commits."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._left = MERGE_BASE_COMMITS_MAX

    def base(self, ours: tuple[CommitId, ...], theirs: CommitId) -> MergeBase[CommitId] | None:
        best = _best(self._commits, ours, (theirs,))
        self._left -= len(best)
        if not best:
            return None
        joined: list[Joined[CommitId]] = []
        for number, commit_id in enumerate(best[1:], start=1):
            # Histories that crossed again and again would be followed to their beginning.
            below = self.base(best[:number], commit_id) if self._left > 0 else None
            joined.append(Joined(commit_id, below))
        return MergeBase(best[0], tuple(joined))


def _best(commits: Commits, ours: Collection[CommitId], theirs: Collection[CommitId]) -> tuple[CommitId, ...]:
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
    met: set[CommitId] = set()
    while queue.fresh:
        commit_id = queue.pop()
        colour = colours[commit_id]
        if colour & _COMMON == _COMMON:
            if not colour & _STALE:
                met.add(commit_id)
            if not queue.fresh:
                break
            colour |= _STALE
        # Colours only grow, and a commit is queued again only when it gains one, so the walk ends.
        for parent in _parents(commits[commit_id]):
            known = colours.get(parent, 0)
            if known | colour != known:
                colours[parent] = known | colour
                queue.push(parent, colours)
    # A commit may have met both sides before a better one was seen to descend from it.
    return {commit_id for commit_id in met if not colours[commit_id] & _STALE}


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
