"""The audit as users see it: what was recovered, repaired, thrown away and upgraded, by kind, actor and time."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import settings
from omnigraph.cli import main
from omnigraph.engine.history import AuditEntry, AuditKind
from omnigraph.errors import UsageError
from omnigraph.graph import session_of
from omnigraph.manifest import recovery
from omnigraph.manifest.recovery import AuditRow, Outcome

T0 = 1_700_000_000_000_000
HOUR = 3_600_000_000
ROWS = [
    AuditRow("01A", Outcome.ROLLED_BACK, None, "ada", "load", T0),
    AuditRow("01B", Outcome.ROLLED_FORWARD, "01C1", "bob", "merge", T0 + HOUR),
    AuditRow("01C", Outcome.REPAIRED, "01C2", "omnigraph:repair", "repair", T0 + 2 * HOUR),
    AuditRow("01D", Outcome.REPAIRED, None, "ada", "repair", T0 + 3 * HOUR),
    AuditRow("01E", Outcome.ORPHANED_BRANCH_DISCARDED, None, None, "branch_delete", T0 + 4 * HOUR),
    AuditRow("01F", Outcome.UPGRADED, None, "ada", "upgrade", T0 + 5 * HOUR),
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    graph = og.init(tmp_path_factory.mktemp("audit") / "g.omni", "node A { k: String @key }")
    for row in ROWS:
        recovery.record_outcome(session_of(graph).kernel.store, row)
    return graph


def ids(entries: list[AuditEntry]) -> str:
    return "".join(one.operation_id[-1] for one in entries)


def test_audit_lists_all_kinds_newest_first(graph: og.Graph) -> None:
    entries = graph.maintenance.audit()
    assert ids(entries) == "FEDCBA"
    assert [one.kind for one in reversed(entries)] == [
        AuditKind.ROLLED_BACK,
        AuditKind.ROLLED_FORWARD,
        AuditKind.REPAIRED,
        AuditKind.DISCARDED,
        AuditKind.BRANCH_DISCARDED,
        AuditKind.UPGRADED,
    ]
    assert entries[-2].to_json() == {
        "kind": "rolled_forward",
        "operation": "merge",
        "operation_id": "01B",
        "actor_id": "bob",
        "graph_commit_id": "01C1",
        "created_at": T0 + HOUR,
    }


def test_audit_has_a_kind_for_every_outcome(graph: og.Graph) -> None:
    assert {row.outcome for row in ROWS} == set(Outcome)
    assert {one.kind for one in graph.maintenance.audit()} == set(AuditKind)


def test_audit_is_narrowed_by_kind_actor_time_and_number(graph: og.Graph) -> None:
    start = datetime.fromtimestamp(T0 / 1e6, UTC)
    assert ids(graph.maintenance.audit(kind="discarded")) == "D"
    assert ids(graph.maintenance.audit(actor="ada")) == "FDA"
    assert ids(graph.maintenance.audit(since=start + timedelta(hours=3))) == "FED"
    assert ids(graph.maintenance.audit(until=start + timedelta(hours=3))) == "CBA"
    assert ids(graph.maintenance.audit(actor="ada", since=start + timedelta(hours=1), limit=1)) == "F"


def test_audit_refuses_what_it_does_not_know(graph: og.Graph) -> None:
    with pytest.raises(UsageError, match="unknown audit kind `healed`; expected one of rolled_forward"):
        graph.maintenance.audit(kind="healed")
    with pytest.raises(UsageError, match="no time zone"):
        graph.maintenance.audit(since=datetime(2026, 1, 1))
    with pytest.raises(UsageError, match="must be >= 1"):
        graph.maintenance.audit(limit=0)


def test_audit_list_prints_a_table_and_json(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "list", graph.uri, "--actor", "ada", "--until", "2023-11-15"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["when", "kind", "operation", "actor", "commit", "operation", "id"]
    assert lines[2].split() == ["2023-11-14T22:13:20Z", "rolled_back", "load", "ada", "null", "01A"]
    assert main(["audit", "list", graph.uri, "--kind", "repaired", "--json"]) == 0
    [entry] = json.loads(capsys.readouterr().out)["entries"]
    assert entry["actor_id"] == "omnigraph:repair"
    assert main(["audit", "list", graph.uri, "--since", "1h"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["audit", "list", graph.uri, "--since", "lately"]) == 1
    assert "`lately` is not a timestamp" in capsys.readouterr().err


@pytest.mark.slow
def test_maintenance_without_an_actor_is_attributed_to_the_system(tmp_path: Path) -> None:
    schema = "node A { k: String @key  n: I32? @index }"
    with og.init(tmp_path / "g.omni", schema) as graph:
        for number in range(3):
            graph.ingest([{"type": "A", "data": {"k": str(number), "n": number}}])
        graph.maintenance.optimize()
        graph.acting_as("ada").ingest([{"type": "A", "data": {"k": "x"}}])
        graph.acting_as("ada").maintenance.optimize()
        actors = [(one.kind, one.actor) for one in graph.commits(limit=3)]
    assert actors == [("optimize", "ada"), ("ingest", "ada"), ("optimize", "omnigraph:optimize")]


def test_optimize_prints_what_is_pending(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "g.omni")
    with og.init(store, "node A { k: String @key  v: Vector(4)? @index }") as graph:
        graph.ingest([{"type": "A", "data": {"k": "a"}}])
    assert main(["optimize", store]) == 0
    assert "pending: the index of node:A.v: " in capsys.readouterr().out


@pytest.mark.parametrize("name", ["OMNIGRAPH_MAINTENANCE_CONCURRENCY", "OMNIGRAPH_LOAD_CONCURRENCY"])
def test_concurrency_has_to_be_a_number_from_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.read_integer(name, least=1) == 8
    monkeypatch.setenv(name, "0")
    with pytest.raises(UsageError, match=f"{name} is `0`; set it to an integer of at least 1"):
        settings.read_integer(name, least=1)


def test_parallel_work_is_bounded(graph: og.Graph) -> None:
    from threading import Lock
    from time import sleep

    lock, running, most = Lock(), 0, 0

    def task() -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        sleep(0.01)
        with lock:
            running -= 1
        return 1

    assert sum(session_of(graph).kernel.store.in_parallel([task] * 8, 2)) == 8
    assert most == 2
