"""Runs a page of the docs: its files are written, its commands and programs print what it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from omnigraph.cli import main

DOCS = Path(__file__).parent.parent.parent / "docs"
BLOCK = re.compile(
    r"(?:^<!-- file: (?P<file>\S+) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
# Shown and not run: commands that need a network or root, files of other programs, and sources that are compiled
# by tests/test_docs.py.
SHOWN = ("bash", "caddy", "cypher", "gq", "ini", "nginx", "pg", "sql", "yaml", "http")
# What differs from run to run: ids of commits, points in time, and cursors.
CHANGING = re.compile(r"\b0[0-9A-Z]{25}\b|\b20\d\d-[-0-9T:.+Z]+|\beyJ[\w-]+")
SHORT = {"0": "01…", "2": "2…", "e": "eyJ…"}


def run_guide(page: str, capsys: pytest.CaptureFixture[str], uri: str = "graph.omni") -> int:
    """Do what a page says with a graph at an address, and return how many answers were compared."""
    out, err, checked = "", "", 0
    for block in BLOCK.finditer((DOCS / page).read_text(encoding="utf-8")):
        text = block["text"].replace("graph.omni", uri)
        if block["file"]:
            Path(block["file"]).parent.mkdir(parents=True, exist_ok=True)
            Path(block["file"]).write_text(block["text"], encoding="utf-8")
        elif block["language"] == "text":
            # The first commands of a block may print more than the page shows, as may standard error.
            assert out.endswith(block["text"]) or (out + err).endswith(block["text"]), out + err
            checked += 1
        elif block["language"] not in SHOWN:
            if block["language"] == "sh":
                _run_lines(text)
            else:
                exec(compile(text, page, "exec"), {})  # what a reader would paste
            out, err = map(_shown, capsys.readouterr())
    return checked


def _run_lines(text: str) -> None:
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] == "omnigraph", line
        assert main(words[1:]) == (1 if line.endswith("# exit status 1") else 0), line


def _shown(text: str) -> str:
    short = CHANGING.sub(lambda found: SHORT[found[0][0]], text)
    return "\n".join(line.rstrip() for line in short.split("\n"))
