"""Rows that come late with a value that was read before: warnings where they must be expected, and `lookback`."""

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
from omnigraph.pipelines.declaration.config import parse_pipelines
from omnigraph.pipelines.history import RunReport
from omnigraph.pipelines.sources import read as sources

pytestmark = pytest.mark.spark

FILE = """
pipelines:
  days:
    sources: { s: { format: json, path: rows, schema: "v KIND, k STRING", incremental: v } }
    nodes: { P: { from: s, columns: { k: k } } }
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    (tmp_path / "rows").mkdir()
    return og.init(tmp_path / "g.omni", "node P { k: String @key }")


def declare(kind: str, lookback: str | None) -> str:
    text = FILE.replace("KIND", kind)
    return text if lookback is None else text.replace("incremental: v", f"incremental: v, lookback: {lookback}")


def add(folder: Path, name: str, *rows: tuple[object, str]) -> None:
    lines = [json.dumps({"v": value, "k": key}) + "\n" for value, key in rows]
    (folder / "rows" / f"{name}.json").write_text("".join(lines))


def run(graph: Graph, spark: Any, folder: Path, text: str) -> RunReport:
    return pipeline.run(graph, parse_pipelines(text, folder=folder), spark=spark)


def keys(graph: Graph) -> set[str]:
    return {row["p.k"] for row in graph.query("query q() { match { $p: P } return { $p.k } }")}


@pytest.mark.parametrize(
    ("kind", "lookback", "values"),
    [
        ("DATE", "1 day", ("2026-01-01", "2026-01-01", "2026-01-02")),
        ("TIMESTAMP", "2 hours", ("2026-01-01T10:00:00Z", "2026-01-01T08:00:01Z", "2026-01-01T10:00:01Z")),
        ("BIGINT", "5", (10, 6, 11)),
    ],
)
def test_late_row_within_the_lookback_is_read(
    graph: Graph, quick: Any, tmp_path: Path, kind: str, lookback: str, values: tuple[object, object, object]
) -> None:
    text = declare(kind, lookback)
    add(tmp_path, "1", (values[0], "first"))
    first = run(graph, quick, tmp_path, text)
    assert first.expectations == ()
    # The watermark stays where it was, also if only a late row is there.
    add(tmp_path, "2", (values[1], "late"))
    assert run(graph, quick, tmp_path, text).watermarks == first.watermarks
    assert keys(graph) == {"first", "late"}
    add(tmp_path, "3", (values[2], "new"))
    assert run(graph, quick, tmp_path, text).watermarks != first.watermarks
    assert keys(graph) == {"first", "late", "new"}


@pytest.mark.parametrize(
    ("kind", "value", "is_coarse"),
    [
        ("DATE", "2026-01-01", True),
        ("TIMESTAMP", "2026-01-01T10:00:00Z", True),
        ("TIMESTAMP", "2026-01-01T10:00:00.123Z", False),
        ("STRING", "2026-01-01", True),
        ("BIGINT", 7, False),
    ],
)
def test_ties_that_must_be_expected_are_warned_of(
    graph: Graph, quick: Any, tmp_path: Path, kind: str, value: object, is_coarse: bool
) -> None:
    add(tmp_path, "1", (value, "a"))
    report = run(graph, quick, tmp_path, declare(kind, None))
    assert [item.outcome for item in report.expectations] == (["warn"] if is_coarse else [])
    assert all("add `lookback: 1 day`" in item.message for item in report.expectations)
    assert run(graph, quick, tmp_path, declare(kind, "0")).expectations == ()


def test_lookback_that_does_not_fit_is_refused(graph: Graph, quick: Any, tmp_path: Path) -> None:
    for text, message in (
        (declare("BIGINT", "soon"), "`lookback` is a number, or a time"),
        (declare("BIGINT", "1").replace("incremental: v, ", ""), "`lookback` is about the `incremental` column"),
        (declare("BIGINT", "1").replace("from: s", "from: s, mode: append"), "`append` would load them twice"),
    ):
        with pytest.raises(UsageError, match=message):
            parse_pipelines(text)
    add(tmp_path, "1", ("2026-01-01", "a"))
    run(graph, quick, tmp_path, declare("DATE", "1 day"))
    with pytest.raises(UsageError, match=r"4:\d+: `lookback: 2 hours` does not fit `v`, a date; write it as `1 day`"):
        run(graph, quick, tmp_path, declare("DATE", "2 hours"))


def test_late_row_is_lost_without_a_lookback(graph: Graph, quick: Any, tmp_path: Path) -> None:
    """The mutant: the bound is the watermark."""
    add(tmp_path, "1", ("2026-01-01", "first"))
    text = declare("DATE", "1 day")
    with patch.object(sources, "_lower_bound", lambda frame, column, window: sources._bound(frame, column, window.low)):
        run(graph, quick, tmp_path, text)
        add(tmp_path, "2", ("2026-01-01", "late"))
        run(graph, quick, tmp_path, text)
    assert keys(graph) == {"first"}
