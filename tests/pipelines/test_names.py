"""Progress belongs to the data, not to a name: renamed pipelines and sources, and rows that are appended once."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.errors import PipelineRenamed, UsageError
from omnigraph.graph import Graph
from omnigraph.pipelines import run as run_module
from omnigraph.pipelines.declaration.config import parse_pipelines
from omnigraph.pipelines.history import RunReport

pytestmark = pytest.mark.spark

SCHEMA = "node Log { a: I64? }  node P { k: I64 @key }"
FILE = """
pipelines:
  old:
    sources: { s: { format: json, path: rows, schema: "seq BIGINT, a BIGINT", incremental: seq } }
    nodes: { Log: { from: s, mode: append, columns: { a: a } } }
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    add(tmp_path, 1, 2)
    return og.init(tmp_path / "g.omni", SCHEMA)


def add(folder: Path, *numbers: int) -> None:
    (folder / "rows").mkdir(exist_ok=True)
    lines = [f'{{"seq": {number}, "a": {number}}}\n' for number in numbers]
    (folder / "rows" / f"{numbers[0]}.json").write_text("".join(lines))


def run(graph: Graph, spark: Any, folder: Path, text: str, name: str | None = None) -> RunReport:
    return pipeline.run(graph, parse_pipelines(text, folder=folder), name, spark=spark)


def logs(graph: Graph) -> list[int]:
    return sorted(row["p.a"] for row in graph.query("query q() { match { $p: Log } return { $p.a } }").rows())


def test_renamed_pipeline_needs_its_former_name(graph: Graph, quick: Any, tmp_path: Path) -> None:
    run(graph, quick, tmp_path, FILE)
    renamed = FILE.replace("  old:", "  new:")
    with pytest.raises(
        PipelineRenamed, match=r"add `renamed_from: old` to it.*another one, `renamed_from: \[\]`"
    ) as caught:
        run(graph, quick, tmp_path, renamed)
    assert (caught.value.code, logs(graph)) == ("pipeline.renamed", [1, 2])
    told = renamed.replace("  new:", "  new:\n    renamed_from: old")
    assert run(graph, quick, tmp_path, told).status == "nothing_new"
    add(tmp_path, 3)
    assert (run(graph, quick, tmp_path, told).watermarks, logs(graph)) == ({"s": "3"}, [1, 2, 3])
    # From here on the new name has progress of its own, and the history is that of both.
    assert run(graph, quick, tmp_path, renamed).status == "nothing_new"
    assert len(pipeline.list_runs(graph, parse_pipelines(told)["new"])) == 2
    both = renamed + FILE.replace("pipelines:\n  old:", "  other:")
    with pytest.raises(PipelineRenamed, match="pipeline `old` has loaded `rows`"):
        run(graph, quick, tmp_path, both, "other")
    apart = both.replace("  other:", "  other:\n    renamed_from: []")
    assert run(graph, quick, tmp_path, apart, "other").nodes == {"Log": 3}


def test_renamed_source_needs_its_former_name(graph: Graph, quick: Any, tmp_path: Path) -> None:
    run(graph, quick, tmp_path, FILE)
    renamed = FILE.replace("{ s: {", "{ t: {").replace("from: s", "from: t")
    with pytest.raises(PipelineRenamed, match=r"Add `renamed_from: s` to it"):
        run(graph, quick, tmp_path, renamed)
    told = renamed.replace("path: rows", "path: rows, renamed_from: s")
    assert run(graph, quick, tmp_path, told).status == "nothing_new"
    add(tmp_path, 3)
    assert (run(graph, quick, tmp_path, told).watermarks, logs(graph)) == ({"t": "3"}, [1, 2, 3])
    assert run(graph, quick, tmp_path, renamed).status == "nothing_new"


def test_moved_source_needs_its_former_place(graph: Graph, quick: Any, tmp_path: Path) -> None:
    run(graph, quick, tmp_path, FILE)
    (tmp_path / "rows").rename(tmp_path / "moved")
    moved = FILE.replace("path: rows", "path: moved")
    with pytest.raises(PipelineRenamed, match=r'add `moved_from: "rows"` to it'):
        run(graph, quick, tmp_path, moved)
    assert (
        run(graph, quick, tmp_path, moved.replace("path: moved", "path: moved, moved_from: rows")).status
        == "nothing_new"
    )
    assert logs(graph) == [1, 2]


def test_appended_rows_of_a_whole_source_are_refused_the_second_time(graph: Graph, quick: Any, tmp_path: Path) -> None:
    whole = FILE.replace(", incremental: seq", "")
    assert run(graph, quick, tmp_path, whole).nodes == {"Log": 2}
    with pytest.raises(UsageError, match="they would be there twice"):
        run(graph, quick, tmp_path, whole)
    assert logs(graph) == [1, 2]


def test_rename_without_the_check_doubles_rows(graph: Graph, quick: Any, tmp_path: Path) -> None:
    """The mutant: progress by name alone."""
    run(graph, quick, tmp_path, FILE)
    with patch.object(run_module, "require_own_progress", lambda *_: None):
        run(graph, quick, tmp_path, FILE.replace("  old:", "  new:"))
    assert logs(graph) == [1, 1, 2, 2]
