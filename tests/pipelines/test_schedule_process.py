"""`omnigraph pipeline schedule` as a process: runs on Spark, killed with its run, and started again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.graph import Graph
from omnigraph.pipelines.scheduler.book import BookEntry, ScheduleBook

T = TypeVar("T")
pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILE = """\
pipelines:
  people:
    publish: { merge_into: main }
    schedule: { cron: "0 2 * * *", retries: 0 }
    sources: { rows: { format: json, path: rows.json } }
    nodes: { Person: { from: rows } }
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    (tmp_path / "pipelines.yaml").write_text(FILE)
    (tmp_path / "rows.json").write_text('{"name": "ann"}\n{"name": "bob"}\n')
    graph = og.init(tmp_path / "g.omni", "node Person { name: String @key }")
    # The runner has seen the pipeline days ago, and was down since.
    ScheduleBook(graph.uri).write("people", BookEntry(datetime.now(UTC) - timedelta(days=3)))
    return graph


def start(graph: Graph, folder: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "omnigraph", "pipeline", "schedule", graph.uri, "-f", f"{folder}/pipelines.yaml"]
    return subprocess.Popen([*command, "--json", *words], stdout=subprocess.PIPE)


def children(pid: int) -> list[int]:
    try:
        return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def wait_until(look: Callable[[], T]) -> T:
    while not (seen := look()):
        time.sleep(0.05)
    return seen


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_killed_runner_takes_its_run_along_and_is_started_again(graph: Graph, tmp_path: Path) -> None:
    runner = start(graph, tmp_path)
    assert runner.stdout is not None
    assert [json.loads(runner.stdout.readline())["event"] for _ in range(3)] == ["added", "skipped", "started"]
    [run] = wait_until(lambda: children(runner.pid))
    runner.kill()
    runner.wait()
    runner.stdout.close()
    wait_until(lambda: not is_alive(run))
    # The dead holder's lease is taken over at once, and what it had begun is done.
    again = start(graph, tmp_path, "--once")
    output, _ = again.communicate(timeout=300)
    events = [json.loads(line) for line in output.splitlines()]
    assert (again.returncode, [event["event"] for event in events]) == (0, ["added", "started", "finished"])
    [record] = pipeline.list_runs(graph, pipeline.read_pipelines(tmp_path / "pipelines.yaml")["people"])
    assert (record.nodes, record.scheduled_for) == ({"Person": 2}, events[1]["due"])
    third = start(graph, tmp_path, "--once")
    output, _ = third.communicate(timeout=60)
    assert [json.loads(line)["event"] for line in output.splitlines()] == ["added"]


def test_failed_run_says_why_and_sigterm_ends_the_runner(graph: Graph, tmp_path: Path) -> None:
    # Said before a run starts Spark, which other tests do.
    graph.branches.create("load/people")
    graph.mutate('query q() { insert Person { name: "zoe" } }', branch="load/people")
    runner = start(graph, tmp_path)
    assert runner.stdout is not None
    events: list[dict[str, str]] = []
    while not events or events[-1]["event"] != "failed":
        events.append(json.loads(runner.stdout.readline()))
    assert "not of pipeline `people`" in events[-1]["message"]
    runner.send_signal(signal.SIGTERM)
    output, _ = runner.communicate(timeout=60)
    assert (runner.returncode, output) == (0, b"")
    entry = ScheduleBook(graph.uri).read("people")
    assert entry is not None
    assert (entry.status, entry.failures) == ("failed", 1)
