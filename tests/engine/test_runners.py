"""Where tasks run without being told otherwise: in this process, which reads no distributed frame."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.engine.runners import ThisProcess
from omnigraph.engine.tasks import Threads
from omnigraph.errors import UsageError
from omnigraph.graph import session_of
from omnigraph.spark import executors
from tests.support.pipeline_fixtures import ThreadsAsExecutors


def test_session_runs_in_its_process_unless_told_otherwise(tmp_path: Path) -> None:
    with og.init(tmp_path / "g.omni", "node P { name: String @key }") as graph:
        runners = session_of(graph).runners
    assert runners.by_size(10**15, 1).engine == "local"
    assert runners.by_input(10**15, [], "load a file").engine == "local"


def test_distributed_frame_is_refused_in_this_process() -> None:
    with pytest.raises(UsageError, match="load a file"):
        ThisProcess().by_input(1, [object()], "load a file")
    with pytest.raises(UsageError, match="read where it is"):
        Threads().map_frame("reading", object(), iter, "path string")


def test_graph_on_an_engine_runs_there_and_reports_its_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "start_executors", lambda master: ThreadsAsExecutors())
    stages: list[str] = []
    with og.init(tmp_path / "g.omni", "node P { name: String @key }") as graph:
        for name in "ab":
            graph.load([{"type": "P", "data": {"name": name}}])
        there = graph.on("spark", progress=lambda stage, done, total, unit: stages.append(stage))
        assert there.maintenance.verify().is_sound
        assert "verifying" in stages
        stages.clear()
        assert there.acting_as("ann").maintenance.optimize().commit is not None
        assert {"compacting", "types optimized"} <= {*stages}
        stages.clear()
        graph.maintenance.verify()
        assert stages == []


def test_graph_on_contradicting_places_is_refused(tmp_path: Path) -> None:
    with og.init(tmp_path / "g.omni", "node P { name: String @key }") as graph:
        with pytest.raises(UsageError, match="unknown engine"):
            graph.on("abacus")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="omit `master`"):
            graph.on("local", master="local[1]")
