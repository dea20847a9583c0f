"""What surfaces cost over the library: requests over loopback with several clients, memory, and cold starts.

The server is a process of its own; the same calls are made on an opened graph in turns with one client.
"""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import omnigraph as og
from benchmarks.topic import Measure, Table, Topic, median_ms

PEOPLE = 2_000
CLIENTS = (1, 8, 32)
SECONDS = float(os.environ.get("BENCH_SURFACES_SECONDS", "4"))
ROUNDS = 7
SCHEMA = "node Person {\n  name: String @key\n  age: I32?\n}\nedge Knows: Person -> Person\n"
POINT = "query point($name: String) { match { $p: Person { name: $name } } return { $p.age as age } }"
TWO_HOPS = """query near($name: String) {
  match { $p: Person { name: $name } $p knows $q $q knows $r }
  return { $r.name as name }
}"""
ADD = "query add($name: String) { insert Person { name: $name, age: 1 } }"
Work = Callable[[Any, int, int], object]
CALLS: dict[str, Work] = {
    "point query": lambda graph, _, turn: graph.query(POINT, params={"name": f"p{turn % PEOPLE}"}),
    "2-hop query": lambda graph, _, turn: graph.query(TWO_HOPS, params={"name": f"p{turn % PEOPLE}"}),
    "one-row mutate": lambda graph, who, turn: graph.mutate(ADD, params={"name": f"{time.time_ns()}-{who}-{turn}"}),
}


def run() -> Topic:
    """Measure requests, memory and cold starts."""
    with tempfile.TemporaryDirectory() as folder:
        uri = str(Path(folder) / "g.omni")
        _make(uri)
        with _serving(uri) as (url, process):
            before = _megabytes(process)
            requests = [row for name, work in CALLS.items() for row in _rows(uri, url, name, work)]
            memory = (("before", f"{before:.0f} MB"), ("after all of the above", f"{_megabytes(process):.0f} MB"))
        starts = tuple(_cold_starts(uri))
    header = ("call", "clients", "requests/s", "of one client", "p50", "p99", "p50 over the library")
    return Topic(
        "Surfaces",
        f"A graph of {PEOPLE:,} people with {3 * PEOPLE:,} edges, served on loopback by a process of its own; clients"
        f" are threads of another. Each line runs for {SECONDS:g} seconds.",
        measures=starts,
        tables=(
            Table("Requests. The library makes the same calls in this process.", header, tuple(requests)),
            Table("Memory of the server.", ("when", "resident"), memory),
        ),
    )


def _make(uri: str) -> None:
    people = [{"type": "Person", "data": {"name": f"p{n}", "age": n % 90}} for n in range(PEOPLE)]
    edges = [
        {"edge": "Knows", "from": f"p{n}", "to": f"p{(n * step + 7) % PEOPLE}", "data": {}}
        for step in (3, 5, 11)
        for n in range(PEOPLE)
    ]
    with og.init(uri, SCHEMA) as graph:
        graph.ingest([*people, *edges], "append")
        graph.ensure_indices()


@contextmanager
def _serving(uri: str) -> Iterator[tuple[str, int]]:
    words = [sys.executable, "-m", "omnigraph", "serve", "--store", uri, "--bind", "127.0.0.1:0", "--unauthenticated"]
    # All clients are one actor here, who would otherwise be held to fewer writes at a time.
    room = {**os.environ, "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX": str(2 * max(CLIENTS))}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=room) as process:
        try:
            assert process.stdout is not None
            found = re.fullmatch(r"OMNIGRAPH_LISTEN_ADDR=(.+)\n", process.stdout.readline())
            assert found is not None, "the server says where it listens"
            yield f"http://{found[1]}", process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _rows(uri: str, url: str, name: str, work: Work) -> Iterator[tuple[str, ...]]:
    with og.open(uri) as graph:
        library = statistics.median(_client(lambda turn: work(graph, 0, turn), SECONDS / 2))
    serial = 0.0
    for clients in CLIENTS:
        took = _together(url, work, clients)
        rate = len(took) / SECONDS
        serial = serial or rate
        p50, p99 = statistics.median(took), statistics.quantiles(took, n=100)[98]
        over = f"{(p50 - library) * 1_000:+.1f} ms" if clients == 1 else ""
        ms = (f"{p50 * 1_000:.1f} ms", f"{p99 * 1_000:.1f} ms")
        yield name, str(clients), f"{rate:,.0f}", f"{rate / serial:.1f} ×", *ms, over


def _together(url: str, work: Work, clients: int) -> list[float]:
    def one(who: int) -> list[float]:
        with og.connect(url, graph="graph") as graph:
            work(graph, who, 0)
            return _client(lambda turn: work(graph, who, turn), SECONDS)

    with ThreadPoolExecutor(clients) as pool:
        return [took for each in pool.map(one, range(clients)) for took in each]


def _client(call: Callable[[int], object], seconds: float) -> list[float]:
    """Call again and again for some time, and return how long each call took."""
    took: list[float] = []
    call(0)
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        call(len(took) + 1)
        took.append(time.perf_counter() - start)
    return took


def _megabytes(process: int) -> float:
    text = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    return int(found[1]) / 1024 if found else 0.0


def _cold_starts(uri: str) -> Iterator[Measure]:
    query = ["query", "-e", POINT, "--params", '{"name": "p1"}', "--store", uri]
    for words, target in ((["version"], 300), (["--help"], 300), (query, 1_200)):
        command = [sys.executable, "-m", "omnigraph", *words]
        took = median_ms(lambda: subprocess.run(command, check=True, capture_output=True), rounds=ROUNDS, warm_up=1)  # noqa: B023 - called at once
        yield Measure(f"start of `omnigraph {words[0]}`, all of it", took, target, ROUNDS)
