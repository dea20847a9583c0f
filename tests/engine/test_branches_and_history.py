"""Branches and history through the facade: what they return, and what the policy is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.engine.authorization import ALLOW_ALL, GRAPH, between, on_branch, on_target
from omnigraph.engine.history import public_commits
from omnigraph.errors import GraphError
from omnigraph.graph import session_of
from omnigraph.store.objects.backend import Meter
from tests.support.kernel_fixtures import CITY, KNOWS, PERSON, SCHEMA, ids_of, insert
from tests.support.policy_recorder import Recorder

pytestmark = pytest.mark.slow


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "graph.omni", SCHEMA, actor="ada")
    insert(session_of(graph).kernel, {CITY: ["rome"]}, actor="eve")
    return graph


def test_branches_list_is_sorted_and_has_main(graph: og.Graph) -> None:
    graph.branches.create("zoo")
    graph.branches.create("app", from_="zoo")
    assert graph.branches.list() == ["app", "main", "zoo"]


def test_branches_create_at_a_commit_starts_there(graph: og.Graph) -> None:
    first = graph.commits()[-1].commit_id
    graph.branches.create("old", at=first)
    assert ids_of(session_of(graph).kernel, CITY, "old") == []
    assert [one.commit_id for one in graph.commits("old")] == [first]


def test_branches_delete_frees_the_name(graph: og.Graph) -> None:
    graph.branches.create("x")
    graph.branches.delete("x")
    assert graph.branches.list() == ["main"]
    graph.branches.create("x")
    assert graph.branches.list() == ["main", "x"]


def test_commits_are_newest_first_with_their_actors(graph: og.Graph) -> None:
    assert [(one.kind, one.actor) for one in graph.commits()] == [("insert", "eve"), ("init", "ada")]
    newest = graph.commits()[0]
    assert graph.commit(f" {newest.commit_id} ") == newest


def test_commits_ask_storage_no_more_often_the_longer_history_is(graph: og.Graph) -> None:
    costs = []
    for number in (0, 20):
        for one in range(number):
            insert(session_of(graph).kernel, {CITY: [f"c{one}"]})
        meter = Meter()
        counted = og.open(graph.uri, meter=meter)
        asked = []
        for policy in (ALLOW_ALL, Recorder()):
            session_of(counted).actor, session_of(counted).policy = "ann", policy
            before = meter.snapshot()
            assert len(counted.commits()) == number + 2
            asked.append(meter.since(before))
        costs.append(asked)
    assert costs[0] == costs[1]
    # One probe for the head; with a policy, another for the names of the branches that commits are on.
    assert [one["probe __manifest"] for one in costs[0]] == [1, 2]


def test_commit_unknown_is_not_found(graph: og.Graph) -> None:
    with pytest.raises(GraphError) as caught:
        graph.commit("nope")
    assert caught.value.code == "commit.not_found"


def test_commits_name_the_branch_they_landed_on(graph: og.Graph) -> None:
    graph.branches.create("review")
    insert(session_of(graph).kernel, {CITY: ["oslo"]}, branch="review")
    newest, before, *_ = graph.commits("review")
    assert (newest.branch, before.branch) == ("review", "main")
    assert newest.parent == before.commit_id
    assert set(newest.to_json()) >= {"graph_manifest_version", "merged_parent_commit_id", "actor_id", "created_at"}


def test_public_commits_of_a_branch_asks_storage_for_nothing_more(graph: og.Graph) -> None:
    graph.branches.create("review")
    for name in ("oslo", "rome", "bern"):
        insert(session_of(graph).kernel, {CITY: [name]}, branch="review")
    meter = Meter()
    counted = og.open(graph.uri, meter=meter)
    commits, before = list(session_of(counted).kernel.history("review")), meter.snapshot()
    described = public_commits(session_of(counted), commits)
    assert [one.branch for one in described] == ["review"] * 3 + ["main"] * 2
    assert not meter.since(before)


def test_snapshot_json_shows_a_fork_only_where_there_is_one(graph: og.Graph) -> None:
    graph.branches.create("review")
    insert(session_of(graph).kernel, {CITY: ["oslo"]}, branch="review")
    described = graph.snapshot("review").to_json()
    datasets = described["datasets"]
    assert isinstance(datasets, list)
    assert described["graph_branch"] == "review"
    keys = [f"{one['entity_kind']}:{one['type_name']}" for one in datasets]
    assert keys == sorted([CITY, KNOWS, PERSON])
    assert ["native_dataset_branch" in one for one in datasets] == [False, True, False]
    assert [one["entity_count"] for one in datasets] == [0, 2, 0]


def test_policy_is_asked_for_every_call(graph: og.Graph) -> None:
    session_of(graph).actor, session_of(graph).policy = "ann", (policy := Recorder())
    graph.branches.create(" x ")
    graph.branches.create("y", from_=session_of(graph).kernel.snapshot("x").head or "")
    graph.branches.rename("x", "z")
    graph.branches.list()
    graph.branches.delete(" z ")
    graph.commit(graph.commits(" main ")[0].commit_id)
    assert graph.schema.source == SCHEMA
    assert [(action, scope) for action, scope, _ in policy.asked] == [
        ("branch_create", between("main", "x")),
        ("read", on_branch("main")),
        ("branch_create", between(str(session_of(graph).kernel.snapshot().head), "y")),
        ("read", on_branch("main")),
        ("branch_delete", on_target("x")),
        ("branch_create", between("x", "z")),
        ("read", GRAPH),
        ("branch_delete", on_target("z")),
        ("read", on_branch("main")),
        ("read", on_branch("main")),
        ("read", GRAPH),
    ]


def test_acting_as_attributes_commits_and_shares_what_was_read(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", schema="node P { name: String @key }")
    eve = graph.acting_as("eve")
    receipt = eve.mutate('query q() { insert P { name: "a" } }')
    assert receipt.commit is not None
    assert graph.commit(receipt.commit.commit_id).actor == "eve"
    assert session_of(graph).actor is None
    assert eve.query("query q() { match { $p: P } return { $p.name } }").rows() == [{"p.name": "a"}]
    assert eve._caches is graph._caches
