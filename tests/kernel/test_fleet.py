"""Many writer processes and threads on one graph: nothing acknowledged is lost, whoever dies."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from omnigraph.errors import OmniGraphError
from omnigraph.manifest import branches
from tests.support.fleet import Ledger, violations
from tests.support.fleet_operations import in_thread
from tests.support.forked_python import ForkedPython
from tests.support.kernel_fixtures import CITY, KNOWS, PERSON, check_invariants, create, ids_of, insert, open_graph
from tests.support.s3_server import DROP_AFTER, DROP_BEFORE, ERROR_500, Fault, Request, S3Server, delay, s3_server

pytestmark = pytest.mark.slow

__all__ = ["s3_server"]


class Fleet:
    """Processes that work on one graph, with their diaries in one folder."""

    def __init__(self, root: str, folder: Path, environment: Mapping[str, str]) -> None:
        self.root = root
        self.folder = folder
        self.environment = {**os.environ, **environment}
        self._started = 0

    def start(self, role: str, count: int = 0) -> ForkedPython:
        """Start a member and return at once; it says `ready` when it has opened the graph."""
        self._started += 1
        name = f"{role}{self._started:03d}"
        command = [sys.executable, "-m", "tests.support.fleet_worker", role, self.root, str(self.folder), name]
        return ForkedPython(
            [*command, str(self._started), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )

    def acknowledged(self) -> int:
        return len(Ledger.read(self.folder).acknowledged)


def run_fleet(
    fleet: Fleet, random: Random, *, writers: int, commits: int, kills: int, helpers: tuple[str, ...]
) -> None:
    """Let writers make about `commits` each; kill and replace some on the way; helpers run beside them to the end."""
    with ExitStack() as stack:
        members = [stack.enter_context(fleet.start("write", commits)) for _ in range(writers)]
        others = [stack.enter_context(fleet.start(role)) for role in helpers]
        step = writers * commits // (kills + 1)
        marks = [step * number + random.randrange(step) for number in range(kills)]
        while any(member.poll() is None for member in members):
            alive = [member for member in members if member.poll() is None]
            if marks and fleet.acknowledged() >= marks[0]:
                marks.pop(0)
                victim = random.choice(alive)
                victim.kill()
                members.append(stack.enter_context(fleet.start("write", commits // 2)))
            try:
                alive[0].wait(0.05)
            except subprocess.TimeoutExpired:
                continue
        for other in others:
            assert other.stdin is not None
            other.stdin.close()
            assert other.wait(60) == 0, other.stderr and other.stderr.read()
        for member in members:
            assert member.wait(60) in (0, -9), member.stderr and member.stderr.read()


def prepare(root: str) -> None:
    kernel = create(root)
    for name in ("x", "y/z"):
        branches.create_branch(kernel, name, kernel.snapshot())
    kernel.close()


def check(fleet: Fleet, least: int) -> None:
    ledger = Ledger.read(fleet.folder)
    assert len(ledger.acknowledged) >= least, "the fleet hardly got anything done"
    assert violations(open_graph(fleet.root), ledger) == []


def test_processes_that_are_killed_and_replaced_lose_nothing(tmp_path: Path) -> None:
    fleet = Fleet(str(tmp_path / "graph.omni"), tmp_path, {})
    prepare(fleet.root)
    run_fleet(fleet, Random(1), writers=3, commits=20, kills=3, helpers=("sweep", "rewrite"))
    check(fleet, 45)


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(3))
def test_processes_that_are_killed_and_replaced_lose_nothing_for_long(tmp_path: Path, seed: int) -> None:
    fleet = Fleet(str(tmp_path / "graph.omni"), tmp_path, {})
    prepare(fleet.root)
    run_fleet(fleet, Random(seed), writers=4, commits=500, kills=50, helpers=("sweep", "rewrite"))
    check(fleet, 1_500)


def unreliable(random: Random) -> Callable[[Request], Fault | None]:
    """Return faults for about one request in fifteen: errors, lost answers, lost requests, slow answers."""
    faults = [ERROR_500, DROP_AFTER, DROP_BEFORE, delay(0.4)]

    def fault(request: Request) -> Fault | None:
        return random.choice(faults) if random.random() < 0.07 else None

    return fault


def run_on_s3(server: S3Server, folder: Path, seed: int, *, commits: int, kills: int) -> Fleet:
    fleet = Fleet(server.uri("g"), folder, server.environment())
    prepare(fleet.root)
    server.fault = unreliable(Random(seed))
    run_fleet(fleet, Random(seed), writers=3, commits=commits, kills=kills, helpers=("sweep",))
    server.fault = None
    return fleet


@pytest.mark.s3
def test_processes_on_unreliable_s3_lose_nothing(s3_server: S3Server, tmp_path: Path) -> None:
    check(run_on_s3(s3_server, tmp_path, 1, commits=8, kills=1), 12)


@pytest.mark.s3
@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(3))
def test_processes_on_unreliable_s3_lose_nothing_for_long(s3_server: S3Server, tmp_path: Path, seed: int) -> None:
    check(run_on_s3(s3_server, tmp_path, seed, commits=100, kills=20), 150)


# -- threads ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("handles", [1, 4])
def test_sixteen_threads_on_one_branch_all_land(tmp_path: Path, handles: int) -> None:
    root = str(tmp_path / "graph.omni")
    kernels = [create(root), *(open_graph(root) for _ in range(handles - 1))]
    barrier = threading.Barrier(16)

    def work(number: int) -> None:
        barrier.wait()
        for turn in range(3):
            insert(kernels[number % handles], {PERSON: [f"p{number:02d}-{turn}"]})

    futures = [in_thread(lambda number=number: work(number)) for number in range(16)]  # type: ignore[misc]
    assert [future.exception(120) for future in futures] == [None] * 16
    fresh = open_graph(root)
    assert len(ids_of(fresh, PERSON)) == 48
    assert len(list(fresh.history())) == 49
    check_invariants(fresh)


def test_sixteen_threads_on_separate_branches_all_land(tmp_path: Path) -> None:
    root = str(tmp_path / "graph.omni")
    kernel = create(root)
    insert(kernel, {PERSON: ["a"]})
    barrier = threading.Barrier(16)

    def work(number: int) -> None:
        barrier.wait()
        branches.create_branch(kernel, f"b{number}", kernel.snapshot())
        for turn in range(2):
            insert(kernel, {PERSON: [f"p{number}-{turn}"]}, f"b{number}")

    futures = [in_thread(lambda number=number: work(number)) for number in range(16)]  # type: ignore[misc]
    assert [future.exception(120) for future in futures] == [None] * 16
    fresh = open_graph(root)
    for number in range(16):
        assert ids_of(fresh, PERSON, f"b{number}") == ["a", f"p{number}-0", f"p{number}-1"]
    check_invariants(fresh)


def test_readers_beside_writers_see_whole_commits_only(tmp_path: Path) -> None:
    root = str(tmp_path / "graph.omni")
    kernel, reader = create(root), open_graph(root)
    done = threading.Event()
    seen: list[int] = []

    def read() -> None:
        while not done.is_set():
            snapshot = reader.snapshot()
            counts = {reader.dataset(snapshot, key).count() for key in (PERSON, CITY, KNOWS)}
            assert len(counts) == 1, counts
            seen.extend(counts)

    watching = in_thread(read)
    for number in range(15):
        insert(kernel, {key: [f"e{number}"] for key in (PERSON, CITY, KNOWS)})
    done.set()
    assert watching.exception(60) is None
    assert seen == sorted(seen)
    with pytest.raises(OmniGraphError):
        reader.snapshot("nowhere")
