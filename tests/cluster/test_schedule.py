"""A schedule follows the ledger of its cluster, and has its lease and book in the cluster's storage."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from omnigraph.cli import main
from omnigraph.cluster.applied_state import follow_applied_pipelines, schedule_book
from omnigraph.errors import ConflictError
from tests.support.cluster_folder import cluster, deploy, write_folder

PIPELINES = """\
pipelines:
  crm:
    graph: knowledge
    schedule: "0 2 * * *"
    sources: { accounts: { format: json, path: accounts } }
    nodes: { Person: { from: accounts } }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_folder(tmp_path / "team")
    config = folder / "cluster.yaml"
    config.write_text(config.read_text() + PIPELINES)
    deploy(folder)
    return folder


def test_schedule_follows_what_is_applied(folder: Path) -> None:
    read = follow_applied_pipelines(str(folder), "ada")
    first = read()
    assert first is not None
    assert (list(first), first["crm"].actor, first["crm"].graph_uri.endswith("knowledge.omni")) == (
        ["crm"],
        "ada",
        True,
    )
    config = folder / "cluster.yaml"
    config.write_text(config.read_text() + PIPELINES.partition("pipelines:\n")[2].replace("crm", "erp"))
    assert read() is None, "what is declared waits for the next apply"
    cluster(folder).apply()
    second = read()
    assert second is not None
    assert sorted(second) == ["crm", "erp"]
    assert read() is None


def test_cluster_has_one_runner_and_shows_its_book(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "schedule", "--cluster", str(folder), "--once", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pipeline"] == "crm"
    book = schedule_book(str(folder))
    entry = book.read("crm")
    assert entry is not None
    book.write("crm", replace(entry, status="failed", message="away", settled_until=entry.settled_until - timedelta(2)))
    assert main(["pipeline", "status", "--cluster", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[2].split()[:2] == ["crm", "failed"]
    with book.hold_lease(), pytest.raises(ConflictError, match="another runner"), book.hold_lease():
        pass
    # An apply is not in the way of a schedule, nor the other way round.
    with book.hold_lease():
        assert cluster(folder).apply().ok
