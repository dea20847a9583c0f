"""Ancestry: what two histories have in common, and whether one commit is part of the history of another.

Pure: commits come through a lookup, so a walk reads only as far back as it has to. Times of commits decide in which
order commits are visited, never what comes out: the clocks of writers may be wrong.
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
# Part of the history of a common ancestor, and therefore none of the best ones.
_STALE: Final = 4


@dataclass(frozen=True, slots=True)
class Joined(Generic[T]):
    """One more state that a virtual base is made of, and what it has in common with those before it.

    Without a `base`, nothing says which of two differing values is the older one.
    """

    state: T
    base: MergeBase[T] | None


@dataclass(frozen=True, slots=True)
class MergeBase(Generic[T]):
    """What a merge starts from: one state, or a virtual one, made of several that are joined one by one."""

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
        """Yield all states, those below the best ones too, each as often as it occurs."""
        yield self.first
        for joined in self.joined:
            yield joined.state
            if joined.base is not None:
                yield from joined.base.states()

    def map(self, function: Callable[[T], V]) -> MergeBase[V]:
        """Return the same base made of other states."""
        joined = (
            Joined(function(ancestor.state), None if ancestor.base is None else ancestor.base.map(function))
            for ancestor in self.joined
        )
        return MergeBase(function(self.first), tuple(joined))

    def reduced(self, key: Callable[[T], Hashable]) -> MergeBase[T]:
        """Return the same base without joins that need no look at content: states of one key have the same."""
        base = MergeBase(self.first)
        for joined in self.joined:
            below = None if joined.base is None else joined.base.reduced(key)
            known = None if below is None or below.is_virtual else key(below.first)
            if key(joined.state) == known or (not base.is_virtual and key(joined.state) == key(base.first)):
                continue
            if not base.is_virtual and key(base.first) == known:
                base = MergeBase(joined.state)
            else:
                base = MergeBase(base.first, (*base.joined, Joined(joined.state, below)))
        return base


def best_common_ancestors(commits: Commits, ours: CommitId, theirs: CommitId) -> tuple[CommitId, ...]:
    """Return the common ancestors that are no ancestors of another one, newest first, as `git merge-base --all` does.

    A commit counts as its own ancestor. Several come out where histories were merged crosswise; none where they have
    nothing in common. The cost is near linear in the number of commits that are newer than the result.
    """
    return _best(commits, (ours,), (theirs,))


def is_ancestor(commits: Commits, older: CommitId, newer: CommitId) -> bool:
    """Tell whether a commit is part of the history of another; every commit is of its own."""
    return older in _paint_down(commits, (older,), (newer,))


def merge_base(commits: Commits, ours: CommitId, theirs: CommitId) -> MergeBase[CommitId] | None:
    """Return what a merge of two commits starts from; None: they have nothing in common.

    Several best common ancestors are merged one by one, each time with the merge base of what was joined so far and the
    next, as in git's recursive strategy. Past `MERGE_BASE_COMMITS_MAX` commits, what is older is not looked at.
    """
    return _Joining(commits).base((ours,), theirs)


class _Joining:
    """Builds the merge base of two commits, within a budget of commits that it may be made of."""

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
    """Return common ancestors of two sets of commits, with all of the best ones among them.

    Paint-down to common, as in git: each side colours its ancestors, newest first; where both colours meet, the rest of
    the way down is stale. The walk ends when all that waits is stale. No path to a best common ancestor leads through a
    stale commit, so all of them are met, in whatever order commits are visited.
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
        for parent in _parents(commits[commit_id]):
            known = colours.get(parent, 0)
            if known | colour != known:
                colours[parent] = known | colour
                queue.push(parent, colours)
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
