"""Merges that take over whole versions of a type: the forks they stand on, and those that a branch leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.engine.merge import apply
from omnigraph.errors import MergeConflict, OmniGraphError
from omnigraph.failpoints import Point
from omnigraph.graph import Graph, session_of
from omnigraph.manifest import updates
from tests.support.failpoint_actions import fail_with
from tests.support.merge_fixtures import KNOWS, PERSON, age, change, content, knows, people, put
from tests.support.orphan_sweep import sweep
from tests.support.write_fixtures import rows

pytestmark = pytest.mark.slow


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = people(tmp_path)
    graph.branches.create("review")
    return graph


def set_age(graph: Graph, name: str, value: int, branch: str = "main") -> None:
    change(graph, f'update Person set {{ age: {value} }} where name = "{name}"', branch)


# -- adoption ------------------------------------------------------------------------------------------------------


def test_merge_into_a_branch_adopts_and_a_later_write_forks(graph: Graph) -> None:
    graph.branches.create("target")
    set_age(graph, "Alice", 31, "review")
    assert graph.branches.merge("review", into="target", delete_branch=True).outcome == "fast_forward"
    source = graph.snapshot("target").state.pins[PERSON]
    assert source.owner != graph.snapshot("target").state.branch_id
    set_age(graph, "Bob", 26, "target")
    own = graph.snapshot("target").state.pins[PERSON]
    assert own.owner == graph.snapshot("target").state.branch_id
    _outlives_a_sweep(graph, "target", {"Alice": 31, "Bob": 26, "Carol": 20})
    graph.branches.merge("target", delete_branch=True)
    assert graph.snapshot().state.pins[PERSON].fork is None
    _outlives_a_sweep(graph, "main", {"Alice": 31, "Bob": 26, "Carol": 20})


def test_merge_of_a_grandchild_keeps_every_fork_it_stands_on(graph: Graph) -> None:
    graph.branches.create("target")
    set_age(graph, "Alice", 31, "review")
    graph.branches.create("child", from_="review")
    set_age(graph, "Bob", 26, "child")
    graph.branches.merge("child", into="target", delete_branch=True)
    graph.branches.delete("review")
    _outlives_a_sweep(graph, "target", {"Alice": 31, "Bob": 26, "Carol": 20})
    # From here on only the past stands on the fork that was taken over.
    set_age(graph, "Carol", 21, "target")
    _outlives_a_sweep(graph, "target", {"Alice": 31, "Bob": 26, "Carol": 21})


def test_merge_that_adopted_can_be_read_when_its_branch_has_moved_on(graph: Graph) -> None:
    """Between the merge and the next write, no head pins the adopted fork any more, and its branch is gone."""
    graph.branches.create("target")
    set_age(graph, "Alice", 31, "review")
    merged = graph.branches.merge("review", into="target", delete_branch=True).commit
    assert merged is not None
    set_age(graph, "Bob", 26, "target")
    sweep(session_of(og.open(graph.uri)).kernel, 0.0)
    assert b'"age":31' in b"".join(og.open(graph.uri).at(merged.commit_id).export()).replace(b" ", b"")


def test_merge_that_forgets_what_it_stands_on_is_caught_by_a_sweep(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "forks_of", lambda view, pin, target: [])
    with pytest.raises((OmniGraphError, OSError, ValueError)):
        test_merge_that_adopted_can_be_read_when_its_branch_has_moved_on(graph)


def test_merge_of_much_into_main_adopts_and_main_goes_on(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "MERGE_ADOPT_ENTITIES_MIN", 1)
    change(graph, 'insert Person { name: "Eve" age: 1 }', "review")
    receipt = graph.branches.merge("review", delete_branch=True)
    assert (receipt.outcome, receipt.types, receipt.branch_deleted) == ("fast_forward", (), True)
    assert graph.snapshot().state.pins[PERSON].fork is not None
    set_age(graph, "Bob", 26)
    assert graph.snapshot().state.pins[PERSON].owner is None
    _outlives_a_sweep(graph, "main", {"Alice": 30, "Bob": 26, "Carol": 20, "Eve": 1})
    graph.branches.create("next")
    set_age(graph, "Eve", 2, "next")
    assert graph.branches.merge("next").outcome == "fast_forward"
    assert age(graph, "Eve") == 2


def test_merge_adoption_is_told_in_a_dry_run(graph: Graph) -> None:
    graph.branches.create("target")
    change(graph, 'insert Person { name: "Eve" }', "review")
    [count] = graph.branches.merge("review", into="target", dry_run=True).types
    assert (count.inserted, count.adopted) == (1, True)


def test_merge_adopts_while_it_checks_the_rules(graph: Graph) -> None:
    graph.branches.create("target")
    change(graph, 'delete Person where name = "Carol"', "target")
    put(graph, knows("Alice", "Carol", "ac"), branch="review")
    with pytest.raises(MergeConflict):
        graph.branches.merge("review", into="target")
    change(graph, 'delete Knows where from = "Alice"', "review")
    put(graph, knows("Alice", "Bob", "ab"), branch="review")
    graph.branches.merge("review", into="target")
    assert sorted(rows(graph, KNOWS, "target")) == ["ab"]


def _outlives_a_sweep(graph: Graph, branch: str, ages: dict[str, int]) -> None:
    kernel = session_of(og.open(graph.uri)).kernel
    sweep(kernel, 0.0)
    fresh = og.open(graph.uri)
    assert {name: row["age"] for name, row in rows(fresh, PERSON, branch).items()} == ages
    for commit in fresh.commits(branch):
        if commit.branch in ("main", branch):
            assert fresh.at(commit.commit_id).snapshot().head == commit.commit_id
            b"".join(fresh.at(commit.commit_id).export())


def test_merge_adopts_a_version_that_was_not_linked_yet(graph: Graph) -> None:
    graph.branches.create("target")
    with failpoints.armed({Point.LINK_BEFORE: fail_with(OmniGraphError("cut off"))}):
        set_age(graph, "Alice", 31, "review")
    fresh = og.open(graph.uri)
    fresh.branches.merge("review", into="target")
    assert age(og.open(graph.uri), "Alice", "target") == 31


# -- forks that a branch leaves behind ---------------------------------------------------------------------------------


def _write_and_take_back(graph: Graph) -> None:
    change(graph, 'insert Person { name: "Eve" }', "review")
    change(graph, 'delete Person where name = "Eve"', "review")


def _write_and_revert(graph: Graph) -> None:
    graph.revert(change(graph, 'insert Person { name: "Eve" }', "review").commit.commit_id, "review")


def _optimize(graph: Graph) -> None:
    put(graph, '{"type":"Person","data":{"name":"Eve"}}')
    graph.branches.merge("main", "review")
    graph.maintenance.optimize("review")


@pytest.mark.parametrize("leave", [_write_and_take_back, _write_and_revert, _optimize])
def test_branch_that_returns_to_a_version_it_forked_stays_writable(
    graph: Graph, leave: Callable[[Graph], None]
) -> None:
    """A fast forward gives the branch main's version again, of which it has a fork that has moved on."""
    leave(graph)
    earlier = {one.commit_id: b"".join(graph.at(one.commit_id).export()) for one in graph.commits("review")}
    for number in range(2):
        put(graph, knows("Alice", "Bob", f"ab{number}"))
        graph.branches.merge("review")
        assert graph.branches.merge("main", "review").outcome == "fast_forward"
        assert graph.snapshot("review").state.pins[PERSON].ref == graph.snapshot().state.pins[PERSON].ref
        before = content(graph, "review")
        set_age(graph, "Alice", 40 + number, "review")
        before[PERSON]["Alice"]["age"] = 40 + number
        assert content(graph, "review") == before
        assert {one.action for one in graph.maintenance.repair("review").types} == {"no_op"}
        graph.branches.merge("review")
    fresh = og.open(graph.uri)
    assert {commit_id: b"".join(fresh.at(commit_id).export()) for commit_id in earlier} == earlier
    assert graph.maintenance.verify().is_sound


def test_branch_of_an_older_graph_forks_beside_a_fork_that_moved_on(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pins of before do not say when they were taken over, so the name of the next fork is met again."""
    _write_and_take_back(graph)
    real = updates.SetVersion.apply

    def without_mark(self: Any, draft: Any) -> None:
        real(replace(self, adopted_at=None), draft)

    monkeypatch.setattr(updates.SetVersion, "apply", without_mark)
    put(graph, knows("Alice", "Bob", "ab"))
    graph.branches.merge("review")
    graph.branches.merge("main", "review")
    set_age(graph, "Alice", 40, "review")
    assert age(graph, "Alice", "review") == 40
    assert graph.maintenance.verify().is_sound
