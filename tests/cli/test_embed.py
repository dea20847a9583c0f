"""`omnigraph embed` and `load --embed`: what they print, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli import main

SCHEMA = "node Doc { name: String @key  text: String?  vec: Vector(4)? @embed(text) }"


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    data = [{"type": "Doc", "data": {"name": name, "text": f"about {name}"}} for name in ("a", "b")]
    with og.init(tmp_path / "g.omni", SCHEMA) as graph:
        graph.ingest(data)
    (tmp_path / "data.ndjson").write_text("\n".join(map(json.dumps, data)))
    return str(tmp_path / "g.omni")


@pytest.mark.slow
def test_embed_prints_counts_and_its_commit(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["embed", uri, "--select", "Doc:name=a"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.replace("|", " ").split() for line in out if "Doc.vec" in line] == [["Doc.vec", "1", "0", "1", "0"]]
    assert out[-1].startswith("commit ")
    assert main(["embed", uri, "--as", "ada", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["properties"] == [
        {"type": "Doc", "property": "vec", "filled": 1, "cleared": 0, "texts_asked": 1, "texts_cached": 0}
    ]
    assert (document["mode"], document["engine"], document["actor_id"]) == ("fill_missing", "local", "ada")
    assert main(["embed", uri]) == 0
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.slow
def test_embed_modes_are_flags(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    for flags, mode in ((["--reembed-all"], "reembed_all"), (["--clean", "--type", "Doc"], "clean")):
        assert main(["embed", uri, "--json", *flags]) == 0
        assert json.loads(capsys.readouterr().out)["mode"] == mode
    assert main(["embed", uri, "--clean", "--reembed-all"]) == 1
    assert "contradict" in capsys.readouterr().err


def test_load_embed_says_what_was_asked(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["load", uri, "--data", str(tmp_path / "data.ndjson"), "--mode", "merge", "--embed"]) == 0
    assert "embedded Doc.vec: 2, 2 texts asked, 0 known" in capsys.readouterr().out
