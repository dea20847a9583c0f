"""Declared pipelines on Spark: runs from watermark to watermark, expectations, branches, and runs that break off."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.engine.branches import Branches
from omnigraph.engine.load.load import load
from omnigraph.errors import ConflictError, OmniGraphError, PolicyDenied, UsageError
from omnigraph.graph import Graph
from omnigraph.pipelines.declaration.config import parse_pipelines
from omnigraph.pipelines.history import RunReport
from omnigraph.policy import load_bundle
from tests.support.guide_runner import run_guide

pytestmark = pytest.mark.spark

SCHEMA = """
node Person { name: String @key  age: I64? }
node Note { age: I64? }
edge Knows: Person -> Person
"""
BASE = """
pipelines:
  people:
    %s
    sources:
      accounts: { format: parquet, path: accounts, incremental: seq }
    transforms:
      persons: "SELECT name, age FROM accounts"
      friends: "SELECT name, friend FROM accounts WHERE friend IS NOT NULL"
    nodes: { Person: { from: persons } }
    edges: { Knows: { from: friends, src: name, dst: friend } }
"""
DIRECT = BASE % "graph: people"
BRANCHED = BASE % "publish: { merge_into: main }"
QUERIED = BRANCHED + "    queries: queries\n    expect: [{ query: too_old, rows: 0 }]\n"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    (tmp_path / "queries").mkdir()
    old = "query too_old() { match { $p: Person $p.age > 150 } return { $p.name } }"
    (tmp_path / "queries" / "too_old.gq").write_text(old)
    add_rows(tmp_path, 1, ("ann", 30, None), ("bob", 40, "ann"))
    return og.init(tmp_path / "g.omni", SCHEMA)


def add_rows(folder: Path, first_seq: int, *rows: tuple[str, int | None, str | None]) -> None:
    table = pa.table(
        {
            "seq": pa.array(range(first_seq, first_seq + len(rows)), pa.int64()),
            "name": [row[0] for row in rows],
            "age": pa.array([row[1] for row in rows], pa.int64()),
            "friend": pa.array([row[2] for row in rows], pa.string()),
        }
    )
    (folder / "accounts").mkdir(exist_ok=True)
    pq.write_table(table, folder / "accounts" / f"{first_seq}.parquet")


def run(graph: Graph, spark: Any, tmp_path: Path, text: str = DIRECT, **options: Any) -> RunReport:
    return pipeline.run(graph, parse_pipelines(text, folder=tmp_path), spark=spark, **options)


def ages(graph: Graph, branch: str = "main") -> dict[str, int | None]:
    rows = graph.query("query q() { match { $p: Person } return { $p.name, $p.age } }", branch=branch).rows()
    return {row["p.name"]: row["p.age"] for row in rows}


def edge_count(graph: Graph) -> int:
    return sum(b'"edge"' in line for line in b"".join(graph.export()).splitlines())


def test_runs_load_what_is_above_the_watermark_once(graph: Graph, spark: Any, tmp_path: Path) -> None:
    first = run(graph, spark, tmp_path)
    assert (first.status, first.nodes, first.edges, first.watermarks) == (
        "published",
        {"Person": 2},
        {"Knows": 1},
        {"accounts": "2"},
    )
    assert run(graph, spark, tmp_path).status == "nothing_new"
    add_rows(tmp_path, 3, ("ann", 31, None), ("cid", 9, "bob"))
    second = run(graph, spark, tmp_path)
    assert (second.nodes, second.watermarks) == ({"Person": 2}, {"accounts": "4"})
    assert ages(graph) == {"ann": 31, "bob": 40, "cid": 9}
    assert edge_count(graph) == 2
    [newest, oldest] = pipeline.list_runs(graph, parse_pipelines(DIRECT)["people"])
    assert (newest.commit_id, newest.nodes, newest.watermarks) == (second.commit_id, {"Person": 2}, {"accounts": "4"})
    assert (oldest.commit_id, oldest.edges) == (first.commit_id, {"Knows": 1})
    assert newest.seconds > 0


def test_load_branch_is_merged_and_keeps_its_progress(graph: Graph, spark: Any, tmp_path: Path) -> None:
    first = run(graph, spark, tmp_path, BRANCHED)
    assert (first.status, first.branch, graph.branches.list()) == ("published", "load/people", ["main"])
    [loaded] = [commit for commit in graph.commits() if commit.properties.get("pipeline") == "people"]
    assert json.loads(loaded.properties["pipeline_watermarks"]) == {"accounts": "2"}
    graph.maintenance.cleanup(keep=1, confirm=True)
    assert run(graph, spark, tmp_path, BRANCHED).status == "nothing_new"
    # The main branch moves on meanwhile, so the next merge is not a fast-forward.
    graph.mutate('query q() { insert Person { name: "zoe" } }')
    add_rows(tmp_path, 3, ("cid", 9, None))
    assert run(graph, spark, tmp_path, BRANCHED).watermarks == {"accounts": "3"}
    assert run(graph, spark, tmp_path, BRANCHED).status == "nothing_new"
    assert ages(graph) == {"ann": 30, "bob": 40, "cid": 9, "zoe": None}


def test_failed_rows_stop_a_run_or_are_quarantined(graph: Graph, spark: Any, tmp_path: Path) -> None:
    add_rows(tmp_path, 3, ("cid", None, None), ("dan", 1, None))
    stop = DIRECT + "    expect: [{ on: accounts, not_null: [age], at_most: '10 %' }]\n"
    report = run(graph, spark, tmp_path, stop)
    assert (report.status, report.commit_id, report.expectations[0].failed) == ("stopped", None, 1)
    assert ages(graph) == {}
    leave_out = DIRECT + "    expect: [{ on: accounts, not_null: [age], at_most: '25 %', else: quarantine }]\n"
    with pytest.raises(UsageError, match="give `report`"):
        run(graph, spark, tmp_path, leave_out)
    report = run(graph, spark, tmp_path, leave_out, report=tmp_path / "report")
    # The rows are left out of the source, and so of the transforms that read it.
    assert ages(graph) == {"ann": 30, "bob": 40, "dan": 1}
    files = (tmp_path / "report" / "quarantine" / report.run_id / "accounts").glob("*.json")
    assert [json.loads(line)["name"] for file in files for line in file.read_text().splitlines()] == ["cid"]
    assert json.loads((tmp_path / "report" / "run.json").read_text())["status"] == "published"
    assert pipeline.list_runs(graph, parse_pipelines(DIRECT)["people"])[0].quarantined == 1


def test_rows_are_judged_by_condition_uniqueness_and_number(graph: Graph, spark: Any, tmp_path: Path) -> None:
    text = DIRECT + (
        "    expect:\n"
        "      - { on: persons, condition: 'age < 35', else: warn }\n"
        "      - { on: persons, unique: [name], else: warn }\n"
        "      - { on: friends, min_rows: 2 }\n"
    )
    add_rows(tmp_path, 3, ("ann", None, None))
    report = run(graph, spark, tmp_path, text, dry_run=True)
    judged = [(verdict.passed, verdict.rows, verdict.failed) for verdict in report.expectations]
    assert (report.status, judged) == ("stopped", [(False, 3, 2), (False, 3, 1), (False, 1, 0)])


def test_failed_query_leaves_the_branch_until_it_is_corrected(graph: Graph, spark: Any, tmp_path: Path) -> None:
    add_rows(tmp_path, 3, ("old", 900, None))
    stopped = run(graph, spark, tmp_path, QUERIED)
    assert (stopped.status, ages(graph)) == ("stopped", {})
    assert pipeline.plan_run(graph, parse_pipelines(QUERIED)["people"]).next_step == "finish_load"
    assert run(graph, spark, tmp_path, QUERIED).status == "stopped"
    graph.mutate('query q() { update Person set { age: 90 } where name = "old" }', branch="load/people")
    finished = run(graph, None, tmp_path, QUERIED)
    assert (finished.status, finished.run_id, finished.commit_id) == ("published", stopped.run_id, stopped.commit_id)
    assert (ages(graph)["old"], graph.branches.list()) == (90, ["main"])
    assert run(graph, spark, tmp_path, QUERIED).status == "nothing_new"


def test_reviewed_load_waits_until_its_branch_is_merged(graph: Graph, spark: Any, tmp_path: Path) -> None:
    text = BASE % "publish: { branch: load/p, merge_into: main, review: true }"
    assert run(graph, spark, tmp_path, text).status == "awaiting_review"
    # The load waits, so a later run reads nothing, and says so.
    add_rows(tmp_path, 3, ("new", 1, None))
    blocked = run(graph, None, tmp_path, text)
    assert (blocked.status, ages(graph)) == ("blocked_by_review", {})
    assert "no source was read" in blocked.message
    (tmp_path / "accounts" / "3.parquet").unlink()
    graph.branches.merge("load/p")
    graph.mutate('query q() { insert Person { name: "zoe" } }')
    add_rows(tmp_path, 3, ("cid", 9, "zoe"))
    # The merged branch is made again from the main branch, so that the edge finds its node.
    assert run(graph, spark, tmp_path, text).status == "awaiting_review"
    graph.branches.merge("load/p")
    assert set(ages(graph)) == {"ann", "bob", "cid", "zoe"}


def test_foreign_commits_on_the_load_branch_are_not_published(graph: Graph, spark: Any, tmp_path: Path) -> None:
    graph.branches.create("load/people")
    graph.mutate('query q() { insert Person { name: "zoe" } }', branch="load/people")
    with pytest.raises(UsageError, match="not of pipeline"):
        run(graph, spark, tmp_path, BRANCHED)
    assert ages(graph) == {}


def test_dry_run_and_sample_write_nothing(graph: Graph, spark: Any, tmp_path: Path) -> None:
    head = graph.commits()[0].commit_id
    dry = run(graph, spark, tmp_path, BRANCHED, dry_run=True)
    assert (dry.status, dry.nodes, dry.edges, dry.commit_id) == ("dry_run", {"Person": 2}, {"Knows": 1}, None)
    assert run(graph, spark, tmp_path, BRANCHED, sample=1).nodes == {"Person": 1}
    assert (graph.commits()[0].commit_id, graph.branches.list()) == (head, ["main"])


def test_backfill_and_full_refresh_read_older_rows_again(graph: Graph, spark: Any, tmp_path: Path) -> None:
    run(graph, spark, tmp_path)
    add_rows(tmp_path, 1, ("ann", 77, None), ("bob", 78, "ann"))
    backfilled = run(graph, spark, tmp_path, backfill=("0", "1"))
    assert (backfilled.nodes, ages(graph)) == ({"Person": 1}, {"ann": 77, "bob": 40})
    # A backfill moves no watermark.
    assert run(graph, spark, tmp_path).status == "nothing_new"
    assert run(graph, spark, tmp_path, backfill=("0", "1")).status == "already_done"
    assert run(graph, spark, tmp_path, full_refresh=True).nodes == {"Person": 2}
    assert ages(graph) == {"ann": 77, "bob": 78}
    # An edge without an id is known by its ends.
    assert edge_count(graph) == 1
    with pytest.raises(UsageError, match="not a bigint"):
        run(graph, spark, tmp_path, backfill=("yesterday", None))


def test_two_runs_at_once_load_once(graph: Graph, spark: Any, tmp_path: Path) -> None:
    text = BRANCHED.replace("from: persons }", "from: persons, mode: append }").replace(
        "friend }", "friend, mode: append }"
    )
    reports: list[RunReport | OmniGraphError] = []

    def start() -> None:
        for _ in range(3):
            try:
                reports.append(run(og.open(graph.uri), spark, tmp_path, text))
                return
            except ConflictError:
                # Both may be in each other's way: nothing was published, and the message says to retry.
                continue
            except OmniGraphError as error:
                reports.append(error)
                return

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    statuses = sorted(report.status if isinstance(report, RunReport) else repr(report) for report in reports)
    assert statuses in (["already_done", "published"], ["published", "published"], ["nothing_new", "published"])
    assert (edge_count(graph), graph.branches.list()) == (1, ["main"])
    assert len(pipeline.list_runs(graph, parse_pipelines(text)["people"])) == 1


def test_second_run_that_began_before_a_merge_loads_nothing(graph: Graph, spark: Any, tmp_path: Path) -> None:
    """The first run loads, merges and deletes its branch while the second one still reads."""
    text = BRANCHED.replace("from: persons }", "from: persons, mode: append }").replace(
        "friend }", "friend, mode: append }"
    )
    started: list[bool] = []
    reports: list[RunReport] = []

    def load_after_another_run(*arguments: Any, **options: Any) -> Any:
        if not started:
            started.append(True)
            reports.append(run(og.open(graph.uri), spark, tmp_path, text))
        return load(*arguments, **options)

    with patch("omnigraph.pipelines.run.load", load_after_another_run):
        outer = run(graph, spark, tmp_path, text)
    assert (reports[0].status, outer.status) == ("published", "already_done")
    assert (edge_count(graph), graph.branches.list()) == (1, ["main"])


def test_run_that_broke_off_before_its_merge_is_finished(graph: Graph, spark: Any, tmp_path: Path) -> None:
    with (
        patch("omnigraph.engine.branches.Branches.merge", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        run(graph, spark, tmp_path, BRANCHED)
    assert (ages(graph), graph.branches.list()) == ({}, ["load/people", "main"])
    finished = run(graph, None, tmp_path, BRANCHED)
    assert (finished.status, finished.nodes, edge_count(graph)) == ("published", {"Person": 2}, 1)
    assert len(pipeline.list_runs(graph, parse_pipelines(BRANCHED)["people"])) == 1


def test_refresh_after_a_run_that_broke_off_has_a_report_of_its_own(graph: Graph, spark: Any, tmp_path: Path) -> None:
    with (
        patch("omnigraph.engine.branches.Branches.merge", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        run(graph, spark, tmp_path, BRANCHED)
    refreshed = run(graph, spark, tmp_path, BRANCHED, full_refresh=True)
    newest, first = pipeline.list_runs(graph, parse_pipelines(BRANCHED)["people"])
    assert (refreshed.run_id, refreshed.commit_id) == (newest.run_id, newest.commit_id)
    assert first.run_id != newest.run_id


def test_run_for_a_due_time_is_done_once(graph: Graph, spark: Any, tmp_path: Path) -> None:
    """Whole inputs are loaded again by every run, so a due time that is run twice would show."""
    text = BRANCHED.replace(", incremental: seq", "")
    two, three = datetime(2026, 1, 17, 2, tzinfo=UTC), datetime(2026, 1, 17, 3, tzinfo=UTC)
    first = run(graph, spark, tmp_path, text, scheduled_for=two)
    assert (first.status, pipeline.list_runs(graph, parse_pipelines(text)["people"])[0].scheduled_for) == (
        "published",
        "2026-01-17T02:00:00+00:00",
    )
    # A run by hand in between changes nothing.
    assert run(graph, spark, tmp_path, text).status == "published"
    repeated = run(graph, spark, tmp_path, text, scheduled_for=two)
    assert (repeated.status, repeated.commit_id) == ("already_done", first.commit_id)
    # A load that broke off before its merge is finished, and is all there is to do for its time.
    with (
        patch("omnigraph.engine.branches.Branches.merge", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        run(graph, spark, tmp_path, text, scheduled_for=three)
    assert run(graph, spark, tmp_path, text, scheduled_for=three).status == "already_done"
    assert graph.branches.list() == ["main"]
    runs = pipeline.list_runs(graph, parse_pipelines(text)["people"])
    assert [item.scheduled_for is not None for item in runs] == [True, False, True]
    with pytest.raises(UsageError, match="is in the future"):
        run(graph, spark, tmp_path, text, scheduled_for=datetime.now(UTC) + timedelta(days=1))
    with pytest.raises(UsageError, match="needs a time zone"):
        run(graph, spark, tmp_path, text, scheduled_for=datetime(2026, 11, 17))


def test_run_tells_stages_jobs_and_lineage(
    graph: Graph, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_LINEAGE_FILE", str(tmp_path / "lineage.ndjson"))
    report = run(graph, spark, tmp_path, QUERIED, scheduled_for=datetime(2026, 1, 17, 2, tzinfo=UTC))
    assert report.rows_read["load"] >= 3, "two rows for the nodes, and the same again for the edges"
    assert report.bytes_read["load"] > 0
    [record] = pipeline.list_runs(graph, parse_pipelines(QUERIED)["people"])
    assert {"start", "read", "judge", "delete", "load"} <= record.stages.keys()
    assert (record.stages["load"]["rows"], record.rejected) == (report.rows_read["load"], 0)
    # The Spark UI names the pipeline, the view and the type.
    store = spark.sparkContext._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    described = {jobs.apply(index).description().toString() for index in range(jobs.size())}
    assert {"Some(people: persons → Person)", "Some(people: friends → Knows)"} <= described
    start, complete = map(json.loads, (tmp_path / "lineage.ndjson").read_text().splitlines())
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert complete["run"]["facets"]["nominalTime"]["nominalStartTime"] == "2026-01-17T02:00:00+00:00"
    assert complete["inputs"][0]["name"] == str(tmp_path / "accounts")
    fields = complete["inputs"][0]["facets"]["schema"]["fields"]
    assert {"name": "age", "type": "bigint"} in fields
    outputs = {item["name"]: item for item in complete["outputs"]}
    assert outputs["Person"]["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert outputs["Knows"]["facets"]["version"]["datasetVersion"] == report.commit_id


def test_settings_that_a_running_spark_does_not_have_are_reported(graph: Graph, spark: Any, tmp_path: Path) -> None:
    text = DIRECT + "    spark: { ui: true, conf: { spark.executor.memory: 9g, spark.sql.shuffle.partitions: 3 } }\n"
    before = spark.conf.get("spark.sql.shuffle.partitions")
    report = run(graph, spark, tmp_path, text)
    [verdict] = report.expectations
    assert (verdict.outcome, "`spark.executor.memory`, `spark.ui.enabled`" in verdict.message) == ("warn", True)
    assert (report.spark_ui, spark.conf.get("spark.sql.shuffle.partitions")) == (None, before)


DELETING = """
pipelines:
  people:
    publish: { merge_into: main }
    sources: { changes: { format: parquet, path: accounts, incremental: seq } }
    transforms:
      persons: "SELECT name, age, age < 0 AS gone FROM changes"
    nodes: { Person: { from: persons, delete_when: gone } }
"""


def test_rows_that_are_marked_delete_their_nodes(graph: Graph, spark: Any, tmp_path: Path) -> None:
    assert run(graph, spark, tmp_path, DELETING).nodes == {"Person": 2}
    add_rows(tmp_path, 3, ("bob", -1, None), ("nil", -1, None), ("cid", 9, None), ("dan", None, None))
    with patch("omnigraph.pipelines.run.load", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        run(graph, spark, tmp_path, DELETING)
    assert set(ages(graph)) == {"ann", "bob"}, "a run that breaks off after its deletes has published none"
    report = run(graph, spark, tmp_path, DELETING)
    # The deletes of the run that broke off are done again, and `nil` never was there.
    assert (report.status, report.deleted, report.nodes) == ("published", {"Person": 1}, {"Person": 2})
    assert (ages(graph), graph.branches.list()) == ({"ann": 30, "cid": 9, "dan": None}, ["main"])
    # Deletes alone move the watermark, too.
    add_rows(tmp_path, 7, ("cid", -1, None))
    assert (run(graph, spark, tmp_path, DELETING).deleted, set(ages(graph))) == ({"Person": 1}, {"ann", "dan"})
    assert run(graph, spark, tmp_path, DELETING).status == "nothing_new"
    # A node that is deleted and comes again keeps its edges.
    graph.load([{"edge": "Knows", "from": "ann", "to": "dan"}], mode="append")
    add_rows(tmp_path, 8, ("ann", -1, None), ("ann", 50, None))
    run(graph, spark, tmp_path, DELETING)
    assert (ages(graph), edge_count(graph)) == ({"ann": 50, "dan": None}, 1)


KILLED = """
import os, signal, sys
from omnigraph.engine.branches import Branches
Branches.merge = lambda *arguments, **options: os.kill(os.getpid(), signal.SIGKILL)
import omnigraph as og
from omnigraph import pipeline
pipeline.run(og.open(sys.argv[1]), sys.argv[2])
"""


@pytest.mark.parametrize("is_moved", [False, True], ids=["fast-forward", "main has moved"])
@pytest.mark.sampled(1)
def test_branch_that_a_killed_run_has_merged_is_deleted_by_the_next(
    graph: Graph, spark: Any, tmp_path: Path, is_moved: bool
) -> None:
    merge = Branches.merge

    def die_before_deletion(self: Branches, source: str, into: str, *, delete_branch: bool) -> None:
        if is_moved:
            graph.mutate('query q() { insert Person { name: "zoe" } }')
        merge(self, source, into)
        raise KeyboardInterrupt

    for options in ({}, {"backfill": ("0", "1")}):
        with patch.object(Branches, "merge", die_before_deletion), pytest.raises(KeyboardInterrupt):
            run(graph, spark, tmp_path, BRANCHED, **options)
        assert graph.branches.list() == ["load/people", "main"]
        assert run(graph, spark, tmp_path, BRANCHED, **options).status in ("nothing_new", "already_done")
        assert graph.branches.list() == ["main"]


@pytest.mark.long
def test_killed_run_is_finished_by_the_next(graph: Graph, spark: Any, tmp_path: Path) -> None:
    (tmp_path / "pipelines.yaml").write_text(BRANCHED)
    command = [sys.executable, "-c", KILLED, graph.uri, str(tmp_path / "pipelines.yaml")]
    killed = subprocess.run(command, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert ages(graph) == {}
    assert pipeline.run(graph, tmp_path / "pipelines.yaml", spark=spark).status == "published"
    assert (ages(graph), edge_count(graph)) == ({"ann": 30, "bob": 40}, 1)


def test_rows_without_a_watermark_value_are_reported(graph: Graph, spark: Any, tmp_path: Path) -> None:
    table = pa.table({"seq": pa.array([None], pa.int64()), "name": ["nil"], "age": pa.array([1]), "friend": ["ann"]})
    pq.write_table(table, tmp_path / "accounts" / "nulls.parquet")
    report = run(graph, spark, tmp_path)
    assert (set(ages(graph)), report.expectations[0].failed, report.status) == ({"ann", "bob"}, 1, "published")


def test_timestamp_watermark_ignores_the_zone_of_the_session(graph: Graph, spark: Any, tmp_path: Path) -> None:
    text = DIRECT.replace("path: accounts, incremental: seq", "path: timed, incremental: at")
    (tmp_path / "timed").mkdir()
    for number, micros in enumerate((1_700_000_000_000_001, 1_700_000_000_000_002)):
        table = pa.table(
            {
                "at": pa.array([micros], pa.timestamp("us", "UTC")),
                "name": [f"p{number}"],
                "age": pa.array([number]),
                "friend": pa.array([None], pa.string()),
            }
        )
        pq.write_table(table, tmp_path / "timed" / f"{number}.parquet")
        # A session of each run has its own settings.
        zone = ("Asia/Tokyo", "America/Lima")[number]
        conf = f"    spark: {{ conf: {{ spark.sql.session.timeZone: {zone} }} }}\n"
        report = run(graph, spark, tmp_path, text + conf)
        assert report.nodes == {"Person": 1}
        assert report.watermarks["accounts"].endswith(f".00000{number + 1}+00:00")
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert not spark.catalog.tableExists("persons")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("SELECT name, age", "SELECT nam, age", "transform `persons` is not a valid query"),
        ("dst: friend", "dst: freind", "has no column `freind`; did you mean `friend`"),
        ("{ Person:", "{ Persn:", "no node type `Persn`; did you mean `Person`"),
        ("SELECT name, age", "SELECT name, age AS agee", "no property `agee`; did you mean `age`"),
        ("SELECT name, age", "SELECT age", "no column for `Person.name`, the key"),
        ("SELECT name, age", "SELECT name, CAST(age AS STRING) AS age", "is a string, and `Person.age` is I64?"),
        (
            "{ Person: { from: persons }",
            "{ Note: { from: persons, columns: { age: age } }",
            "merging needs a column `id`",
        ),
        ("incremental: seq", "incremental: sq", "no column `sq`; did you mean `seq`"),
        ("path: accounts", "path: nowhere", "source `accounts` cannot be read"),
        ("path: accounts", "path: '${NO_SUCH_NAME}'", "variable `NO_SUCH_NAME` is not set"),
    ],
)
def test_check_names_what_does_not_fit(
    graph: Graph, spark: Any, tmp_path: Path, before: str, after: str, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        pipeline.check(graph, parse_pipelines(DIRECT.replace(before, after), folder=tmp_path), spark=spark)
    assert message in str(caught.value)


def test_check_of_a_valid_pipeline_runs_no_job(graph: Graph, spark: Any, tmp_path: Path) -> None:
    tracker = spark.sparkContext.statusTracker()
    done = len(tracker.getJobIdsForGroup(None))
    report = pipeline.check(graph, parse_pipelines(QUERIED, folder=tmp_path), spark=spark)
    # Spark reads the footer of a Parquet file in a job to learn its columns.
    assert len(tracker.getJobIdsForGroup(None)) - done <= 1
    assert (report.views["persons"], report.edges) == (
        {"name": "string", "age": "bigint"},
        {"Knows": ["id", "from", "to"]},
    )


def test_progress_hidden_by_a_policy_is_an_error(graph: Graph, spark: Any, tmp_path: Path) -> None:
    """An actor who may not see the watermarks must not load everything again."""
    run(graph, spark, tmp_path)
    (tmp_path / "policy.yaml").write_text(
        "version: 1\ngroups: {loaders: [eve]}\nrules:\n"
        "- {id: some, allow: {actors: {group: loaders}, actions: [read, change], types: [Person, Knows]}}\n"
    )
    restricted = og.open(graph.uri, actor="eve", policy=load_bundle(tmp_path / "policy.yaml"))
    with pytest.raises(PolicyDenied, match="hides its progress"):
        run(restricted, spark, tmp_path)


@pytest.mark.slow
def test_pipelines_guide_prints_what_it_shows(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_guide("pipelines.md", capsys) >= 7


def test_rejected_rows_of_a_run_stay_when_the_next_one_reports(graph: Graph, spark: Any, tmp_path: Path) -> None:
    text, report = DIRECT + "    on_error: quarantine\n", tmp_path / "report"
    add_rows(tmp_path, 3, ("cid", 9, "nobody"))
    first = run(graph, spark, tmp_path, text, report=report)
    add_rows(tmp_path, 4, ("dan", 9, None))
    second = run(graph, spark, tmp_path, text, report=report)
    assert (first.rejected, second.rejected) == (1, 0)
    [line] = (report / "rejected" / first.run_id / "rejected.ndjson").read_text().splitlines()
    kept = json.loads(line)
    # Rows are written to temporary files to be loaded, and those are gone: the file is that of the source.
    assert (kept["file"], kept["line"]) == (str(tmp_path / "accounts" / "3.parquet"), 1)
    assert (kept["type"], kept["code"], "nobody" in kept["record"]) == ("Knows", "E9", True)
