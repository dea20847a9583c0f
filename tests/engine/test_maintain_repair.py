"""Repair: drift is shown, taken over, refused or thrown away; nothing is settled without being asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.engine.maintain import repair as module
from omnigraph.engine.maintain.repair import TypeRepaired
from omnigraph.errors import ConflictError, DriftDetected, StorageError, UsageError, VersionMismatch
from omnigraph.failpoints import Point
from omnigraph.graph import Graph, session_of
from omnigraph.ids import OperationId, new_ulid
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest import recovery
from omnigraph.manifest.intents import exclusive_intent
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import Snapshot
from tests.support.failpoint_actions import fail_with

pytestmark = pytest.mark.slow

SCHEMA = "node Person { name: String @key  age: I32? }\nnode City { name: String @key }"
PERSON = TypeKey("node:Person")


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    for name in "abc":
        graph.ingest([{"type": "Person", "data": {"name": name}}])
    return graph


def by_path(graph: Graph) -> lance.LanceDataset:
    return lance.dataset(f"{graph.uri}/{graph.snapshot().state.pins[PERSON].path}")


def person(graph: Graph, **options: Any) -> TypeRepaired:
    [row] = [one for one in graph.maintenance.repair("main", **options).types if one.type_key == PERSON]
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
    report = graph.maintenance.repair(confirm=True)
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
    refused = graph.maintenance.repair(confirm=True)
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
def test_repair_without_confirm_is_refused(graph: Graph, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="confirm"):
        graph.maintenance.repair("main", **options)


def audited(graph: Graph) -> list[tuple[str, str | None, str | None]]:
    return [
        (row.outcome.value, row.commit_id, row.actor) for row in recovery.read_audit(session_of(graph).kernel.store)
    ]


def test_repair_writes_one_audit_row_for_what_it_settles(graph: Graph) -> None:
    by_path(graph).optimize.compact_files()
    graph.maintenance.repair()
    assert audited(graph) == []
    report = graph.acting_as("ann").maintenance.repair(confirm=True)
    assert report.commit is not None
    assert audited(graph) == [("Repaired", report.commit.commit_id, "ann")]
    by_path(graph).delete("id = 'a'")
    graph.maintenance.repair(confirm=True)
    assert len(audited(graph)) == 1
    graph.maintenance.repair(confirm=True, discard=True)
    assert audited(graph)[1:] == [("Repaired", None, "omnigraph:repair")]


def displace(graph: Graph) -> None:
    """Publish a version, and let a foreign tool write under its number before it is linked."""
    with failpoints.armed({Point.LINK_BEFORE: fail_with(StorageError("cut off"))}):
        graph.ingest([{"type": "Person", "data": {"name": "d"}}])
        graph.close()
    by_path(graph).delete("id = 'a'")
    by_path(graph).delete("id = 'b'")


def test_repair_version_in_the_place_of_a_published_one_is_only_discarded(graph: Graph) -> None:
    displace(graph)
    fresh = og.open(graph.uri)
    assert not is_writable(fresh)
    row = person(fresh, confirm=True, force=True)
    assert (row.classification, row.action, row.operations) == ("suspicious", "refused", ("Delete", "Delete"))
    assert [one.skipped for one in fresh.maintenance.optimize().types if one.type_key == PERSON] == [
        "drift_needs_repair"
    ]
    assert person(fresh, confirm=True, discard=True).action == "discarded"
    assert person(fresh).classification == "no_drift"
    assert (people(graph), is_writable(og.open(graph.uri))) == (4, True)


def test_repair_discard_spares_what_was_published_meanwhile(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    by_path(graph).optimize.compact_files()
    other, adopted = og.open(graph.uri), list[bool]()
    look = module._classify_all

    def look_then_adopt(kernel: Kernel, snapshot: Snapshot) -> list[TypeRepaired]:
        rows = look(kernel, snapshot)
        if kernel is session_of(graph).kernel and not adopted:
            adopted.append(True)
            # As a repair would that does not look whether it is alone.
            module._adopt(
                session_of(other).kernel,
                snapshot,
                [module._decide(row, False, False) for row in rows],
                "ada",
                new_operation(),
            )
        return rows

    monkeypatch.setattr(module, "_classify_all", look_then_adopt)
    with pytest.raises(VersionMismatch):
        graph.maintenance.repair(confirm=True, discard=True)
    monkeypatch.undo()
    assert (people(graph), is_writable(og.open(graph.uri))) == (3, True)


def new_operation() -> OperationId:
    return OperationId(new_ulid())


def test_repair_beside_another_is_refused(graph: Graph) -> None:
    with (
        exclusive_intent(session_of(graph).kernel.store, "repair", graph.snapshot()),
        pytest.raises(ConflictError, match="another"),
    ):
        graph.maintenance.repair(confirm=True)


# -- writers and repair judge alike ------------------------------------------------------------------------------------


def inherits(graph: Graph) -> None:
    """The branch reads what main published."""


def owns(graph: Graph) -> None:
    """The branch has a fork of its own."""
    insert(graph, "d", "review")


def went_back(graph: Graph) -> None:
    """The branch is where it forked from again, and its fork has moved on."""
    insert(graph, "d", "review")
    graph.mutate('query q() { delete Person where name = "d" }', branch="review")
    graph.ingest([{"type": "City", "data": {"name": "x"}}])
    graph.branches.merge("review")
    graph.branches.merge("main", "review")


def adopted(graph: Graph) -> None:
    """The branch reads the fork of another branch."""
    graph.branches.create("other")
    insert(graph, "d", "other")
    graph.branches.merge("other", "review")


def insert(graph: Graph, name: str, branch: str) -> None:
    graph.ingest([{"type": "Person", "data": {"name": name}}], branch=branch)


@pytest.mark.parametrize("state", [inherits, owns, went_back, adopted])
@pytest.mark.parametrize("is_foreign", [False, True])
def test_repair_sees_whatever_a_writer_refuses(graph: Graph, state: Callable[[Graph], None], is_foreign: bool) -> None:
    graph.branches.create("review")
    state(graph)
    pins = [graph.snapshot(branch).state.pins[PERSON] for branch in graph.branches.list()]
    for fork in {pin.fork for pin in pins} if is_foreign else ():
        dataset = by_path(graph).checkout_version((fork, None)) if fork else by_path(graph)
        dataset.optimize.compact_files()
        dataset.delete("name = 'a'")
    refused = []
    for branch in graph.branches.list():
        shown = {one.classification for one in graph.maintenance.repair(branch).types if one.type_key == PERSON}
        try:
            insert(graph, f"new-{branch}", branch)
        except DriftDetected:
            refused.append(branch)
            assert shown == {"suspicious"}, branch
            graph.maintenance.repair(branch, confirm=True, discard=True)
            insert(graph, f"new-{branch}", branch)
        else:
            assert shown == {"no_drift"}, branch
    assert bool(refused) == is_foreign
    assert graph.maintenance.verify().is_sound
