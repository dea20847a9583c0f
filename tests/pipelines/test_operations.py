"""Operations of a stream of changes: those that are declared, and all others, which are never taken for an upsert."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.errors import UsageError
from omnigraph.graph import Graph
from omnigraph.pipelines import row_operations as operations
from omnigraph.pipelines.declaration.config import parse_pipelines
from omnigraph.pipelines.history import RunReport

pytestmark = pytest.mark.spark

FILE = """
pipelines:
  crm:
    publish: { merge_into: main }
    sources: { s: { format: json, path: s, schema: "seq BIGINT, k STRING, a BIGINT, op STRING", incremental: seq } }
    nodes: { P: { from: s, columns: { k: k, a: a }, order_by: seq, delete_when: { op: [d] } } }
"""
RULE = "delete_when: { op: [d] }"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "g.omni", "node P { k: String @key  a: I64? }")
    graph.load([{"type": "P", "data": {"k": k, "a": 1}} for k in "abc"])
    return graph


def run(graph: Graph, spark: Any, folder: Path, text: str, *operations: tuple[str, str | None]) -> RunReport:
    (folder / "s").mkdir()
    rows = [{"seq": seq, "k": k, "op": op} for seq, (k, op) in enumerate(operations, 1)]
    (folder / "s" / "1.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return pipeline.run(graph, parse_pipelines(text, folder=folder), spark=spark, report=folder / "report")


def stored(graph: Graph) -> dict[str, int | None]:
    rows = graph.query("query q() { match { $p: P } return { $p.k as k, $p.a as a } }").rows()
    return {row["k"]: row["a"] for row in rows}


@pytest.mark.parametrize("operation", ["D", " d", None, "delete", "", "x"])
def test_operation_that_is_not_declared_stops_the_run(
    graph: Graph, quick: Any, tmp_path: Path, operation: str | None
) -> None:
    report = run(graph, quick, tmp_path, FILE, ("a", operation), ("b", "d"), ("c", "u"))
    assert (report.status, stored(graph)) == ("stopped", {"a": 1, "b": 1, "c": 1})
    [verdict] = report.expectations
    assert (verdict.expectation, verdict.failed, verdict.outcome) == ("P (delete_when)", 1, "stop")
    assert '"k":"a"' in verdict.message
    assert "have a `op` that is not declared" in verdict.message


def test_well_known_and_declared_operations_are_applied(graph: Graph, quick: Any, tmp_path: Path) -> None:
    text = FILE.replace(RULE, f"{RULE}, ignore_when: [t]")
    assert run(graph, quick, tmp_path, text, ("a", "d"), ("b", "UPDATE"), ("c", "t"), ("e", "c")).status == "published"
    assert stored(graph) == {"b": None, "c": 1, "e": None}


def test_list_of_upserts_replaces_the_well_known_ones(graph: Graph, quick: Any, tmp_path: Path) -> None:
    text = FILE.replace(RULE, f"{RULE}, upsert_when: [neu]")
    report = run(graph, quick, tmp_path, text, ("a", "neu"), ("b", "u"))
    assert (report.status, report.expectations[0].failed) == ("stopped", 1)


@pytest.mark.parametrize(
    ("otherwise", "expected"),
    [
        ("upsert", {"a": None, "c": None}),
        ("ignore", {"a": 1, "c": None}),
        ("quarantine", {"a": 1, "c": None}),
    ],
)
def test_otherwise_opens_the_list(
    graph: Graph, quick: Any, tmp_path: Path, otherwise: str, expected: dict[str, int | None]
) -> None:
    text = FILE.replace(RULE, f"{RULE}, otherwise: {otherwise}")
    report = run(graph, quick, tmp_path, text, ("a", "D"), ("b", "d"), ("c", "u"))
    assert (report.status, stored(graph)) == ("published", expected)
    left_out = [json.loads(line) for file in (tmp_path / "report" / "quarantine").rglob("*.json")
                for line in file.read_text().splitlines()]  # fmt: skip
    assert [row["k"] for row in left_out if "k" in row] == (["a"] if otherwise == "quarantine" else [])


def test_mark_without_a_value_is_what_otherwise_says(graph: Graph, quick: Any, tmp_path: Path) -> None:
    text = FILE.replace("op STRING", "op BOOLEAN").replace(RULE, "delete_when: op, otherwise: stop")
    assert run(graph, quick, tmp_path, text, ("a", None)).status == "stopped"
    assert stored(graph)["a"] == 1


def test_mistakes_in_operations_are_told() -> None:
    for rule, message in (
        (f"{RULE}, upsert_when: [d]", "the value `d` is in two of the lists"),
        ("upsert_when: [c]", "write that as `{ op: [d] }`"),
        ("delete_when: gone, ignore_when: [c]", "write that as `{ op: [d] }`"),
        ("otherwise: stop", "add it"),
        (f"{RULE}, otherwise: drop", "is not one of"),
    ):
        with pytest.raises(UsageError) as caught:
            parse_pipelines(FILE.replace(RULE, rule))
        assert message in str(caught.value), rule


def test_open_list_clears_properties(graph: Graph, quick: Any, tmp_path: Path) -> None:
    """The mutant: every other operation is an upsert."""
    classify = operations.classify_rows

    def open_list(frame: Any, mapping: Any) -> Any:
        from pyspark.sql import functions

        return functions.coalesce(classify(frame, mapping), functions.lit("upsert"))

    with (
        patch("omnigraph.pipelines.check.classify_rows", open_list),
        patch("omnigraph.pipelines.transform.classify_rows", open_list),
        patch.object(operations, "classify_rows", open_list),
    ):
        run(graph, quick, tmp_path, FILE, ("a", "D"))
    assert stored(graph)["a"] is None
