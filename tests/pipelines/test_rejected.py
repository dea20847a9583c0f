"""Rows that a run leaves out: told with file, line, type and key, kept with the graph, and loaded later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.errors import DataError, UsageError
from omnigraph.graph import Graph
from omnigraph.pipelines import rejected_rows
from omnigraph.pipelines import run as run_module
from omnigraph.pipelines.declaration.config import parse_pipelines
from omnigraph.pipelines.history import RunReport

pytestmark = pytest.mark.spark

SCHEMA = """
node P { k: String @key  a: I64?  @range(a, 0..100) }
edge E: P -> P { w: I64?  @key(src, dst) }
"""
FILE = """
pipelines:
  crm:
    publish: { merge_into: main }
    on_error: quarantine
    sources:
      people: { format: csv, header: true, path: people, schema: "seq BIGINT, k STRING, a BIGINT", incremental: seq }
      links: { format: json, path: links, schema: "seq BIGINT, x STRING, y STRING", incremental: seq }
    transforms: { friends: "SELECT x, y FROM links WHERE x <> 'nobody'" }
    nodes: { P: { from: people, columns: { k: k, a: a } } }
    edges: { E: { from: friends, src: x, dst: y } }
"""
PENDING = FILE.replace("dst: y }", "dst: y, missing_end: pending }")


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    add_people(tmp_path, 1, "a,1", "b,999", "c,3")
    add_links(tmp_path, 1, ("a", "c"))
    return og.init(tmp_path / "g.omni", SCHEMA)


def add_people(folder: Path, seq: int, *rows: str) -> None:
    (folder / "people").mkdir(exist_ok=True)
    lines = ["seq,k,a", *(f"{seq},{row}" for row in rows)]
    (folder / "people" / f"{seq}.csv").write_text("\n".join(lines) + "\n")


def add_links(folder: Path, seq: int, *ends: tuple[str, str]) -> None:
    (folder / "links").mkdir(exist_ok=True)
    lines = [json.dumps({"seq": seq, "x": x, "y": y}) + "\n" for x, y in ends]
    (folder / "links" / f"{seq}.json").write_text("".join(lines))


def run(graph: Graph, spark: Any, folder: Path, text: str = FILE) -> RunReport:
    return pipeline.run(graph, parse_pipelines(text, folder=folder), spark=spark, report=folder / "report")


def people(graph: Graph) -> dict[str, int]:
    return {row["k"]: row["a"] for row in graph.query("query q() { match { $p: P } return { $p.k as k, $p.a as a } }")}


def links(graph: Graph) -> set[tuple[str, str]]:
    rows = graph.query("query q() { match { $p: P  $p e $q } return { $p.k as x, $q.k as y } }")
    return {(row["x"], row["y"]) for row in rows}


def rejected(folder: Path, run_id: str) -> list[dict[str, Any]]:
    text = (folder / "report" / "rejected" / run_id / "rejected.ndjson").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_rejected_rows_are_kept_per_run_and_loaded_again(graph: Graph, quick: Any, tmp_path: Path) -> None:
    first = run(graph, quick, tmp_path)
    assert (first.status, first.rejected, people(graph)) == ("published", 1, {"a": 1, "c": 3})
    [row] = rejected(tmp_path, first.run_id)
    # The second row of data is in the third line.
    place = {"type": "P", "source": "people", "file": str(tmp_path / "people" / "1.csv"), "line": 3, "key": "k = b"}
    assert place.items() <= row.items()
    add_people(tmp_path, 2, "d,4", "e,500")
    second = run(graph, quick, tmp_path)
    # The watermark is past the row, and the next run has not removed it.
    assert (second.rejected, rejected(tmp_path, first.run_id)) == (1, [row])
    declared = parse_pipelines(FILE, folder=tmp_path)
    graph.schema.apply(SCHEMA.replace("0..100", "0..999"))
    with pytest.raises(UsageError, match="has no rejected rows that wait; there are"):
        pipeline.retry_rejected(graph, declared, run_id="unknown", report=tmp_path / "report")
    alone = pipeline.retry_rejected(graph, declared, run_id=first.run_id, report=tmp_path / "report")
    assert (alone.status, alone.nodes, people(graph)["b"]) == ("published", {"P": 1}, 999)
    assert pipeline.retry_rejected(graph, declared, report=tmp_path / "report").nodes == {"P": 1}
    assert people(graph) == {"a": 1, "b": 999, "c": 3, "d": 4, "e": 500}
    assert pipeline.retry_rejected(graph, declared, report=tmp_path / "report").status == "nothing_new"
    # A retry moves no watermark.
    assert run(graph, quick, tmp_path).status == "nothing_new"
    assert [item.retried for item in pipeline.list_runs(graph, declared["crm"])][:2] == [
        (second.run_id,),
        (first.run_id,),
    ]


def test_row_that_is_rejected_again_waits_for_the_next_retry(graph: Graph, quick: Any, tmp_path: Path) -> None:
    run(graph, quick, tmp_path)
    declared = parse_pipelines(FILE, folder=tmp_path)
    again = pipeline.retry_rejected(graph, declared, report=tmp_path / "report")
    assert (again.rejected, rejected(tmp_path, again.run_id)[0]["line"]) == (1, 3)
    graph.schema.apply(SCHEMA.replace("0..100", "0..999"))
    pipeline.retry_rejected(graph, declared, report=tmp_path / "report")
    assert people(graph) == {"a": 1, "b": 999, "c": 3}


def test_error_names_the_key_the_file_and_the_line(graph: Graph, quick: Any, tmp_path: Path) -> None:
    failing = FILE.replace("    on_error: quarantine\n", "")
    with pytest.raises(DataError, match=r"^`.*people/1.csv` line 3 \(k = b\): ") as caught:
        run(graph, quick, tmp_path, failing)
    assert {"source": "people", "line": 3, "key": "k = b"}.items() <= caught.value.context.items()
    add_people(tmp_path, 1, "a,1")
    # Through a transform; a line of JSON has no number.
    with pytest.raises(DataError, match=r"^`.*links/1.json` \(from = a, to = c\): the target of an edge `E`"):
        run(graph, quick, tmp_path, failing)


def test_pending_edge_is_loaded_when_its_end_has_come(graph: Graph, quick: Any, tmp_path: Path) -> None:
    add_links(tmp_path, 2, ("a", "late"), ("a", "never"))
    first = run(graph, quick, tmp_path, PENDING)
    assert (first.pending, first.rejected, links(graph)) == (2, 1, {("a", "c")})
    add_people(tmp_path, 2, "late,1")
    second = run(graph, quick, tmp_path, PENDING)
    assert (second.pending, links(graph)) == (1, {("a", "c"), ("a", "late")})
    assert run(graph, quick, tmp_path, PENDING).status == "nothing_new"
    # Someone else brings the other end, and no source has new rows.
    graph.mutate('query m() { insert P { k: "never" } }')
    third = run(graph, quick, tmp_path, PENDING)
    assert (third.status, third.pending, links(graph)) == (
        "published",
        0,
        {("a", "c"), ("a", "late"), ("a", "never")},
    )
    assert third.watermarks == second.watermarks


def test_pending_edges_do_not_need_a_quarantine(graph: Graph, quick: Any, tmp_path: Path) -> None:
    strict = PENDING.replace("    on_error: quarantine\n", "")
    add_links(tmp_path, 2, ("a", "late"))
    with pytest.raises(DataError, match=r"people/1.csv` line 3 \(k = b\)"):
        run(graph, quick, tmp_path, strict)
    assert (people(graph), graph.branches.list()) == ({}, ["main"])
    add_people(tmp_path, 1, "a,1", "c,3")
    assert run(graph, quick, tmp_path, strict).pending == 1


def test_rows_that_are_not_kept_are_lost(graph: Graph, quick: Any, tmp_path: Path) -> None:
    """The mutants: rejected rows are not named by the commit, and pending ones are not read again."""
    with patch.object(rejected_rows, "_write_rows", lambda *_: {}):
        run(graph, quick, tmp_path)
    declared = parse_pipelines(FILE, folder=tmp_path)
    assert pipeline.retry_rejected(graph, declared, report=tmp_path / "report").status == "nothing_new"
    add_links(tmp_path, 2, ("a", "late"))
    run(graph, quick, tmp_path, PENDING)
    add_people(tmp_path, 3, "late,1")
    with patch.object(run_module, "add_pending", lambda graph, spark, before, edges, deletions: edges):
        run(graph, quick, tmp_path, PENDING)
    assert links(graph) == {("a", "c")}
