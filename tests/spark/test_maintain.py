"""Optimize and verify on executors: the same outcome as in process, and nothing twice when a task dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import failpoints, pipeline
from omnigraph.engine.maintain import maintenance, verify_buckets
from omnigraph.engine.maintain.optimize import OptimizeReport
from omnigraph.engine.maintain.optimize import optimize as run_optimize
from omnigraph.engine.maintain.verify import Finding, VerifyReport
from omnigraph.engine.tasks import Runner
from omnigraph.errors import PipelineUnavailable, UsageError
from omnigraph.failpoints import Point
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest.model import Snapshot
from omnigraph.manifest.plan import Effect, Plan
from omnigraph.manifest.updates import SetVersion
from omnigraph.spark import executors
from omnigraph.spark.executors import Executors
from omnigraph.store.index.index_build import coverage
from omnigraph.store.write import compaction
from omnigraph.store.write.transaction import append
from tests.support.maintenance_fixtures import elsewhere
from tests.support.pipeline_fixtures import ThreadsAsExecutors

pytestmark = pytest.mark.slow

SCHEMA = """
node Person { name: String @key  city: String? @index  near: Vector(2)? @index  photo: Blob? }
node Place { name: String @key }
edge Knows: Person -> Person
edge Lives: Person -> Place
"""
PERSON, KNOWS = TypeKey("node:Person"), TypeKey("edge:Knows")


def person(place: int) -> dict[str, Any]:
    return {"name": f"p{place}", "city": f"Town {place % 7}", "near": [place, 1], "photo": "base64:" + "QUJD" * place}


def grown(path: Path) -> Graph:
    """Return a graph that was written in small pieces, of which the older half is indexed."""
    graph = og.init(path, SCHEMA)
    for part in range(4):
        people = [{"type": "Person", "data": person(place)} for place in range(part * 10, part * 10 + 10)]
        places = [{"type": "Place", "data": {"name": f"t{part}"}}]
        graph.ingest([*people, *places])
        ends = [(f"p{part * 10}", f"p{part * 10 + 1}")]
        graph.ingest([{"edge": "Knows", "from": one, "to": two, "data": {"id": f"k{part}"}} for one, two in ends])
        graph.ingest([{"edge": "Lives", "from": f"p{part * 10}", "to": f"t{part}", "data": {"id": f"l{part}"}}])
        if part == 1:
            graph.maintenance.ensure_indices()
    graph.mutate('query q() { delete Person where name = "p13" }')
    return graph


@pytest.fixture(params=[10, 20])
def pieces(request: pytest.FixtureRequest) -> Any:
    """Cut compactions and segments so small that each has several tasks; fragments have 10 rows before."""
    plan = compaction.plan
    with (
        patch("omnigraph.engine.maintain.optimize.MAINTAIN_TASK_ROWS", 8),
        patch.object(compaction, "plan", lambda dataset: plan(dataset, rows_per_fragment=request.param)),
    ):
        yield


def shape(graph: Graph) -> dict[str, Any]:
    """Return what an optimize is for: fragments and covered indexes, and that no entity was touched."""
    found: dict[str, Any] = {"rows": sorted(b"".join(graph.export()).splitlines())}
    for key in graph.snapshot().state.pins:
        dataset = session_of(graph).kernel.dataset(graph.snapshot(), key)
        covered = {name: len(one.indexed) for name, one in coverage(dataset).items()}
        assert not any(one.uncovered for one in coverage(dataset).values())
        found[key] = (dataset.fragment_rows, covered)
    return found


def told(report: OptimizeReport) -> list[dict[str, object]]:
    return [one.to_json() for one in report.types]


def test_optimize_elsewhere_equals_optimize_in_process(tmp_path: Path, pieces: None) -> None:
    here, there = grown(tmp_path / "here"), grown(tmp_path / "there")
    head = there.snapshot().version
    expected = here.maintenance.optimize()
    with patch.object(executors, "start_executors", lambda _: ThreadsAsExecutors()):
        report = pipeline.optimize(there, engine="spark")
    assert told(report) == told(expected)
    assert shape(there) == shape(here)
    assert (there.snapshot().version, there.commits()[0].kind) == (head + 1, "optimize")
    town = 'query q() { match { $p: Person { city: "Town 3" } } return { $p.name as n } order { n asc } }'
    assert there.query(town).rows() == here.query(town).rows() != []
    near = "query q() { match { $p: Person } return { $p.name as n } order { nearest($p.near, [30.0, 1.0]) } limit 3 }"
    assert there.query(near).rows() == here.query(near).rows()
    assert there.maintenance.verify().is_sound
    for graph in (here, there):
        graph.close()
        assert list(Path(graph.uri).rglob("*.manifest-*")) == []


def test_optimize_elsewhere_leaves_nothing_to_do(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    for place in range(3):
        graph.ingest([{"type": "Person", "data": person(place)}])
    with patch.object(executors, "start_executors", lambda _: ThreadsAsExecutors()):
        assert pipeline.optimize(graph, engine="spark").commit is not None
        assert pipeline.optimize(graph, engine="spark").commit is None


def test_optimize_elsewhere_writer_in_between_wins_and_neither_fails(tmp_path: Path, pieces: None) -> None:
    graph = grown(tmp_path / "g")
    other = elsewhere(graph)
    wrote: list[str] = []
    pinned = {pin.ref for pin in graph.snapshot().state.pins.values()}

    class Late(ThreadsAsExecutors):
        def run(self, stage: str, work: Any, payloads: Any, sizes: Any = ()) -> Any:
            # After a compaction was put aside and before a task builds on it.
            is_aside = stage == "indexing" and work.args[0]().ref not in pinned
            if is_aside and not wrote:
                wrote.append(stage)
                other.ingest([{"type": "Person", "data": person(90)}, {"type": "Place", "data": {"name": "t90"}}])
                other.ingest(
                    [{"edge": "Knows", "from": "p1", "to": "p90"}, {"edge": "Lives", "from": "p1", "to": "t90"}]
                )
            return super().run(stage, work, payloads, sizes)

    with patch.object(executors, "start_executors", lambda _: Late()):
        report = pipeline.optimize(graph, engine="spark")
    assert wrote
    assert all(one.committed for one in report.types)
    # What came in between is carried over; indexes cover it the next time.
    assert all(one.committed for one in graph.maintenance.optimize().types)
    assert {f'"p{place}"'.encode() in line for line in shape(graph)["rows"] for place in (90,)} == {True, False}


@pytest.mark.parametrize(("limit", "engine"), [(0, "elsewhere"), (1 << 40, "here")])
def test_optimize_auto_takes_spark_above_a_size(tmp_path: Path, limit: int, engine: str) -> None:
    graph = grown(tmp_path / "g")
    asked: list[str] = []

    def start(_: str | None) -> Runner:
        asked.append("elsewhere")
        return ThreadsAsExecutors()

    with (
        patch.object(maintenance, "MAINTAIN_LOCAL_BYTES_MAX", limit),
        patch.object(executors, "start_executors", start),
    ):
        assert pipeline.optimize(graph).commit is not None
    assert asked == (["elsewhere"] if engine == "elsewhere" else [])


def test_optimize_auto_without_spark_stays_here(tmp_path: Path) -> None:
    graph = grown(tmp_path / "g")

    def start(_: str | None) -> Runner:
        raise PipelineUnavailable("no Java")

    with (
        patch.object(maintenance, "MAINTAIN_LOCAL_BYTES_MAX", 0),
        patch.object(executors, "start_executors", start),
    ):
        assert pipeline.optimize(graph).commit is not None
        with pytest.raises(PipelineUnavailable):
            pipeline.optimize(graph, engine="spark")


@pytest.mark.parametrize("command", [pipeline.optimize, pipeline.verify])
def test_maintenance_unknown_engine_is_refused(tmp_path: Path, command: Callable[..., object]) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    with pytest.raises(UsageError, match="unknown engine `sparc`"):
        command(graph, engine="sparc")


# -- verify ----------------------------------------------------------------------------------------------------


def put(graph: Graph, key: TypeKey, row: dict[str, object]) -> None:
    """Publish a row without asking any rule."""

    def prepare(snapshot: Snapshot) -> Plan:
        dataset = session_of(graph).kernel.writable(snapshot, key)
        change = append(dataset, pa.Table.from_pylist([row], schema=dataset.schema))
        return Plan("damage", (Effect(key, dataset, (change,)),))

    session_of(graph).kernel.commit("main", prepare)


def miscount(graph: Graph) -> None:
    """Publish a count that is not that of the rows."""

    def prepare(snapshot: Snapshot) -> Plan:
        pin = snapshot.state.pins[PERSON]
        return Plan("damage", updates=(SetVersion(PERSON, pin.version, pin.fork, pin.row_count + 5),))

    session_of(graph).kernel.commit("main", prepare)


def lose(graph: Graph) -> None:
    graph.branches.create("review")
    folder = Path(graph.uri, graph.snapshot().state.pins[TypeKey("node:Place")].path, "data")
    for file in folder.iterdir():
        file.unlink()


def damage(graph: Graph) -> None:
    put(graph, PERSON, {"id": "p1", "name": "p1"})
    put(graph, KNOWS, {"id": "k1", "src": "p1", "dst": "p2"})
    put(graph, KNOWS, {"id": "k9", "src": "nobody", "dst": "p1"})
    miscount(graph)


# What is done to a graph, and how many errors that makes.
DAMAGES: dict[str, tuple[Callable[[Graph], None], int]] = {
    "none": (lambda graph: None, 0),
    "wrong": (damage, 4),
    "lost": (lose, 2),
}


def said(report: VerifyReport) -> tuple[Sequence[Finding], bool, int]:
    return report.findings, report.is_sound, report.unreferenced_files


def test_verify_by_bucket_tells_what_verify_in_memory_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "start_executors", lambda master: ThreadsAsExecutors())
    compare_verify(tmp_path)


@pytest.mark.spark
def test_verify_on_spark_tells_what_verify_in_process_tells(spark: Any, tmp_path: Path) -> None:
    compare_verify(tmp_path)


def compare_verify(tmp_path: Path) -> None:
    for name, (harm, count) in DAMAGES.items():
        graph = grown(tmp_path / name)
        harm(graph)
        uri = graph.uri
        graph.close()
        expected = og.open(uri).maintenance.verify()
        assert sum(one.severity == "error" for one in expected.findings) == count, expected
        with patch.object(verify_buckets, "MAINTAIN_TASK_ROWS", 16):
            found = pipeline.verify(og.open(uri), engine="spark")
        assert said(found) == said(expected), name


# -- optimize --------------------------------------------------------------------------------------------------


def die_once(mark: str, work: Callable[[Any], Any], payload: Any) -> Any:
    """Do the task, and kill the worker before it can say so, the first time round."""
    result = work(payload)
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return result
    os.kill(os.getpid(), signal.SIGKILL)
    return None


class Dying(Executors):
    """Executors of which one dies in every stage, after its work was done."""

    marks: Path

    def run(self, stage: str, work: Any, payloads: Any, sizes: Any = ()) -> Any:
        return super().run(stage, partial(die_once, str(self.marks / stage), work), payloads, sizes)


@pytest.mark.spark
def test_optimize_on_spark_task_that_dies_adds_nothing_twice(spark: Any, tmp_path: Path, pieces: None) -> None:
    here, there = grown(tmp_path / "here"), grown(tmp_path / "there")
    expected = here.maintenance.optimize()
    runner = Dying(spark)
    object.__setattr__(runner, "marks", tmp_path)
    staged: list[str] = []
    with failpoints.armed({Point.COMMIT_PREPARED: staged.append}):
        report = run_optimize(session_of(there), "main", lambda _: runner)
    assert (tmp_path / "compacting").exists()
    assert (tmp_path / "indexing").exists()
    assert told(report) == told(expected)
    assert shape(there) == shape(here)
    assert len(staged) == 1
    uri = there.uri
    there.close()
    report_after = og.open(uri).maintenance.verify()
    assert report_after.is_sound
    # What the dead ones wrote is there, and nothing names it.
    assert report_after.unreferenced_files > 0
