"""The guide to operations is run, on a local graph and on S3: its commands print what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_branching_guide import BLOCK, run_lines, shown
from tests.s3server import S3Server, s3_server

__all__ = ["s3_server"]
GUIDE = Path(__file__).parent.parent.parent / "docs" / "operations.md"


def run_guide(uri: str, capsys: pytest.CaptureFixture[str]) -> int:
    """Do what the page says with a graph at an address, and return how many answers were compared."""
    printed, checked = "", 0
    for block in BLOCK.finditer(GUIDE.read_text(encoding="utf-8")):
        text = block["text"].replace("graph.omni", uri)
        if block["file"]:
            Path(block["file"]).write_text(block["text"], encoding="utf-8")
        elif block["language"] == "text":
            assert printed.endswith(block["text"]), printed
            checked += 1
        else:
            if block["language"] == "sh":
                run_lines(text)
            else:
                exec(compile(text, GUIDE.name, "exec"), {})  # what a reader would paste
            told = shown((capsys.readouterr().out, ""))
            printed = "\n".join(line.rstrip() for line in told.split("\n"))
    return checked


@pytest.mark.slow
def test_operations_guide_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_guide("graph.omni", capsys) >= 6


@pytest.mark.slow
@pytest.mark.s3
def test_operations_guide_prints_the_same_on_s3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], s3_server: S3Server
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_guide(s3_server.uri("deep/graph.omni"), capsys) >= 6
