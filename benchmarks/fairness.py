"""How commits are shared among steady writers of several processes, and what these cost long work beside them.

On a disk, and on S3 whose every request takes 30 ms. Work beside writers and work alone take turns on graphs of the
same content.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from unittest.mock import patch

import omnigraph as og
from benchmarks.topic import Table, Topic
from omnigraph.graph import session_of
from omnigraph.manifest.kernel import Kernel
from tests.kernel.test_fairness import WORK
from tests.support.kernel_fixtures import CITY, PERSON, SCHEMA, create, ids_of
from tests.support.s3_server import S3Server
from tests.support.steady_writers import steady_writers

LATENCY_SECONDS = 0.03
AIMS = {2: "33.3 %", 8: "5 %"}
WORK_AIM = 10
_numbers = count()


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured: commits that are shared, by number of processes and place, and rounds of long work."""

    disk_commits: int = 400
    s3_commits: int = 120
    processes: tuple[int, ...] = (2, 8)
    rounds: int = 3


@dataclass(frozen=True, slots=True)
class Place:
    """Where graphs lie."""

    name: str
    prefix: str
    commits: int

    def new_uri(self) -> str:
        return f"{self.prefix}/g{next(_numbers)}"


def run(scale: Scale | None = None) -> Topic:
    scale = scale or Scale()
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        disk = Place("disk", folder, scale.disk_commits)
        shares, work = _measured(disk, scale)
        with _slow_s3() as server:
            remote = Place(f"S3, {LATENCY_SECONDS * 1_000:.0f} ms", server.uri("bench"), scale.s3_commits)
            more_shares, more_work = _measured(remote, scale)
    share_header = ("Where", "Processes", "Commits", "Least share", "Largest share", "Aim", "Commits a second")
    work_header = ("Where", "Work", "Alone", "Beside writers", "Ratio", "Commits meanwhile")
    return Topic(
        "Fairness",
        "Writers insert one row a commit into one branch, all the time, each in a process of its own.",
        tables=(
            Table("Shares of the commits, once all writers have met.", share_header, (*shares, *more_shares)),
            Table(
                f"Medians of {scale.rounds} rounds beside two writing processes, and alone. The aim is a ratio of at"
                f" most {WORK_AIM}.",
                work_header,
                (*work, *more_work),
            ),
        ),
    )


@contextmanager
def _slow_s3() -> Iterator[S3Server]:
    with S3Server(LATENCY_SECONDS) as server, patch.dict("os.environ", server.environment()):
        yield server


_Rows = list[tuple[str, ...]]


def _measured(place: Place, scale: Scale) -> tuple[_Rows, _Rows]:
    shares = [_share_row(place, processes) for processes in scale.processes]
    return shares, [_work_row(place, kind, scale.rounds) for kind in WORK]


def _share_row(place: Place, processes: int) -> tuple[str, ...]:
    uri = place.new_uri()
    kernel = create(uri)
    with steady_writers(uri, processes) as writers:
        writers.go()
        _wait_for_commits(kernel, 6 * processes)
        before, start = _made_by(kernel, processes), time.perf_counter()
        _wait_for_commits(kernel, place.commits)
        after, seconds = _made_by(kernel, processes), time.perf_counter() - start
    made = [last - first for first, last in zip(before, after, strict=True)]
    least, largest = (f"{100 * one / sum(made):.1f} %" for one in (min(made), max(made)))
    return place.name, str(processes), str(sum(made)), least, largest, AIMS[processes], f"{sum(made) / seconds:.1f}"


def _made_by(kernel: Kernel, processes: int) -> list[int]:
    ids = ids_of(kernel, PERSON)
    return [sum(one.startswith(f"w{number}-") for one in ids) for number in range(processes)]


def _wait_for_commits(kernel: Kernel, number: int) -> None:
    goal = kernel.snapshot().version + number
    while kernel.snapshot().version < goal:
        time.sleep(0.05)


def _work_row(place: Place, kind: str, rounds: int) -> tuple[str, ...]:
    alone, beside, commits = list[float](), list[float](), list[int]()
    for _ in range(rounds):
        alone.append(_time_work(_new_graph(place), kind)[0])
        graph = _new_graph(place)
        with steady_writers(graph.uri, 2, (PERSON, CITY)) as writers:
            writers.go()
            _wait_for_commits(session_of(graph).kernel, 6)
            seconds, meanwhile = _time_work(graph, kind)
        beside.append(seconds)
        commits.append(meanwhile)
    one, two = statistics.median(alone), statistics.median(beside)
    cells = (f"{1_000 * one:.0f} ms", f"{1_000 * two:.0f} ms", f"{two / one:.1f}", f"{statistics.median(commits):.0f}")
    return place.name, kind, *cells


def _new_graph(place: Place) -> og.Graph:
    graph = og.init(place.new_uri(), schema=SCHEMA)
    graph.ingest([{"type": "Person", "data": {"name": f"p{number}"}} for number in range(20)], mode="append")
    return graph


def _time_work(graph: og.Graph, kind: str) -> tuple[float, int]:
    """Return the seconds that some work took, and how many commits there were meanwhile, its own included."""
    work = WORK[kind](graph)
    begun, start = graph.snapshot().version, time.perf_counter()
    work()
    return time.perf_counter() - start, graph.snapshot().version - begun
