"""`omnigraph pipeline`, as far as it needs no Spark; tests/pipelines/test_run.py runs the guide."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli import main
from omnigraph.engine.load.load import load
from omnigraph.graph import Graph, session_of
from omnigraph.pipelines.scheduler.book import ScheduleBook

pytestmark = pytest.mark.slow

FILE = """\
pipelines:
  crm:
    schedule: "0 2 * * *"
    sources: { accounts: { format: parquet, path: accounts, incremental: seq } }
    nodes: { Person: { from: accounts } }
  hr:
    publish: { merge_into: main }
    sources: { staff: { format: csv, path: staff } }
    nodes: { Person: { from: staff } }
"""
PROPERTIES = {
    "pipeline": "crm",
    "pipeline_run": "r1",
    "pipeline_watermarks": '{"accounts": "7"}',
    "pipeline_digest": "d",
}


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.chdir(tmp_path)
    Path("pipelines.yaml").write_text(FILE)
    Path("people.ndjson").write_text('{"type": "Person", "data": {"name": "Ada"}}\n')
    graph = og.init("graph.omni", "node Person { name: String @key }")
    session = session_of(graph)
    load(session, "people.ndjson", properties=PROPERTIES)
    load(session, "people.ndjson", branch="load/hr", from_branch="main", properties={"pipeline": "hr"})
    return graph


@pytest.mark.parametrize("words", [["graph.omni", "crm"], ["crm", "--store", "graph.omni"]])
def test_plan_reads_the_last_run_from_its_commit(
    graph: Graph, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "plan", *words]) == 0
    shown = capsys.readouterr().out
    assert "crm: load rows above the watermarks\n  watermarks: accounts = 7\n  load to `main`" in shown
    assert "has changed since the last run" in shown


def test_status_lists_every_pipeline_of_a_file(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "status", "graph.omni", "-f", "pipelines.yaml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[2:]] == [["crm", "published"], ["hr", "waiting"]]
    assert main(["pipeline", "status", "graph.omni", "--json"]) == 0
    crm, hr = json.loads(capsys.readouterr().out)["pipelines"]
    assert (crm["watermarks"], crm["schedule"], hr["next_step"]) == ({"accounts": "7"}, "0 2 * * *", "finish_load")


def test_history_shows_counts_and_commits(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "history", "graph.omni", "crm", "--json"]) == 0
    [run] = json.loads(capsys.readouterr().out)["runs"]
    assert (run["nodes"], run["commit_id"], run["run_id"]) == ({"Person": 1}, graph.commits()[0].commit_id, "r1")
    # A load that waits on its branch is not published.
    assert main(["pipeline", "history", "graph.omni", "hr"]) == 0
    assert capsys.readouterr().out.endswith("0 runs\n")


def test_schedule_shows_and_settles_what_is_due(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "schedule", "graph.omni", "--dry-run", "--json"]) == 0
    [crm] = json.loads(capsys.readouterr().out)["pipelines"]
    assert (crm["pipeline"], crm["due_now"], len(crm["next_runs"]), crm["last"]) == ("crm", [], 3, None)
    # The first look of a runner starts nothing, but from then on runs can be missed.
    assert main(["pipeline", "schedule", "graph.omni", "--once", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["event"] == "added"
    entry = ScheduleBook("graph.omni").read("crm")
    assert entry is not None
    ScheduleBook("graph.omni").write("crm", replace(entry, settled_until=entry.settled_until - timedelta(days=3)))
    assert main(["pipeline", "schedule", "graph.omni", "--dry-run"]) == 0
    assert "nothing" not in capsys.readouterr().out
    assert main(["pipeline", "status", "graph.omni", "crm", "--json"]) == 0
    [shown] = json.loads(capsys.readouterr().out)["pipelines"]
    assert (shown["schedule"], shown["next_run"] == crm["next_runs"][0]) == ("0 2 * * *", True)
    assert shown["scheduled"]["status"] is None


def test_failed_run_writes_metrics_for_the_textfile_collector(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "run", "graph.omni", "crm", "--sample", "0", "--metrics-file", "crm.prom"]) == 1
    capsys.readouterr()
    assert 'omnigraph_pipeline_runs_total{pipeline="crm",status="failed"} 1\n' in Path("crm.prom").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["history", "graph.omni"], "name the pipeline; there are `crm`, `hr`"),
        (["run", "graph.omni", "crn"], "did you mean `crm`"),
        (["backfill", "graph.omni", "crm"], "a backfill needs a range"),
        (["backfill", "graph.omni", "hr", "--after", "1"], "no incremental source"),
        (["run", "graph.omni", "crm", "-f", "nowhere.yaml"], "nowhere.yaml"),
        (["run", "graph.omni", "crm", "--sample", "0"], "1 or more"),
        (["run", "graph.omni", "crm", "--scheduled-for", "2026-11-17"], "not a time with a zone"),
        (["schedule", "graph.omni", "--parallel", "0"], "1 or more"),
        (["schedule", "graph.omni", "--metrics-port", "70000"], "choose another port"),
    ],
)
def test_wrong_use_is_explained(
    graph: Graph, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", *words]) == 1
    assert message in capsys.readouterr().err
