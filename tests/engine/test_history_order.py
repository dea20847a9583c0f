"""The order of commits in lists: newest first, every commit before its parents, the same however it is paged.

The oracle is the definition: the ancestors of the head, computed from parents alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

import pytest

import omnigraph as og
from omnigraph import clock, public_values
from omnigraph.graph import session_of
from omnigraph.ids import CommitId, OperationId
from omnigraph.manifest import history
from omnigraph.manifest.history import walk_newest_first
from omnigraph.manifest.model import Commit, correct_date

SCHEMA = "node Person { name: String @key }"
YEAR_US = 365 * 24 * 3_600 * 1_000_000
Commits = dict[CommitId, Commit]


def parents_of(commit: Commit | public_values.Commit) -> list[CommitId]:
    return [one for one in (commit.parent, commit.merged_parent) if one is not None]


def ancestors(commits: Commits, head: CommitId) -> set[CommitId]:
    """Return every commit that leads to another, with itself."""
    reached, pending = set[CommitId](), [head]
    while pending:
        commit_id = pending.pop()
        if commit_id not in reached:
            reached.add(commit_id)
            pending += parents_of(commits[commit_id])
    return reached


def check_order(
    commits: Commits, head: CommitId, listed: Sequence[Commit | public_values.Commit], *, is_clock_right: bool
) -> None:
    """Raise AssertionError unless a list holds all that leads to a head, once, children first and newest first."""
    places = {one.commit_id: place for place, one in enumerate(listed)}
    assert len(places) == len(listed), "a commit comes twice"
    assert places.keys() == ancestors(commits, head)
    for one in listed:
        assert all(places[parent] > places[one.commit_id] for parent in parents_of(one)), "a parent above its child"
    if is_clock_right:
        times = [one.created_at_us for one in listed]
        assert times == sorted(times, reverse=True), "an older commit above a newer one"


# -- random histories in memory ---------------------------------------------------------------------------------


def random_commits(random: Random, size: int, *, skew_us: int) -> Commits:
    """Return a random history in the order of making; writers' clocks are off by up to `skew_us`."""
    commits: Commits = {}
    heads = dict[int, CommitId]()
    for number in range(size):
        commit_id = CommitId(f"c{number:04}")
        branch = random.randrange(4)
        parent = heads.get(branch) or (random.choice(list(commits)) if commits else None)
        others = [one for one in heads.values() if one != parent]
        merged = random.choice(others) if others and parent is not None and random.random() < 0.3 else None
        now = 1_000_000 * YEAR_US + number * 1_000 + random.randint(-skew_us, skew_us)
        befores = [commits[one] for one in (parent, merged) if one is not None]
        # Manifest versions count per branch, so they say nothing across branches.
        version = 1 + sum(one.branch == str(branch) for one in commits.values())
        commits[commit_id] = Commit(
            commit_id, str(branch), version, parent, merged, None, now, "x", OperationId(""),  # type: ignore[arg-type]
            corrected_us=correct_date(now, befores),
        )  # fmt: skip
        heads[branch] = commit_id
    return commits


@pytest.mark.parametrize("skew_us", [0, 10 * YEAR_US])
def test_walk_of_random_histories_is_newest_first_and_topological(skew_us: int) -> None:
    for seed in range(150):
        commits = random_commits(Random(seed), 30, skew_us=skew_us)
        for head in [*commits][-5:]:
            walked = list(walk_newest_first(commits, head))
            check_order(commits, head, walked, is_clock_right=not skew_us)


def test_walk_by_manifest_versions_or_by_bare_times_breaks_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutants: what the order was before, and what it would be without the correction of dates."""
    for age, skew_us in (
        (lambda one: (one.manifest_version, one.created_at_us), 0),
        (lambda one: (one.created_at_us, one.commit_id), 10 * YEAR_US),
    ):
        monkeypatch.setattr(history, "_age", age)
        with pytest.raises(AssertionError):
            test_walk_of_random_histories_is_newest_first_and_topological(skew_us)


# -- real graphs ------------------------------------------------------------------------------------------------


class World:
    """A graph whose commits are written down as they are made."""

    def __init__(self, root: Path) -> None:
        self.graph = og.init(root, schema=SCHEMA)
        self.commits: Commits = {one.commit_id: one for one in session_of(self.graph).kernel.history("main")}
        self.heads = {"main": next(iter(self.commits))}

    def branch(self, name: str, source: str = "main") -> None:
        self.graph.branches.create(name, source)
        self.heads[name] = self.heads[source]

    def write(self, branch: str = "main") -> None:
        name = f"p{len(self.commits)}"
        receipt = self.graph.ingest([{"type": "Person", "data": {"name": name}}], mode="append", branch=branch)
        self._note(branch, receipt.commit)

    def merge(self, source: str, into: str = "main") -> None:
        self._note(into, self.graph.branches.merge(source, into).commit)

    def _note(self, branch: str, commit: public_values.Commit | None) -> None:
        if commit is not None:
            self.commits[commit.commit_id] = session_of(self.graph).kernel.find_commit(commit.commit_id)
            self.heads[branch] = commit.commit_id

    def check(self, *, is_clock_right: bool, branches: Iterable[str] = ()) -> None:
        with og.open(self.graph.uri) as cold:
            for branch in branches or self.heads:
                listed = cold.commits(branch)
                check_order(self.commits, self.heads[branch], listed, is_clock_right=is_clock_right)
                pages, before = list[public_values.Commit](), None
                while page := cold.commits(branch, limit=4, before=before):
                    pages += page
                    before = page[-1].commit_id
                assert pages == listed


@pytest.mark.slow
def test_list_after_merges_both_ways_has_children_first(tmp_path: Path) -> None:
    world = World(tmp_path / "graph.omni")
    world.branch("b")
    for _ in range(8):
        world.write()
    world.write("b")
    world.merge("main", "b")
    world.write("b")
    world.write()
    world.merge("b")
    world.check(is_clock_right=True)
    assert [one.commit_id for one in world.graph.commits(limit=5)] == [*world.commits][:-6:-1]


def run_random_world(root: Path, seed: int, steps: int) -> World:
    """Write, branch and merge at random; processes with wrong clocks take part if the seed is odd."""
    random, world = Random(seed), World(root)
    for number in range(steps):
        skew_us = random.choice([0, -YEAR_US, YEAR_US]) if seed % 2 else 0
        now = clock.now_us() + skew_us
        with clock.replaced(wall=lambda now=now: now):  # type: ignore[misc]
            branch, other = random.choice([*world.heads]), random.choice([*world.heads])
            action = random.choices(["write", "branch", "merge"], [5, 1 if len(world.heads) < 4 else 0, 3])[0]
            if action == "branch":
                world.branch(f"b{number}", branch)
            elif action == "merge" and branch != other:
                world.merge(other, branch)
            else:
                world.write(branch)
    return world


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(one, marks=pytest.mark.long) for one in range(2, 60))])
def test_list_of_a_random_graph_is_newest_first_and_topological(tmp_path: Path, seed: int) -> None:
    world = run_random_world(tmp_path / "graph.omni", seed, 24)
    world.check(is_clock_right=not seed % 2)


@pytest.mark.slow
def test_pages_stay_whole_while_others_commit_and_merge(tmp_path: Path) -> None:
    world = World(tmp_path / "graph.omni")
    world.branch("b")
    for _ in range(3):
        world.write()
        world.write("b")
    at_start = [one.commit_id for one in world.graph.commits()]
    page = world.graph.commits(limit=2)
    seen = [one.commit_id for one in page]
    world.write()
    world.merge("b")
    while page := world.graph.commits(limit=2, before=seen[-1]):
        seen += [one.commit_id for one in page]
    assert len(set(seen)) == len(seen)
    assert [one for one in seen if one in at_start] == at_start
