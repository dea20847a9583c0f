"""The sweep beside live and dead work: what it spares, what it rolls back, and what a preview says of both."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.errors import StorageError
from omnigraph.failpoints import Point
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest import recovery
from omnigraph.manifest import recovery as module
from omnigraph.manifest.history import LOG_PATH
from omnigraph.manifest.intents import declared, pending
from omnigraph.manifest.recovery import Claims, preview
from omnigraph.store.write.transaction import append
from tests.support.maintenance_fixtures import hours_later
from tests.support.orphan_sweep import sweep

pytestmark = pytest.mark.slow

SCHEMA = "node Person { name: String @key }"
PERSON = TypeKey("node:Person")


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    for name in "abc":
        graph.ingest([{"type": "Person", "data": {"name": name}}])
    return graph


def files(graph: Graph) -> set[str]:
    return {one.path for one in session_of(graph).kernel.store.objects.list("")}


def stage(graph: Graph) -> set[str]:
    """Write rows that nothing names, and return their files."""
    before, dataset = files(graph), session_of(graph).view().dataset(PERSON)
    append(dataset, dataset.read())
    return files(graph) - before


def dead_optimize(graph: Graph) -> set[str]:
    """Let an optimize end before it publishes, with an intent whose owner is gone; return what it staged."""
    before, kept = files(graph), dict[str, bytes]()
    objects = session_of(graph).kernel.store.objects

    def end(_: str) -> None:
        kept.update(
            {one.object_path: objects.read(one.object_path) for one in pending(session_of(graph).kernel.store)[0]}
        )
        raise StorageError("cut off")

    with failpoints.armed({Point.COMMIT_PREPARED: end}), pytest.raises(StorageError):
        graph.maintenance.optimize()
    staged = files(graph) - before
    for path, body in kept.items():
        objects.write(path, body)
    [intent] = pending(session_of(graph).kernel.store)[0]
    gone = replace(intent, owner=replace(intent.owner, started="0"))
    objects.write(gone.object_path, gone.to_bytes())
    return staged


def folders(*path: str) -> int:
    """Return how many folders there are, with the one that is named."""
    return 1 + sum(one.is_dir() for one in Path(*path).rglob("*"))


def test_sweep_leaves_no_folders_of_deleted_branches(graph: Graph) -> None:
    graph.branches.create("kept")
    graph.ingest([{"type": "Person", "data": {"name": "k"}}], branch="kept")
    before = folders(graph.uri)
    for _ in range(3):
        graph.branches.create("gone")
        graph.ingest([{"type": "Person", "data": {"name": "x"}}], branch="gone")
        graph.branches.delete("gone")
    with hours_later():
        sweep(session_of(graph).kernel)
    # The commits of deleted branches are in the log, which is new.
    assert folders(graph.uri) == before + folders(graph.uri, LOG_PATH)
    assert len(graph.query("query q() { match { $p: Person } return { $p.name } }", branch="kept").rows()) == 4


def test_sweep_leaves_no_folders_of_indexes_that_are_gone(graph: Graph) -> None:
    for name in "defgh":
        graph.ingest([{"type": "Person", "data": {"name": name}}])
        graph.maintenance.optimize()
    folder = Path(graph.uri, graph.snapshot().state.pins[PERSON].path, "_indices")
    before = {one.name for one in folder.iterdir()}
    with hours_later():
        graph.maintenance.cleanup(keep=1, confirm=True)
        sweep(session_of(graph).kernel)
    after = {one.name for one in folder.iterdir()}
    assert after < before
    assert all(any(one.is_file() for one in (folder / name).rglob("*")) for name in after)


def test_sweep_beside_long_work_leaves_young_folders(graph: Graph) -> None:
    folder = Path(graph.uri, "nodes", "begun", "_versions")
    with declared(session_of(graph).kernel.store, "load", graph.snapshot()):
        folder.mkdir(parents=True)
        with hours_later():
            sweep(session_of(graph).kernel)
        assert folder.is_dir()
    with hours_later():
        sweep(session_of(graph).kernel)
    assert not folder.parent.exists()


def test_sweep_beside_long_work_spares_what_is_newer(graph: Graph) -> None:
    kernel = session_of(graph).kernel
    with declared(kernel.store, "optimize", graph.snapshot()):
        staged = stage(graph)
        with hours_later():
            sweep(kernel)
        assert staged <= files(graph)
    with hours_later():
        sweep(kernel)
    assert not staged & files(graph)


def test_sweep_that_forgets_when_work_began_is_caught(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.Claims, "of", lambda intents: Claims())
    with declared(session_of(graph).kernel.store, "optimize", graph.snapshot()):
        staged = stage(graph)
        with hours_later():
            sweep(session_of(graph).kernel)
        assert not staged & files(graph)


def test_sweep_dead_optimize_is_rolled_back_at_once(graph: Graph) -> None:
    staged = dead_optimize(graph)
    assert [one for one in staged if one.endswith(".lance")]
    report = sweep(session_of(graph).kernel)
    assert report.rolled_back == 1
    left = [one for one in staged & files(graph) if "/data/" in one or "/_indices/" in one]
    assert left == []
    assert [(row.outcome, row.kind) for row in recovery.read_audit(session_of(graph).kernel.store)] == [
        ("RolledBack", "optimize")
    ]
    assert graph.maintenance.optimize().commit is not None


def test_preview_says_what_becomes_of_dead_work(graph: Graph) -> None:
    dead_optimize(graph)
    said = preview(session_of(graph).kernel)
    done = sweep(session_of(graph).kernel)
    assert (said.rolled_back, said.files_removed, said.bytes_removed) == (1, done.files_removed, done.bytes_removed)
    assert done.files_removed > 0


def test_cleanup_dry_run_counts_dead_work(graph: Graph) -> None:
    dead_optimize(graph)
    said = graph.maintenance.cleanup(keep=1, dry_run=True)
    assert pending(session_of(graph).kernel.store)[0]
    done = graph.maintenance.cleanup(keep=1, confirm=True)
    assert said.swept == done.swept
    assert said.to_json()["intents_rolled_back"] == 1


def test_sweep_leaves_a_young_fork_its_entry(graph: Graph) -> None:
    """The entry is the oldest file of a fork; without it nothing can start from what the deleted branch left."""
    graph.branches.create("gone")
    graph.ingest([{"type": "Person", "data": {"name": "x"}}], branch="gone")
    graph.branches.delete("gone")
    entries = [*Path(graph.uri).rglob("_refs/branches/*.json")]
    for entry in entries:
        os.utime(entry, (1_000_000_000, 1_000_000_000))
    sweep(session_of(graph).kernel)
    assert entries
    assert all(entry.is_file() for entry in entries)
    with hours_later():
        sweep(session_of(graph).kernel)
    assert not any(entry.is_file() for entry in entries)


@pytest.mark.parametrize("read_only", [True, False])
def test_open_to_write_rolls_back_what_dead_work_left(graph: Graph, read_only: bool) -> None:
    staged = dead_optimize(graph)
    assert staged
    og.open(graph.uri, read_only=read_only).close()
    assert bool(pending(session_of(graph).kernel.store)[0]) == read_only
    assert staged.isdisjoint(files(graph)) != read_only


def test_open_to_write_leaves_live_work_alone(graph: Graph) -> None:
    kernel = session_of(graph).kernel
    with declared(kernel.store, "load", kernel.snapshot()) as intent:
        og.open(graph.uri).close()
        assert [one.operation_id for one in pending(kernel.store)[0]] == [intent.operation_id]
