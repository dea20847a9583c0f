"""What surfaces cost over the library: one call each way in turns, many clients at once, memory, and cold starts.

The server is a process of its own, and so are the clients of the lines with many.
"""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import omnigraph as og
from benchmarks.callers import CALLS, PEOPLE, Caller, params_of
from benchmarks.topic import Measure, Table, Topic, median_ms

CLIENTS = (1, 8, 32)
# Clients are shared out among so many processes, because one could not keep a server busy.
CALLERS = 2
SECONDS = float(os.environ.get("BENCH_SURFACES_SECONDS", "4"))
MEMORY_SECONDS = float(os.environ.get("BENCH_SURFACES_MEMORY_SECONDS", "300"))
SAMPLES = 5
TURNS = 150
ROUNDS = 9
OVERHEAD_AIM_MS = 3.0
SCHEMA = "node Person {\n  name: String @key\n  age: I32?\n}\nedge Knows: Person -> Person\n"


def run() -> Topic:
    """Measure calls, many clients, memory and cold starts."""
    with tempfile.TemporaryDirectory() as folder:
        uri = str(Path(folder) / "g.omni")
        make_graph(uri)
        starts = tuple(_cold_starts(uri))
        with serving(uri) as (url, process):
            turns = {name: _in_turns(uri, url, name) for name in CALLS}
            many = tuple(row for name in CALLS for row in _many(url, name, turns[name]["library"]))
            memory = tuple(_memory(url, process))
    return Topic(
        "Surfaces",
        f"A graph of {PEOPLE:,} people with {3 * PEOPLE:,} edges, served on loopback by a process of its own."
        " Starts are whole processes.",
        measures=starts,
        tables=(
            Table(
                "One caller, medians: the same call on an opened graph, by plain HTTP and by the client, in turns."
                f" The aim is {OVERHEAD_AIM_MS:g} ms over the library for the point query.",
                ("call", "library", "plain HTTP", "over it", "client", "over it"),
                tuple(_overhead(name, took) for name, took in turns.items()),
            ),
            Table(
                f"Many plain clients in {CALLERS} other processes, {SECONDS:g} seconds a line. The aim of 5 is against"
                f" one client that is served within the library's time and {OVERHEAD_AIM_MS:g} ms. Against the one"
                " client that was measured no more than the number of cores can be reached, because client and server"
                " keep one core busy between them; writes to one branch are published one after the other.",
                ("call", "clients", "requests/s", "of that floor", "of one client", "p50", "p99", "refused"),
                many,
            ),
            Table(
                f"Memory of the server under 8 clients that make all three calls, over {MEMORY_SECONDS:g} seconds.",
                ("after", "resident", "requests so far"),
                memory,
            ),
        ),
    )


def make_graph(uri: str) -> None:
    people = [{"type": "Person", "data": {"name": f"p{n}", "age": n % 90}} for n in range(PEOPLE)]
    edges = [
        {"edge": "Knows", "from": f"p{n}", "to": f"p{(n * step + 7) % PEOPLE}", "data": {}}
        for step in (3, 5, 11)
        for n in range(PEOPLE)
    ]
    with og.init(uri, SCHEMA) as graph:
        graph.ingest([*people, *edges], mode="append")
        graph.maintenance.ensure_indices()


@contextmanager
def serving(uri: str) -> Iterator[tuple[str, int]]:
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


def _in_turns(uri: str, url: str, name: str) -> dict[str, float]:
    """Return the median of one call each way, in seconds."""
    plain, params = Caller(url), params_of(name)
    took: dict[str, list[float]] = {"library": [], "client": []}
    with og.open(uri) as graph, og.connect(url, graph="graph") as client:
        for _ in range(TURNS):
            took["library"].append(_timed(graph, name, next(params)))
            plain.call(name, next(params))
            took["client"].append(_timed(client, name, next(params)))
    return {way: statistics.median(times) for way, times in {**took, "plain": plain.took}.items()}


def _timed(graph: Any, name: str, params: dict[str, str]) -> float:
    route, query = CALLS[name]
    start = time.perf_counter()
    getattr(graph, route)(query, params=params)
    return time.perf_counter() - start


def _overhead(name: str, took: dict[str, float]) -> tuple[str, ...]:
    library = took["library"]
    cells = [(_ms(took[way]), f"{(took[way] - library) * 1_000:+.2f} ms") for way in ("plain", "client")]
    return (name, _ms(library), *cells[0], *cells[1])


def _many(url: str, name: str, library: float) -> Iterator[tuple[str, ...]]:
    floor = 1 / (library + OVERHEAD_AIM_MS / 1_000)
    serial = 0.0
    for clients in CLIENTS:
        found = _together(url, name, clients)
        took = found["took"]
        rate = len(took) / SECONDS
        serial = serial or rate
        p50, p99 = statistics.median(took), statistics.quantiles(took, n=100)[98]
        ratios = (f"{rate / floor:.1f} ×", f"{rate / serial:.1f} ×")
        yield name, str(clients), f"{rate:,.0f}", *ratios, _ms(p50), _ms(p99), str(found["refused"])


def _together(url: str, name: str, clients: int) -> dict[str, Any]:
    processes = min(CALLERS, clients)
    words = [url, name, str(clients // processes), str(SECONDS)]
    found = [json.loads(each.communicate()[0]) for each in [_callers(words) for _ in range(processes)]]
    return {"took": [took for one in found for took in one["took"]], "refused": sum(one["refused"] for one in found)}


def _callers(words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "benchmarks.callers", *words], stdout=subprocess.PIPE, text=True)


def _memory(url: str, process: int) -> Iterator[tuple[str, ...]]:
    requests = 0
    yield "0 s", f"{_megabytes(process):.0f} MB", "0"
    for sample in range(1, SAMPLES + 1):
        out, _ = _callers([url, "all", "8", str(MEMORY_SECONDS / SAMPLES)]).communicate()
        requests += len(json.loads(out)["took"])
        yield f"{MEMORY_SECONDS / SAMPLES * sample:g} s", f"{_megabytes(process):.0f} MB", f"{requests:,}"


def _megabytes(process: int) -> float:
    text = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    return int(found[1]) / 1024 if found else 0.0


def _ms(seconds: float) -> str:
    return f"{seconds * 1_000:.2f} ms"


def _cold_starts(uri: str) -> Iterator[Measure]:
    query = ["query", "-e", CALLS["point query"][1], "--params", '{"name": "p1"}', "--store", uri]
    for words, target in ((["version"], 300), (["--help"], 300), (query, 1_200)):
        command = [sys.executable, "-m", "omnigraph", *words]
        took = median_ms(lambda: subprocess.run(command, check=True, capture_output=True), rounds=ROUNDS, warm_up=1)  # noqa: B023 - called at once
        yield Measure(f"start of `omnigraph {words[0]}`, all of it", took, target, ROUNDS)
