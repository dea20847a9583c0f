"""Ancestry: which commit two histories have in common, and whether one is a part of the other.

Pure: commits come through a lookup, so a walk reads only as far back as it has to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from omnigraph.ids import CommitId
from omnigraph.limits import CLOCK_SKEW_SECONDS
from omnigraph.manifest.model import Commit

Lookup = Callable[[CommitId], Commit]


def merge_base(one: CommitId, two: CommitId, lookup: Lookup) -> CommitId | None:
    """Return the common ancestor with the smallest sum of distances, the higher manifest version among equals.

    Distances run over both parents. None: the histories have nothing in common.
    """
    walks = (_Walk(one, lookup), _Walk(two, lookup))
    met = [(0, one)] if one == two else []
    depth = 0
    # An ancestor as near as the best has no distance above its sum, so the walk need not go further than that.
    while any(walk.frontier for walk in walks) and (not met or depth < min(met)[0]):
        depth += 1
        for walk, other in (walks, walks[::-1]):
            found = walk.step()
            met += [(walk.distances[at] + other.distances[at], at) for at in found if at in other.distances]
    ranked = [(total, -lookup(commit_id).manifest_version, commit_id) for total, commit_id in met]
    return min(ranked)[2] if ranked else None


def is_ancestor(older: CommitId, newer: CommitId, lookup: Lookup) -> bool:
    """Tell whether a commit is part of the history of another; every commit is of its own."""
    # What came after a commit was made after it, so anything clearly older leads nowhere.
    oldest_us = lookup(older).created_at_us - CLOCK_SKEW_SECONDS * 1_000_000
    pending, seen = [newer], {newer}
    while pending:
        commit_id = pending.pop()
        if commit_id == older:
            return True
        for parent in _parents(lookup(commit_id)):
            if parent not in seen and lookup(parent).created_at_us >= oldest_us:
                seen.add(parent)
                pending.append(parent)
    return False


class _Walk:
    """A walk into the past from one commit, one generation a step."""

    def __init__(self, start: CommitId, lookup: Lookup) -> None:
        self.distances = {start: 0}
        self.frontier = [start]
        self._lookup = lookup

    def step(self) -> list[CommitId]:
        """Go one generation back; return the commits that are met for the first time."""
        found: list[CommitId] = []
        for commit_id in self.frontier:
            for parent in _parents(self._lookup(commit_id)):
                if parent not in self.distances:
                    self.distances[parent] = self.distances[commit_id] + 1
                    found.append(parent)
        self.frontier = found
        return found


def _parents(commit: Commit) -> Iterator[CommitId]:
    yield from (parent for parent in (commit.parent, commit.merged_parent) if parent is not None)
