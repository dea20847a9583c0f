"""Commit messages over HTTP: every write of the client takes one, and the server keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import LimitExceeded, UsageError
from tests.support.live_server import SCHEMA, Live, serving_graph

pytestmark = pytest.mark.slow

WHY = "Grow: «ü»\nas agreed"
GROW = 'query grow() { update Person set { age: 9 } where name = "p0" }'
STORED = "query add($name: String) { insert Person { name: $name } }"


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    uri = str(tmp_path / "g.omni")
    with og.init(uri, SCHEMA) as graph:
        graph.ingest([{"type": "Person", "data": {"name": "p0", "age": 0}}])
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "all.gq").write_text(STORED + "\nquery ages() { match { $p: Person } return { $p.age } }")
    with serving_graph(uri, queries=tmp_path / "queries") as server:
        yield server


@pytest.fixture
def served(live: Live) -> Iterator[Any]:
    with og.connect(f"http://{live.host}:{live.port}", graph="g") as graph:
        yield graph


def merge(graph: Any) -> Any:
    graph.branches.create("b")
    graph.mutate(STORED, {"name": "x"}, branch="b")
    return graph.branches.merge("b", message=WHY)


WRITES: dict[str, Callable[[Any], Any]] = {
    "mutate": lambda graph: graph.mutate(GROW, message=WHY),
    "mutate under a condition": lambda graph: graph.mutate(GROW, if_commit=graph.commits()[0].commit_id, message=WHY),
    "invoke": lambda graph: graph.invoke_mutation("add", {"name": "y"}, message=WHY),
    "ingest": lambda graph: graph.ingest([{"type": "Person", "data": {"name": "z"}}], message=WHY),
    "merge": merge,
    "revert": lambda graph: graph.revert(graph.mutate(GROW).commit.commit_id, message=WHY),
    "cherry-pick": lambda graph: graph.cherry_pick(
        graph.ingest([{"type": "Person", "data": {"name": "z"}}], branch="c", from_branch="main").commit.commit_id,
        message=WHY,
    ),
    "schema apply": lambda graph: graph.schema.apply(
        SCHEMA.replace("age: I32?", "age: I32?\n mail: String?"), message=WHY
    ),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_served_write_with_a_message_keeps_it(write: Callable[[Any], Any], served: Any) -> None:
    commit = write(served).commit
    assert commit.message == WHY
    assert served.commits(limit=1)[0] == served.commit(commit.commit_id) == commit
    if commit.kind != "schema_apply":
        assert served.commit_changes(commit.commit_id, limit=1).block.cause["message"] == WHY


def test_load_in_a_json_body_takes_a_message(live: Live) -> None:
    body = {"data": '{"type": "Person", "data": {"name": "w"}}', "message": WHY}
    assert live.ask("POST", "/graphs/g/load", body).json()["commit"]["message"] == WHY


def test_message_that_the_library_refuses_is_refused_over_http(served: Any) -> None:
    with pytest.raises(UsageError, match="message"):
        served.mutate(GROW, message="\x1b[0m")
    with pytest.raises(LimitExceeded):
        served.mutate(GROW, message="x" * 5_000)


def test_stored_read_refuses_a_message(live: Live) -> None:
    answer = live.ask("POST", "/graphs/g/queries/ages", {"message": WHY})
    assert (answer.status, "only a mutation" in answer.json()["error"]) == (400, True)
