"""Repair: drift is shown, taken over, refused or thrown away; nothing is settled without being asked for."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.maintain.repair import TypeRepaired
from omnigraph.errors import DriftDetected, UsageError
from omnigraph.graph import Graph

SCHEMA = "node Person { name: String @key  age: I32? }\nnode City { name: String @key }"
PERSON = "node:Person"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    for name in "abc":
        graph.ingest([{"type": "Person", "data": {"name": name}}])
    return graph


def by_path(graph: Graph) -> lance.LanceDataset:
    return lance.dataset(f"{graph.uri}/{graph.snapshot().state.pins[PERSON].path}")


def person(graph: Graph, **options: bool) -> TypeRepaired:
    [row] = [one for one in graph.repair("main", **options).types if one.type_key == PERSON]
    return row


def people(graph: Graph) -> object:
    return og.open(graph.uri).query("query q() { match { $p: Person } return { count($p) as n } }").rows()[0]["n"]


def is_writable(graph: Graph) -> bool:
    try:
        graph.mutate('query q() { update Person set { age: 1 } where name = "b" }')
    except DriftDetected:
        return False
    return True


def test_repair_without_drift_is_nothing(graph: Graph) -> None:
    report = graph.repair(confirm=True)
    assert {(one.classification, one.action) for one in report.types} == {("no_drift", "no_op")}
    assert report.commit is None


def test_repair_compaction_is_previewed_then_healed(graph: Graph) -> None:
    by_path(graph).optimize.compact_files()
    head = graph.snapshot().version
    row = person(graph)
    assert (row.classification, row.action) == ("verified_maintenance", "preview")
    assert row.operations == ("ReserveFragments", "Rewrite")
    assert graph.snapshot().version == head
    assert person(graph, confirm=True).action == "healed"
    assert graph.commits()[0].kind == "repair"
    assert (people(graph), is_writable(graph)) == (3, True)
    assert person(graph).classification == "no_drift"


def test_repair_delete_is_refused_until_forced(graph: Graph) -> None:
    by_path(graph).delete("id = 'a'")
    assert not is_writable(graph)
    refused = graph.repair(confirm=True)
    assert refused.is_refused
    assert refused.commit is None
    row = person(graph, confirm=True, force=True)
    assert (row.classification, row.action, row.operations) == ("suspicious", "forced", ("Delete",))
    assert (people(graph), is_writable(graph)) == (2, True)


def test_repair_missing_transaction_is_unverifiable(graph: Graph) -> None:
    dataset = by_path(graph)
    dataset.delete("id = 'a'")
    for file in Path(dataset.uri, "_transactions").glob(f"{dataset.version - 1}-*"):
        file.unlink()
    assert person(graph, confirm=True).classification == "unverifiable"


def test_repair_discard_puts_the_published_version_back(graph: Graph) -> None:
    by_path(graph).delete("id = 'a'")
    by_path(graph).delete("id = 'b'")
    assert person(graph, confirm=True, discard=True).action == "discarded"
    assert person(graph).classification == "no_drift"
    assert (people(graph), is_writable(graph)) == (3, True)


def test_repair_foreign_columns_are_refused_even_with_force(graph: Graph) -> None:
    lance.write_dataset(pa.table({"id": ["a"]}), by_path(graph).uri, mode="overwrite")
    row = person(graph, confirm=True, force=True)
    assert (row.action, "discarded" in (row.error or "")) == ("refused", True)
    assert person(graph, confirm=True, discard=True).action == "discarded"
    assert (people(graph), is_writable(graph)) == (3, True)


@pytest.mark.parametrize("options", [{"force": True}, {"discard": True}])
def test_repair_without_confirm_is_refused(graph: Graph, options: dict[str, bool]) -> None:
    with pytest.raises(UsageError, match="confirm"):
        graph.repair("main", **options)
