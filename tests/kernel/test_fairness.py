"""Fairness between real processes, on a disk and on S3 with latency: shares, and long work beside steady writers.

All bounds are counts of commits, so that a busy machine fails nothing. The model has the bounds in time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import OmniGraphError
from omnigraph.graph import session_of
from omnigraph.limits import CLAIM_POLL_SECONDS
from omnigraph.manifest.intents import this_process
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.locks import CLAIMS_FOLDER, QueueWait
from tests.support.fleet_log import shape
from tests.support.fleet_operations import in_thread, stranger
from tests.support.kernel_fixtures import CITY, PERSON, SCHEMA, check_invariants, create, ids_of, insert, open_graph
from tests.support.s3_server import S3Server, s3_server
from tests.support.steady_writers import steady_writers

__all__ = ["s3_server"]

pytestmark = pytest.mark.slow
LATENCY_SECONDS = 0.03


def wait_for_commits(kernel: Kernel, count: int) -> None:
    goal = kernel.snapshot().version + count
    while kernel.snapshot().version < goal:
        time.sleep(0.05)


def shares(uri: str, processes: int, commits: int, role: str = "write") -> list[float]:
    """Return what part of the commits each of some steady writers makes, once they have met."""
    kernel = create(uri)
    with steady_writers(uri, processes, role=role) as writers:
        writers.go()
        wait_for_commits(kernel, 6 * processes)
        before = len_by_writer(kernel, processes)
        wait_for_commits(kernel, commits)
        after = len_by_writer(kernel, processes)
    check_invariants(kernel)
    assert len(ids_of(kernel, PERSON)) == sum(writers.commits)
    made = [last - first for first, last in zip(before, after, strict=True)]
    return [one / sum(made) for one in made]


def len_by_writer(kernel: Kernel, processes: int) -> list[int]:
    ids = ids_of(kernel, PERSON)
    return [sum(one.startswith(f"w{number}-") for one in ids) for number in range(processes)]


LEAST = {2: 1 / 3, 8: 1 / 20}
FULL = pytest.mark.long


@pytest.mark.parametrize(
    ("processes", "commits"), [(2, 30), pytest.param(2, 400, marks=FULL), pytest.param(8, 400, marks=FULL)]
)
def test_steady_writers_on_disk_each_get_their_share(tmp_path: Path, processes: int, commits: int) -> None:
    assert min(shares(str(tmp_path / "graph.omni"), processes, commits)) >= LEAST[processes]


@pytest.mark.s3
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("processes", "commits"), [(2, 8), pytest.param(2, 60, marks=FULL), pytest.param(8, 160, marks=FULL)]
)
def test_steady_writers_on_s3_each_get_their_share(s3_server: S3Server, processes: int, commits: int) -> None:
    is_sample = commits == 8
    s3_server.latency_seconds = LATENCY_SECONDS / 3 if is_sample else LATENCY_SECONDS
    # A sample may begin before both have met.
    least = 1 / 5 if is_sample else LEAST[processes]
    assert min(shares(s3_server.uri("g"), processes, commits)) >= least


@FULL
@pytest.mark.s3
def test_writers_that_ignore_claims_starve_each_other(s3_server: S3Server) -> None:
    s3_server.latency_seconds = LATENCY_SECONDS
    assert min(shares(s3_server.uri("g"), 2, 40, role="deaf")) < LEAST[2]


# -- long work beside steady writers -----------------------------------------------------------------------------


@contextmanager
def writing_thread(uri: str) -> Iterator[None]:
    """Insert all the time in this process, too."""
    stopped = threading.Event()

    def write() -> None:
        graph, number = og.open(uri), 0
        while not stopped.is_set():
            graph.mutate(f'query q() {{ insert City {{ name: "here-{number}" }} }}')
            number += 1

    done = in_thread(write)
    try:
        yield
    finally:
        stopped.set()
        done.result(120)


def merge_work(graph: og.Graph) -> Callable[[], object]:
    graph.branches.create("review")
    graph.mutate('query q() { update Person set { age: 7 } where name = "p1" }', branch="review")
    return lambda: graph.branches.merge("review", delete_branch=True)


def schema_work(graph: og.Graph) -> Callable[[], object]:
    return lambda: graph.schema.apply(SCHEMA + "node Ship { name: String @key }")


def optimize_work(graph: og.Graph) -> Callable[[], object]:
    return graph.maintenance.optimize


WORK = {"merge": merge_work, "schema apply": schema_work, "optimize": optimize_work}


def commits_meanwhile(uri: str, kind: str, role: str = "write") -> int:
    """Return how many commits others made while some work was done beside two processes and a thread that write."""
    graph = og.init(uri, schema=SCHEMA)
    graph.ingest([{"type": "Person", "data": {"name": f"p{number}"}} for number in range(20)], mode="append")
    work = WORK[kind](graph)
    with steady_writers(uri, 2, (PERSON, CITY), role) as writers, writing_thread(uri):
        writers.go()
        wait_for_commits(session_of(graph).kernel, 6)
        begun = graph.snapshot().version
        work()
        ended = graph.snapshot().version
    assert graph.maintenance.verify().is_sound
    return ended - begun


@pytest.mark.parametrize(
    "kind", ["merge", pytest.param("schema apply", marks=FULL), pytest.param("optimize", marks=FULL)]
)
def test_long_work_beside_steady_writers_on_disk_gets_through(tmp_path: Path, kind: str) -> None:
    assert commits_meanwhile(str(tmp_path / "graph.omni"), kind) < 60


@FULL
@pytest.mark.s3
@pytest.mark.parametrize("kind", list(WORK))
def test_long_work_beside_steady_writers_on_s3_gets_through(s3_server: S3Server, kind: str) -> None:
    s3_server.latency_seconds = LATENCY_SECONDS
    assert commits_meanwhile(s3_server.uri("g"), kind) < 60


@FULL
@pytest.mark.s3
def test_merge_beside_writers_that_ignore_claims_does_not_get_through(s3_server: S3Server) -> None:
    s3_server.latency_seconds = LATENCY_SECONDS
    with pytest.raises(OmniGraphError) as caught:
        assert commits_meanwhile(s3_server.uri("g"), "merge", "deaf") > 60
    assert caught.value.code == "conflict.busy"


# -- claims ------------------------------------------------------------------------------------------------------


def claims_of(root: str) -> list[str]:
    return [one.path for one in open_graph(root).store.objects.list(CLAIMS_FOLDER)]


def test_writer_that_finds_a_claim_waits_for_it_and_leaves_none(tmp_path: Path) -> None:
    root = str(tmp_path / "graph.omni")
    kernel, other = create(root), stranger(root)
    line = other.commit_loop.turn(None).line
    line.join(other.store)
    waiting = in_thread(lambda: insert(kernel, {PERSON: ["a"]}))
    insert(other, {PERSON: ["b"]})
    waiting.result(30)
    main = open_graph(root)
    assert [one.branch for one in main.history()][:2] == [None, None]
    assert ids_of(main, PERSON) == ["a", "b"]
    assert claims_of(root) == []


def test_claim_of_a_process_that_ended_delays_nobody_and_is_removed(tmp_path: Path) -> None:
    root = str(tmp_path / "graph.omni")
    kernel = create(root)
    body = b'{"format": 1, "owner": {"host": "%s", "pid": 1, "started": "never"}}'
    kernel.store.objects.write(f"{CLAIMS_FOLDER}/main/0-60000.json", body % this_process().host.encode())
    insert(kernel, {PERSON: ["a"]})
    assert claims_of(root) == []


def listings_behind_a_claim(server: S3Server, seconds: float) -> int:
    """Return how often a writer lists the claims while another one holds its claim for some time."""
    kernel, claim = create(server.uri("g")), f"{CLAIMS_FOLDER}/main/0-60000.json"
    kernel.store.objects.write(claim, b"{}")
    waiting = in_thread(lambda: insert(kernel, {PERSON: ["a"]}))
    time.sleep(seconds)
    assert not waiting.done()
    kernel.store.objects.delete(claim)
    waiting.result(60)
    assert ids_of(kernel, PERSON) == ["a"]
    return sum(shape(request).startswith("LIST __claims") for request in list(server.requests))


@pytest.mark.s3
def test_writer_behind_a_claim_lists_the_queue_a_few_times(s3_server: S3Server) -> None:
    assert listings_behind_a_claim(s3_server, 2.0) <= 16


@pytest.mark.s3
def test_writer_that_polls_all_the_time_is_caught(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueWait, "pause_seconds", lambda self, now: CLAIM_POLL_SECONDS)
    monkeypatch.setattr(QueueWait, "must_list", lambda self, now: True)
    assert listings_behind_a_claim(s3_server, 2.0) > 16


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff"])
def test_claim_that_cannot_be_read_counts_until_its_deadline(tmp_path: Path, body: bytes) -> None:
    root = str(tmp_path / "graph.omni")
    kernel = create(root)
    kernel.store.objects.write(f"{CLAIMS_FOLDER}/main/0-300.json", body)
    kernel.store.objects.write(f"{CLAIMS_FOLDER}/main/not a claim", body)
    insert(kernel, {PERSON: ["a"]})
    assert claims_of(root) == [f"{CLAIMS_FOLDER}/main/not a claim"]
