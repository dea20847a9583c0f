"""How many one-row mutations a second one branch takes from many threads: what is published together, and at what cost.

On a disk, and on S3 whose every request takes 30 ms. Lines with one thread and with many take turns.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from unittest.mock import patch

import omnigraph as og
from benchmarks.topic import Table, Topic
from tests.support.s3_server import S3Server

LATENCY_SECONDS = 0.03
SCHEMA = "node Person { name: String @key  age: I32? }"
INSERT = "query q($name: String, $age: I32) { insert Person { name: $name, age: $age } }"
UPDATE = "query q($name: String, $age: I32) { update Person set { age: $age } where name = $name }"
HOT_KEYS = 1_000
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured: seconds of a line, rounds on a disk, and how many threads write."""

    seconds: float = 3
    rounds: int = 3
    threads: tuple[int, ...] = (1, 8, 32)
    s3_seconds: float = 8


@dataclass(frozen=True, slots=True)
class Line:
    """Commits of one line: how long each took, over so many seconds, with CPU time and versions of the catalog."""

    latencies: list[float]
    seconds: float
    cpu_seconds: float
    versions: int

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    def cells(self, alone: Line) -> tuple[str, ...]:
        latencies = sorted(self.latencies)
        middle, late = latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)]
        return (
            f"{self.rate:,.0f}",
            f"{self.rate / alone.rate:.1f} ×",
            f"{middle * 1_000:.0f} ms",
            f"{late * 1_000:.0f} ms",
            f"{self.cpu_seconds / len(latencies) * 1_000:.1f} ms",
            f"{len(latencies) / self.versions:.1f}",
        )


def run(scale: Scale | None = None) -> Topic:
    scale = scale or Scale()
    rows: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        rows += _measured("disk", f"{folder}/graph.omni", scale, scale.seconds, scale.rounds)
    with _slow_s3() as server:
        rows += _measured(f"S3, {LATENCY_SECONDS * 1_000:.0f} ms", server.uri("bench"), scale, scale.s3_seconds, 1)
    header = ("Where", "Mutation", "Threads", "Commits a second", "Of one", "p50", "p99", "CPU", "Commits a publish")
    about = (
        "Threads of one process write one row a commit into one branch, all the time. CPU is that of a commit. Aims at"
        " 32 threads: 10 × of one thread on a disk, 20 × on S3."
    )
    return Topic("Group commit", about, tables=(Table("The best round of each line.", header, tuple(rows)),))


@contextmanager
def _slow_s3() -> Iterator[S3Server]:
    with S3Server(LATENCY_SECONDS) as server, patch.dict("os.environ", server.environment()):
        yield server


def _measured(where: str, uri: str, scale: Scale, seconds: float, rounds: int) -> list[tuple[str, ...]]:
    with og.init(uri, SCHEMA) as graph:
        graph.ingest([{"type": "Person", "data": {"name": f"k{number}"}} for number in range(HOT_KEYS)])
        works = {"insert": _insert, "update of a random key": _update}
        best: dict[tuple[str, int], Line] = {}
        for _, (name, work), threads in itertools.product(range(rounds), works.items(), scale.threads):
            line = _line(graph, work, threads, seconds)
            if (name, threads) not in best or best[name, threads].rate < line.rate:
                best[name, threads] = line
        first = scale.threads[0]
        return [
            (where, name, str(threads), *line.cells(best[name, first]))
            for (name, threads), line in sorted(best.items())
        ]


def _insert(graph: og.Graph, chance: Random) -> None:
    graph.mutate(INSERT, params={"name": f"n{next(_numbers)}", "age": chance.randrange(100)})


def _update(graph: og.Graph, chance: Random) -> None:
    graph.mutate(UPDATE, params={"name": f"k{chance.randrange(HOT_KEYS)}", "age": chance.randrange(100)})


def _line(graph: og.Graph, work: Callable[[og.Graph, Random], None], threads: int, seconds: float) -> Line:
    work(graph, Random(0))
    latencies: list[float] = []
    version, cpu, start = graph.snapshot().version, time.process_time(), time.perf_counter()

    def write(number: int) -> None:
        chance = Random(number)
        while (begun := time.perf_counter()) < start + seconds:
            work(graph, chance)
            latencies.append(time.perf_counter() - begun)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(threads)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu
    return Line(latencies, elapsed, cpu, graph.snapshot().version - version)
