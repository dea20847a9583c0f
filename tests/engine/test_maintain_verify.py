"""Verify: a sound graph has no errors, and each kind of damage is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.maintain import verify
from omnigraph.engine.maintain.verify_ids import TypeScan, scan_in_process
from omnigraph.engine.session import View
from omnigraph.engine.tasks import reporting_to
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import EdgeType, NodeType, TypeKey
from omnigraph.manifest.model import Snapshot
from omnigraph.manifest.plan import Effect, Plan
from omnigraph.store.write.transaction import append
from tests.support.graph_template import copy_built

SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person"


def build(path: Path) -> Graph:
    graph = og.init(path, SCHEMA)
    graph.ingest([{"type": "Person", "data": {"name": name}} for name in "ab"])
    graph.ingest([{"edge": "Knows", "from": "a", "to": "b"}])
    graph.branches.create("review")
    return graph


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return copy_built(build, tmp_path / "g.omni")


def put(graph: Graph, key: TypeKey, row: dict[str, str]) -> None:
    """Publish a row without asking any rule."""

    def prepare(snapshot: Snapshot) -> Plan:
        dataset = session_of(graph).kernel.writable(snapshot, key)
        change = append(dataset, pa.Table.from_pylist([row], schema=dataset.schema))
        return Plan("damage", (Effect(key, dataset, (change,)),))

    session_of(graph).kernel.commit("main", prepare)


def errors(graph: Graph) -> list[str]:
    return [one.message for one in graph.maintenance.verify().findings if one.severity == "error"]


def test_verify_sound_graph_has_no_findings(graph: Graph) -> None:
    report = graph.maintenance.verify()
    assert (report.is_sound, report.findings) == (True, ())


def test_verify_id_that_comes_twice_is_found(graph: Graph) -> None:
    put(graph, TypeKey("node:Person"), {"id": "a", "name": "a"})
    assert errors(graph) == ["ids are missing or come twice"]


def test_verify_edge_without_end_is_found(graph: Graph) -> None:
    put(graph, TypeKey("edge:Knows"), {"id": "e", "src": "a", "dst": "nobody"})
    assert errors(graph) == ["`dst` of 1 edges names no `Person`"]


def test_verify_lost_file_is_found_on_every_branch(graph: Graph) -> None:
    folder = Path(graph.uri, graph.snapshot().state.pins[TypeKey("node:Person")].path, "data")
    for file in folder.iterdir():
        file.unlink()
    report = og.open(graph.uri, read_only=True).maintenance.verify()
    assert {one.branch for one in report.findings if one.severity == "error"} == {"main", "review"}


def test_verify_stray_file_is_counted(graph: Graph) -> None:
    Path(graph.uri, graph.snapshot().state.pins[TypeKey("node:Person")].path, "data", "stray.lance").write_bytes(
        b"12345"
    )
    graph.close()
    report = og.open(graph.uri).maintenance.verify()
    assert (report.is_sound, report.unreferenced_files, report.unreferenced_bytes) == (True, 1, 5)


@pytest.mark.slow
def test_verify_branch_deleted_meanwhile_is_left_out(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    put(graph, TypeKey("node:Person"), {"id": "a", "name": "a"})
    graph.branches.create("worse")

    def look_then_delete(
        view: View, types: Sequence[NodeType | EdgeType]
    ) -> Mapping[TypeKey, TypeScan | OmniGraphError]:
        if view.snapshot.branch == "main":
            og.open(graph.uri).branches.delete("review")
        return scan_in_process(view, types)

    monkeypatch.setattr(verify, "scan_in_process", look_then_delete)
    findings = graph.maintenance.verify().findings
    assert [one.branch for one in findings] == ["main", "worse"]


def test_verify_tells_what_is_done_up_to_the_end(graph: Graph) -> None:
    told: list[tuple[str, int, int]] = []
    with reporting_to(lambda *update: told.append(update[:3])):
        graph.maintenance.verify()
    types = [("types read", 1, 2), ("types read", 2, 2)]
    # The branch shares everything with main, so there is nothing left to read for it.
    assert told == [*types, ("branches verified", 1, 2), ("branches verified", 2, 2)]
