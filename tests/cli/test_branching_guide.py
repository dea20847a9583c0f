"""The guide to branching is run: its files are written, its commands and its program print what it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from omnigraph.cli import main

GUIDE = Path(__file__).parent.parent.parent / "docs" / "branching.md"
BLOCK = re.compile(
    r"(?:^<!-- file: (?P<file>\S+) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
# What differs from run to run: ids of commits, points in time, and cursors.
CHANGING = re.compile(r"\b0[0-9A-Z]{25}\b|\b20\d\d-[-0-9T:.+]+|\beyJ[\w-]+")
SHORT = {"0": "01…", "2": "2…", "e": "eyJ…"}


def run_lines(text: str) -> None:
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] == "omnigraph", line
        assert main(words[1:]) == (1 if line.endswith("# exit status 1") else 0), line


def shown(captured: tuple[str, str]) -> str:
    return CHANGING.sub(lambda found: SHORT[found[0][0]], "".join(captured))


@pytest.mark.slow
def test_branching_guide_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    printed, checked = "", 0
    for block in BLOCK.finditer(GUIDE.read_text(encoding="utf-8")):
        if block["file"]:
            Path(block["file"]).write_text(block["text"], encoding="utf-8")
        elif block["language"] == "text":
            # The first commands of a block may print more than the page shows.
            assert printed.endswith(block["text"]), printed
            checked += 1
        else:
            if block["language"] == "sh":
                run_lines(block["text"])
            else:
                exec(compile(block["text"], GUIDE.name, "exec"), {})  # what a reader would paste
            printed = shown(capsys.readouterr())
    assert checked >= 5
