"""Applies that are killed at each durable write: the next apply finishes, whatever was done before."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cluster import Cluster
from tests.support.cluster_folder import apply_in_process, write_folder


def prepare(folder: Path) -> None:
    """A cluster in which one apply creates a graph, changes a schema, deletes a graph and stores queries."""
    write_folder(folder, graphs=("changed", "deleted"))
    Cluster(folder, actor="ada").import_()
    assert Cluster(folder, actor="ada").apply().members["converged"] is True
    with og.open(folder / "graphs" / "changed.omni") as graph:
        graph.mutate('query add() { insert Person { name: "Ann" } }')
    write_folder(folder, graphs=("changed", "created"))
    (folder / "person.pg").write_text("node Person { name: String @key  team: String? }\n")
    (folder / "queries" / "people.gq").write_text("query teams() { match { $p: Person } return { $p.team as team } }\n")
    assert Cluster(folder, actor="ada").approve("graph.deleted").ok


def check_finished(folder: Path) -> None:
    report = Cluster(folder, actor="ada").apply()
    assert report.ok, report.findings
    assert report.members["converged"] is True, report.to_json()
    assert Cluster(folder, actor="ada").apply().members["changes"] == []
    assert not (folder / "graphs" / "deleted.omni").exists()
    with og.open(folder / "graphs" / "changed.omni") as graph:
        assert graph.query("query q() { match { $p: Person } return { $p.name as name, $p.team as team } }").rows() == [
            {"name": "Ann", "team": None}
        ]
    with og.open(folder / "graphs" / "created.omni") as graph:
        assert "team" in graph.schema.nodes["Person"].properties
    status = Cluster(folder).status()
    assert status.ok
    assert not status.findings, status.findings


def kill_at_each(folder: Path, moment: str, *, samples: int | None) -> None:
    prepare(folder / "counted")
    counted = apply_in_process(folder / "counted", moment, 0)
    assert counted.returncode == 0, counted.stderr
    check_finished(folder / "counted")
    total = int(counted.stdout)
    stride = 1 if samples is None else max(1, total // samples)
    for number in range(1 if moment == "before" else 1 + stride // 2, total + 1, stride):
        killed_folder = folder / f"killed-{number}"
        prepare(killed_folder)
        killed = apply_in_process(killed_folder, moment, number)
        assert killed.returncode < 0, (number, killed.stdout, killed.stderr)
        check_finished(killed_folder)


@pytest.mark.slow
def test_a_killed_apply_is_finished_by_the_next(tmp_path: Path) -> None:
    kill_at_each(tmp_path, "after", samples=2)


@pytest.mark.long
@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_apply_killed_at_any_durable_write_is_finished_by_the_next(tmp_path: Path, moment: str) -> None:
    kill_at_each(tmp_path, moment, samples=None)
