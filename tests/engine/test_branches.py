"""Branches through the facade: where they may start, what they cost, when they can be renamed or deleted."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import GraphError, UsageError
from omnigraph.graph import Graph, session_of
from omnigraph.ids import CommitId, new_ulid
from omnigraph.manifest import history
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import Commit, Snapshot
from omnigraph.store.objects.backend import Meter
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.store import Store
from tests.support.kernel_fixtures import wide_schema
from tests.support.merge_fixtures import PERSON, age, change, content, people
from tests.support.write_fixtures import rows

pytestmark = pytest.mark.slow


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return people(tmp_path)


def set_age(graph: Graph, value: int, branch: str = "main") -> str:
    receipt = change(graph, f'update Person set {{ age: {value} }} where name = "Alice"', branch)
    return str(receipt.commit.commit_id)


def code_of(action: object) -> str:
    assert callable(action)
    with pytest.raises(GraphError) as caught:
        action()
    return str(caught.value.code)


def test_branch_starts_at_a_branch_a_commit_or_a_tag(graph: Graph) -> None:
    first = set_age(graph, 31)
    graph.tags.create("v1")
    set_age(graph, 32)
    graph.branches.create("a")
    set_age(graph, 33, "a")
    for name, origin, expected in (("b", "a", 33), ("c", first, 31), ("d", "v1", 31), ("e", "main", 32)):
        graph.branches.create(name, from_=origin)
        assert age(graph, "Alice", name) == expected
    assert graph.branches.list() == ["a", "b", "c", "d", "e", "main"]
    assert code_of(lambda: graph.branches.create("f", from_="nowhere")) == "commit.not_found"


def test_branch_from_an_old_commit_merges_like_any_other(graph: Graph) -> None:
    first = graph.snapshot().head
    assert first is not None
    set_age(graph, 31)
    graph.branches.create("old", from_=first)
    change(graph, 'update Person set { age: 26 } where name = "Bob"', "old")
    assert graph.branches.merge("old").outcome == "merged"
    assert (age(graph, "Alice"), age(graph, "Bob")) == (31, 26)


def test_branch_names_and_tags_share_one_space(graph: Graph) -> None:
    graph.branches.create("x")
    graph.tags.create("y")
    assert code_of(lambda: graph.branches.create("x")) == "branch.exists"
    assert code_of(lambda: graph.branches.create("y")) == "branch.exists"
    assert code_of(lambda: graph.branches.rename("x", "y")) == "branch.exists"
    assert code_of(lambda: graph.tags.create("x")) == "tag.exists"
    assert code_of(lambda: graph.tags.create("y")) == "tag.exists"
    unsafe = (".", "..", "../tags/y", "a/../b", "/etc", "a/", "a//b", "./a")
    for name in ("", "main", "two words", new_ulid(), *unsafe):
        assert code_of(lambda name=name: graph.branches.create(name)) == "branch.invalid_name", name
        assert code_of(lambda name=name: graph.branches.rename("x", name)) == "branch.invalid_name", name
        assert code_of(lambda name=name: graph.tags.create(name)) == "branch.invalid_name", name


def test_branch_of_a_name_from_before_stays_reachable(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as unchecked:
        unchecked.setattr("omnigraph.manifest.branches.checked_name", lambda name, what: name)
        graph.branches.create("..")
    assert graph.snapshot("..").branch == ".."
    graph.branches.rename("..", "two-dots")
    graph.branches.delete("two-dots")


def test_branch_rename_keeps_the_branch_and_frees_the_name(graph: Graph) -> None:
    graph.branches.create("old")
    set_age(graph, 31, "old")
    before = content(graph, "old")
    graph.branches.rename(" old", "new ")
    assert content(graph, "new") == before
    assert code_of(lambda: graph.snapshot("old")) == "branch.not_found"
    graph.branches.create("old")
    assert age(graph, "Alice", "old") == 30
    assert graph.branches.merge("new").outcome == "fast_forward"
    assert code_of(lambda: graph.branches.rename("gone", "there")) == "branch.not_found"
    with pytest.raises(UsageError, match="`main` cannot be renamed"):
        graph.branches.rename(" main", "trunk")


def test_branch_delete_is_refused_while_something_stands_on_it(graph: Graph) -> None:
    graph.branches.create("a")
    set_age(graph, 31, "a")
    graph.branches.create("b", from_="a")
    graph.tags.create("v1", branch="a")
    with pytest.raises(GraphError) as caught:
        graph.branches.delete("a")
    assert (caught.value.code, caught.value.context["dependents"]) == ("branch.in_use", ["b", "v1"])
    graph.tags.delete("v1")
    graph.branches.delete("b")
    graph.branches.delete("a")
    assert graph.branches.list() == ["main"]
    assert code_of(lambda: graph.branches.delete("a")) == "branch.not_found"
    with pytest.raises(UsageError, match="`main` cannot be deleted"):
        graph.branches.delete("main")


def test_branch_deleted_and_made_again_is_another_branch(graph: Graph) -> None:
    graph.branches.create("a")
    lost = set_age(graph, 31, "a")
    graph.branches.delete("a")
    graph.branches.create("a")
    assert age(graph, "Alice", "a") == 30
    assert graph.branches.merge("a").outcome == "already_up_to_date"
    # Its commits are still known, because a merge may have made them a part of history elsewhere.
    assert graph.commit(lost).commit_id == lost


def test_branch_create_costs_the_same_for_any_number_of_types(tmp_path: Path) -> None:
    costs = []
    for types in (1, 200):
        root = tmp_path / str(types)
        og.init(root, wide_schema(types)).close()
        meter = Meter()
        graph = og.open(root, meter=meter)
        before = meter.snapshot()
        graph.branches.create("review")
        costs.append(meter.since(before))
    assert costs[0] == costs[1]
    assert sum(costs[0].values()) > 0


def test_branch_without_writes_shares_every_dataset(graph: Graph) -> None:
    graph.branches.create("a")
    set_age(graph, 31, "a")
    pins, main = graph.snapshot("a").state.pins, graph.snapshot().state.pins
    assert {key for key in pins if pins[key].ref != main[key].ref} == {PERSON}
    assert len(rows(graph, PERSON, "a")) == 3


def test_history_is_whole_when_a_branch_is_deleted_while_it_is_read(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.branches.create("b")
    commit_id = set_age(graph, 31, "b")
    real = history.read

    def read(store: Store) -> dict[CommitId, Commit]:
        found = real(store)
        if "b" in graph.branches.list():
            graph.branches.delete("b")
        return found

    monkeypatch.setattr(history, "read", read)
    assert commit_id in session_of(graph).kernel.all_commits()


def test_commit_is_found_when_its_branch_is_deleted_meanwhile(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.branches.create("b")
    commit_id = set_age(graph, 31, "b")
    real = history.open_log

    def open_log(store: Store) -> Dataset | None:
        found = real(store)
        if "b" in graph.branches.list():
            graph.branches.delete("b")
        return found

    monkeypatch.setattr(history, "open_log", open_log)
    assert og.open(graph.uri).commit(commit_id).commit_id == commit_id
    assert "b" not in graph.branches.list()


def test_merged_commits_outlive_a_branch_whose_deletion_missed_them(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.branches.create("b")
    graph.branches.create("c")
    set_age(graph, 31, "b")
    late: list[str] = []
    real = Kernel.keep_history

    def keep_history(
        self: Kernel, snapshot: Snapshot, after: Collection[CommitId] = (), names: tuple[str, ...] = ()
    ) -> None:
        real(self, snapshot, after, names)
        if not late:
            # The deletion has kept what it saw; now somebody writes, and merges elsewhere.
            late.append(set_age(graph, 32, "b"))
            graph.branches.merge("b", into="c")

    monkeypatch.setattr(Kernel, "keep_history", keep_history)
    graph.branches.delete("b")
    assert late[0] in [one.commit_id for one in graph.commits("c")]


def test_merge_puts_into_the_log_only_what_is_new(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[list[str]] = []
    monkeypatch.setattr(history, "spill", lambda _, commits: kept.append([one.commit_id for one in commits]))
    graph.branches.create("b")
    first = set_age(graph, 31, "b")
    graph.branches.merge("b")
    second = set_age(graph, 32, "b")
    graph.branches.merge("b")
    graph.branches.merge("main", into="b")
    assert kept == [[first], [second]]
