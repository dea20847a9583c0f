"""One verb brings data in: `ingest` is `load`, and what is too large for one request is loaded."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import omnigraph as og
from omnigraph.cli import main
from omnigraph.limits import WRITE_ENTITIES_MAX
from omnigraph.pipeline import LoadReport

pytestmark = pytest.mark.slow

COUNT = "query q() { match { $p: P } return { count($p) as n } }"


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> og.Graph:
    monkeypatch.setenv("OMNIGRAPH_STORE", str(tmp_path / "g.omni"))
    return og.init(tmp_path / "g.omni", "node P { k: String @key }")


def records(count: int) -> str:
    return "".join(f'{{"type": "P", "data": {{"k": "k{number}"}}}}\n' for number in range(count))


@pytest.mark.parametrize("way", ["file", "stdin"])
def test_ingest_of_too_many_entities_is_loaded(
    way: str, graph: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = records(WRITE_ENTITIES_MAX + 1)
    (tmp_path / "in.ndjson").write_text(text)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
    assert main(["ingest", "--data", str(tmp_path / "in.ndjson") if way == "file" else "-"]) == 0
    captured = capsys.readouterr()
    assert "in process" in captured.out
    assert "loading it in bulk" in captured.err
    assert graph.query(COUNT).to_json_rows() == [{"n": WRITE_ENTITIES_MAX + 1}]


def test_ingest_takes_what_a_load_takes(graph: og.Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.csv").write_text("k\na\nb\n")
    for command in ("ingest", "load"):
        assert main([command, "--node", f"P={tmp_path / 'p.csv'}", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["total_entities"] == 2


@pytest.mark.parametrize("command", ["ingest", "load"])
def test_setting_of_spark_loads_there(
    command: str, graph: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.ndjson").write_text(records(1))
    masters: list[str] = []

    def load(*sources: object, master: str, **options: object) -> LoadReport:
        masters.append(master)
        return graph.load([])

    monkeypatch.setattr("omnigraph.pipeline.load", load)
    assert main([command, str(tmp_path / "in.ndjson"), "--conf", "spark.ui.enabled=false"]) == 0
    assert masters == ["local[*]"]


def test_ingest_refuses_wrong_data_once(graph: og.Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.ndjson").write_text('{"type": "Q", "data": {}}\n')
    assert main(["ingest", "--data", str(tmp_path / "in.ndjson")]) == 1
    assert "loading" not in capsys.readouterr().err


def test_indexes_are_listed_and_built(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    graph.ingest([{"type": "P", "data": {"k": "a"}}])

    def states() -> set[str]:
        assert main(["index", "list", "--json"]) == 0
        return {index["state"] for index in json.loads(capsys.readouterr().out)["indexes"]}

    assert "missing" in states()
    assert main(["index", "build"]) == 0
    assert "built the btree index of node:P." in capsys.readouterr().out
    assert states() == {"built"}
