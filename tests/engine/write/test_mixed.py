"""Mutations that insert, update and delete: counts, dry runs, history, merges, blobs and rights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import DataError, MergeConflict, PolicyDenied
from omnigraph.graph import Graph
from omnigraph.policy import load_bundle

SCHEMA = """
node P { name: String @key  age: I32?  photo: Blob?  mail: String? @unique }
edge K: P -> P { n: I32?  @key(src, dst) }
"""
MIXED = """query q() @mixed {
  insert P { name: "dee" age: 3 mail: "b@x" }
  delete P where name = "bob"
  insert K { from: "ann" to: "dee" }
  update P set { age: 9 } where name = "ann"
}"""
RULES = """
version: 1
groups: {ann: [ann], root: [root]}
rules:
  - {id: a, allow: {actors: {group: ann}, actions: [change], types: [P]}}
  - {id: b, allow: {actors: {group: ann}, actions: [read]}}
  - {id: r, allow: {actors: {group: root}, actions: [read, export, change]}}
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with og.init(tmp_path / "g.omni", schema=SCHEMA) as opened:
        opened.mutate(
            'query q($photo: Blob) { insert P { name: "ann" photo: $photo } insert P { name: "bob" mail: "b@x" }'
            ' insert P { name: "cyd" } insert K { from: "ann" to: "bob" } insert K { from: "bob" to: "cyd" } }',
            params={"photo": "base64:aGk="},
        )
        yield opened


def people(graph: Graph, branch: str = "main") -> list[str]:
    return sorted(row["p.name"] for row in graph.query("match { $p: P } return { $p.name }", branch=branch))


def test_counts_history_and_blobs_follow_the_end_state(graph: Graph) -> None:
    dry = graph.mutate(MIXED, dry_run=True)
    assert dry.commit is None
    receipt = graph.mutate(MIXED)
    assert (receipt.affected_nodes, receipt.affected_edges) == (dry.affected_nodes, dry.affected_edges) == (3, 3)
    assert people(graph) == ["ann", "cyd", "dee"]
    assert graph.diff("HEAD~1", "main").stats() == {"inserts": 2, "updates": 1, "deletes": 3, "types_affected": 2}
    assert receipt.commit is not None
    page: Any = graph.commit_changes(receipt.commit.commit_id).to_json()
    assert sorted(change["op"] for change in page["changes"]) == ["delete"] * 3 + ["insert"] * 2 + ["update"]
    assert graph.blob("P", "ann", "photo").read() == b"hi"
    assert graph.maintenance.verify().is_sound


def test_what_cancels_out_makes_no_commit(graph: Graph) -> None:
    receipt = graph.mutate('query q() @mixed { insert P { name: "x" } delete P where name = "x" }')
    assert (receipt.affected_nodes, receipt.commit) == (2, None)


def test_only_the_end_is_judged(graph: Graph) -> None:
    swap = """query q() @mixed {
      insert P { name: "eve" mail: "b@x" }
      delete P where name = "bob"
      insert P { name: "bob" }
    }"""
    graph.mutate(swap)
    assert not list(graph.query("match { $p k $q } return { $p.name }"))
    with pytest.raises(DataError) as caught:
        graph.mutate('query q() @mixed { delete P where name = "cyd" insert K { from: "ann" to: "cyd" } }')
    assert caught.value.context["rule"] == "E9"


def test_a_mixed_commit_merges_like_any_other(graph: Graph) -> None:
    graph.branches.create("side")
    graph.mutate(MIXED, branch="side")
    graph.mutate('insert P { name: "zoe" }')
    graph.branches.merge("side")
    assert people(graph) == ["ann", "cyd", "dee", "zoe"]
    graph.branches.create("other")
    graph.mutate('query q() @mixed { delete P where name = "zoe" insert P { name: "zed" } }', branch="other")
    graph.mutate('update P set { age: 1 } where name = "zoe"')
    with pytest.raises(MergeConflict):
        graph.branches.merge("other")


def test_rights_are_needed_for_every_type_that_is_named(graph: Graph, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    with og.open(graph.uri, actor="ann", policy=load_bundle(rules)) as restricted:
        with pytest.raises(PolicyDenied):
            restricted.mutate(MIXED)
        restricted.mutate('query q() @mixed { insert P { name: "x" } delete P where name = "cyd" }')
    assert people(graph) == ["ann", "bob", "x"]
