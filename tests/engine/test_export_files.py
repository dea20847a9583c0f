"""Exports as files: what a load makes of them is the graph that they came from."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import omnigraph as og
from omnigraph.cli import main
from omnigraph.engine import export as exporting
from omnigraph.errors import LimitExceeded, UsageError
from omnigraph.limits import INGEST_LINE_BYTES_MAX
from omnigraph.pipeline import export, load
from tests.support.datasource_fixtures import empty_things, entities, things

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
        patch.setattr("omnigraph.store.write.fragments.LOAD_SPLIT_BYTES", 1)
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


@pytest.mark.parametrize("format_", ["ndjson", "parquet", "csv"])
def test_export_loaded_back_keeps_the_sign_of_zero(tmp_path: Path, format_: Any) -> None:
    graph = things(tmp_path / "g")
    zero = {"name": "zero", "ratio": -0.0, "exact": -0.0, "near": [-0.0, 0.0, -0.0], "texts": ["x"]}
    graph.ingest([{"type": "Thing", "data": zero}], mode="append")
    export(graph, tmp_path / "out", format_, engine="local")
    copy = empty_things(tmp_path / "copy")
    load_back(copy, tmp_path / "out", format_)
    assert repr(entities(copy)) == repr(entities(graph))
    assert repr(entities(graph)).count("-0.0") == 4


BLOBS = "node File { name: String @key  n: I32?  body: Blob?  more: Blob? }\nedge Next: File -> File { scan: Blob? }"


def blob_graph(folder: Path, sizes: tuple[int, ...]) -> og.Graph:
    """Return a graph with blobs of some sizes, written by a load: a mutation may not hold large ones."""
    graph = og.init(folder / "g", BLOBS)
    bodies = [bytes(range(251)) * (size // 251) + b"z" * (size % 251) for size in sizes]
    rows = {"name": [f"f{place}" for place in range(len(sizes))], "body": pa.array(bodies, pa.large_binary())}
    pa.parquet.write_table(
        pa.table(rows | {"more": pa.array([None, *bodies[2:], None], pa.large_binary())}), folder / "f.parquet"
    )
    ends = {"src": ["f0"], "dst": ["f1"], "id": ["e"], "scan": pa.array(bodies[:1], pa.large_binary())}
    pa.parquet.write_table(pa.table(ends), folder / "e.parquet")
    load(
        graph, nodes={"File": folder / "f.parquet"}, edges={"Next": folder / "e.parquet"}, mode="append", engine="local"
    )
    return graph


def test_large_blobs_are_exported_in_pieces_of_the_same_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = blob_graph(tmp_path, (3_000, 5, 999, 1_000, 1_001, 4_000, 7, 5_003, 0))
    whole = b"".join(graph.export())
    monkeypatch.setattr(exporting, "EXPORT_CHUNK_BYTES", 1_000)
    chunks = list(graph.export())
    assert b"".join(chunks) == whole
    # Base64 of a piece, and the text around it.
    assert max(map(len, chunks)) < 4_000
    export(graph, tmp_path / "out", "ndjson", engine="local")
    copy = og.init(tmp_path / "copy", BLOBS)
    load(copy, tmp_path / "out", mode="append", engine="local")
    assert b"".join(copy.export()) == whole
    monkeypatch.setattr(exporting, "LOAD_LINE_BYTES_MAX", 6_000)
    with pytest.raises(LimitExceeded, match="export the type as Parquet"):
        list(graph.export())
    # The module has the name of its function.
    monkeypatch.setattr(sys.modules["omnigraph.engine.export_files"], "LOAD_CSV_ROW_BYTES_MAX", 6_000)
    with pytest.raises(LimitExceeded, match="export as Parquet"):
        export(graph, tmp_path / "rows", "csv", engine="local")


@pytest.mark.parametrize("format_", ["ndjson", pytest.param("parquet", marks=pytest.mark.long)])
def test_blob_larger_than_a_line_of_an_ingest_is_loaded_back(tmp_path: Path, format_: Any) -> None:
    graph = blob_graph(tmp_path, (5, INGEST_LINE_BYTES_MAX * 3 // 4 + 1_000_000))
    export(graph, tmp_path / "out", format_, engine="local")
    copy = og.init(tmp_path / "copy", BLOBS)
    if format_ == "ndjson":
        load(copy, tmp_path / "out", mode="append", engine="local")
    else:
        types: dict[str, Any] = {
            "nodes": {"File": tmp_path / "out/nodes/File"},
            "edges": {"Next": tmp_path / "out/edges/Next"},
        }
        load(copy, **types, mode="append", engine="local")
    digests = [hashlib.sha256(b"".join(one.export())).digest() for one in (graph, copy)]
    assert digests[0] == digests[1]
    # Its entity can be updated like any other.
    copy.mutate('query q() { update File set {n: 2} where name = "f1" }')
    assert copy.query('query q() { match { $f: File {name: "f1"} } return { $f.n } }').rows() == [{"f.n": 2}]


def test_export_into_a_folder_of_folders_lists_its_first_level_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = things(tmp_path / "g")
    (tmp_path / "deep" / "folder" / "folder").mkdir(parents=True)
    listed: list[str] = []
    scan = os.scandir

    def note(path: Any) -> Any:
        listed.append(str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", note)
    with pytest.raises(UsageError, match="is not empty"):
        export(graph, tmp_path / "deep", engine="local")
    assert [path for path in listed if path.startswith(str(tmp_path / "deep"))] == [str(tmp_path / "deep")]


def test_export_of_a_type_and_a_past_state(tmp_path: Path) -> None:
    graph = things(tmp_path / "g")
    before = graph.commits()[1].commit_id
    report = export(graph, tmp_path / "out", "ndjson", types=["Thing"], at=before, engine="local")
    assert (report.entities, report.files) == ({"node:Thing": 2}, 1)
    with pytest.raises(UsageError, match="is not empty"):
        export(graph, tmp_path / "out", engine="local")
    with pytest.raises(UsageError, match="unknown format `xml`"):
        export(graph, tmp_path / "new", "xml")
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
