"""The feed over schema changes, where it ends: gaps that were reclaimed, and baselines from which it goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine.authorization import GRAPH, on_branch
from omnigraph.engine.changes import commit_diff as commit_module
from omnigraph.errors import (
    ChangeFeedGap,
    OmniGraphError,
    PolicyDenied,
)
from omnigraph.graph import session_of
from omnigraph.lang.catalog import TypeKey
from tests.engine.test_feed_tokens import rejected
from tests.support.change_fixtures import (
    SCHEMA,
    copied_graph,
    edge,
    exported,
    head,
    image,
    new_graph,
    node,
    pages,
    replay,
    world,
    write,
)
from tests.support.policy_recorder import Recorder


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return copied_graph(tmp_path)


# -- boundaries and gaps -----------------------------------------------------------------------------------------------


def test_feed_goes_on_over_a_schema_change_and_says_how(graph: og.Graph) -> None:
    before = write(graph, node("a"))
    graph.schema.apply(SCHEMA.replace("v: F64?", "v: F64?  note: String?"))
    changed = head(graph)
    after = write(graph, node("a", note="x"))
    page = graph.changes(start="beginning")
    state: dict[Any, Any] = {}
    assert (replay(state, [page]), page.caught_up) == ([before, changed, after], True)
    assert state == exported(graph)
    blocks: Any = page.to_json()["blocks"]
    event = blocks[1]
    assert event["changes"] == []
    [step] = event["schema"]["steps"]
    assert (step["kind"], step["type_name"], step["property_name"]) == ("add_property", "P", "note")
    assert [list(block) for block in (blocks[0], blocks[2])] == [["cause", "changes"]] * 2


def test_feed_over_renames_and_drops_replays_to_the_newest_state(graph: og.Graph) -> None:
    cursor = graph.changes().cursor
    write(graph, node("a", v=1.0), node("b", v=2.0))
    graph.schema.apply(SCHEMA.replace("v: F64?", 'w: F64? @rename_from("v")'))
    write(graph, node("a", w=3.0))
    graph.schema.apply(SCHEMA.replace("v: F64?", ""))
    write(graph, node("c"))
    state: dict[Any, Any] = {}
    replay(state, pages(graph, cursor=cursor))
    assert state == exported(graph)


def test_feed_schema_event_comes_with_the_first_page_of_its_commit(graph: og.Graph) -> None:
    graph.branches.create("b")
    graph.schema.apply(SCHEMA + "node R { k: String @key }", branch="b")
    write(graph, node("x", "R"), node("y", "R"), branch="b")
    write(graph, node("a"))
    graph.branches.merge("b")
    found = pages(graph, start="beginning", limit=1)
    blocks = [block for page in found for block in page.blocks if block.cause["graph_commit_id"] == head(graph)]
    assert [[step.kind for step in block.schema_steps] for block in blocks] == [["add_type"], []]
    assert [block.count for block in blocks] == [1, 1]


@pytest.mark.parametrize(
    "schema",
    [SCHEMA + "node R { k: String @key }", SCHEMA.replace("v: F64?", "v: F64? @index")],
    ids=["new type", "new index"],
)
def test_feed_schema_change_that_touches_no_entity_is_an_empty_block(graph: og.Graph, schema: str) -> None:
    write(graph, node("a"))
    graph.schema.apply(schema)
    assert [block.count for page in pages(graph, start="beginning") for block in page.blocks] == [1, 0]


def test_feed_type_dropped_with_entities_is_one_event(graph: og.Graph) -> None:
    write(graph, node("q", "Q"))
    cursor = graph.changes().cursor
    without = SCHEMA.replace("node Q { k: String @key }", "").replace("edge F: P -> Q", "")
    graph.schema.apply(without)
    [block] = graph.changes(cursor=cursor).blocks
    assert ([step.kind for step in block.schema_steps], block.count) == (["drop_type", "drop_type"], 0)


def reclaim(graph: og.Graph, commit: str, table_key: TypeKey) -> og.Graph:
    """Remove the version of a type that a commit published, as cleanup would, and return a fresh handle."""
    pin = session_of(graph).kernel.at_commit(commit).state.pins[table_key]  # type: ignore[arg-type]
    graph.close()
    Path(graph.uri, pin.ref.manifest_path).unlink()
    return og.open(graph.uri)


@pytest.mark.slow
def test_feed_ends_before_a_reclaimed_version_and_then_tells_the_gap(graph: og.Graph) -> None:
    first, second = write(graph, node("a")), write(graph, node("a", v=1.0))
    third, fourth = write(graph, node("a", v=2.0)), write(graph, node("a", v=3.0))
    graph = reclaim(graph, second, TypeKey("node:P"))
    page = graph.changes(start="beginning")
    assert replay({}, [page]) == [first]
    with pytest.raises(ChangeFeedGap) as caught:
        graph.changes(cursor=page.cursor)
    assert caught.value.context == {"cursor": page.cursor, "first_unreadable_commit_id": second}
    assert caught.value.kind.http_status == 410
    # What comes after the gap needs both of its sides.
    with pytest.raises(ChangeFeedGap) as caught:
        graph.changes(start=f"after:{second}")
    assert caught.value.context["first_unreadable_commit_id"] == third
    lines = b"".join(graph.baseline())
    resume = json.loads(lines.splitlines()[-1])["baseline"]["resume_cursor"]
    fifth = write(graph, node("b"))
    state = world(lines)
    assert replay(state, pages(graph, cursor=resume)) == [fifth]
    assert state == exported(graph)
    assert fourth != fifth


def test_feed_gap_is_told_when_the_catalog_itself_was_reclaimed(graph: og.Graph) -> None:
    first = write(graph, node("a"))
    write(graph, node("b"))
    ref = session_of(graph).kernel.at_commit(first).ref  # type: ignore[arg-type]
    graph.close()
    Path(graph.uri, ref.manifest_path).unlink()
    with pytest.raises(ChangeFeedGap):
        og.open(graph.uri).changes(start="beginning")


# -- baseline ----------------------------------------------------------------------------------------------------------


def test_baseline_ends_with_the_cursor_of_what_comes_next(graph: og.Graph) -> None:
    made = write(graph, node("a", tags=["x"], image=image(b"one")), edge("1", "a", "a"))
    lines = b"".join(graph.baseline())
    last = json.loads(lines.splitlines()[-1])["baseline"]
    assert lines.startswith(b"".join(graph.export()))
    assert last["snapshot_commit_id"] == made
    next_ = write(graph, node("b"))
    assert replay(world(lines), pages(graph, cursor=last["resume_cursor"])) == [next_]


def test_baseline_keeps_its_snapshot_while_others_write(graph: og.Graph) -> None:
    write(graph, node("a"))
    before = exported(graph)
    stream = graph.baseline()
    late = write(graph, node("b"))
    lines = b"".join(stream)
    assert world(lines) == before
    resume = json.loads(lines.splitlines()[-1])["baseline"]["resume_cursor"]
    assert replay(before, pages(graph, cursor=resume)) == [late]


def test_baseline_selection_filters_the_snapshot_and_binds_the_cursor(graph: og.Graph) -> None:
    write(graph, node("a"), node("q", "Q"), edge("1", "a", "a"))
    lines = b"".join(graph.baseline(kinds=["node"], types=["P"], ops=["delete"]))
    assert set(world(lines)) == {("node", "P", "a")}
    resume = json.loads(lines.splitlines()[-1])["baseline"]["resume_cursor"]
    assert graph.changes(cursor=resume, kinds=["node"], types=["P"], ops=["delete"]).caught_up
    rejected(graph, "other kinds", cursor=resume, kinds=["node"], types=["P"])


def test_baseline_and_feed_ask_the_policy(tmp_path: Path) -> None:
    made = new_graph(tmp_path)
    first, policy = head(made), Recorder(denies=("read", "export"))
    graph = og.open(made.uri, actor="eve", policy=policy)
    for call in (graph.changes, graph.baseline, lambda: graph.commit_changes(first), lambda: graph.diff(1, 1)):
        with pytest.raises(PolicyDenied):
            call()
    main = on_branch("main")
    # A commit that may not be read is none, and only those who may read the graph are told that there is none.
    expected = [("read", main), ("export", main), ("read", main), ("read", GRAPH), ("read", main)]
    assert policy.asked == [(action, scope, "eve") for action, scope in expected]


def test_feed_failure_that_is_no_gap_stays_what_it_is(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    write(graph, node("a"))

    def fail(*_: object) -> None:
        raise OmniGraphError("broken")

    monkeypatch.setattr(commit_module, "fill", fail)
    with pytest.raises(OmniGraphError, match="broken"):
        graph.changes(start="beginning")
