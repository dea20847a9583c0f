"""Commit messages: every write takes one, history and the change feed show it, and odd texts are refused."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.engine.branches import Branches
from omnigraph.engine.maintain.maintenance import Maintenance
from omnigraph.engine.schema import Schema
from omnigraph.errors import LimitExceeded, UsageError
from omnigraph.graph import session_of
from omnigraph.limits import COMMIT_MESSAGE_CHARACTERS_MAX
from omnigraph.pipeline import algo
from omnigraph.public_values import Commit
from tests.support.graph_template import copy_built

pytestmark = pytest.mark.slow

SCHEMA = "node Person { name: String @key  age: I32? @index  rank: F64? }\nedge Knows: Person -> Person"
WIDER = SCHEMA.replace("rank: F64?", "rank: F64?  mail: String?")
GROW = 'query q() { update Person set { age: 9 } where name = "ann" }'
WHY = "Correct the age\n\nas the register has it"
ANN = {"type": "Person", "data": {"name": "ann", "age": 1}}
BOB = {"type": "Person", "data": {"name": "bob"}}


def build(path: Path) -> og.Graph:
    graph = og.init(path, SCHEMA)
    graph.ingest([ANN])
    return graph


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return copy_built(build, tmp_path / "g.omni")


def review(graph: og.Graph) -> None:
    graph.branches.create("review")
    graph.ingest([BOB], branch="review")
    graph.mutate(GROW)


def merge_on_pipeline(graph: og.Graph) -> object:
    review(graph)
    return pipeline.merge(graph, "review", engine="local", message=WHY)


def merge(graph: og.Graph) -> object:
    review(graph)
    return graph.branches.merge("review", message=WHY)


def revert(graph: og.Graph) -> object:
    return graph.revert(graph.mutate(GROW).commit.commit_id, message=WHY)  # type: ignore[union-attr]


def cherry_pick(graph: og.Graph) -> object:
    review(graph)
    return graph.cherry_pick(graph.commits("review", limit=1)[0].commit_id, message=WHY)


def load(graph: og.Graph) -> object:
    path = Path(graph.uri).parent / "bob.ndjson"
    path.write_text('{"type": "Person", "data": {"name": "bob"}}\n')
    return pipeline.load(graph, path, engine="local", message=WHY)


def optimize(graph: og.Graph, run: Callable[[], object]) -> object:
    for age in range(4):
        graph.ingest([{"type": "Person", "data": {"name": f"p{age}", "age": age}}])
    return run()


WRITES: dict[str, Callable[[og.Graph], object]] = {
    "mutate": lambda graph: graph.mutate(GROW, message=WHY),
    "ingest": lambda graph: graph.ingest([BOB], message=WHY),
    "ingest to a new branch": lambda graph: graph.ingest([BOB], branch="b", from_branch="main", message=WHY),
    "load": load,
    "merge": merge,
    "pipeline merge": merge_on_pipeline,
    "revert": revert,
    "cherry-pick": cherry_pick,
    "schema apply": lambda graph: graph.schema.apply(WIDER, message=WHY),
    "ensure indices": lambda graph: graph.maintenance.ensure_indices(message=WHY),
    "optimize": lambda graph: optimize(graph, lambda: graph.maintenance.optimize(message=WHY)),
    "pipeline optimize": lambda graph: optimize(graph, lambda: pipeline.optimize(graph, engine="local", message=WHY)),
    "measure": lambda graph: algo.pagerank(graph, write_to="rank", engine="local", message=WHY),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_write_with_a_message_keeps_it_in_history(write: Callable[[og.Graph], Any], graph: og.Graph) -> None:
    commit: Commit = write(graph).commit
    branch = commit.branch
    assert (commit.message, "message" in commit.properties) == (WHY, False)
    assert graph.commits(branch)[0] == graph.commit(commit.commit_id) == commit
    # Other writes of the same graph have no message.
    assert all(other.message is None for other in graph.commits(branch)[1:])
    assert graph.mutate('query q() { insert Person { name: "eve" } }').commit.message is None  # type: ignore[union-attr]


def test_every_writing_call_takes_a_message() -> None:
    calls: list[Callable[..., object]] = [og.Graph.mutate, og.Graph.ingest, og.Graph.embed, og.Graph.revert]
    calls += [og.Graph.cherry_pick, Branches.merge, Schema.apply, Maintenance.ensure_indices, Maintenance.optimize]
    calls += [Maintenance.repair, pipeline.load, pipeline.merge, pipeline.embed, pipeline.optimize]
    assert [call.__qualname__ for call in calls if "message" not in signature(call).parameters] == []


def test_message_is_a_property_of_the_stored_commit(graph: og.Graph) -> None:
    graph.mutate(GROW, message=WHY)
    stored = session_of(graph).kernel.snapshot().head_commit
    assert stored.properties["message"] == WHY


def test_changes_and_the_feed_show_the_message(graph: og.Graph) -> None:
    commit = graph.mutate(GROW, message=f"  {WHY}\r\n").commit
    assert commit is not None
    assert graph.commit_changes(commit.commit_id).block.cause["message"] == WHY
    blocks = graph.changes(start="beginning").blocks
    assert [block.cause.get("message") for block in blocks] == [None, WHY]


def test_commit_of_a_server_without_messages_can_be_read() -> None:
    told = Commit("c", "main", 1, None, None, None, 0, "mutation", "o").to_json()  # type: ignore[arg-type]
    del told["message"]
    assert Commit.from_json(told).message is None


@pytest.mark.parametrize("message", ["", " \n", "a\x1b[2Jb", "a\0", "\ud800", 7, b"why"])
def test_message_that_is_no_text_is_refused(message: Any, graph: og.Graph) -> None:
    head = graph.commits()[0]
    with pytest.raises(UsageError, match="message"):
        graph.mutate(GROW, message=message)
    assert graph.commits()[0] == head


def test_message_may_be_as_long_as_its_limit(graph: og.Graph) -> None:
    longest = "ü" * COMMIT_MESSAGE_CHARACTERS_MAX
    assert graph.mutate(GROW, message=longest).commit.message == longest  # type: ignore[union-attr]
    with pytest.raises(LimitExceeded) as caught:
        graph.ingest([BOB], message=longest + "x")
    assert caught.value.context["limit"] == COMMIT_MESSAGE_CHARACTERS_MAX
    assert graph.get("Person", "bob") is None
