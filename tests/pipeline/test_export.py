"""Exports as files: what a load makes of them is the graph that they came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli import main
from omnigraph.errors import UsageError
from omnigraph.pipeline import export, load
from tests.pipeline.things import empty_things, entities, things

pytestmark = pytest.mark.slow


def load_back(graph: Any, out: Path, format_: str) -> None:
    if format_ == "ndjson":
        load(graph, out, mode="append", engine="local")
        return
    nodes = {name: out / "nodes" / name for name in ("Thing", "Dot")}
    load(graph, nodes=nodes, edges={"Likes": out / "edges" / "Likes"}, mode="append", engine="local")


@pytest.mark.parametrize("format_", ["ndjson", "parquet", "csv"])
def test_export_loaded_back_is_the_same_graph(tmp_path: Path, format_: Any) -> None:
    graph = things(tmp_path / "g")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("omnigraph.pipeline.scanning.LOAD_SPLIT_BYTES", 1)
        report = export(graph, tmp_path / "out", format_, engine="local")
    assert report.entities == {"node:Dot": 2, "node:Thing": 3, "edge:Likes": 2}
    files = sorted(str(one.relative_to(tmp_path / "out")) for one in (tmp_path / "out").rglob("*") if one.is_file())
    assert files == [
        "_export.json",
        f"edges/Likes/part-00000.{format_}",
        f"nodes/Dot/part-00000.{format_}",
        f"nodes/Thing/part-00000.{format_}",
        f"nodes/Thing/part-00001.{format_}",
    ]
    assert json.loads((tmp_path / "out" / "_export.json").read_bytes())["commit_id"] == graph.snapshot().head
    copy = empty_things(tmp_path / "copy")
    load_back(copy, tmp_path / "out", format_)
    assert entities(copy) == entities(graph)


def test_export_of_a_type_and_a_past_state(tmp_path: Path) -> None:
    graph = things(tmp_path / "g")
    before = graph.commits()[1].commit_id
    report = export(graph, tmp_path / "out", "ndjson", types=["Thing"], at=before, engine="local")
    assert (report.entities, report.files) == ({"node:Thing": 2}, 1)
    with pytest.raises(UsageError, match="is not empty"):
        export(graph, tmp_path / "out", engine="local")
    with pytest.raises(UsageError, match="no format `xml`"):
        export(graph, tmp_path / "new", "xml")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="did you mean `Thing`"):
        export(graph, tmp_path / "new", types=["Thign"])


@pytest.mark.spark
def test_export_on_spark_equals_export_in_process(spark: Any, tmp_path: Path) -> None:
    graph = things(tmp_path / "g")
    here = export(graph, tmp_path / "here", "ndjson", engine="local")
    there = export(graph, tmp_path / "there", "ndjson", engine="spark")
    assert (here.entities, there.engine) == (there.entities, "spark")
    parts = [sorted(one.read_bytes() for one in (tmp_path / name).rglob("part-*")) for name in ("here", "there")]
    assert parts[0] == parts[1]


def test_export_command_writes_files_and_needs_a_place_for_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    things(tmp_path / "g").close()
    store, out = str(tmp_path / "g"), str(tmp_path / "out")
    assert main(["export", store, "--format", "parquet", "--out", out, "--engine", "local"]) == 0
    assert "7 entities" in capsys.readouterr().out
    assert (tmp_path / "out" / "nodes" / "Thing" / "part-00000.parquet").exists()
    assert main(["export", store, "--format", "csv"]) == 1
    assert "--out" in capsys.readouterr().err
    assert main(["export", store]) == 0
    assert capsys.readouterr().out.count("\n") == 7
