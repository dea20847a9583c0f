"""One broken type never stops the maintenance of others, and every report names it with what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.engine.maintain import repair as repair_module
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph
from omnigraph.lang.catalog import TypeKey
from omnigraph.store.files.manifest_file import UnknownManifest
from tests.support.graph_template import copy_built
from tests.support.maintenance_fixtures import hours_later

pytestmark = pytest.mark.slow

SCHEMA = """
node Person { name: String @key @index }
node City { name: String @key @index }
edge Knows: Person -> Person { since: I32? @index }
edge Near: City -> City
"""
BROKEN = ("node:Person", "edge:Knows")
SOUND = ("node:City", "edge:Near")


def build(root: Path) -> Graph:
    graph = og.init(root, SCHEMA)
    add_all(graph, "abc")
    graph.maintenance.optimize()
    add_all(graph, "de")
    return graph


def add_all(graph: Graph, names: str) -> None:
    for name in names:
        graph.ingest([{"type": type_, "data": {"name": name}} for type_ in ("Person", "City")])
        graph.ingest([{"edge": edge, "from": "a", "to": name} for edge in ("Knows", "Near")])


def manifest(folder: Path, version: int) -> Path:
    return folder / "_versions" / f"{2**64 - 1 - version}.manifest"


def remove_pinned_version(folder: Path, version: int) -> None:
    manifest(folder, version).unlink()


def damage_pinned_version(folder: Path, version: int) -> None:
    manifest(folder, version).write_bytes(b"no manifest")


def add_damaged_version(folder: Path, version: int) -> None:
    manifest(folder, version + 1).write_bytes(b"no manifest")


def remove_data(folder: Path, _: int) -> None:
    for file in (folder / "data").iterdir():
        file.unlink()


def remove_indexes(folder: Path, _: int) -> None:
    files = [file for file in (folder / "_indices").rglob("*") if file.is_file()]
    assert files
    for file in files:
        file.unlink()


def remove_retained_version(folder: Path, version: int) -> None:
    manifest(folder, version - 1).unlink()


Damage = Callable[[Path, int], None]
# What keeps the newest state from being read, or from being written to.
OUTAGES: tuple[Damage, ...] = (remove_pinned_version, damage_pinned_version, add_damaged_version, remove_data)
DAMAGES: tuple[Damage, ...] = (*OUTAGES, remove_indexes, remove_retained_version)


def break_type(root: Path, type_key: str, damage: Damage) -> Graph:
    graph = copy_built(build, root)
    pin = graph.snapshot().state.pins[TypeKey(type_key)]
    # The last staged names go with the handle; until then a version would be linked again.
    graph.close()
    damage(Path(graph.uri, pin.path), pin.version)
    return og.open(graph.uri)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("type_key", BROKEN)
def test_broken_type_is_named_and_others_are_maintained(tmp_path: Path, type_key: str, damage: Damage) -> None:
    graph = break_type(tmp_path / "g.omni", type_key, damage)
    is_outage = damage in OUTAGES
    findings = graph.maintenance.verify().findings
    assert {str(finding.type_key) for finding in findings if finding.severity == "error"} <= {type_key}
    if is_outage:
        assert type_key in {str(finding.type_key) for finding in findings}
    check_repair(graph, type_key, is_outage)
    optimized = {str(row.type_key): row for row in graph.maintenance.optimize().types}
    assert all(optimized[key].committed for key in SOUND)
    assert (optimized[type_key].skipped is not None) == is_outage
    with hours_later():
        rows = {row.type_key: row for row in graph.maintenance.cleanup(keep=3, confirm=True).datasets}
    assert all(rows[key].error is None and rows[key].versions_removed > 0 for key in SOUND)
    if damage is remove_retained_version:
        # Named if a state that is kept needs it; otherwise nothing is wrong any more.
        assert rows[type_key].error_code in (None, "graph.corrupt")
    else:
        assert (rows[type_key].error_code is not None) == is_outage
    with og.open(graph.uri) as again:
        assert len(again.query("match { $c: City } return { $c.name }").rows()) == 5


def check_repair(graph: Graph, type_key: str, is_outage: bool) -> None:
    """Check that repair judges all types, and says of the broken one what to do."""
    rows = {str(row.type_key): row for row in graph.maintenance.repair().types}
    assert rows.keys() == {*BROKEN, *SOUND}
    assert all(rows[key].classification == "no_drift" for key in rows.keys() - {type_key})
    assert (rows[type_key].classification == "unverifiable") == is_outage
    if is_outage:
        assert any(word in (rows[type_key].error or "") for word in ("backup", "discard"))
    report = graph.maintenance.repair(confirm=True, force=True)
    assert report.is_refused == is_outage
    assert report.commit is None


@pytest.mark.parametrize("type_key", BROKEN)
def test_damaged_newer_version_is_discarded(tmp_path: Path, type_key: str) -> None:
    graph = break_type(tmp_path / "g.omni", type_key, add_damaged_version)
    report = graph.maintenance.repair(confirm=True, discard=True)
    assert {str(row.type_key) for row in report.types if row.action == "discarded"} == {type_key}
    add_all(graph, "f")
    assert [finding for finding in graph.maintenance.verify().findings if finding.severity == "error"] == []


def test_repair_that_stops_at_a_damaged_manifest_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(Exception):
        """An exception that nothing raises."""

    graph = break_type(tmp_path / "g.omni", "node:Person", damage_pinned_version)
    monkeypatch.setattr(repair_module, "UnknownManifest", Other)
    with pytest.raises((UnknownManifest, OmniGraphError)):
        check_repair(graph, "node:Person", True)
