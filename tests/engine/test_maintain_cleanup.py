"""Cleanup: what is asked for goes, what must stay stays, and what is gone says so."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.engine.maintain import retention
from omnigraph.errors import GraphError, ReachabilityDisputed, StorageError, UsageError
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import TAIL_FRAGMENTS_MAX
from omnigraph.manifest import history, recovery
from omnigraph.manifest.encoding import CatalogPins, read_pins
from omnigraph.manifest.history import LOG_PATH
from omnigraph.manifest.intents import declared
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import Snapshot
from omnigraph.manifest.recovery import AUDIT_PATH, AuditRow, Outcome
from omnigraph.store.objects.backend import ObjectInfo
from omnigraph.store.objects.control_objects import Objects
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.store import Store
from omnigraph.store.write.fragments import scan_whole_rows
from tests.support.maintenance_fixtures import hours_later
from tests.support.s3_server import S3Server, s3_server

pytestmark = pytest.mark.slow

__all__ = ["s3_server"]
SCHEMA = "node Person { name: String @key  age: I32? }\nnode City { name: String @key }"
NAMES = "query q() { match { $p: Person } return { $p.name as name } order { name asc } }"
COUNT = "query q() { match { $p: Person } return { count($p) as n } }"


def person(graph: Graph, name: str, branch: str = "main") -> str:
    receipt = graph.ingest([{"type": "Person", "data": {"name": name}}], branch=branch)
    assert receipt.commit is not None
    return receipt.commit.commit_id


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    for name in "abcdef":
        person(graph, name)
    return graph


def readable(graph: Graph) -> list[int]:
    """Return how many people each commit of main that can still be read has, oldest first."""
    fresh, counts = og.open(graph.uri), []
    for commit in reversed(fresh.commits()):
        try:
            counts.append(fresh.query(COUNT, at=commit.commit_id).rows()[0]["n"])
        except GraphError as error:
            if error.code != "graph.version_reclaimed":
                raise
    return counts


def test_cleanup_keep_leaves_exactly_the_newest(graph: Graph) -> None:
    with hours_later():
        report = graph.maintenance.cleanup(keep=3, confirm=True)
    assert readable(graph) == [4, 5, 6]
    by_key = {one.type_key: one for one in report.datasets}
    assert by_key["__manifest"].versions_removed == 4
    assert by_key["node:Person"].versions_removed == 4
    assert by_key["node:City"].versions_removed == 0
    assert all(one.error is None for one in report.datasets)
    person(graph, "g")
    assert readable(graph) == [4, 5, 6, 7]


def test_cleanup_branch_deleted_while_it_looks_is_left_out(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    other, snapshot = og.open(graph.uri), Kernel.snapshot
    other.branches.create("gone")
    other.branches.create("away")

    def delete_then_look(store: Store, catalogs: Sequence[DatasetRef]) -> CatalogPins:
        if "gone" in other.branches.list():
            other.branches.delete("gone")
            shutil.rmtree(Path(graph.uri, "__manifest", "tree", next(ref.branch for ref in catalogs if ref.branch)))
        return read_pins(store, catalogs)

    def delete_then_open(kernel: Kernel, branch: str = "main") -> Snapshot:
        if branch == "away" and kernel is session_of(graph).kernel and "away" in other.branches.list():
            other.branches.delete("away")
        return snapshot(kernel, branch)

    monkeypatch.setattr(retention, "read_pins", delete_then_look)
    monkeypatch.setattr(Kernel, "snapshot", delete_then_open)
    with hours_later():
        graph.maintenance.cleanup(keep=3, confirm=True)
    assert other.branches.list() == ["main"]
    assert readable(graph) == [4, 5, 6]


def test_cleanup_audit_begun_while_it_looks_stays(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def begin_then_look(store: Store, catalogs: Sequence[DatasetRef]) -> CatalogPins:
        recovery.record_outcome(store, AuditRow("01", Outcome.ROLLED_BACK, None, None, "load"))
        return read_pins(store, catalogs)

    monkeypatch.setattr(retention, "read_pins", begin_then_look)
    with hours_later():
        report = graph.maintenance.cleanup(keep=3, confirm=True)
    assert AUDIT_PATH not in {one.type_key for one in report.datasets}
    assert len(recovery.read_audit(session_of(graph).kernel.store)) >= 1


def full_log(graph: Graph) -> DatasetRef:
    """Write to the log until the next append folds it, and return the version that somebody may be about to read."""
    for _ in range(TAIL_FRAGMENTS_MAX + 1):
        spill_first(graph)
    return session_of(graph).kernel.store.open_latest(LOG_PATH, None).ref


def spill_first(graph: Graph) -> None:
    history.spill(session_of(graph).kernel.store, session_of(graph).kernel.snapshot().state.commits[:1])


def test_cleanup_log_folded_a_moment_ago_can_be_read_on(graph: Graph) -> None:
    held = full_log(graph)
    for file in Path(graph.uri, LOG_PATH).rglob("*"):
        os.utime(file, (0, 0))
    spill_first(graph)
    report = graph.maintenance.cleanup(keep=1, confirm=True)
    assert session_of(og.open(graph.uri)).kernel.store.open(held).read().num_rows == TAIL_FRAGMENTS_MAX + 1
    # Those before it can go: whoever began to read them is long done.
    assert next(one for one in report.datasets if one.type_key == LOG_PATH).versions_removed == TAIL_FRAGMENTS_MAX


def test_cleanup_log_folded_long_ago_loses_its_small_files(graph: Graph) -> None:
    held = full_log(graph)
    spill_first(graph)
    with hours_later():
        before = graph.maintenance.cleanup(keep=1, dry_run=True)
        report = graph.maintenance.cleanup(keep=1, confirm=True)
    row = next(one for one in report.datasets if one.type_key == LOG_PATH)
    assert row in before.datasets
    # One manifest and transaction for each version that went, and one file for each append before the fold.
    assert row.files_removed >= 2 * (TAIL_FRAGMENTS_MAX + 2) + TAIL_FRAGMENTS_MAX + 1
    store = session_of(og.open(graph.uri)).kernel.store
    assert len(store.open_latest(LOG_PATH, None).fragments) == 2
    assert set(history.read(store)) == {graph.commits()[-1].commit_id}
    with pytest.raises(StorageError):
        store.open(held)


def test_cleanup_files_listed_after_their_version_are_looked_for(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    data = f"{graph.snapshot().state.pins[TypeKey('node:Person')].path}/data"
    listing = Objects.list

    def too_early(objects: Objects, prefix: str) -> list[ObjectInfo]:
        found = listing(objects, prefix)
        return found if prefix else [one for one in found if not one.path.startswith(data)]

    monkeypatch.setattr(Objects, "list", too_early)
    with hours_later():
        assert graph.maintenance.cleanup(keep=3, dry_run=True).datasets
        assert all(one.error is None for one in graph.maintenance.cleanup(keep=3, confirm=True).datasets)
    assert readable(graph) == [4, 5, 6]


def test_cleanup_dry_run_says_exactly_what_goes(graph: Graph) -> None:
    def held() -> dict[str, int]:
        return {one.path: one.size_bytes for one in session_of(graph).kernel.store.objects.list("")}

    before = held()
    with hours_later():
        preview = graph.maintenance.cleanup(keep=2, dry_run=True)
        assert held() == before
        done = graph.maintenance.cleanup(keep=2, confirm=True)
    assert preview.to_json() == done.to_json() | {"dry_run": True}
    gone = before.keys() - held().keys()
    assert sum(one.files_removed for one in done.datasets) + done.swept.files_removed == len(gone)
    assert done.bytes_removed == sum(before[path] for path in gone) > 0


def test_cleanup_nothing_said_is_refused(graph: Graph) -> None:
    with pytest.raises(UsageError, match="retention rule"):
        graph.maintenance.cleanup()


def test_cleanup_both_given_needs_both_to_let_go(graph: Graph) -> None:
    with hours_later():
        graph.maintenance.cleanup(keep=1, older_than=timedelta(hours=3), confirm=True)
    assert readable(graph) == [0, 1, 2, 3, 4, 5, 6]


def test_cleanup_that_keeps_nothing_is_refused(graph: Graph) -> None:
    with hours_later(), pytest.raises(UsageError, match="the newest commit of each branch always stays; keep 1"):
        graph.maintenance.cleanup(keep=0)
    assert readable(graph) == [0, 1, 2, 3, 4, 5, 6]


def test_cleanup_again_removes_nothing(graph: Graph) -> None:
    with hours_later():
        graph.maintenance.cleanup(keep=2, confirm=True)
        again = graph.maintenance.cleanup(keep=2, confirm=True)
    assert again.bytes_removed == 0


# -- what must stay, each with the fault that would lose it -----------------------------------------------------


def _tag(graph: Graph) -> object:
    graph.tags.create("v1", graph.commits()[-3].commit_id)
    return None


def _branch(graph: Graph) -> object:
    graph.branches.create("old", at=graph.commits()[-3].commit_id)
    person(graph, "x", "old")
    return None


def _intent(graph: Graph) -> object:
    held = declared(
        session_of(graph).kernel.store, "load", session_of(graph).kernel.at_commit(graph.commits()[-3].commit_id)
    )
    held.__enter__()
    return held


@pytest.mark.parametrize("protect", [_tag, _branch, _intent])
def test_cleanup_protected_version_stays(graph: Graph, protect: Callable[[Graph], object]) -> None:
    held = protect(graph)
    with hours_later():
        graph.maintenance.cleanup(keep=1, confirm=True)
    # Live work also keeps what was current since it began; here it began last, so only its base counts.
    assert readable(graph) == [2, 6]
    for name in graph.branches.list():
        assert b"".join(graph.export(name))
    assert held is None or hasattr(held, "__exit__")


@pytest.mark.parametrize("protect", [_tag, _branch, _intent])
@pytest.mark.sampled(1)
def test_cleanup_that_forgets_what_is_protected_is_caught(
    graph: Graph, protect: Callable[[Graph], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    protect(graph)
    monkeypatch.setattr(retention, "fixed_versions", lambda commits, snapshots, intents: set())
    if protect is _branch:
        with hours_later(), pytest.raises(ReachabilityDisputed, match="merges of `main` and `old` start from"):
            graph.maintenance.cleanup(keep=1, confirm=True)
        monkeypatch.setattr(retention, "check_mergeable", lambda *_: None)
    with hours_later():
        graph.maintenance.cleanup(keep=1, confirm=True)
    assert readable(graph) != [2, 6]


def test_cleanup_last_minutes_stay(graph: Graph) -> None:
    graph.maintenance.cleanup(keep=1, confirm=True)
    assert readable(graph) == [0, 1, 2, 3, 4, 5, 6]


def test_cleanup_that_forgets_the_deadline_is_caught(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "DEADLINE_US", 0)
    monkeypatch.setattr(retention, "DEADLINE_US", 0)
    graph.maintenance.cleanup(keep=1, confirm=True)
    assert readable(graph) == [6]


def test_cleanup_adopted_fork_outlives_its_branch(graph: Graph) -> None:
    for name in ("source", "target"):
        graph.branches.create(name)
    person(graph, "s", "source")
    graph.branches.merge("source", "target", delete_branch=True)
    with hours_later():
        graph.maintenance.cleanup(keep=1, confirm=True)
    assert og.open(graph.uri).query(COUNT, branch="target").rows() == [{"n": 7}]


def test_cleanup_dropped_type_goes_with_the_last_version_that_shows_it(graph: Graph) -> None:
    path = graph.snapshot().state.pins[TypeKey("node:City")].path
    graph.schema.apply(SCHEMA.splitlines()[0], allow_data_loss=True)
    with hours_later():
        graph.maintenance.cleanup(keep=1, confirm=True)
    left = [one.path for one in session_of(graph).kernel.store.objects.list(path) if "hint" not in one.path]
    assert left == []
    assert readable(graph) == [6]


def people(graph: Graph, branch: str) -> list[object]:
    return [row["name"] for row in graph.query(NAMES, branch=branch).rows()]


def branch_over_old_files(graph: Graph) -> None:
    """Let main move on from files that only a branch still reads."""
    graph.branches.create("x")
    person(graph, "on-x", "x")
    graph.maintenance.optimize()
    for name in "uvw":
        person(graph, name)


def test_cleanup_file_that_only_a_fork_reads_stays(graph: Graph) -> None:
    branch_over_old_files(graph)
    with hours_later():
        assert graph.maintenance.cleanup(keep=1, confirm=True).bytes_removed > 0
    # A count is known without reading any file.
    assert people(og.open(graph.uri), "x") == [*"abcdef", "on-x"]


def test_cleanup_file_that_is_not_where_storage_lists_it_keeps_its_type(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch_over_old_files(graph)
    before = {one.path for one in session_of(graph).kernel.store.objects.list("")}
    people = session_of(graph).view("main").dataset(TypeKey("node:Person"))
    lost = f"{people.ref.directory}/data/{people.fragments[0].files[0].path}"
    assert lost in before
    listed = type(session_of(graph).kernel.store.objects).list
    monkeypatch.setattr(
        type(session_of(graph).kernel.store.objects),
        "list",
        lambda self, prefix: [one for one in listed(self, prefix) if one.path != lost],
    )
    with hours_later():
        report = graph.maintenance.cleanup(keep=100, confirm=True)
    monkeypatch.undo()
    [damaged] = [row for row in report.datasets if row.error is not None]
    assert (damaged.type_key, damaged.error_code) == ("node:Person", "graph.corrupt")
    after = {one.path for one in session_of(graph).kernel.store.objects.list("")}
    assert not [path for path in before - after if path.startswith(people.ref.path)]


@pytest.mark.parametrize("read_only", [True, False])
def test_cleanup_preview_of_an_idle_graph_equals_the_run(graph: Graph, read_only: bool) -> None:
    """Nothing was written lately, so the newest file does not say what time it is."""
    with hours_later(24 * 30):
        week = timedelta(days=7)
        preview = og.open(graph.uri, read_only=read_only).maintenance.cleanup(older_than=week, dry_run=True)
        run = graph.maintenance.cleanup(older_than=week, confirm=True)
    assert preview.datasets == run.datasets
    assert preview.bytes_removed == run.bytes_removed > 0


def test_cleanup_beside_a_sweep_of_a_deleted_branch_goes_on(graph: Graph) -> None:
    graph.branches.create("short")
    graph.ingest([{"type": "Person", "data": {"name": "x"}}], branch="short")
    graph.branches.delete("short")
    (data,) = Path(graph.uri).glob("nodes/*/tree/*/data")
    # A sweep goes file by file; the version that names this one is still there.
    for file in data.iterdir():
        file.unlink()
    assert [one.error for one in graph.maintenance.cleanup(keep=1, confirm=True).datasets if one.error] == []


@pytest.mark.s3
def test_maintenance_on_s3_keeps_what_branches_read(s3_server: S3Server) -> None:
    graph = og.init(s3_server.uri("deep/g"), SCHEMA)
    for name in "abcdef":
        person(graph, name)
    branch_over_old_files(graph)
    with hours_later():
        assert graph.maintenance.cleanup(keep=1, confirm=True).bytes_removed > 0
    fresh = og.open(graph.uri)
    assert people(fresh, "main") == [*"abcdefuvw"]
    assert people(fresh, "x") == [*"abcdef", "on-x"]
    assert fresh.branches.merge("x").outcome == "merged"
    assert people(fresh, "main") == sorted([*"abcdefuvw", "on-x"])
    assert fresh.maintenance.verify().is_sound


def test_cleanup_elsewhere_is_told_to_whoever_holds_a_removed_version(graph: Graph) -> None:
    reader, old = og.open(graph.uri), graph.commits()[-3].commit_id
    held = session_of(reader).view(at=old)
    # Nothing but the open is cached, so reading the rows needs the files that are gone.
    held.dataset(TypeKey("node:Person"))
    graph.maintenance.optimize()
    with hours_later():
        graph.maintenance.cleanup(keep=1, confirm=True)
    for read in (
        lambda: held.dataset(TypeKey("node:Person")).read(),
        lambda: list(held.dataset(TypeKey("node:Person")).batches()),
        lambda: list(scan_whole_rows(held.dataset(TypeKey("node:Person")), 0, ["name"], 1)),
        lambda: reader.query(NAMES, at=old),
        lambda: reader.diff(old, "main"),
        lambda: b"".join(reader.export(at=old)),
    ):
        with pytest.raises(GraphError) as refused:
            read()
        assert refused.value.code == "graph.version_reclaimed"


def test_cleanup_without_a_confirmation_is_refused_and_deletes_nothing(tmp_path: Path) -> None:
    with og.init(tmp_path / "g.omni", "node Person { name: String @key  age: I32? }") as graph:
        for age in range(3):
            graph.ingest([{"type": "Person", "data": {"name": "ann", "age": age}}])
        files = sorted(path for path in Path(graph.uri).rglob("*") if path.is_file())
        with pytest.raises(og.UsageError, match="`confirm=True` to delete it"):
            graph.maintenance.cleanup(keep=1)
        with pytest.raises(og.UsageError, match="contradict each other"):
            graph.maintenance.cleanup(keep=1, dry_run=True, confirm=True)
        preview = graph.maintenance.cleanup(keep=1, dry_run=True)
        assert sorted(path for path in Path(graph.uri).rglob("*") if path.is_file()) == files
        assert "would be removed" in repr(preview)
