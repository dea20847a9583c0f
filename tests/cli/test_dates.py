"""Dates in histories, differences and conflicts are shown as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli import main

SCHEMA = "node Person { name: String @key  born: Date?  seen: DateTime?  days: [Date]? }"
OLD = {"name": "ann", "born": "2024-02-03", "seen": "2024-01-02T03:04:05.678Z", "days": ["1969-12-31"]}
NEW = {**OLD, "seen": "2025-01-02T03:04:05Z"}


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> og.Graph:
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMNIGRAPH_STORE", str(tmp_path / "g.omni"))
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    graph.ingest([{"type": "Person", "data": OLD}])
    graph.ingest([{"type": "Person", "data": NEW}])
    return graph


UPDATED = 'seen "2024-01-02T03:04:05.678Z" → "2025-01-02T03:04:05.000Z"'


@pytest.mark.parametrize(
    "arguments",
    [
        ["log", "Person", "ann"],
        ["diff", "HEAD~1", "main"],
        ["commit", "changes", "HEAD"],
        ["changes", "poll", "--start", "after:HEAD~1"],
    ],
)
def test_update_shows_both_instants(arguments: list[str], graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    if arguments[0] == "changes":
        arguments = [*arguments[:-1], f"after:{graph.commits()[1].commit_id}"]
    assert main(arguments) == 0
    assert UPDATED in capsys.readouterr().out


def test_log_and_blame_show_days_and_lists(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "Person", "ann"]) == 0
    assert 'insert: born "2024-02-03", days ["1969-12-31"], name "ann"' in capsys.readouterr().out
    blame = graph.blame("Person", "ann")
    assert blame["born"].value == "2024-02-03"
    assert blame["seen"].value == "2025-01-02T03:04:05.000Z"
    assert blame["days"].value == ["1969-12-31"]


def test_conflict_shows_both_days(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    graph.branches.create("review")
    for branch, day in (("main", "2024-05-01"), ("review", "2024-06-01")):
        graph.ingest([{"type": "Person", "data": {**NEW, "born": day}}], branch=branch)
    assert main(["branch", "merge", "review"]) == 1
    assert 'born: ours "2024-05-01", theirs "2024-06-01"' in capsys.readouterr().err
    assert main(["branch", "merge", "review", "--dry-run"]) == 1
    assert 'born: ours "2024-05-01", theirs "2024-06-01"' in capsys.readouterr().out
