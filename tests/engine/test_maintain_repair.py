"""Repair: drift is shown, taken over, refused or thrown away; nothing is settled without being asked for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.engine.maintain import repair as module
from omnigraph.engine.maintain.repair import TypeRepaired
from omnigraph.engine.session import GraphSession
from omnigraph.errors import ConflictError, DriftDetected, GraphError, StorageError, UsageError, VersionMismatch
from omnigraph.failpoints import Point
from omnigraph.graph import Graph, session_of
from omnigraph.ids import OperationId, new_ulid
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest import recovery
from omnigraph.manifest.intents import exclusive_intent
from omnigraph.manifest.model import Snapshot
from tests.support.failpoint_actions import fail_with
from tests.support.maintenance_fixtures import hours_later

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

    def look_then_adopt(session: GraphSession, snapshot: Snapshot) -> list[TypeRepaired]:
        rows = look(session, snapshot)
        if session.kernel is session_of(graph).kernel and not adopted:
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


def remove_history(graph: Graph) -> None:
    """Let another tool compact the people and remove all but the newest version."""
    by_path(graph).optimize.compact_files()
    by_path(graph).cleanup_old_versions(older_than=timedelta(0))


@pytest.mark.parametrize("is_closed", [True, False])
def test_repair_lost_version_is_adopted_with_force(graph: Graph, is_closed: bool) -> None:
    if is_closed:
        # The last staged name goes with the handle; until then the version would be linked again.
        graph.close()
    remove_history(graph)
    graph = og.open(graph.uri)
    row = person(graph)
    assert (row.classification, row.action, row.is_lost) == ("unverifiable", "preview", True)
    assert "repair" in " ".join(finding.message for finding in graph.maintenance.verify().findings)
    assert graph.maintenance.repair(confirm=True).is_refused
    refused = person(graph, confirm=True, discard=True)
    assert (refused.action, "force" in (refused.error or "")) == ("refused", True)
    assert person(graph, confirm=True, force=True).action == "forced"
    assert (people(graph), is_writable(graph)) == (3, True)
    assert graph.maintenance.verify(data=True).is_sound


def test_read_of_a_lost_version_names_repair(graph: Graph) -> None:
    graph.close()
    remove_history(graph)
    with pytest.raises(GraphError, match="omnigraph repair") as caught:
        og.open(graph.uri).query("query q() { match { $p: Person } return { $p.name } }")
    assert caught.value.code == "graph.version_lost"


def test_read_of_a_deleted_branch_after_cleanup_is_reclaimed_not_lost(graph: Graph) -> None:
    graph.branches.create("b")
    commit = graph.ingest([{"type": "Person", "data": {"name": "d"}}], branch="b").commit
    assert commit is not None
    fork = graph.snapshot("b").state.pins[PERSON].ref
    graph.branches.delete("b")
    graph.close()
    # Cleanup goes by the age of files, so the catalog of a deleted branch may outlive its data.
    for manifest in Path(graph.uri, fork.directory, "_versions").iterdir():
        manifest.unlink()
    with pytest.raises(GraphError) as caught:
        og.open(graph.uri).query("query q() { match { $p: Person } return { $p.name } }", at=commit.commit_id)
    assert caught.value.code == "graph.version_reclaimed"


def test_repair_without_a_newer_version_says_what_to_do(graph: Graph) -> None:
    for file in Path(by_path(graph).uri, "data").iterdir():
        file.unlink()
    row = person(graph, confirm=True, force=True)
    assert (row.classification, row.action) == ("unverifiable", "refused")
    assert "clone or a backup" in (row.error or "")


def test_repair_sees_versions_behind_a_gap(graph: Graph) -> None:
    published = by_path(graph).version
    by_path(graph).delete("id = 'a'")
    by_path(graph).delete("id = 'b'")
    Path(by_path(graph).uri, "_versions", f"{2**64 - 2 - published}.manifest").unlink()
    assert not is_writable(graph)
    row = person(graph)
    assert (row.head_version, row.classification) == (published + 2, "unverifiable")
    assert [finding.severity for finding in graph.maintenance.verify().findings] == ["note"]
    assert person(graph, confirm=True, discard=True).action == "discarded"
    assert (people(graph), is_writable(graph)) == (3, True)


def test_broken_type_does_not_stop_maintenance_of_others(graph: Graph) -> None:
    for name in "xyz":
        graph.ingest([{"type": "City", "data": {"name": name}}])
    Path(by_path(graph).uri, "_versions", f"{2**64 - 2}.manifest").unlink()
    with hours_later():
        rows = {row.type_key: row for row in graph.maintenance.cleanup(keep=100, confirm=True).datasets}
    assert rows["node:Person"].error_code == "graph.corrupt"
    assert rows["node:City"].error is None
    with hours_later(4):
        # The states that need the missing version go by age, so nothing is wrong with the type any more.
        rows = {row.type_key: row for row in graph.maintenance.cleanup(keep=2, confirm=True).datasets}
    assert rows["node:City"].versions_removed > 0
    assert rows["node:Person"].error is None


def test_optimize_leaves_out_a_type_that_cannot_be_read(graph: Graph) -> None:
    for name in "xyz":
        graph.ingest([{"type": "City", "data": {"name": name}}])
    graph.close()
    for file in Path(by_path(graph).uri, "data").iterdir():
        file.unlink()
    graph = og.open(graph.uri)
    rows = {row.type_key.name: row for row in graph.maintenance.optimize().types}
    assert (rows["Person"].skipped, rows["Person"].error is not None) == ("unreadable", True)
    assert (rows["City"].skipped, rows["City"].committed) == (None, True)
    assert rows["City"].published_version == graph.snapshot().state.pins[TypeKey("node:City")].version
