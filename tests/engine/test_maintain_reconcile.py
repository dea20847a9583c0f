"""Reconcile: what a round does, what it leaves alone, and that only one process does it at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.engine.maintain import maintenance as module
from omnigraph.engine.maintain.maintenance import Reconciler
from omnigraph.engine.session import GraphSession
from omnigraph.errors import GraphError, StorageError, UsageError
from omnigraph.failpoints import Point
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import EdgeType, NodeType, TypeKey
from omnigraph.manifest.intents import pending
from omnigraph.manifest.model import Snapshot
from tests.engine.test_maintain_repair import displace
from tests.engine.test_maintain_sweep import dead_optimize, files
from tests.support.failpoint_actions import fail_with
from tests.support.forked_python import ForkedPython

pytestmark = pytest.mark.slow

SCHEMA = "node Person { name: String @key }\nnode City { name: String @key }"
PERSON = TypeKey("node:Person")
HOLDER = """
import sys
import omnigraph as og
from omnigraph.manifest.intents import exclusive_intent
from omnigraph.graph import session_of
graph = og.open(sys.argv[1])
with exclusive_intent(session_of(graph).kernel.store, "reconcile", graph.snapshot()) as held:
    print("held" if held else "refused", flush=True)
    sys.stdin.read()
"""


def people(graph: Graph, *names: str, branch: str = "main") -> None:
    graph.ingest([{"type": "Person", "data": {"name": name}} for name in names], branch=branch)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    for name in "abcd":
        people(graph, name)
    return graph


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few fragments and rows be past the thresholds."""
    monkeypatch.setattr(module, "RECONCILE_FRAGMENTS_MAX", 3)
    monkeypatch.setattr(module, "RECONCILE_UNCOVERED_ROWS_MAX", 2)


def fragments(graph: Graph, branch: str = "main") -> list[int]:
    return session_of(og.open(graph.uri)).view(branch).dataset(PERSON).fragment_rows


def test_reconcile_below_thresholds_does_nothing(graph: Graph) -> None:
    head = graph.snapshot().version
    report = graph.maintenance.reconcile()
    assert (report.compacted, report.folded, report.is_claimed) == ((), (), False)
    assert graph.snapshot().version == head
    assert pending(session_of(graph).kernel.store) == ([], [])


@pytest.mark.usefixtures("eager")
def test_reconcile_many_fragments_are_compacted_then_left_alone(graph: Graph) -> None:
    assert graph.maintenance.reconcile().compacted == ("main node:Person",)
    assert fragments(graph) == [4]
    assert graph.commits()[0].kind == "optimize"
    assert graph.maintenance.reconcile().compacted == ()


@pytest.mark.usefixtures("eager")
def test_reconcile_uncovered_rows_are_indexed_without_rewriting(graph: Graph) -> None:
    graph.maintenance.optimize()
    people(graph, "e", "f", "g")
    report = graph.maintenance.reconcile()
    assert (report.compacted, report.folded) == ((), ("main node:Person",))
    assert fragments(graph) == [4, 3]
    assert graph.maintenance.reconcile().folded == ()


@pytest.mark.usefixtures("eager")
def test_reconcile_branch_is_looked_after_only_where_it_wrote(graph: Graph) -> None:
    graph.branches.create("review")
    graph.maintenance.optimize()
    graph.branches.create("other")
    for name in "wxyz":
        people(graph, name, branch="review")
    assert graph.maintenance.reconcile().compacted == ("review node:Person",)
    assert fragments(graph, "review") == [8]


@pytest.mark.usefixtures("eager")
def test_reconcile_branch_deleted_meanwhile_is_left_out(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.branches.create("review")
    for name in "wxyz":
        people(graph, name, branch="review")
    judge = module._judge

    def judge_then_delete(session: GraphSession, snapshot: Snapshot, one: NodeType | EdgeType) -> module._Due | None:
        other = og.open(graph.uri)
        if "review" in other.branches.list():
            other.branches.delete("review")
        return judge(session, snapshot, one)

    monkeypatch.setattr(module, "_judge", judge_then_delete)
    assert graph.maintenance.reconcile().compacted == ("main node:Person",)


@pytest.mark.usefixtures("eager")
def test_reconcile_drift_that_was_discarded_is_looked_at_again(graph: Graph) -> None:
    displace(graph)
    fresh = og.open(graph.uri)
    rounds = module.Reconciliation(session_of(fresh))
    first = rounds.run()
    assert (len(first.drifted), first.compacted) == (1, ())
    fresh.maintenance.repair(confirm=True, discard=True)
    second = rounds.run()
    assert (second.drifted, second.compacted) == ((), ("main node:Person",))


@pytest.mark.usefixtures("eager")
def test_reconcile_takes_on_so_many_types_and_leaves_large_ones(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abcd":
        graph.ingest([{"type": "City", "data": {"name": name}}])
    monkeypatch.setattr(module, "RECONCILE_TYPES_MAX", 1)
    first = graph.maintenance.reconcile()
    assert (len(first.compacted), first.deferred) == (1, 1)
    assert len(graph.maintenance.reconcile().compacted) == 1
    monkeypatch.setattr(module, "RECONCILE_ROWS_MAX", 3)
    for name in "efgh":
        people(graph, name)
    assert graph.maintenance.reconcile().left == ("main node:Person",)


def test_reconcile_finishes_links_and_settles_the_dead(graph: Graph) -> None:
    # A handle of its own, opened before: opening would settle the dead as well.
    other = og.open(graph.uri)
    staged = dead_optimize(graph)
    with failpoints.armed({Point.LINK_BEFORE: fail_with(StorageError("cut off"))}):
        people(graph, "e")
        graph.close()
    report = other.maintenance.reconcile()
    assert (report.links_finished, report.rolled_back, report.rolled_forward) == (1, 1, 0)
    assert not [one for one in staged & files(graph) if "/data/" in one]
    assert og.open(graph.uri).maintenance.reconcile().links_finished == 0


def test_reconcile_read_only_is_refused(graph: Graph) -> None:
    with pytest.raises(GraphError, match="read-only"):
        og.open(graph.uri, read_only=True).maintenance.reconcile()


# -- one at a time --------------------------------------------------------------------------------------------------


def holder(graph: Graph) -> ForkedPython:
    """Start a process that holds the claim until it is told, or killed."""
    process = ForkedPython(
        [sys.executable, "-c", HOLDER, graph.uri], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "held"
    return process


@pytest.mark.usefixtures("eager")
def test_reconcile_waits_for_no_one_and_follows_the_killed(graph: Graph) -> None:
    with holder(graph) as process:
        assert graph.maintenance.reconcile().is_claimed
        assert len(fragments(graph)) == 4
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        report = graph.maintenance.reconcile()
        assert (report.is_claimed, report.rolled_back) == (False, 1)
        assert report.compacted == ("main node:Person",)
        assert process.stdin is not None
        assert process.stdout is not None


def test_reconcile_that_forgets_to_be_alone_is_caught(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph.manifest.intents import declared

    monkeypatch.setattr(module, "exclusive_intent", declared)
    with holder(graph) as process:
        assert not graph.maintenance.reconcile().is_claimed
        process.kill()


# -- in the background ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("eager")
def test_reconciler_in_the_background_keeps_a_graph_in_order(graph: Graph) -> None:
    with graph.maintenance.reconciler(timedelta(milliseconds=1)) as reconciler:
        assert reconciler.wait_for(2, 60)
    assert fragments(graph) == [4]
    assert (reconciler.failures, reconciler.last_error) == (0, None)
    assert reconciler.last is not None
    assert not any(one.name == "omnigraph-reconciler" for one in threading.enumerate())


@pytest.mark.parametrize("error", [StorageError("cut off"), RuntimeError("cut off")])
def test_reconciler_failed_round_is_kept_and_followed_by_the_next(error: Exception) -> None:
    asked: list[int] = []

    def run() -> module.ReconcileReport:
        asked.append(len(asked))
        if asked == [0]:
            raise error
        return module.ReconcileReport(is_claimed=True)

    reconciler = Reconciler(run, 1)
    reconciler.tick()
    assert (reconciler.rounds, reconciler.failures, str(reconciler.last_error)) == (1, 1, "cut off")
    reconciler.tick()
    assert (reconciler.rounds, reconciler.failures, reconciler.skipped) == (2, 1, 1)
    assert reconciler.last_error is None


def test_reconciler_without_a_pause_is_refused(graph: Graph) -> None:
    with pytest.raises(UsageError, match="positive"):
        graph.maintenance.reconciler(timedelta(0))
