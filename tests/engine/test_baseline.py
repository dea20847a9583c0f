"""Where the feed ends: schema boundaries, gaps that were reclaimed, and baselines from which it goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.engine.authorization import GRAPH, on_branch
from omnigraph.engine.changes import commit_diff as commit_module
from omnigraph.errors import (
    ChangeFeedGap,
    OmniGraphError,
    PolicyDenied,
    SchemaBoundary,
)
from omnigraph.graph import session_of
from omnigraph.lang.catalog import TypeKey
from tests.engine.test_feed_tokens import rejected
from tests.support.change_fixtures import (
    SCHEMA,
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


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "process")


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return new_graph(tmp_path)


# -- boundaries and gaps -----------------------------------------------------------------------------------------------


def test_feed_ends_before_a_schema_boundary_and_then_refuses_it(graph: og.Graph) -> None:
    before = write(graph, node("a"))
    graph.schema.apply(SCHEMA.replace("v: F64?", "v: F64?  note: String?"))
    boundary = head(graph)
    after = write(graph, node("a", note="x"))
    first = graph.changes(start="beginning")
    assert (replay({}, [first]), first.caught_up) == ([before], False)
    with pytest.raises(SchemaBoundary) as caught:
        graph.changes(cursor=first.cursor)
    assert caught.value.context == {
        "reason": "schema_boundary",
        "graph_commit_id": boundary,
        "type_name": "P",
    }
    assert pages(graph, start=f"after:{boundary}")[0].blocks[0].cause["graph_commit_id"] == after


def test_feed_boundary_is_decided_for_the_whole_commit(graph: og.Graph) -> None:
    graph.schema.apply(SCHEMA.replace("v: F64?", "v: F64?  note: String?"))
    with pytest.raises(SchemaBoundary):
        graph.changes(start="beginning", types=["Q"])


@pytest.mark.parametrize(
    "schema",
    [SCHEMA + "node R { k: String @key }", SCHEMA.replace("v: F64?", "v: F64? @index")],
    ids=["new type", "new index"],
)
def test_feed_schema_change_that_touches_no_entity_is_an_empty_block(graph: og.Graph, schema: str) -> None:
    write(graph, node("a"))
    graph.schema.apply(schema)
    assert [block.count for page in pages(graph, start="beginning") for block in page.blocks] == [1, 0]


def test_feed_type_dropped_with_entities_is_a_boundary(graph: og.Graph) -> None:
    write(graph, node("q", "Q"))
    cursor = graph.changes().cursor
    without = SCHEMA.replace("node Q { k: String @key }", "").replace("edge F: P -> Q", "")
    graph.schema.apply(without)
    with pytest.raises(SchemaBoundary):
        graph.changes(cursor=cursor)


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
