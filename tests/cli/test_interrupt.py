"""Ctrl-C in real commands: they end at once, with the status of an interrupt and a word about it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import omnigraph as og

SCHEMA = "node Note { name: String @key\n  text: String? }\n"
# More than a pipe holds, so that whoever writes it waits for a reader.
NOTES = [{"type": "Note", "data": {"name": f"n{n}", "text": "x" * 1_000}} for n in range(400)]


@pytest.mark.slow
@pytest.mark.parametrize("words", [["export"], ["reconcile", "--every", "1h"]])
def test_command_interrupted_ends_with_its_status_and_a_word(tmp_path: Path, words: list[str]) -> None:
    with og.init(tmp_path / "g.omni", SCHEMA) as graph:
        graph.ingest(NOTES)
        before = graph.snapshot().version
    # Whoever runs tests in the background has made its children deaf to the signal.
    hearing = ["env", "--default-signal=INT", sys.executable, "-m", "omnigraph"]
    process = subprocess.Popen(
        [*hearing, words[0], graph.uri, *words[1:]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    # What has printed something is at work, and now waits: for its reader, or for its next round.
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said.splitlines()[-1]) == (130, "stopped"), said
    assert "Traceback" not in said
    assert og.open(graph.uri).snapshot().version == before
