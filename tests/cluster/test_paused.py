"""An operator whose machine is paused past its lease: another takes over, and the first changes nothing more."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cluster.ledger import read_lock
from omnigraph.manifest import intents
from tests.support.cluster_folder import cluster, codes, write_folder
from tests.support.forked_python import ForkedPython
from tests.support.s3_server import S3Server, s3_server
from tests.support.server_process import wait_until

__all__ = ["s3_server"]
LEASE_SECONDS = 1
# Applies on a machine of another name, and stops itself before its n-th durable change; 0 only counts them.
PAUSED = f"""
import os, signal, sys
from omnigraph.cluster import Cluster, ClusterError
from omnigraph.failpoints import Point, armed
from omnigraph.manifest import intents, locks
intents._host = lambda: "another-machine"
intents.HEARTBEAT_LOST_SECONDS = {LEASE_SECONDS}
locks.HEARTBEAT_SECONDS = 0.2
count = 0
def tick(detail):
    global count
    count += 1
    if count == int(sys.argv[2]):
        print(detail, flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
with armed({{Point.DURABLE_BEFORE: tick}}):
    try:
        report = Cluster(sys.argv[1], actor="paused").apply()
        print("count", count) if sys.argv[2] == "0" else print("ok", report.ok, report.findings)
    except ClusterError as failure:
        print("refused", [item.code for item in failure.findings])
"""


def start(folder: Path, number: int) -> ForkedPython:
    command = [sys.executable, "-c", PAUSED, str(folder), str(number)]
    return ForkedPython(command, stdout=subprocess.PIPE, text=True)


def declare(folder: Path, storage: str, team: str, graphs: tuple[str, ...]) -> Path:
    write_folder(folder, graphs=graphs, storage=storage)
    (folder / "person.pg").write_text(f"node Person {{ name: String @key  {team}: String? }}\n")
    return folder


def prepare(folder: Path, storage: str) -> tuple[Path, Path]:
    """Deploy a graph, and return the folders of two operators who want different schemas and one more graph."""
    folder.mkdir()
    first = declare(folder / "first", storage, "old", ("changed",))
    assert cluster(first).import_().ok
    assert cluster(first).apply().members["converged"] is True
    for name in ("paused", "other"):
        declare(folder / name, storage, name, ("changed", "created"))
    return folder / "paused", folder / "other"


def is_stopped(process: ForkedPython) -> bool:
    status = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
    return status == "T" or process.poll() is not None


def pause_at(folder: Path, storage: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pause an apply at a durable change, let another take over, and go on: the other's deployment stands."""
    monkeypatch.setattr(intents, "HEARTBEAT_LOST_SECONDS", LEASE_SECONDS)
    theirs, ours = prepare(folder, storage)
    with start(theirs, number) as process:
        try:
            wait_until(lambda: is_stopped(process), 60)
            # S3 tells times in whole seconds.
            time.sleep(LEASE_SECONDS + (1.5 if "://" in storage else 0.2))
            report = cluster(ours).apply()
            assert report.members["converged"] is True, (number, report.findings)
            lock = read_lock(cluster(ours).ledger)
            before = cluster(ours).ledger.read()
        finally:
            process.send_signal(signal.SIGCONT)
            output, _ = process.communicate(timeout=120)
    detail, *outcome = output.splitlines()
    if not outcome:
        # Heartbeats were counted, too, so that this number is past its last change.
        assert detail.startswith("ok True"), (number, output)
        return
    # It may only have succeeded before it was paused.
    history = cluster(ours).history().members["revisions"]
    assert ("ok True" in outcome[0]) == ("paused" in [item["actor"] for item in history]), (number, output)
    after = cluster(ours).ledger.read()
    assert after is not None
    assert before is not None
    assert after.cas == before.cas, (number, output)
    assert lock is not None
    newest = read_lock(cluster(ours).ledger)
    assert newest is not None
    assert newest.body == lock.body, (number, output)
    assert codes(cluster(ours).status()) == [], (number, output)
    assert cluster(ours).apply().members["changes"] == [], (number, output)
    assert codes(cluster(ours).refresh()) == [], (number, output)
    for name in ("changed", "created"):
        with og.open(cluster(ours).ledger.graph_uri(name)) as graph:
            assert "other:" in graph.schema.source, (number, output)


def count_changes(folder: Path, storage: str) -> int:
    theirs, _ = prepare(folder, storage)
    with start(theirs, 0) as process:
        output, _ = process.communicate(timeout=120)
    return int(output.split()[1])


# From the second change on: before the first it has no lock to lose.
@pytest.mark.slow
def test_paused_operator_changes_nothing_after_a_takeover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    total = count_changes(tmp_path / "counted", str(tmp_path / "storage0"))
    # In the middle of the movements, and at the revision; the long campaign pauses it at every change.
    for number in (total // 2, total - 3):
        pause_at(tmp_path / f"team{number}", str(tmp_path / f"storage{number}"), number, monkeypatch)


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_paused_operator_changes_nothing_wherever_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    total = count_changes(tmp_path / "counted", str(tmp_path / "storage0"))
    for number in range(2, total + 1):
        pause_at(tmp_path / f"team{number}", str(tmp_path / f"storage{number}"), number, monkeypatch)


@pytest.mark.long
@pytest.mark.s3
@pytest.mark.timeout(7_200)
def test_paused_operator_on_s3_changes_nothing_wherever_it_was(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = count_changes(tmp_path / "counted", s3_server.uri("storage0"))
    for number in range(2, total + 1):
        pause_at(tmp_path / f"team{number}", s3_server.uri(f"storage{number}"), number, monkeypatch)
