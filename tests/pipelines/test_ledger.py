"""Files of incremental sources: a run opens those that are new or have changed, and no others."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph, session_of
from omnigraph.pipelines import run as run_module
from omnigraph.pipelines.declaration.config import parse_pipelines
from omnigraph.pipelines.history import RunReport

pytestmark = pytest.mark.spark

FILE = """
pipelines:
  days:
    sources: { s: { format: FORMAT, path: rows, incremental: seq, OPTIONS } }
    transforms: { t: "SELECT k, note FROM s" }
    nodes: { P: { from: t } }
"""
OPTIONS = {"json": "multiLine: false", "csv": "header: true, inferSchema: true", "parquet": "mergeSchema: false"}


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    (tmp_path / "rows").mkdir()
    return og.init(tmp_path / "g.omni", "node P { k: String @key  note: String? }")


def write(folder: Path, format_name: str, seq: int, note: str | None) -> Path:
    path, row = folder / "rows" / f"{seq}.{format_name}", {"seq": seq, "k": f"k{seq}", "note": note}
    if format_name == "json":
        path.write_text(json.dumps({name: value for name, value in row.items() if value is not None}) + "\n")
    elif format_name == "csv":
        path.write_text(f"seq,k,note\n{seq},k{seq},{note or ''}\n")
    else:
        pq.write_table(pa.table({"seq": [seq], "k": [f"k{seq}"], "note": pa.array([note], pa.string())}), path)
    return path


def spoil(path: Path) -> None:
    """Make a file unreadable that looks as it did: to open it fails."""
    status = path.stat()
    path.write_bytes(b"\xff" * status.st_size)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def run(graph: Graph, spark: Any, folder: Path, format_name: str, **options: Any) -> RunReport:
    text = FILE.replace("FORMAT", format_name).replace("OPTIONS", OPTIONS[format_name])
    return pipeline.run(graph, parse_pipelines(text, folder=folder), spark=spark, **options)


def keys(graph: Graph) -> set[str]:
    return {row["p.k"] for row in graph.query("query q() { match { $p: P } return { $p.k } }")}


@pytest.mark.parametrize("format_name", ["json", "csv", "parquet"])
def test_second_run_opens_the_new_file_alone(graph: Graph, quick: Any, tmp_path: Path, format_name: str) -> None:
    first = write(tmp_path, format_name, 1, "text")
    run(graph, quick, tmp_path, format_name)
    spoil(first)
    assert run(graph, quick, tmp_path, format_name).status == "nothing_new"
    # A column that the new file lacks is still there for the transform.
    second = write(tmp_path, format_name, 2, None)
    assert (run(graph, quick, tmp_path, format_name).nodes, keys(graph)) == ({"P": 1}, {"k1", "k2"})
    spoil(second)
    third = write(tmp_path, format_name, 3, "text")
    assert run(graph, quick, tmp_path, format_name).watermarks == {"s": "3"}
    # A file that has changed is read again, above the watermark.
    os.utime(third, ns=(1, 1))
    assert run(graph, quick, tmp_path, format_name).status == "nothing_new"
    with pytest.raises(OmniGraphError):
        run(graph, quick, tmp_path, format_name, full_refresh=True)


def test_new_csv_file_with_other_columns_is_refused(graph: Graph, quick: Any, tmp_path: Path) -> None:
    write(tmp_path, "csv", 1, "text")
    run(graph, quick, tmp_path, "csv")
    (tmp_path / "rows" / "2.csv").write_text("seq,k\n2,k2\n")
    with pytest.raises(OmniGraphError, match="have the columns seq, k, and the earlier ones seq, k, note"):
        run(graph, quick, tmp_path, "csv")


def test_columns_of_csv_follow_a_declared_schema(graph: Graph, quick: Any, tmp_path: Path) -> None:
    def run_with(columns: str, view: str) -> None:
        text = FILE.replace("FORMAT", "csv").replace("OPTIONS", f"header: true, schema: '{columns}'")
        text = text.replace("SELECT k, note FROM s", view)
        pipeline.run(graph, parse_pipelines(text, folder=tmp_path), spark=quick)

    first = write(tmp_path, "csv", 1, "text")
    run_with("seq BIGINT, k STRING, note STRING", "SELECT k, note FROM s")
    first.unlink()
    (tmp_path / "rows" / "2.csv").write_text("seq,k\n2,k2\n")
    run_with("seq BIGINT, k STRING", "SELECT k FROM s")
    assert keys(graph) == {"k1", "k2"}


def test_ledger_that_is_gone_costs_time_alone(graph: Graph, quick: Any, tmp_path: Path) -> None:
    write(tmp_path, "json", 1, "text")
    run(graph, quick, tmp_path, "json")
    session_of(graph).kernel.store.objects.delete_prefix("__pipelines")
    write(tmp_path, "json", 2, "text")
    assert (run(graph, quick, tmp_path, "json").nodes, keys(graph)) == ({"P": 1}, {"k1", "k2"})


def test_run_without_a_ledger_opens_old_files(graph: Graph, quick: Any, tmp_path: Path) -> None:
    """The mutant: no ledger."""
    first = write(tmp_path, "parquet", 1, "text")
    run(graph, quick, tmp_path, "parquet")
    spoil(first)
    write(tmp_path, "parquet", 2, "text")
    with patch.object(run_module, "read_ledgers", lambda *_: {}), pytest.raises(OmniGraphError):
        run(graph, quick, tmp_path, "parquet")
