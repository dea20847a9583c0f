"""Errors of a load over several files or frames: lines are counted in each file, and the file is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.engine.load.line_numbers import LineNumbers
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph
from tests.support.pipeline_fixtures import splits_of

SCHEMA = "node A { k: String @key }\nnode B { k: String @key }\nedge E: A -> B { @key(src, dst) }\n"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    for name, text in {
        "a.csv": "k\na1\na2\na3\n",
        "b.csv": "k\nb1\nb2\nb3\n",
        "e.csv": "x,y\na1,b1\na1,b1\n",
        "f.csv": "x,y\na3,b3\na2,b1\na1,b1\n",
        "pairs.csv": "k\nq1\nq2\nq1\n",
    }.items():
        (tmp_path / name).write_text(text)
    with og.init(tmp_path / "g.omni", schema=SCHEMA) as opened:
        yield opened


def failed_load(graph: Graph, tmp_path: Path, edges: object, nodes: dict[str, object] | None = None) -> OmniGraphError:
    nodes = nodes or {"A": str(tmp_path / "a.csv"), "B": str(tmp_path / "b.csv")}
    with pytest.raises(OmniGraphError) as caught:
        pipeline.load(graph, nodes=nodes, edges={"E": edges} if edges else None, mode="append")
    return caught.value


def test_duplicates_in_one_file_are_named_by_its_lines(graph: Graph, tmp_path: Path) -> None:
    error = failed_load(graph, tmp_path, f"{tmp_path}/e.csv:x->y")
    assert f"`{tmp_path}/e.csv` line 3: " in error.message
    assert "twice, in lines 2 and 3; keep one" in error.message
    assert (error.context["file"], error.context["line"]) == (f"{tmp_path}/e.csv", 3)


def test_duplicates_in_two_files_name_both_files(graph: Graph, tmp_path: Path) -> None:
    files = [str(tmp_path / "e.csv"), str(tmp_path / "f.csv")]
    error = failed_load(graph, tmp_path, pipeline.Columns(files, "x", "y"))
    messages = [str(violation["message"]) for violation in error.context["violations"]]  # type: ignore[attr-defined]
    assert "twice, in lines 2 and 3; keep one" in messages[0]
    assert f"twice, in line 2 of `{files[0]}` and line 4 of `{files[1]}`; keep one" in messages[1]


def test_a_file_given_for_two_types_is_counted_twice(graph: Graph, tmp_path: Path) -> None:
    pairs = str(tmp_path / "pairs.csv")
    error = failed_load(graph, tmp_path, None, {"A": str(tmp_path / "a.csv"), "B": pairs})
    assert (error.context["file"], error.context["line"]) == (pairs, 4)
    (tmp_path / "a.csv").write_text("k\n")
    error = failed_load(graph, tmp_path, None, {"A": pairs, "B": pairs})
    places = [(violation["file"], violation["line"]) for violation in error.context["violations"]]  # type: ignore[attr-defined]
    assert places == [(pairs, 4), (pairs, 4)]


def test_rows_in_small_splits_are_counted_in_their_file(graph: Graph, tmp_path: Path) -> None:
    nodes = "".join(f'{{"type": "A", "data": {{"k": "a{number}"}}}}\n' for number in range(9))
    (tmp_path / "one.ndjson").write_text(nodes)
    (tmp_path / "two.ndjson").write_text(nodes.replace('"A"', '"B"') + '{"type": "B", "data": {"k": "a3"}}\n')
    files = [str(tmp_path / "one.ndjson"), str(tmp_path / "two.ndjson")]
    with splits_of(64), pytest.raises(OmniGraphError) as caught:
        pipeline.load(graph, files, mode="append")
    assert "twice, in lines 4 and 10; keep one" in caught.value.message


def test_quarantined_rows_name_lines_of_their_file(graph: Graph, tmp_path: Path) -> None:
    report = pipeline.load(
        graph,
        nodes={"A": str(tmp_path / "a.csv"), "B": str(tmp_path / "b.csv")},
        edges={"E": f"{tmp_path}/e.csv:x->y"},
        on_error="quarantine",
        report=tmp_path / "report",
    )
    [rejected] = report.rejected
    assert (rejected.file, rejected.line) == (f"{tmp_path}/e.csv", 3)
    assert "in lines 2 and 3" in rejected.violation.message


@pytest.mark.parametrize("is_bulk", [False, True])
def test_rows_of_several_frames_are_counted_in_each(graph: Graph, *, is_bulk: bool) -> None:
    nodes = {"A": pa.table({"k": ["a1", "a2"]}), "B": pa.table({"k": ["b1", "b2", "b1"]})}
    with pytest.raises(OmniGraphError) as caught:
        (pipeline.load if is_bulk else Graph.load)(graph, nodes=nodes, mode="append")
    assert caught.value.message.startswith("`the frame of B` row 3: ")
    assert "in rows 1 and 3; keep one" in caught.value.message


def test_lines_that_count_through_all_files_are_caught(graph: Graph, tmp_path: Path) -> None:
    with patch.object(LineNumbers, "in_file", lambda self, line: (f"{tmp_path}/e.csv", line)):
        error = failed_load(graph, tmp_path, f"{tmp_path}/e.csv:x->y")
    assert "in lines 2 and 3" not in error.message
