"""Ctrl-C in a real `omnigraph load`: its jobs are cancelled, the graph stays as it was, and the status says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.graph import session_of
from omnigraph.manifest.intents import pending
from tests.support.crash_campaign import REPOSITORY
from tests.support.examples import IS_LONG
from tests.support.pipeline_fixtures import contents, lines_of, world

FILES = 300 if IS_LONG else 80


@pytest.mark.spark
@pytest.mark.slow
def test_load_command_interrupted_in_its_tasks_changes_nothing(tmp_path: Path) -> None:
    graph = world(tmp_path / "g.omni")
    before, version = contents(graph), graph.snapshot().version
    (tmp_path / "in").mkdir()
    for place in range(FILES):
        people = [{"type": "Person", "data": {"name": f"p{place}-{each}"}} for each in range(20)]
        (tmp_path / "in" / f"{place}.ndjson").write_bytes(lines_of(people))
    command = ["load", graph.uri, "--data", str(tmp_path / "in"), "--mode", "append"]
    # Whoever runs tests in the background has made its children deaf to the signal.
    hearing = ["env", "--default-signal=INT", sys.executable, "-m", "omnigraph"]
    process = subprocess.Popen(
        [*hearing, *command, "--engine", "spark", "--master", "local[2]"],
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    known = len(staged(graph))
    # A terminal sends the signal to all processes in front of it, not only to ours.
    while len(staged(graph)) == known:
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(process.communicate(timeout=0.05))
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    again = og.open(graph.uri)
    assert (contents(again), again.snapshot().version) == (before, version)
    assert pending(session_of(again).kernel.store) == ([], [])


def staged(graph: og.Graph) -> list[Path]:
    return [*Path(graph.uri, "nodes").rglob("data/*.lance"), *Path(graph.uri).rglob("_staging-*/*")]
