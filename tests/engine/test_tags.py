"""Tags and views of the past: what they name, what they protect, and how time finds a commit."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from omnigraph import clock
from omnigraph.engine.authorization import GRAPH, on_branch, on_target
from omnigraph.errors import GraphError, UsageError
from omnigraph.graph import Graph, session_of
from tests.support.graph_template import build_graph
from tests.support.merge_fixtures import DATA, SCHEMA, age, change, people
from tests.support.policy_recorder import Recorder

pytestmark = pytest.mark.slow

QUERY = 'query q() { match { $p: Person { name: "Alice" } } return { $p.age } }'
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return people(tmp_path)


def set_age(graph: Graph, value: int, branch: str = "main") -> str:
    receipt = change(graph, f'update Person set {{ age: {value} }} where name = "Alice"', branch)
    return str(receipt.commit.commit_id)


def seen(graph: Graph, at: object, branch: str = "main") -> object:
    return graph.at(at, branch).query(QUERY).rows()[0]["p.age"]  # type: ignore[arg-type]


def test_tag_names_the_head_or_a_moment_and_can_be_read(graph: Graph) -> None:
    first = set_age(graph, 31)
    graph.tags.create("old", at=first)
    set_age(graph, 32)
    made = graph.tags.create(" new ")
    set_age(graph, 33)
    assert [one.name for one in graph.tags.list()] == ["new", "old"]
    assert (made.name, made.commit_id) == ("new", graph.commits()[1].commit_id)
    assert (seen(graph, "old"), seen(graph, "new"), age(graph, "Alice")) == (31, 32, 33)
    graph.tags.delete("old")
    assert [one.name for one in graph.tags.list()] == ["new"]


def test_tag_does_not_move(graph: Graph) -> None:
    graph.tags.create("v1")
    set_age(graph, 31)
    with pytest.raises(GraphError) as caught:
        graph.tags.create("v1")
    assert caught.value.code == "tag.exists"
    graph.tags.delete("v1")
    graph.tags.create("v1")
    assert seen(graph, "v1") == 31


@pytest.mark.parametrize("action", ["create", "delete"])
def test_tag_of_nothing_is_not_found(graph: Graph, action: str) -> None:
    given = {"at": "nowhere"} if action == "create" else {}
    with pytest.raises(GraphError) as caught:
        getattr(graph.tags, action)("v1", **given)
    assert caught.value.code == ("commit.not_found" if action == "create" else "tag.not_found")


def test_tag_on_a_branch_keeps_the_branch(graph: Graph) -> None:
    graph.branches.create("review")
    set_age(graph, 31, "review")
    graph.tags.create("v1", branch="review")
    with pytest.raises(GraphError) as caught:
        graph.branches.delete("review")
    assert caught.value.code == "branch.in_use"
    graph.branches.rename("review", "kept")
    assert seen(graph, "v1") == 31


def test_tags_ask_the_policy(graph: Graph) -> None:
    graph.branches.create("review")
    session_of(graph).actor, session_of(graph).policy = "ann", (policy := Recorder())
    graph.tags.create("v1", branch=" review ")
    graph.tags.list()
    graph.tags.delete(" v1 ")
    scopes = [(action, scope) for action, scope, _ in policy.asked]
    # The branch has no commit of its own yet, so what is tagged is one of main.
    created = [("tag_create", on_target("review")), ("read", on_branch("review"))]
    created += [("read", on_branch("main")), ("tag_create", on_target("main"))]
    assert scopes == [*created, ("read", GRAPH), ("tag_delete", on_target("main"))]


# -- the past ----------------------------------------------------------------------------------------------------


def test_past_stays_as_it_was(graph: Graph) -> None:
    past = graph.at(graph.snapshot().version)
    exported = b"".join(past.export())
    set_age(graph, 31)
    change(graph, 'insert Person { name: "Eve" }')
    assert past.query(QUERY).rows() == [{"p.age": 30}]
    assert b"".join(past.export()) == exported
    assert b"".join(past.export(["Knows"])) in exported
    assert past.snapshot().head == past.commit_id == graph.commits()[2].commit_id
    assert past.explain(QUERY).to_json() == graph.explain(QUERY, at=past.commit_id).to_json()


@pytest.fixture
def ticking() -> Iterator[list[datetime]]:
    """A clock that a test sets."""
    now = [START]
    with clock.replaced(lambda: int(now[0].timestamp() * 1_000_000)):
        yield now


def test_past_at_a_time_is_the_newest_commit_not_after_it(tmp_path: Path, ticking: list[datetime]) -> None:
    graph = build_graph(tmp_path / "graph.omni", SCHEMA, DATA)
    for hour in (1, 2, 3):
        ticking[0] = START + timedelta(hours=hour)
        set_age(graph, 30 + hour)
    second = timedelta(seconds=1)
    assert seen(graph, START) == 30
    assert seen(graph, START + timedelta(hours=2)) == 32
    assert seen(graph, START + timedelta(hours=2) - second) == 31
    assert seen(graph, START + timedelta(days=9)) == 33
    # A time without a zone is UTC, and a zone is heeded.
    assert seen(graph, datetime(2026, 1, 1, 2, 30)) == 32
    assert seen(graph, datetime(2026, 1, 1, 2, 30, tzinfo=timezone(timedelta(hours=1)))) == 31
    with pytest.raises(GraphError) as caught:
        seen(graph, START - second)
    assert caught.value.code == "commit.not_found"


def test_past_at_a_time_follows_the_branch_not_what_was_merged(tmp_path: Path, ticking: list[datetime]) -> None:
    graph = build_graph(tmp_path / "graph.omni", SCHEMA, DATA)
    graph.branches.create("review")
    ticking[0] = START + timedelta(hours=1)
    set_age(graph, 31, "review")
    ticking[0] = START + timedelta(hours=2)
    change(graph, 'update Person set { age: 26 } where name = "Bob"')
    ticking[0] = START + timedelta(hours=3)
    graph.branches.merge("review")
    middle = START + timedelta(hours=1, minutes=30)
    assert (seen(graph, middle), seen(graph, middle, "review")) == (30, 31)
    assert seen(graph, START + timedelta(hours=3)) == 31


def test_past_takes_no_other_kind_of_moment(graph: Graph) -> None:
    with pytest.raises(UsageError):
        graph.at(1.5)  # type: ignore[arg-type]
