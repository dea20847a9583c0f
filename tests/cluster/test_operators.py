"""Operators who work at once: one wins and the other is told, and a lock that changed hands fences its old holder."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from pathlib import Path
from threading import Barrier, Event

import orjson
import pytest

import omnigraph as og
from omnigraph.cluster import ClusterError
from omnigraph.cluster.ledger import hold_lock, read_lock
from omnigraph.failpoints import Point, armed
from omnigraph.store.objects.control_objects import Objects
from tests.support.cluster_folder import QUERIES, cluster, codes, deploy, write_folder
from tests.support.forked_python import run_forked

pytestmark = pytest.mark.slow

NEW_SCHEMA = "node Person { name: String @key  team: String? }\n"
# Takes the lock and dies without releasing it.
DYING = """
import os, sys
from omnigraph.cluster import Cluster
from omnigraph.cluster.ledger import hold_lock
with hold_lock(Cluster(sys.argv[1]).ledger, "apply", "bob"):
    os._exit(1)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_folder(tmp_path / "team")
    deploy(folder)
    return folder


def failure_codes(failure: BaseException) -> list[str]:
    assert isinstance(failure, ClusterError)
    return [item.code for item in failure.findings]


def test_second_operator_is_refused_while_the_first_works(folder: Path) -> None:
    with hold_lock(cluster(folder).ledger, "apply", "bob"):
        for command in ("plan", "apply", "refresh", "import_"):
            with pytest.raises(ClusterError, match="force-unlock") as caught:
                getattr(cluster(folder), command)()
            assert failure_codes(caught.value) == ["state_lock_held"]
        assert cluster(folder).status().members["state_observations"]["lock"]["operation"] == "apply"
    assert cluster(folder).plan().ok


def test_of_many_applies_at_once_all_succeed_or_are_told(folder: Path) -> None:
    (folder / "person.pg").write_text(NEW_SCHEMA)
    start = Barrier(6)

    def apply(_: int) -> str:
        start.wait()
        try:
            report = cluster(folder).apply()
        except ClusterError as failure:
            return failure_codes(failure)[0]
        return "converged" if report.members["converged"] else "?"

    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(apply, range(6)))
    assert set(outcomes) <= {"converged", "state_lock_held"}
    assert "converged" in outcomes
    revisions = cluster(folder).history().members["revisions"]
    assert [item["operation"] for item in revisions] == ["apply", "apply", "import"]
    with og.open(folder / "graphs" / "knowledge.omni") as graph:
        # Its creation, and one change of its schema.
        assert len(graph.commits()) == 2


def test_slow_operator_never_takes_a_number_that_others_used_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, others = cluster(folder).ledger, cluster(folder).ledger
    write_if_absent = slow.objects.write_if_absent
    later = ExitStack()

    def write_late(path: str, data: bytes) -> bool:
        monkeypatch.undo()
        with hold_lock(others, "refresh", "bob"):
            pass
        later.enter_context(hold_lock(others, "apply", "eve"))
        return write_if_absent(path, data)

    monkeypatch.setattr(slow.objects, "write_if_absent", write_late)
    with pytest.raises(ClusterError, match="eve") as caught, hold_lock(slow, "apply", "ada"):
        pass
    assert failure_codes(caught.value) == ["state_lock_held"]
    with later:
        lock = read_lock(others)
        assert lock is not None
        assert lock.body["actor"] == "eve"


def test_revision_of_another_operator_is_never_replaced(folder: Path) -> None:
    ledger = cluster(folder).ledger
    base = ledger.read()
    assert base is not None
    ledger.write(base.state, base)
    changed = write_folder(folder)
    (changed / "queries" / "people.gq").write_text(QUERIES + "// later\n")
    with pytest.raises(ClusterError) as caught:
        ledger.write(type(base.state)(config_digest="other"), base)
    assert failure_codes(caught.value) == ["state_cas_mismatch"]


def test_plan_of_an_older_revision_is_made_again_by_apply(folder: Path) -> None:
    (folder / "person.pg").write_text(NEW_SCHEMA)
    stale = cluster(folder)
    assert [item["resource"] for item in stale.plan().members["changes"]] == ["graph.knowledge", "schema.knowledge"]
    deploy(folder)
    again = stale.apply()
    assert again.members["changes"] == []
    assert again.members["state_written"] is False


def test_lock_of_a_dead_process_is_taken_over(folder: Path) -> None:
    died = run_forked([sys.executable, "-c", DYING, str(folder)])
    assert died.returncode == 1
    lock = read_lock(cluster(folder).ledger)
    assert lock is not None
    assert lock.is_held
    assert "state_lock_taken_over" in codes(cluster(folder).apply())
    assert codes(cluster(folder).apply()) == []


def test_force_unlock_needs_the_id_and_fences_the_old_holder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "person.pg").write_text(NEW_SCHEMA)
    entered, go_on = Event(), Event()
    previous = cluster(folder).ledger.revisions()[-1]

    def wait(*_: object) -> None:
        entered.set()
        assert go_on.wait(30)

    monkeypatch.setattr("omnigraph.cluster.apply.Apply._check_sources", wait)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(cluster(folder).apply)
        assert entered.wait(30)
        monkeypatch.undo()
        lock = read_lock(cluster(folder).ledger)
        assert lock is not None
        with pytest.raises(ClusterError) as caught:
            cluster(folder).force_unlock("01KA0000000000000000000000")
        assert failure_codes(caught.value) == ["state_lock_id_mismatch"]
        assert cluster(folder).force_unlock(lock.lock_id).ok
        assert cluster(folder).apply().members["converged"] is True
        go_on.set()
        failure = slow.exception(30)
    assert failure is not None
    assert failure_codes(failure) == ["state_lock_lost"]
    assert cluster(folder).ledger.revisions()[-1] == previous + 1
    with pytest.raises(ClusterError) as caught:
        cluster(folder).force_unlock(lock.lock_id)
    assert failure_codes(caught.value) == ["state_lock_missing"]


def test_lock_that_cannot_be_decoded_is_named(folder: Path) -> None:
    (folder / "__cluster" / "locks" / "000000000999.json").write_text("{}")
    with pytest.raises(ClusterError) as caught:
        cluster(folder).plan()
    assert failure_codes(caught.value) == ["invalid_state_lock"]


def test_cluster_without_a_lock_warns(folder: Path) -> None:
    path = folder / "cluster.yaml"
    path.write_text(path.read_text() + "state: {lock: false}\n")
    assert "state_lock_disabled" in codes(cluster(folder).plan())


def test_leftover_of_a_crashed_writer_is_no_lock(folder: Path) -> None:
    locks = folder / "__cluster" / "locks"
    for path in locks.iterdir():
        path.unlink()
    leftover = locks / ".og-01KA0000000000000000000000"
    leftover.write_text("")
    assert cluster(folder).plan().ok
    # It may belong to a writer that is about to give it its name.
    assert leftover.exists()


def test_holder_that_lost_its_lock_leaves_the_next_ones_alone(folder: Path) -> None:
    ledger = cluster(folder).ledger
    with hold_lock(ledger, "apply", "ada") as lock:
        assert cluster(folder).force_unlock(lock.lock_id).ok
        with hold_lock(ledger, "apply", "bob"):
            before = {path.name: path.read_bytes() for path in (folder / "__cluster" / "locks").iterdir()}
            lock._lock._write(lock._lock._held)
            with pytest.raises(ClusterError, match="state_lock_lost"):
                lock.require()
            lock._lock.release()
            assert {path.name: path.read_bytes() for path in (folder / "__cluster" / "locks").iterdir()} == before


def test_lost_lock_object_stops_its_holder(folder: Path) -> None:
    with hold_lock(cluster(folder).ledger, "apply", "ada") as lock:
        for path in (folder / "__cluster" / "locks").iterdir():
            path.unlink()
        with pytest.raises(ClusterError, match="state_lock_lost"):
            lock.require()


def test_lock_that_could_not_be_released_is_taken_over_in_its_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise og.StorageError("no connection")

    with hold_lock(cluster(folder).ledger, "apply", "ada"):
        monkeypatch.setattr("omnigraph.store.objects.control_objects.Objects.write", fail)
    monkeypatch.undo()
    lock = read_lock(cluster(folder).ledger)
    assert lock is not None
    assert lock.is_held
    assert "state_lock_taken_over" in codes(cluster(folder).apply())


def test_lock_whose_release_was_interrupted_is_taken_over(folder: Path) -> None:
    ledger = cluster(folder).ledger

    def interrupt(detail: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), ExitStack() as stack, hold_lock(ledger, "apply", "bob"):
        stack.enter_context(armed({Point("durable.before"): interrupt}))
    assert cluster(folder).apply().ok


def test_interrupted_apply_releases_the_lock_and_is_finished(folder: Path) -> None:
    (folder / "person.pg").write_text(NEW_SCHEMA)

    def interrupt(detail: object) -> None:
        if "recoveries" in str(detail):
            raise KeyboardInterrupt

    with armed({Point.DURABLE_AFTER: interrupt}), pytest.raises(KeyboardInterrupt):
        cluster(folder).apply()
    lock = read_lock(cluster(folder).ledger)
    assert lock is not None
    assert not lock.is_held
    assert codes(cluster(folder).status()) == ["cluster_recovery_pending"]
    assert cluster(folder).apply().members["converged"] is True
    assert codes(cluster(folder).status()) == []


def test_holder_in_another_container_is_not_taken_for_dead(folder: Path) -> None:
    with hold_lock(cluster(folder).ledger, "apply", "bob"):
        path = max((folder / "__cluster" / "locks").iterdir())
        body = orjson.loads(path.read_bytes())
        # Both have the name and the boot id of the machine, and neither sees the processes of the other.
        machine, _, _ = body["owner"]["host"].rpartition("/")
        body["owner"] = {"host": f"{machine}/1", "pid": 1, "started": "0"}
        path.write_bytes(orjson.dumps(body))
        with pytest.raises(ClusterError) as caught:
            cluster(folder).plan()
    assert failure_codes(caught.value) == ["state_lock_held"]


@pytest.mark.parametrize("is_held", [False, True])
def test_status_needs_no_permission_to_write(folder: Path, monkeypatch: pytest.MonkeyPatch, is_held: bool) -> None:
    def fail(*_: object) -> int:
        raise og.StorageError("permission denied")

    with hold_lock(cluster(folder).ledger, "apply", "bob") if is_held else nullcontext():
        monkeypatch.setattr(Objects, "read_time", fail)
        lock = cluster(folder).status().members["state_observations"]["lock"]
        monkeypatch.undo()
    assert (None if lock is None else (lock["actor"], lock["silent_seconds"])) == (("bob", None) if is_held else None)
