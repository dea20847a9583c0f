"""What branches cost: making one, writing to one, merging and comparing them, and following one.

Sizes and depths take turns, so that they meet the same machine. What is compared is what should not matter: how many
types a graph has, how large they are, and how long its history is.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import omnigraph as og
from benchmarks.histories import without_syncs
from benchmarks.topic import Table, Topic
from omnigraph.engine.merge import moves
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest.model import Snapshot
from omnigraph.manifest.plan import CommitPolicy, Effect, Plan
from omnigraph.rules.arrow_typing import pc
from omnigraph.store.write.transaction import append
from omnigraph.store.write.upsert import upsert
from tests.support.full_comparison import all_row_ids

TYPES = (1, 20, 200)
SIZES = (100_000, 5_000_000)
CHANGED = (100, 10_000)
DEPTHS = (10, 1_000)
ROUNDS = 5
KEY = TypeKey("node:T0")
INSERT = "query q($k: String) { insert T0 {k: $k} }"
_numbers = count()


@dataclass
class Subject:
    """A graph, and how long each thing took on it."""

    graph: Graph
    durations: dict[str, list[float]] = field(default_factory=dict)

    def time(self, name: str, work: Callable[..., Any], *given: object, **options: object) -> Any:
        start = time.perf_counter()
        result = work(*given, **options)
        self.durations.setdefault(name, []).append((time.perf_counter() - start) * 1_000)
        return result

    def median(self, name: str) -> float:
        # The first round reads what the others find in memory.
        return statistics.median(self.durations[name][1:])


def run() -> Topic:
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        root = Path(folder)
        tables = (_types_table(root), *_size_tables(root), _depth_table(root))
    return Topic("Branches", "Warm calls of the Python interface, every write synced as by default.", tables=tables)


def _types_table(root: Path) -> Table:
    subjects = [Subject(make_graph(root / f"types{number}", number)) for number in TYPES]
    for _ in range(2 * ROUNDS + 1):
        for one in subjects:
            name = f"b{next(_numbers)}"
            one.time("create", one.graph.branches.create, name)
            for what in ("first write", "second write"):
                one.time(what, one.graph.mutate, INSERT, params={"k": f"k{next(_numbers)}"}, branch=name)
            one.time("delete", one.graph.branches.delete, name)
    titles = {
        "create": "create a branch",
        "first write": "first write on it, one node",
        "second write": "second write on it, one node",
        "delete": "delete it",
    }
    about = "By the number of types of the graph; the ratio is between the most and the fewest."
    header = ("What", *(f"{number} type{'s' if number > 1 else ''}" for number in TYPES), "Ratio")
    return Table(about, header, tuple(_row(title, subjects, name) for name, title in titles.items()))


def _size_tables(root: Path) -> tuple[Table, Table]:
    subjects = [Subject(make_graph(root / f"size{size}", 1, size)) for size in SIZES]
    for _ in range(ROUNDS + 1):
        for number in CHANGED:
            for one, size in zip(subjects, SIZES, strict=True):
                _merge_round(one, size, number)
    for _ in range(ROUNDS + 1):
        # Of the smaller type alone: in the larger one, comparing all rows takes a minute.
        _compare_round(subjects[0], SIZES[0])
    rows = [
        _row(f"{what} {number:,} changed entities", subjects, f"{what} {number}")
        for what in ("diff of", "dry run of a merge of", "merge of")
        for number in CHANGED
    ]
    header = ("What", *(f"{size:,} entities" for size in SIZES), "Ratio")
    about = "By the size of the type; both sides changed as many entities, none of them the same (aim: 1.5)."
    quick, full = subjects[0].median("fast"), subjects[0].median("full")
    fast = (f"{SIZES[0]:,}", f"{quick:.1f} ms", f"{full:.0f} ms", f"{full / quick:.0f} ×")
    compared = "The dry run of a merge of 100 changed entities, against one that compares all rows of the versions."
    return Table(about, header, tuple(rows)), Table(compared, ("Entities", "Ours", "All rows", "Ratio"), (fast,))


def _merge_round(one: Subject, size: int, number: int) -> None:
    name = diverge(one.graph, size, number)
    one.time(f"diff of {number}", one.graph.diff, "main", name)
    one.time(f"dry run of a merge of {number}", one.graph.branches.merge, name, dry_run=True)
    receipt = one.time(f"merge of {number}", one.graph.branches.merge, name)
    assert receipt.types[0].updated == number
    one.graph.branches.delete(name)


def _compare_round(one: Subject, size: int) -> None:
    name = diverge(one.graph, size, CHANGED[0])
    quick = vars(moves)["moved_row_ids"]
    one.time("fast", one.graph.branches.merge, name, dry_run=True)
    vars(moves)["moved_row_ids"] = all_row_ids
    try:
        one.time("full", one.graph.branches.merge, name, dry_run=True)
    finally:
        vars(moves)["moved_row_ids"] = quick
    one.graph.branches.delete(name)


def diverge(graph: Graph, size: int, number: int) -> str:
    """Make a branch; change some entities on it, and as many others on main."""
    name = f"b{next(_numbers)}"
    graph.branches.create(name)
    places = np.arange(number) * (size // number)
    for branch, shift in ((name, 0), ("main", 1)):
        commit_rows(graph, branch, make_rows(places + shift, next(_numbers)), upsert)
    return name


def _depth_table(root: Path) -> Table:
    subjects = []
    for depth in DEPTHS:
        subject = Subject(make_graph(root / f"depth{depth}", 1))
        with without_syncs():
            for _ in range(depth):
                subject.graph.mutate(INSERT, params={"k": f"k{next(_numbers)}"})
        subjects.append(subject)
    for _ in range(2 * ROUNDS + 1):
        for one in subjects:
            page = one.time("caught up", one.graph.changes)
            one.graph.mutate(INSERT, params={"k": f"k{next(_numbers)}"})
            found = one.time("one commit", one.graph.changes, cursor=page.cursor)
            assert [block.count for block in found.blocks] == [1]
    titles = {"caught up": "poll without changes", "one commit": "poll with one commit"}
    header = ("What", *(f"{depth:,} commits" for depth in DEPTHS), "Ratio")
    about = "The feed, by the number of commits before."
    return Table(about, header, tuple(_row(title, subjects, name) for name, title in titles.items()))


def _row(title: str, subjects: list[Subject], name: str) -> tuple[str, ...]:
    medians = [one.median(name) for one in subjects]
    return title, *(f"{one:.1f} ms" for one in medians), f"{medians[-1] / medians[0]:.2f}"


def make_graph(root: Path, types: int, size: int = 0) -> Graph:
    graph = og.init(
        root, schema="\n".join(f"node T{n} {{ k: String @key  n: I64?  s: String? }}" for n in range(types))
    )
    if size:
        append_rows(graph, np.arange(size))
    return graph


def append_rows(graph: Graph, numbers: Any) -> None:
    """Add entities that no branch has changed."""
    commit_rows(graph, "main", make_rows(numbers, -1), append)


def make_rows(numbers: Any, salt: int) -> pa.Table:
    keys = pc.binary_join_element_wise("entity-", pc.cast(pa.array(numbers), pa.string()), "")
    texts = pc.binary_join_element_wise("a text of some length about ", keys, "")
    return pa.table({"id": keys, "k": keys, "n": pa.array(np.full(len(numbers), salt)), "s": texts})


def commit_rows(graph: Graph, branch: str, rows: pa.Table, write: Callable[..., Any]) -> None:
    """Commit rows with the kernel alone."""
    kernel = session_of(graph).kernel

    def prepare(snapshot: Snapshot) -> Plan:
        dataset = kernel.writable(snapshot, KEY)
        change = write(dataset, rows.select(dataset.schema.names).cast(dataset.schema))
        return Plan("ingest", (Effect(KEY, dataset, (change,)),))

    kernel.commit(branch, prepare, CommitPolicy.INSERT)
