"""Keyed edges over branches, reverts, renames and changes of the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import DataError, UsageError
from tests.support.write_fixtures import create, rows, run

pytestmark = pytest.mark.slow

NODES = "node P { k: String @key  n: String @default(uuid()) }\n"
PLAIN = NODES + "edge E: P -> P { w: I32?  s: String? }"
KEYED = NODES + "edge E: P -> P { w: I32?  s: String?  @key(src, dst) }"
PEOPLE = [f'{{"type":"P","data":{{"k":"{name}","n":"{name.upper()}"}}}}' for name in "abc"]
AB = '["a","b"]'


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return create(tmp_path / "g.omni", KEYED, *PEOPLE)


def weights(graph: og.Graph, branch: str = "main") -> dict[str, Any]:
    return {key: row["w"] for key, row in rows(graph, "edge:E", branch).items()}


def on(graph: og.Graph, branch: str, body: str) -> Any:
    return graph.mutate(f"query q() {{ {body} }}", branch=branch)


def conflicts(graph: og.Graph, branch: str) -> list[tuple[str, str]]:
    with pytest.raises(og.MergeConflict) as caught:
        graph.branches.merge(branch)
    listed: Any = caught.value.context["conflicts"]
    return [(one["kind"], one["entity_id"]) for one in listed]


def test_both_branches_insert_the_same_edge(graph: og.Graph) -> None:
    graph.branches.create("b")
    on(graph, "main", 'insert E { from: "a", to: "b", w: 1 }')
    on(graph, "b", 'insert E { from: "a", to: "b", w: 1 } insert E { from: "a", to: "c", w: 2 }')
    graph.branches.merge("b")
    assert weights(graph) == {AB: 1, '["a","c"]': 2}
    graph.branches.create("c")
    on(graph, "main", 'upsert E { from: "b", to: "c", w: 1 }')
    on(graph, "c", 'upsert E { from: "b", to: "c", w: 2 }')
    assert conflicts(graph, "c") == [("DivergentInsert", '["b","c"]')]
    graph.branches.merge("c", resolutions=[{"type_key": "edge:E", "entity_id": '["b","c"]', "take": "theirs"}])
    assert weights(graph)['["b","c"]'] == 2


def test_deleted_and_inserted_again_is_a_change_of_the_same_edge(graph: og.Graph) -> None:
    run(graph, 'insert E { from: "a", to: "b", w: 1, s: "x" }')
    graph.branches.create("b")
    on(graph, "b", 'delete E where from = "a"')
    on(graph, "b", 'insert E { from: "a", to: "b", w: 5, s: "x" }')
    on(graph, "main", 'update E set { s: "y" } where from = "a"')
    graph.branches.merge("b")
    found = rows(graph, "edge:E")[AB]
    assert (found["w"], found["s"]) == (5, "y")


def test_revert_and_cherry_pick_find_the_edge_by_its_key(graph: og.Graph) -> None:
    commit = run(graph, 'insert E { from: "a", to: "b", w: 1 }').commit.commit_id
    graph.revert(commit)
    assert weights(graph) == {}
    graph.branches.create("b")
    graph.cherry_pick(commit, branch="b")
    assert graph.cherry_pick(commit, branch="b").outcome == "already_up_to_date"
    assert weights(graph, "b") == {AB: 1}
    on(graph, "b", 'update E set { w: 2 } where from = "a"')
    with pytest.raises(og.MergeConflict):
        graph.cherry_pick(commit, branch="b")


def test_both_branches_adopt_the_key(tmp_path: Path) -> None:
    graph = create(tmp_path / "g.omni", PLAIN, *PEOPLE, '{"edge":"E","from":"a","to":"b","data":{"w":1}}')
    graph.branches.create("b")
    on(graph, "b", 'insert E { from: "a", to: "c", w: 4 }')
    graph.schema.apply(KEYED)
    assert [kind for kind, _ in conflicts(graph, "b")] == ["DivergentSchema"]
    graph.schema.apply(KEYED, branch="b")
    on(graph, "main", 'insert E { from: "a", to: "c", w: 4 }')
    graph.branches.merge("b")
    assert weights(graph) == {AB: 1, '["a","c"]': 4}
    assert graph.maintenance.verify(data=True).is_sound


def test_new_key_of_nodes_moves_the_ids_of_edges(graph: og.Graph) -> None:
    run(graph, 'insert E { from: "a", to: "b", w: 1 }')
    graph.schema.apply(KEYED.replace("k: String @key  n: String", "k: String  n: String @key"))
    assert weights(graph) == {'["A","B"]': 1}
    run(graph, 'upsert E { from: "A", to: "B", w: 2 }')
    assert weights(graph) == {'["A","B"]': 2}


def test_key_that_was_dropped_is_adopted_again_only_without_duplicates(graph: og.Graph) -> None:
    run(graph, 'insert E { from: "a", to: "b", w: 1 }')
    graph.schema.apply(PLAIN)
    run(graph, 'insert E { from: "a", to: "b", w: 2 }')
    with pytest.raises(DataError, match="have the same key"):
        graph.schema.apply(KEYED)
    run(graph, "delete E where w = 1")
    graph.schema.apply(KEYED)
    assert weights(graph) == {AB: 2}


def test_rename_of_a_key_property_keeps_ids(tmp_path: Path) -> None:
    schema = NODES + "edge E: P -> P { w: I32  @key(src, dst, w) }"
    graph = create(tmp_path / "g.omni", schema, *PEOPLE, '{"edge":"E","from":"a","to":"b","data":{"w":1}}')
    graph.schema.apply(NODES + 'edge E: P -> P { z: I32 @rename_from("w")  @key(src, dst, z) }')
    run(graph, 'insert E { from: "a", to: "b", z: 1 }')
    assert list(rows(graph, "edge:E")) == ['["a","b","1"]']
    found = graph.get("E", {"from": "a", "to": "b", "z": 1})
    assert found is not None
    assert found["z"] == 1
    with pytest.raises(UsageError, match="`from`, `to`, `z`"):
        graph.get("E", {"from": "a", "to": "b"})
