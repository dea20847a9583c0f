"""`omnigraph load`: what it prints, what it refuses, and that it is done once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.cli import main
from tests.support.pipeline_fixtures import lines_of, world


@pytest.fixture
def uri(tmp_path: Path) -> str:
    (tmp_path / "in.ndjson").write_bytes(lines_of([{"type": "Person", "data": {"name": "cy", "level": 3}}]))
    (tmp_path / "knows.csv").write_text("a,b\ncy,ann\n")
    return world(tmp_path / "g.omni").uri


def test_load_command_prints_counts_and_commit(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edge = f"Knows={tmp_path}/knows.csv:a->b"
    arguments = ["load", uri, "--data", f"{tmp_path}/in.ndjson", "--edge", edge, "--mode", "append"]
    assert main([*arguments, "--job-id", "one"]) == 0
    said = capsys.readouterr()
    assert "node Person: 1\nedge Knows: 1\n2 entities on main in " in said.out
    assert "omnigraph load → " in said.err
    assert main([*arguments, "--job-id", "one"]) == 0
    assert "already applied as commit " in capsys.readouterr().out


def test_load_command_with_quarantine_reports_as_json(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.ndjson").write_bytes(b'{"type":"Person","data":{"name":"x","level":99}}\n')
    options = ["--on-error", "quarantine", "--report", str(tmp_path / "out"), "--quiet", "--json"]
    assert main(["load", uri, "--data", f"{tmp_path}/*.ndjson", "--mode", "merge", *options]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["total_entities"], said["rejected"][0]["code"], said["rejected"][0]["count"]) == (1, "E8", 1)
    assert said["rejected"][0]["samples"][0]["file"] == str(tmp_path / "bad.ndjson")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--node", "Person"], "--node Type=FILE"),
        (["--node", "Person=a.csv", "--node", "Person=b.csv"], "twice"),
        (["--data", "nowhere.ndjson"], "cannot read"),
        ([], "nothing to load"),
        (["--data", "x", "--engine", "tez"], "tez"),
    ],
)
def test_load_command_refuses_wrong_use(
    uri: str, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["load", uri, "--mode", "append", *options]) == 1
    assert words in capsys.readouterr().err
