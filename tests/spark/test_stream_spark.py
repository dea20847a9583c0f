"""The change feed on real Spark: batches, checkpoints, what is told of an end, and a query that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.support import stream_driver
from tests.support.change_fixtures import SCHEMA, World, apply, delete, edge, exported, new_graph, node, write
from tests.support.crash_campaign import REPOSITORY
from tests.support.stream_driver import LOG


def collected(spark: Any, folder: Path, **options: str) -> list[list[tuple[str, str, str]]]:
    """Run a query until it has caught up, and return what each batch brought."""
    found: list[list[tuple[str, str, str]]] = []

    def keep(frame: Any, batch: int) -> None:
        found.append([(row["type"], row["op"], row["id"]) for row in frame.collect()])

    frame = spark.readStream.format("omnigraph").options(**{"start": "beginning", **options}).load()
    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(folder))
    query.trigger(availableNow=True).start().awaitTermination()
    return found


@pytest.mark.spark
@pytest.mark.slow
def test_stream_query_goes_on_from_its_checkpoint(spark: Any, tmp_path: Path) -> None:
    graph = new_graph(tmp_path)
    write(graph, node("a"), node("b"), edge("e", "a", "b"))
    write(graph, node("a", v=1.0))
    told: dict[str, str] = {"graph": graph.uri, "maxCommitsPerTrigger": "1"}
    first = [[("P", "insert", "a"), ("P", "insert", "b"), ("E", "insert", "e")], [("P", "update", "a")]]
    assert collected(spark, tmp_path / "check", **told) == first
    graph.mutate('query q() { delete E where from = "a" }')
    graph.schema.apply(SCHEMA.replace("w: I32?", "w: I32?  x: I32?"))
    write(graph, node("c"))
    [deleted, *_, inserted] = collected(spark, tmp_path / "check", **told)
    assert (deleted, inserted) == ([("E", "delete", "e")], [("P", "insert", "c")])


@pytest.mark.spark
@pytest.mark.slow
def test_stream_query_follows_a_graph_and_writes_one_type_elsewhere(spark: Any, tmp_path: Path) -> None:
    graph, copy = new_graph(tmp_path / "from"), new_graph(tmp_path / "to")
    write(graph, node("a", v=1.0), node("b", tags=["x"]), node("q", "Q"))
    feed = spark.readStream.format("omnigraph").option("graph", graph.uri).option("type", "P")
    people = feed.option("start", "beginning").load().where("op != 'delete'").select("after.*")
    sink = people.writeStream.format("omnigraph").option("graph", copy.uri).option("type", "P").option("mode", "merge")
    query = sink.option("checkpointLocation", str(tmp_path / "check")).trigger(processingTime="1 second").start()
    try:
        query.processAllAvailable()
        write(graph, node("b", tags=["y"]))
        query.processAllAvailable()
    finally:
        query.stop()
    wanted = {key: value for key, value in exported(graph).items() if key[1] == "P"}
    assert exported(copy) == wanted
    assert [commit.kind for commit in copy.commits()] == ["load", "load", "init"]


# -- a query that is killed --------------------------------------------------------------------------------------------


def history(folder: Path) -> og.Graph:
    graph = new_graph(folder)
    for place in range(2):
        write(graph, *(node(f"{name}", v=float(place)) for name in "abc"), edge(f"e{place}", "a", "b"))
    delete(graph, "c")
    write(graph, node("c"), node("d", "Q"))
    return graph


def kill(given: dict[str, str], is_time: Callable[[], bool]) -> None:
    """Start the query, and end it and all its processes at once as soon as it is time."""
    command = [sys.executable, "-m", "tests.support.stream_driver", json.dumps(given)]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=REPOSITORY, start_new_session=True, stderr=quiet)
    try:
        while not is_time():
            with suppress(subprocess.TimeoutExpired):
                raise AssertionError(f"it ended with {process.wait(0.05)} before it was time")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def logged(log: og.Graph, graph: og.Graph) -> World:
    """Replay the changes that a graph holds in the order of the commits that made them."""
    state: World = {}
    order = {commit.commit_id: place for place, commit in enumerate(reversed(graph.commits()))}
    entries = [json.loads(line)["data"] for line in b"".join(log.export()).splitlines()]
    for one in sorted(entries, key=lambda one: order[one["commit"]]):
        change = {"kind": one["kind"], "type": {"name": one["name"]}, "id": one["entity"], "op": one["op"]}
        apply(state, change | {side: json.loads(one[side]) for side in ("before", "after") if one.get(side)})
    return state


def is_staged(log: og.Graph) -> bool:
    return any(Path(log.uri, "nodes").rglob("data/*.lance"))


def is_published(log: og.Graph) -> bool:
    return len(log.commits()) > 1


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("is_time", [is_published, pytest.param(is_staged, marks=pytest.mark.long)])
def test_stream_query_killed_and_started_again_loses_and_doubles_nothing(
    spark: Any, tmp_path: Path, is_time: Callable[[og.Graph], bool]
) -> None:
    graph, log = history(tmp_path), og.init(tmp_path / "log.omni", LOG)
    given = {"graph": graph.uri, "log": log.uri, "checkpoint": str(tmp_path / "check")}
    # Right after a batch was published Spark has not noted it yet, and before that its tasks write.
    kill(given, lambda: is_time(log))
    stream_driver.main(given)
    assert logged(log, graph) == exported(graph)
    # Every batch of two commits is one commit, however often it was tried.
    batches = -(-len(graph.changes(start="beginning").blocks) // 2)
    assert [commit.kind for commit in log.commits()] == ["load"] * batches + ["init"]
