"""Maintenance from the command line: what is printed, what is asked for, and exit statuses."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import lance
import pytest

import omnigraph as og
from omnigraph.cli import main
from omnigraph.engine.maintain.maintenance import Reconciler
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest.intents import exclusive_intent
from tests.support.forked_python import ForkedPython

pytestmark = pytest.mark.slow


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "g.omni", "node Person { name: String @key }")
    for name in "ab":
        graph.ingest([{"type": "Person", "data": {"name": name}}])
    return graph


def told(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> dict[str, object]:
    assert main([*arguments, "--json"]) == status
    answer: dict[str, object] = json.loads(capsys.readouterr().out)
    return answer


def test_optimize_prints_types_and_commit(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", graph.uri]) == 0
    assert "commit 0" in capsys.readouterr().out
    answer = told(capsys, "optimize", graph.uri)
    assert (answer["commit"], answer["uri"]) == (None, graph.uri)


def test_repair_refusal_is_status_one(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    lance.dataset(f"{graph.uri}/{graph.snapshot().state.pins[TypeKey('node:Person')].path}").delete("true")
    assert main(["repair", graph.uri]) == 0
    assert "suspicious" in capsys.readouterr().out
    answer = told(capsys, "repair", graph.uri, "--confirm", status=1)
    assert (answer["confirm"], answer["graph_manifest_version"]) == (True, None)
    assert main(["repair", graph.uri, "--discard", "--confirm"]) == 0


def test_cleanup_without_confirm_only_says_the_policy(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cleanup", "no/such/graph", "--keep", "3"]) == 0
    assert "keep the newest 3" in capsys.readouterr().err
    answer = told(capsys, "cleanup", graph.uri, "--older-than", "7d", "--dry-run")
    assert (answer["older_than_secs"], answer["dry_run"]) == (604_800.0, True)
    assert main(["cleanup", graph.uri, "--keep", "1", "--confirm"]) == 0


@pytest.mark.parametrize("arguments", [["--confirm"], ["--older-than", "soon", "--confirm"]])
def test_cleanup_wrong_policy_is_refused(graph: Graph, arguments: list[str]) -> None:
    assert main(["cleanup", graph.uri, *arguments]) == 1


def test_cleanup_remote_needs_yes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cleanup", "s3://bucket/g", "--keep", "1", "--confirm", "--json"]) == 1
    assert "--yes" in capsys.readouterr().out


def test_verify_unsound_graph_is_status_one(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "verify", graph.uri)["sound"] is True
    data = Path(graph.uri) / graph.snapshot().state.pins[TypeKey("node:Person")].path / "data"
    for file in data.iterdir():
        file.unlink()
    assert main(["verify", graph.uri]) == 1
    assert "the graph is damaged" in capsys.readouterr().out


def on_a_terminal(*arguments: str) -> tuple[int, str]:
    """Run the command line in a process whose standard error is a terminal; return its status and what it drew."""
    master, slave = pty.openpty()
    drawn = b""
    with ForkedPython(
        [sys.executable, "-m", "omnigraph", *arguments], stderr=slave, stdout=subprocess.DEVNULL, stdin=slave
    ) as process:
        os.close(slave)
        # A terminal whose other side has gone answers with an error instead of an end.
        with suppress(OSError):
            while chunk := os.read(master, 65_536):
                drawn += chunk
    os.close(master)
    return process.returncode, drawn.decode()


def test_maintenance_on_a_terminal_shows_how_far_it_is(graph: Graph) -> None:
    for arguments, stage in (
        (["optimize", "--engine", "local"], "types optimized"),
        (["verify", "--engine", "local"], "types read"),
        (["cleanup", "--keep", "1", "--confirm"], "datasets cleaned"),
    ):
        status, drawn = on_a_terminal(arguments[0], graph.uri, *arguments[1:])
        assert (status, stage in drawn) == (0, True), drawn


def test_reconcile_tells_each_round(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reconcile", graph.uri]) == 0
    assert capsys.readouterr().out == "0 links finished; dead operations: 0 rolled forward, 0 rolled back\n"
    with exclusive_intent(session_of(graph).kernel.store, "reconcile", graph.snapshot()):
        assert main(["reconcile", graph.uri]) == 0
        assert "another process" in capsys.readouterr().out
        assert told(capsys, "reconcile", graph.uri)["skipped"] == "claimed"


def test_reconcile_every_goes_on_until_stopped(
    graph: Graph, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pause(self: Reconciler) -> None:
        if self.rounds == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Reconciler, "pause", pause)
    assert main(["reconcile", graph.uri, "--every", "30s", "--json"]) == 130
    captured = capsys.readouterr()
    rounds = [json.loads(line) for line in captured.out.splitlines()]
    assert [one["skipped"] for one in rounds] == [None, None]
    assert captured.err.endswith("stopped\n")
