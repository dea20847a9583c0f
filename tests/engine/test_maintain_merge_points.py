"""Merge points against their definition: every best common ancestor of every pair, and of theirs, by brute force."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from omnigraph.engine.maintain.retention import merge_points
from omnigraph.ids import CommitId, OperationId
from omnigraph.manifest.model import Commit

Dag = dict[CommitId, Commit]


def commit(number: int, *parents: int) -> Commit:
    first, second = (*(name(one) for one in parents), None, None)[:2]
    return Commit(name(number), None, number, first, second, None, number, "test", OperationId("o"))


def name(number: int) -> CommitId:
    return CommitId(f"c{number}")


def dag(*commits: Commit) -> Dag:
    return {one.commit_id: one for one in commits}


def ancestors(commits: Dag, start: CommitId) -> set[CommitId]:
    """Return a commit and all that it comes from."""
    seen, pending = set[CommitId](), [start]
    while pending:
        here = pending.pop()
        if here not in seen:
            seen.add(here)
            pending += [one for one in (commits[here].parent, commits[here].merged_parent) if one]
    return seen


def best_common_ancestors(commits: Dag, one: CommitId, two: CommitId) -> set[CommitId]:
    """Return the common ancestors that are not ancestors of another common ancestor."""
    common = ancestors(commits, one) & ancestors(commits, two)
    return {here for here in common if not any(here in ancestors(commits, other) - {other} for other in common)}


def needed(commits: Dag, heads: list[CommitId]) -> set[CommitId]:
    """Return what merges of any two heads read: best common ancestors, and those of several best ones, recursively."""
    found: set[CommitId] = set()
    pending = [frozenset(pair) for pair in combinations(heads, 2)]
    seen = set(pending)
    while pending:
        one, two = sorted(pending.pop())
        best = best_common_ancestors(commits, one, two)
        found |= best
        for pair in map(frozenset, combinations(best, 2)):
            if pair not in seen:
                seen.add(pair)
                pending.append(pair)
    return found


def world(seed: int, size: int) -> tuple[Dag, list[CommitId]]:
    """Return a random history with merges and criss-crosses, and the heads of its branches."""
    pick = random.Random(seed)
    tips, commits = [0], [commit(0)]
    for number in range(1, size):
        at = pick.randrange(len(tips))
        if len(tips) > 1 and pick.random() < 0.4:
            other = pick.choice([one for one in tips if one != tips[at]] or tips)
            commits.append(commit(number, tips[at], other))
        else:
            commits.append(commit(number, tips[at]))
        if pick.random() < 0.25 and len(tips) < 6:
            tips.append(number)
        else:
            tips[at] = number
    return dag(*commits), [name(one) for one in dict.fromkeys(tips)]


@pytest.mark.parametrize("seed", range(80))
def test_merge_points_hold_every_merge_base(seed: int) -> None:
    commits, heads = world(seed, 8 + seed % 25)
    found = merge_points(commits, heads)
    assert needed(commits, heads) <= found
    parents = [one for here in commits.values() for one in {here.parent, here.merged_parent} if one]
    forks = {one for one in commits if parents.count(one) > 1}
    assert found <= forks | set(heads)


def test_merge_points_of_a_line_are_few() -> None:
    commits = dag(commit(0), *(commit(number, number - 1) for number in range(1, 50)), commit(50, 20), commit(51, 30))
    assert merge_points(commits, [name(49), name(50), name(51)]) == {name(20), name(30)}
    assert merge_points(commits, [name(49)]) == set()
    assert merge_points(commits, [name(49), name(7)]) == {name(7)}


def test_merge_points_of_a_criss_cross_reach_below_it() -> None:
    commits = dag(commit(0), commit(1, 0), commit(2, 0), commit(3, 1, 2), commit(4, 2, 1))
    assert merge_points(commits, [name(3), name(4)]) == {name(0), name(1), name(2)}


@pytest.mark.slow
def test_merge_points_that_forget_a_criss_cross_are_caught() -> None:
    """Without counting what it found as heads, the pass misses the bases of bases."""

    def forgetful(commits: Dag, heads: list[CommitId]) -> set[CommitId]:
        points = merge_points(commits, heads)
        pairs = combinations(heads, 2)
        return {one for pair in pairs for one in best_common_ancestors(commits, *pair)} & points

    missed = 0
    for seed in range(60):
        commits, heads = world(seed, 8 + seed % 25)
        missed += not needed(commits, heads) <= forgetful(commits, heads)
    assert missed
