"""What maintenance buys and costs: reads before and after it, its own time, and writes while it runs.

All that is compared takes turns on copies of the same graph, so that it meets the same machine.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import omnigraph as og
from benchmarks.histories import without_syncs
from benchmarks.topic import Table, Topic
from omnigraph import pipeline
from omnigraph.graph import Graph

SCHEMA = """
node Person { name: String @key  age: I32? @index  about: String? @index }
edge Knows: Person -> Person
"""
INSERT = 'query q($k: String) { insert Person {name: $k, age: 1, about: "one of many"} }'
READS = {
    "point lookup": "query q($k: String) { match { $p: Person {name: $k} } return { $p.age as age } }",
    "scan": 'query q($k: String) { match { $p: Person  $p.about contains "7" } return { count($p) as n } }',
    "traversal, two hops": (
        "query q($k: String) { match { $p: Person {name: $k}  $p knows{1,2} $q } return { count($q) as n } }"
    ),
}


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    read_rows: int = 200_000
    commits: int = 1_000
    optimize_rows: int = 5_000_000
    pieces: int = 40
    write_rows: int = 1_000_000
    writes: int = 300
    rounds: int = 5


def run() -> Topic:
    return measured(Scale())


def measured(scale: Scale) -> Topic:
    """Return all tables at a scale."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        root = Path(folder)
        tables = (_reads(root, scale), _optimize(root, scale), _writes(root, scale))
    return Topic(
        "Maintenance", "Optimize: what it does for reads, how long it takes, and whom it disturbs.", tables=tables
    )


def _grown(root: Path, rows: int, pieces: int) -> Graph:
    """Return a graph of nodes and as many edges that was loaded in pieces, of which the first half is indexed."""
    graph = og.init(root, SCHEMA)
    random, part = np.random.default_rng(7), rows // pieces
    folder = root.with_suffix(".input")
    folder.mkdir()
    with without_syncs():
        for piece in range(pieces):
            _write_input(folder, random, range(piece * part, (piece + 1) * part))
            pipeline.load(
                graph,
                nodes={"Person": folder / "person.parquet"},
                edges={"Knows": folder / "knows.parquet"},
                mode="append",
                engine="local",
            )
            if piece == (pieces - 1) // 2:
                graph.maintenance.ensure_indices()
    shutil.rmtree(folder)
    return graph


def _write_input(folder: Path, random: np.random.Generator, numbers: range) -> None:
    own = np.arange(numbers.start, numbers.stop)
    names = pa.array([f"p{one}" for one in own.tolist()])
    about = pa.array([f"words {one % 97} and {one % 1009} more" for one in own.tolist()])
    people = {"name": names, "age": pa.array(own % 90, pa.int32()), "about": about}
    pa.parquet.write_table(pa.table(people), folder / "person.parquet")
    ends = [f"p{one}" for one in random.integers(0, numbers.stop, len(own)).tolist()]
    pa.parquet.write_table(pa.table({"src": names, "dst": ends}), folder / "knows.parquet")


# -- reads -----------------------------------------------------------------------------------------------------


def _reads(root: Path, scale: Scale) -> Table:
    """Measure reads on a graph as loaded, after many small commits, and after an optimize."""
    fresh = _grown(root / "fresh", scale.read_rows, 1)
    shutil.copytree(root / "fresh", root / "worn")
    with without_syncs(), og.open(root / "worn") as worn:
        for number in range(scale.commits):
            worn.mutate(INSERT, params={"k": f"late{number}"})
    shutil.copytree(root / "worn", root / "optimized")
    with og.open(root / "optimized") as graph:
        graph.maintenance.optimize()
    fresh.close()
    rows = []
    for temper, opens in (("warm", False), ("cold", True)):
        for name, text in READS.items():
            times = _in_turn(root, ("fresh", "worn", "optimized"), text, scale, opens=opens)
            base = times["fresh"]
            cells = [f"{times[one] * 1e3:.2f} ms" for one in ("fresh", "worn", "optimized")]
            rows.append(
                (f"{name}, {temper}", *cells, f"{times['worn'] / base:.2f}", f"{times['optimized'] / base:.2f}")
            )
    about = (
        f"Reads of {scale.read_rows:,} nodes and as many edges, as loaded, after {scale.commits:,} commits of one node"
        " each, and after an optimize; ratios to the graph as loaded (aim after an optimize: 1.2). Cold reads open the"
        " graph first."
    )
    return Table(about, ("What", "Loaded", "Committed to", "Optimized", "Ratio before", "Ratio after"), tuple(rows))


def _in_turn(root: Path, names: tuple[str, ...], text: str, scale: Scale, *, opens: bool) -> dict[str, float]:
    graphs = {name: og.open(root / name) for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    # The first round reads what warm ones find in memory.
    for number in range(4 * scale.rounds + 1):
        for name in names:
            start = time.perf_counter()
            graph = og.open(root / name) if opens else graphs[name]
            graph.query(text, params={"k": f"p{number * 37 % scale.read_rows}"}).rows()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(own[1:]) for name, own in times.items()}


# -- the time of an optimize -----------------------------------------------------------------------------------


def _optimize(root: Path, scale: Scale) -> Table:
    """Measure optimizes of copies of one graph, each in a process of its own."""
    _grown(root / "pieces", scale.optimize_rows, scale.pieces).close()
    cases = {
        "Lance alone: `compact_files` and `optimize_indices`": "lance",
        "in process": "ours",
        "Spark, 1 core": "spark1",
        "Spark, 2 cores": "spark2",
    }
    times: dict[str, list[float]] = {case: [] for case in cases.values()}
    starts: list[float] = []
    for _ in range(max(1, scale.rounds // 2)):
        for case in cases.values():
            answers = _case(root, case)
            times[case].append(answers["seconds"])
            starts += [answers["start"]] if "start" in answers else []
    base = statistics.median(times["lance"])
    rows = tuple(
        (title, f"{statistics.median(times[case]):.2f} s", f"{statistics.median(times[case]) / base:.2f}")
        for title, case in cases.items()
    )
    about = (
        f"An optimize of {scale.optimize_rows:,} nodes and as many edges, loaded in {scale.pieces} pieces; half of them"
        " is indexed; six indexes on nodes, three on edges. The ratio is to Lance's own work on the same files (aim in"
        f" process: 1.3). Spark starts in {statistics.median(starts):.1f} s, which is not counted."
    )
    return Table(about, ("Where", "Time", "Ratio"), rows)


def _case(root: Path, case: str) -> dict[str, float]:
    copy = root / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root / "pieces", copy)
    command = [sys.executable, "-m", "benchmarks.maintaincase", case, str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answers: dict[str, float] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            answers |= json.loads(line)
    return answers


# -- writes beside an optimize ---------------------------------------------------------------------------------


def _writes(root: Path, scale: Scale) -> Table:
    """Measure one-row commits alone, and while an optimize of their type runs again and again."""
    _grown(root / "written", scale.write_rows, scale.pieces).close()
    beside: dict[str, Callable[[Path], Iterator[None]]] = {
        "alone": _nothing,
        "optimize in the same process": _optimizing_here,
        "optimize in another process": _optimizing_elsewhere,
    }
    times: dict[str, list[float]] = {name: [] for name in beside}
    for _ in range(max(1, scale.rounds // 2)):
        for name, company in beside.items():
            copy = root / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(root / "written", copy)
            with contextmanager(company)(copy):
                times[name] += _write_times(copy, scale.writes)
    base = _percentile(times["alone"], 99)
    rows = tuple(
        (
            name,
            f"{_percentile(own, 50):.1f} ms",
            f"{_percentile(own, 99):.1f} ms",
            f"{max(own):.1f} ms",
            f"{_percentile(own, 99) / base:.2f}",
        )
        for name, own in times.items()
    )
    about = (
        f"Commits of one node to a type of {scale.write_rows:,} while it is being optimized; the ratio is that of the"
        " 99th percentiles (aim: 3)."
    )
    return Table(about, ("Beside", "Median", "99th percentile", "Longest", "Ratio"), rows)


def _write_times(root: Path, writes: int) -> list[float]:
    times = []
    with og.open(root) as graph:
        for number in range(writes):
            start = time.perf_counter()
            graph.mutate(INSERT, params={"k": f"new{number}"})
            times.append((time.perf_counter() - start) * 1_000)
    return times


def _percentile(values: list[float], percent: int) -> float:
    return float(np.percentile(values, percent))


def _nothing(root: Path) -> Iterator[None]:
    yield


def _optimizing_here(root: Path) -> Iterator[None]:
    stop = threading.Event()

    def optimize() -> None:
        with og.open(root) as graph:
            while not stop.is_set():
                graph.maintenance.optimize()

    thread = threading.Thread(target=optimize)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _optimizing_elsewhere(root: Path) -> Iterator[None]:
    program = (
        "import sys, omnigraph as og\n"
        "graph = og.open(sys.argv[1])\n"
        "print('ready', flush=True)\n"
        "while True: graph.maintenance.optimize()"
    )
    command = [sys.executable, "-c", program, str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()
