"""Reverts and cherry-picks: one commit's change, backwards or forwards, on another state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import GraphError, MergeConflict, UsageError
from omnigraph.graph import Graph
from tests.support.merge_fixtures import PERSON, age, change, content, knows, people, put
from tests.support.write_fixtures import rows

pytestmark = pytest.mark.slow


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return people(tmp_path)


def set_age(graph: Graph, name: str, value: int, branch: str = "main") -> str:
    receipt = change(graph, f'update Person set {{ age: {value} }} where name = "{name}"', branch)
    return str(receipt.commit.commit_id)


def test_revert_takes_back_one_change_and_keeps_later_ones(graph: Graph) -> None:
    before = content(graph)
    wrong = change(graph, 'delete Person where name = "Bob"').commit.commit_id
    set_age(graph, "Alice", 31)
    receipt = graph.revert(f" {wrong} ")
    assert receipt.commit is not None
    assert (receipt.commit.kind, receipt.commit.merged_parent) == ("revert", None)
    assert receipt.commit.properties["commit"] == wrong
    before[PERSON]["Alice"]["age"] = 31
    assert content(graph) == before


def test_revert_of_a_revert_brings_the_change_back(graph: Graph) -> None:
    first = set_age(graph, "Alice", 31)
    second = graph.revert(first).commit
    assert second is not None
    assert age(graph, "Alice") == 30
    graph.revert(second.commit_id)
    assert age(graph, "Alice") == 31


def test_revert_twice_changes_nothing_and_records_nothing(graph: Graph) -> None:
    first = set_age(graph, "Alice", 31)
    graph.revert(first)
    head = graph.snapshot().head
    dry = graph.revert(first, dry_run=True)
    receipt = graph.revert(first)
    assert (receipt.outcome, receipt.commit, graph.snapshot().head) == ("already_up_to_date", None, head)
    assert dry.outcome == "already_up_to_date"


def test_revert_of_what_was_changed_since_is_a_conflict(graph: Graph) -> None:
    first = set_age(graph, "Alice", 31)
    set_age(graph, "Alice", 32)
    dry = graph.revert(first, dry_run=True)
    assert [one.kind for one in dry.conflicts] == ["DivergentUpdate"]
    with pytest.raises(MergeConflict, match="revert of"):
        graph.revert(first)
    graph.revert(first, resolutions=[{"type_key": PERSON, "entity_id": "Alice", "take": "theirs"}])
    assert age(graph, "Alice") == 30


def test_revert_that_would_orphan_an_edge_is_a_conflict(graph: Graph) -> None:
    added = change(graph, 'insert Person { name: "Eve" }').commit.commit_id
    put(graph, knows("Eve", "Bob", "eb"))
    with pytest.raises(MergeConflict) as caught:
        graph.revert(added)
    conflicts: Any = caught.value.context["conflicts"]
    assert [one["kind"] for one in conflicts] == ["OrphanEdge"]


def test_revert_of_a_merge_takes_all_of_it_back(graph: Graph) -> None:
    graph.branches.create("review")
    set_age(graph, "Alice", 31, "review")
    set_age(graph, "Carol", 21, "review")
    set_age(graph, "Bob", 26)
    before = content(graph)
    merged = graph.branches.merge("review").commit
    assert merged is not None
    graph.revert(merged.commit_id)
    assert content(graph) == before


def test_revert_of_a_commit_the_branch_does_not_have_is_usage(graph: Graph) -> None:
    graph.branches.create("review")
    there = set_age(graph, "Alice", 31, "review")
    with pytest.raises(UsageError, match="does not have commit"):
        graph.revert(there)
    graph.revert(there, "review")
    assert age(graph, "Alice", "review") == 30


@pytest.mark.parametrize("verb", ["revert", "cherry_pick"])
def test_replay_of_the_first_commit_has_no_parent(graph: Graph, verb: str) -> None:
    first = graph.commits()[-1].commit_id
    with pytest.raises(GraphError) as caught:
        getattr(graph, verb)(first)
    assert caught.value.code == "commit.parentless"


@pytest.mark.parametrize("verb", ["revert", "cherry_pick"])
def test_replay_of_an_unknown_commit_is_not_found(graph: Graph, verb: str) -> None:
    with pytest.raises(GraphError) as caught:
        getattr(graph, verb)("nope")
    assert caught.value.code == "commit.not_found"


SCHEMA_CHANGES = {
    "add": ("city: String?", "city: String?  zip: String?"),
    "rename": ("age: I32?", 'years: I32? @rename_from("age")'),
    "rename type": ("node Person {", 'node Human @rename_from("Person") {'),
    "drop": ("city: String?", ""),
}


def evolve(graph: Graph, name: str, branch: str = "main") -> str:
    """Change the schema of a branch, and return the commit."""
    text = graph.snapshot(branch).state.schema.source.replace(*SCHEMA_CHANGES[name])
    if name == "rename type":
        text = text.replace("Person -> Person", "Human -> Human")
    commit = graph.schema.apply(text, branch=branch).commit
    assert commit is not None
    return commit.commit_id


def ages(graph: Graph, branch: str = "main") -> dict[str, object]:
    [key] = [key for key in graph.snapshot(branch).state.pins if key.kind == "node"]
    return {name: row.get("age", row.get("years")) for name, row in rows(graph, key, branch).items()}


@pytest.mark.parametrize("name", SCHEMA_CHANGES)
def test_revert_over_a_schema_change_restores_the_values(graph: Graph, name: str) -> None:
    first = set_age(graph, "Alice", 31)
    evolve(graph, name)
    assert graph.revert(first).outcome == "merged"
    assert ages(graph) == {"Alice": 30, "Bob": 25, "Carol": 20}


@pytest.mark.parametrize("name", SCHEMA_CHANGES)
@pytest.mark.parametrize("branch", ["main", "review"])
def test_cherry_pick_between_different_schemas(graph: Graph, name: str, branch: str) -> None:
    graph.branches.create("review")
    wanted = set_age(graph, "Alice", 31, "review")
    evolve(graph, name, branch)
    graph.cherry_pick(wanted)
    assert ages(graph)["Alice"] == 31


@pytest.mark.parametrize("name", SCHEMA_CHANGES)
def test_revert_of_a_schema_change_brings_the_old_schema_back(graph: Graph, name: str) -> None:
    change(graph, 'update Person set { city: "Rome" } where name = "Bob"')
    before, schema = content(graph), graph.schema.catalog
    changed = evolve(graph, name)
    dry = graph.revert(changed, dry_run=True)
    graph.revert(changed)
    assert (content(graph), graph.schema.nodes, graph.schema.edges) == (before, schema.nodes, schema.edges)
    assert dry.outcome == "merged"
    assert not graph.schema.plan(graph.schema.source).steps


def test_revert_of_a_dropped_type_brings_its_entities_back(graph: Graph) -> None:
    before, text = content(graph), graph.schema.source
    without = text.replace("edge Knows: Person -> Person { since: I32? }", "")
    dropped = graph.schema.apply(without).commit
    assert dropped is not None
    graph.revert(dropped.commit_id)
    assert content(graph) == before
    change(graph, 'insert Knows { from: "Alice", to: "Bob" }')
    # Once more, after the type has moved on: it goes on in a fork.
    kept = content(graph)
    again = graph.schema.apply(without).commit
    assert again is not None
    graph.revert(again.commit_id)
    assert content(graph) == kept
    graph.cherry_pick(dropped.commit_id, dry_run=True)
    change(graph, 'insert Knows { from: "Alice", to: "Carol" }')


def test_revert_of_an_added_property_with_values_conflicts(graph: Graph) -> None:
    added = evolve(graph, "add")
    change(graph, 'update Person set { zip: "1" } where name = "Bob"')
    with pytest.raises(MergeConflict) as caught:
        graph.revert(added)
    conflicts: Any = caught.value.context["conflicts"]
    message = "`Person.zip`: they dropped the property, we set it on 1 entity"
    assert [(one["kind"], one["message"]) for one in conflicts] == [("DropVsUpdate", message)]
    assert "schema apply" in caught.value.message


def test_revert_of_values_of_a_dropped_property_has_nothing_to_do(graph: Graph) -> None:
    first = change(graph, 'update Person set { city: "Rome" } where name = "Bob"').commit.commit_id
    evolve(graph, "drop")
    assert graph.revert(first).outcome == "already_up_to_date"


def test_cherry_pick_of_a_dropped_property_conflicts(graph: Graph) -> None:
    graph.branches.create("review")
    wanted = change(graph, 'update Person set { city: "Rome" } where name = "Bob"', "review").commit.commit_id
    evolve(graph, "drop")
    with pytest.raises(MergeConflict, match="we dropped the property, they set it on 1 entity"):
        graph.cherry_pick(wanted)


def test_cherry_pick_takes_a_schema_change(graph: Graph) -> None:
    graph.branches.create("review")
    evolve(graph, "rename", "review")
    wanted = evolve(graph, "add", "review")
    graph.cherry_pick(wanted)
    assert list(graph.schema.nodes["Person"].properties) == ["age", "city", "name", "tags", "zip"]


def test_cherry_pick_takes_one_commit_and_not_those_around_it(graph: Graph) -> None:
    graph.branches.create("review")
    set_age(graph, "Alice", 31, "review")
    wanted = change(graph, 'insert Person { name: "Eve" }', "review").commit.commit_id
    set_age(graph, "Bob", 26, "review")
    set_age(graph, "Carol", 21)
    receipt = graph.cherry_pick(wanted)
    assert receipt.commit is not None
    assert (receipt.commit.kind, receipt.commit.merged_parent) == ("cherry_pick", None)
    assert {name: row["age"] for name, row in rows(graph, PERSON).items()} == {
        "Alice": 30,
        "Bob": 25,
        "Carol": 21,
        "Eve": None,
    }
    assert graph.cherry_pick(wanted).outcome == "already_up_to_date"
    assert graph.branches.merge("review").outcome == "merged"


def test_cherry_pick_of_a_merge_takes_what_it_brought_in(graph: Graph) -> None:
    graph.branches.create("review")
    graph.branches.create("release")
    set_age(graph, "Alice", 31, "review")
    set_age(graph, "Bob", 26)
    merged = graph.branches.merge("review").commit
    assert merged is not None
    graph.cherry_pick(merged.commit_id, "release")
    assert (age(graph, "Alice", "release"), age(graph, "Bob", "release")) == (31, 25)


def test_cherry_pick_that_clashes_is_a_conflict(graph: Graph) -> None:
    graph.branches.create("review")
    there = set_age(graph, "Alice", 31, "review")
    set_age(graph, "Alice", 32)
    before = graph.snapshot()
    with pytest.raises(MergeConflict):
        graph.cherry_pick(there)
    assert graph.snapshot() == before
