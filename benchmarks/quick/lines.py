"""What is measured: reads beside the peers, and everything else beside the least that would have to be done."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow.parquet as pq

import omnigraph as og
from benchmarks import branches, changes, writes
from benchmarks.histories import PEOPLE, write_people
from benchmarks.quick.pairs import Pair, measure
from benchmarks.reads.compare import compare, prepare
from benchmarks.reads.construct_lines import ANY_LINE
from benchmarks.reads.data import TENTH
from benchmarks.reads.draws import Deck
from benchmarks.reads.engines import OURS, PEERS
from benchmarks.reads.processes import available, serving
from benchmarks.reads.topic import CACHE
from omnigraph.engine.changes.row_diff import row_changes
from omnigraph.store.write.upsert import upsert
from tests.support.full_comparison import row_changes_by_comparing

ROUNDS = 3
LOADED_ROWS = 100_000
SHARED_ROWS = 1_000_000
MERGED_SIZE, MERGED_CHANGES = 100_000, 10_000

Ratios = Iterator[tuple[str, float]]


def measure_reads(_: Path) -> Ratios:
    """Ask every line of the page of all engines that are installed; the ratio is the fastest peer's."""
    names = [OURS, *available(PEERS)]
    if names == [OURS]:
        return
    data, homes = prepare(TENTH, names, CACHE)
    with serving(homes) as workers:
        for timing in compare(tuple(ANY_LINE.values()), Deck.read(data), workers, rounds=ROUNDS):
            if timing.ratios():
                yield f"read: {timing.line.title}", min(timing.ratios().values())


def measure_writes(root: Path) -> Ratios:
    """Compare each write with the bare commit of as many rows."""
    subject = writes.Subject(writes.build_history(root / "writes", writes.SMALL, writes.SHORT), writes.SMALL)
    subject.round()
    subject.durations.clear()
    for _ in range(ROUNDS):
        subject.round()
    for name, title in writes.NAMES.items():
        if f"{name} bare" in subject.durations:
            yield f"write: {title}", subject.median(f"{name} bare") / subject.median(name)


def measure_loads(root: Path) -> Ratios:
    """Compare a load with reading and writing the same file by pyarrow and Lance."""
    file = root / "people.parquet"
    write_people(file, LOADED_ROWS)
    numbers = count()

    def load() -> None:
        with og.init(root / f"load{next(numbers)}", schema=PEOPLE) as graph:
            graph.load(nodes={"Person": file}, mode="append")

    def write() -> None:
        lance.write_dataset(pq.read_table(file), str(root / f"plain{next(numbers)}"))

    yield from _measured(Pair(f"load: {LOADED_ROWS:,} rows of Parquet into an empty graph", load, write, ROUNDS))


def measure_merges(root: Path) -> Ratios:
    """Compare a merge with the bare commit of as many rows, and a diff with the comparison of all rows."""
    graph = branches.make_graph(root / "merge", 1, MERGED_SIZE)
    diverged: list[str] = []
    places = np.arange(MERGED_CHANGES) * (MERGED_SIZE // MERGED_CHANGES)

    def commit() -> None:
        branches.commit_rows(graph, "main", branches.make_rows(places + 2, 7), upsert)

    title = f"merge: {MERGED_CHANGES:,} changes into {MERGED_SIZE:,} rows that changed as well"
    merge = Pair(
        title,
        lambda: graph.branches.merge(diverged[-1]),
        commit,
        ROUNDS,
        prepare=lambda: diverged.append(branches.diverge(graph, MERGED_SIZE, MERGED_CHANGES)),
    )
    yield from _measured(merge)
    before, after = changes.make_versions(root / "diff", MERGED_SIZE)[changes.UPDATES]
    pair = Pair(
        f"diff: {changes.UPDATES} of {MERGED_SIZE:,} rows",
        partial(row_changes, before, after),
        partial(row_changes_by_comparing, before, after),
        ROUNDS,
    )
    yield from _measured(pair)


def measure_starts(root: Path) -> Ratios:
    """Compare whole processes with one that only imports what we cannot do without."""
    with og.init(root / "start", schema=PEOPLE) as graph:
        graph.load([{"type": "Person", "data": {"name": "p1", "age": 1}}], mode="append")
    query = "query q() { match { $p: Person } return { $p.name } }"
    words = ["query", "-e", query, "--store", str(root / "start")]
    imports = partial(_run, "-c", "import lance, pyarrow")
    for title, ours in (("omnigraph version", ["version"]), ("omnigraph query", words)):
        yield from _measured(Pair(f"start: `{title}`", partial(_run, "-m", "omnigraph", *ours), imports, 2 * ROUNDS))


def measure_spark(root: Path) -> Ratios:
    """Compare a sum over the data source with the same over Parquet."""
    from omnigraph.spark.session import session

    file = root / "shared.parquet"
    write_people(file, SHARED_ROWS)
    with og.init(root / "shared", schema=PEOPLE) as graph:
        graph.load(nodes={"Person": file}, mode="append")
    spark: Any = session("local[2]")
    shared = spark.read.format("omnigraph").options(graph=str(root / "shared"), type="Person", columns="age")
    pair = Pair(
        f"Spark: sum of a column of {SHARED_ROWS:,} rows",
        lambda: shared.load().agg({"age": "sum"}).collect(),
        lambda: spark.read.parquet(str(file)).agg({"age": "sum"}).collect(),
        ROUNDS,
    )
    yield from _measured(pair)
    spark.stop()


SECTIONS: Mapping[str, Callable[[Path], Ratios]] = {
    "reads": measure_reads,
    "writes": measure_writes,
    "loads": measure_loads,
    "merges": measure_merges,
    "starts": measure_starts,
    "spark": measure_spark,
}


def _measured(pair: Pair) -> Ratios:
    yield pair.title, measure(pair)


def _run(*words: str) -> None:
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
