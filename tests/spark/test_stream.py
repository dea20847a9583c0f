"""The change feed as a stream, driven as Spark drives it: replays, positions, limits, and what cannot be told."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import omnigraph as og
from omnigraph.errors import ChangeFeedGap, CursorRejected, GraphError, OmniGraphError, SchemaBoundary, UsageError
from omnigraph.graph import session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.spark.datasource import stream, tables
from omnigraph.spark.datasource.stream import Feed, StreamReader
from tests.support.change_fixtures import (
    SCHEMA,
    World,
    apply,
    delete,
    edge,
    exported,
    head,
    image,
    new_graph,
    node,
    write,
)
from tests.support.datasource_fixtures import things
from tests.support.graph_template import copy_built

pytestmark = pytest.mark.slow

Offset = dict[str, str]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "process")


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return copy_built(build, tmp_path / "graph.omni", actor="ada")


def build(path: Path) -> og.Graph:
    """Return a graph with every sort of change: also a merge, a compaction and a rewrite of equal values."""
    graph = og.init(path, SCHEMA, actor="ada")
    write(graph, node("a", v=1.0, image=image(b"one")), node("b", tags=["x"]), node("q", "Q"), edge("e", "a", "b"))
    write(graph, node("a", v=2.0, image=image(b"two")), edge("e", "a", "b", w=3))
    graph.branches.create("side")
    write(graph, node("s"), branch="side")
    write(graph, node("c"), edge("f", "c", "q", "F"))
    graph.branches.merge("side", into="main")
    graph.maintenance.optimize()
    write(graph, node("b", tags=["x"]))
    delete(graph, "a")
    write(graph, node("a"))
    return graph


def reader(graph: og.Graph, **options: str) -> StreamReader:
    given = {"graph": graph.uri, "start": "beginning", **options}
    return StreamReader(given, stream.schema_of(given))


def read_batch(one: StreamReader, start: Offset, end: Offset) -> list[dict[str, Any]]:
    """Read a batch as tasks do: each of them knows only what travelled to it."""
    found: list[dict[str, Any]] = []
    for partition in one.partitions(start, end):
        task = pickle.loads(pickle.dumps(StreamReader(one._options.values, one._schema)))
        for batch in task.read(pickle.loads(pickle.dumps(partition))):
            batch.validate(full=True)
            found += batch.to_pylist()
    return found


def batches(graph: og.Graph, start: Offset | None = None, **options: str) -> list[list[dict[str, Any]]]:
    """Return the rows of all batches up to the head, each planned by a reader that has just started."""
    found: list[list[dict[str, Any]]] = []
    position = start or reader(graph, **options).initialOffset()
    while True:
        one = reader(graph, **options)
        end = json.loads(json.dumps(one.latestOffset(position, one.getDefaultReadLimit())))
        if end == position:
            return found
        found.append(read_batch(one, position, end))
        position = end


def replay(found: list[list[dict[str, Any]]]) -> World:
    state: World = {}
    for row in (row for batch in found for row in batch):
        change = {"kind": row["kind"], "type": {"name": row["type"]}, "id": row["id"], "op": row["op"]}
        images = {side: json.loads(row[side]) for side in ("before", "after") if row[side] is not None}
        apply(state, change | images)
    return state


# -- what comes out ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commits", ["1", "2", "100"])
def test_stream_replayed_gives_the_graph(graph: og.Graph, commits: str) -> None:
    found = batches(graph, maxCommitsPerTrigger=commits)
    assert replay(found) == exported(graph)
    steps = len(graph.changes(start="beginning").blocks)
    assert len(found) == -(-steps // int(commits))


def skipped(feed: Feed, *given: Any) -> list[Any]:
    return STEPS(feed, *given)[1:]


def repeated(feed: Feed, *given: Any) -> list[Any]:
    found = STEPS(feed, *given)
    return [*found[:1], *found]


STEPS = Feed.steps


@pytest.mark.parametrize("mutant", [skipped, repeated])
def test_stream_that_loses_or_doubles_a_commit_is_caught(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, mutant: Callable[..., Any]
) -> None:
    monkeypatch.setattr(Feed, "steps", mutant)
    with pytest.raises(AssertionError):
        assert replay(batches(graph)) == exported(graph)


def test_stream_that_leaves_deletes_out_is_caught(graph: og.Graph) -> None:
    with pytest.raises(AssertionError):
        assert replay(batches(graph, ops="insert,update")) == exported(graph)


def test_stream_tells_what_the_feed_tells(graph: og.Graph) -> None:
    told = [
        [block.cause["graph_commit_id"], change["kind"], change["type"]["name"], change["op"], change["id"]]
        for block in graph.changes(start="beginning").blocks
        for change in block.to_json()["changes"]  # type: ignore[attr-defined]  # it is a list
    ]
    (rows,) = batches(graph)
    assert [[row[name] for name in ("graph_commit_id", "kind", "type", "op", "id")] for row in rows] == told
    newest = graph.commits()[0]
    assert (rows[-1]["actor_id"], rows[-1]["authored_branch"]) == ("ada", "main")
    assert rows[-1]["authored_at"] == datetime.fromtimestamp(newest.created_at_us / 1e6, UTC)
    own = batches(graph, branch="side")[-1]
    assert (own[-1]["id"], own[-1]["authored_branch"]) == ("s", "side")


def test_stream_of_one_type_has_its_columns(tmp_path: Path) -> None:
    graph = things(tmp_path / "g")
    graph.ingest([{"type": "Thing", "data": {"name": "none", "small": 3}}], mode="merge")
    graph.mutate('query q() { delete Thing where name = "empty" }')
    for name in ("Thing", "Likes"):
        state: dict[str, Any] = {}
        (rows,) = batches(graph, type=name)
        for row in rows:
            assert (row["type"], row["before"]) == (name, state.pop(row["id"], None))
            if row["after"] is not None:
                state[row["id"]] = row["after"]
        options = {"graph": graph.uri, "type": name}
        one = tables.Reader(options, None, tables.schema_of(options, None))
        now = [row for run in one.partitions() for batch in one.read(run) for row in batch.to_pylist()]
        assert sorted(state.values(), key=lambda row: row["id"]) == sorted(now, key=lambda row: row["id"])


def test_stream_of_a_selection_tells_no_more(graph: og.Graph) -> None:
    (rows,) = batches(graph, kinds="edge", ops="delete")
    assert [(row["kind"], row["op"], row["id"]) for row in rows] == [("edge", "delete", "e")]
    (rows,) = batches(graph, types="Q")
    assert [row["id"] for row in rows] == ["q"]


def test_stream_of_a_large_commit_is_shared_among_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = new_graph(tmp_path)
    write(graph, *(node(f"n{place}", "Q") for place in range(10)))
    whole = batches(graph)
    monkeypatch.setattr(stream, "STREAM_TASK_ROWS", 4)
    monkeypatch.setattr(stream, "STREAM_WINDOW_ROWS", 3)
    one = reader(graph)
    start = one.initialOffset()
    assert len(one.partitions(start, one.latestOffset(start, ReadAllAvailable()))) == 3
    assert batches(graph) == whole
    assert len(whole[0]) == 10


# -- positions ---------------------------------------------------------------------------------------------------------


def test_stream_batch_that_comes_again_is_the_same(graph: og.Graph) -> None:
    one = reader(graph, maxCommitsPerTrigger="3")
    start = one.initialOffset()
    end = one.latestOffset(start, one.getDefaultReadLimit())
    first = read_batch(one, start, end)
    write(graph, node("later"), node("b", v=9.0))
    graph.maintenance.optimize()
    assert read_batch(reader(graph), start, end) == first
    assert one.partitions(end, end) == []


def test_stream_limit_is_for_those_who_ask_for_it(graph: og.Graph) -> None:
    one = reader(graph, maxCommitsPerTrigger="2")
    start = one.initialOffset()
    assert one.latestOffset(start, ReadAllAvailable())["commit"] == head(graph)
    blocks = graph.changes(start="beginning").blocks
    assert one.latestOffset(start, one.getDefaultReadLimit())["commit"] == blocks[1].cause["graph_commit_id"]


def test_stream_of_what_is_available_ends_where_it_was_asked(graph: og.Graph) -> None:
    one = reader(graph)
    one.prepareForTriggerAvailableNow()
    then = head(graph)
    now = write(graph, node("later"))
    end = one.latestOffset(one.initialOffset(), ReadAllAvailable())
    assert end["commit"] == then
    assert one.latestOffset(end, ReadAllAvailable()) == end
    assert one.reportLatestOffset()["commit"] == now


def test_stream_starts_where_it_is_told(graph: og.Graph) -> None:
    cursor = json.loads(b"".join(graph.baseline()).splitlines()[-1])["baseline"]["resume_cursor"]
    now, then = reader(graph, start="now").initialOffset(), head(graph)
    assert now == reader(graph, start=cursor).initialOffset() == reader(graph, start=f"after:{then}").initialOffset()
    write(graph, node("later"))
    assert [[row["id"] for row in batch] for batch in batches(graph, now)] == [["later"]]
    assert reader(graph, start="now").initialOffset()["commit"] == head(graph)


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"start": "begining"}, UsageError, "`start` takes `now`, `beginning`"),
        ({"start": "after:01ARZ3NDEKTSV4RRFFQ69G5FAV"}, GraphError, "not in the history"),
        ({"start": "eyJ2IjoxfQ"}, CursorRejected, "change cursor rejected"),
        ({"maxCommitsPerTrigger": "0"}, UsageError, ">= 1"),
        ({"maxCommitsPerTrigger": "many"}, UsageError, "integer"),
        ({"maxCommitPerTrigger": "1"}, UsageError, "did you mean `maxcommitspertrigger`"),
        ({"type": "P", "types": "P"}, UsageError, "use one of them"),
        ({"type": "R"}, UsageError, "no type `R`"),
        ({"kinds": "nodes"}, UsageError, "unknown kind `nodes`"),
        ({"ops": "upsert"}, UsageError, "unknown op `upsert`"),
        ({"branch": "gone"}, GraphError, "gone"),
    ],
)
def test_stream_of_wrong_options_says_what_to_do(
    graph: og.Graph, options: dict[str, str], kind: type[OmniGraphError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        reader(graph, **options).initialOffset()


def test_stream_without_a_start_or_with_a_schema_is_refused(graph: og.Graph) -> None:
    from pyspark.sql.types import StringType, StructType

    options = {"graph": graph.uri, "type": "P"}
    with pytest.raises(UsageError, match="`start` is missing; a stream begins at"):
        StreamReader(options, tables.schema_of(options, None))
    with pytest.raises(UsageError, match="omit the schema"):
        StreamReader({"graph": graph.uri, "start": "now"}, StructType().add("id", StringType()))


# -- what cannot be told -----------------------------------------------------------------------------------------------


def test_stream_goes_on_over_a_schema_change_unless_its_columns_changed(graph: og.Graph) -> None:
    running = reader(graph, type="Q")
    graph.schema.apply(SCHEMA.replace("node Q { k: String @key }", "node Q { k: String @key  v: I32? }"))
    boundary = head(graph)
    write(graph, node("later", "Q"))
    one = reader(graph)
    start = one.initialOffset()
    end = one.latestOffset(start, ReadAllAvailable())
    # All of it has the names of today, as in the feed in process.
    told: World = {}
    for block in graph.changes(start="beginning").blocks:
        changes: Any = block.to_json()["changes"]
        for change in changes:
            apply(told, change)
    assert replay([read_batch(one, start, end)]) == told == exported(graph)
    assert told["node", "Q", "q"]["properties"] == {"k": "q", "v": None}
    later = batches(graph, reader(graph, start=f"after:{boundary}").initialOffset())
    assert [[row["id"] for row in batch] for batch in later] == [["later"]]
    # So one type alone has the columns of today in its older rows too.
    typed = reader(graph, type="Q")
    end = typed.latestOffset(start := typed.initialOffset(), ReadAllAvailable())
    rows = [row["after"] for row in read_batch(typed, start, end)]
    assert rows == [{"id": name, "k": name, "v": None} for name in ("q", "later")]
    with pytest.raises(SchemaBoundary, match="omit `type` to get JSON: restart the stream") as caught:
        running.latestOffset(start, ReadAllAvailable())
    assert str(caught.value).startswith("changes.schema_boundary: ")


def test_stream_gap_is_told_by_whoever_meets_it(graph: og.Graph) -> None:
    one = reader(graph)
    start = one.initialOffset()
    end = one.latestOffset(start, ReadAllAvailable())
    partitions = one.partitions(start, end)
    gone: stream.TypeChange = partitions[0].value
    Path(graph.uri, gone.scan.ref.manifest_path).unlink()
    with pytest.raises(ChangeFeedGap, match="with the option `start` and a new checkpoint") as caught:
        pa.Table.from_batches(reader(graph).read(partitions[0]))
    assert caught.value.context["first_unreadable_commit_id"] == gone.graph_commit_id
    assert str(caught.value).startswith("changes.gap: ")


def test_stream_ends_before_a_reclaimed_version_and_says_how_to_go_on(tmp_path: Path) -> None:
    graph = new_graph(tmp_path)
    first, second = write(graph, node("a")), write(graph, node("a", v=1.0))
    pin = session_of(graph).kernel.at_commit(second).state.pins[TypeKey("node:P")]  # type: ignore[arg-type]
    Path(graph.uri, pin.ref.manifest_path).unlink()
    write(graph, node("q", "Q"))
    one = reader(graph)
    end = one.latestOffset(one.initialOffset(), ReadAllAvailable())
    assert end["commit"] == first
    with pytest.raises(ChangeFeedGap, match="with the option `start` and a new checkpoint") as caught:
        one.latestOffset(end, ReadAllAvailable())
    assert str(caught.value).startswith("changes.gap: ")
    later = batches(graph, reader(graph, start=f"after:{second}").initialOffset())
    assert [[row["id"] for row in batch] for batch in later] == [["q"]]
