"""How fast writes are, against the kernel's bare commit of the same rows, after long histories, and on large types.

Every durable write is synced, as by default. All variants take turns, so that they meet the same machine.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import lance
import numpy as np
import orjson
import pyarrow as pa
from pyarrow import json as arrow_json

import omnigraph as og
from benchmarks.histories import without_syncs
from benchmarks.topic import Table, Topic
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import TAIL_FRAGMENTS_MAX
from omnigraph.manifest.model import Snapshot
from omnigraph.manifest.plan import CommitPolicy, Effect, Plan
from omnigraph.rules.arrow_typing import pc
from omnigraph.store.index.index_build import IndexKind, IndexSpec, build
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.write.compaction import fold_tail
from omnigraph.store.write.transaction import append

SCHEMA = """
node Person { name: String @key  email: String? @unique  age: I32?  score: F64? }
node Bare { name: String @key  email: String? @unique  age: I32?  score: F64? }
edge Knows: Person -> Person @card(0..50)
"""
PERSON, BARE, KNOWS = TypeKey("node:Person"), TypeKey("node:Bare"), TypeKey("edge:Knows")
SMALL, LARGE = 10_000, 5_000_000
SHORT, LONG = 10, 1_000
# One value of `age` is held by this many, which an update by age therefore changes.
PER_AGE = 1_000
ROUNDS = 9
INSERT = "query q($name: String, $email: String) { insert Person {name: $name email: $email age: -1} }"
CONNECT = "query q($a: String, $b: String) { insert Knows {from: $a to: $b} }"
REMOVE = "query q($name: String) { delete Person where name = $name }"
UPDATE = "query q($age: I32) { update Person set {score: 1.5} where age = $age }"
_numbers = count(LARGE)


def _rows(numbers: Any) -> pa.Table:
    texts = pc.cast(pa.array(numbers), pa.string())
    names, emails = (pc.binary_join_element_wise(prefix, texts, "") for prefix in ("p", "e"))
    ages = pa.array((np.asarray(numbers) // PER_AGE).astype(np.int32))
    scores = pa.nulls(len(ages), pa.float64())
    return pa.table({"id": names, "name": names, "email": emails, "age": ages, "score": scores})


def _fresh(number: int) -> pa.Table:
    return _rows([next(_numbers) for _ in range(number)])


def _stored(rows: pa.Table, dataset: Dataset) -> pa.Table:
    return rows.select(dataset.schema.names).cast(dataset.schema)


def _commit(graph: Graph, *parts: tuple[TypeKey, pa.Table]) -> None:
    """Commit rows with the kernel alone, folding a long tail of small fragments on the way, as mutations do."""
    kernel = session_of(graph).kernel

    def prepare(snapshot: Snapshot) -> Plan:
        effects = []
        for key, rows in parts:
            dataset = kernel.writable(snapshot, key)
            change = append(dataset, _stored(rows, dataset))
            fold = fold_tail(dataset, TAIL_FRAGMENTS_MAX)
            effects.append(Effect(key, dataset, (change,) if fold is None else (fold, change.following(fold))))
        return Plan("insert", tuple(effects))

    kernel.commit("main", prepare, CommitPolicy.INSERT)


def _lines(rows: pa.Table) -> bytes:
    records = rows.drop_columns(["id"]).to_pylist()
    return b"\n".join(orjson.dumps({"type": "Person", "data": record}) for record in records)


def _edges(size: int) -> pa.Table:
    names = _rows(np.arange(size))["name"].combine_chunks()
    source, target = np.arange(size) * 7 % size, np.arange(size) * 11 % size
    ids = pc.binary_join_element_wise("k", names, "")
    return pa.table({"id": ids, "src": names.take(source), "dst": names.take(target)})


def build_history(root: Path, size: int, commits: int) -> Graph:
    with without_syncs():
        graph = og.init(root, schema=SCHEMA)
        rows = _rows(np.arange(size))
        _commit(graph, (PERSON, rows), (BARE, rows), (KNOWS, _edges(size)))
        for _ in range(commits):
            _commit(graph, (PERSON, _fresh(1)), (BARE, _fresh(1)))
        graph.close()
    return og.open(root)


@dataclass
class Subject:
    """A graph that is written to, and how long each kind of write took."""

    graph: Graph
    size: int
    durations: dict[str, list[float]] = field(default_factory=dict)
    ages: Iterator[int] = field(default_factory=lambda: count(1))
    places: Iterator[int] = field(default_factory=lambda: count(5, 7))

    def round(self) -> None:
        """Run every kind of write, and after each of our own the bare commit of as many rows."""
        for name, number, times in (("one", 1, 6), ("batch", 100, 3), ("ingest", 8_192, 1), ("update", PER_AGE, 1)):
            for _ in range(times):
                rows = _fresh(number)
                self._time(name, self._work(name, rows))
                self._time(f"{name} bare", lambda rows=rows: _commit(self.graph, (BARE, rows)))  # type: ignore[misc]
        for _ in range(3):
            self._time("edge", lambda: self._mutate(CONNECT, a=self._name(), b=self._name()))
            self._time("delete", lambda: self._mutate(REMOVE, name=self._name()))

    def _work(self, name: str, rows: pa.Table) -> Callable[[], object]:
        if name == "one":
            return lambda: self._mutate(INSERT, name=rows["name"][0].as_py(), email=rows["email"][0].as_py())
        if name == "update":
            age = next(self.ages) % (self.size // PER_AGE)
            return lambda: self._mutate(UPDATE, age=age)
        lines = _lines(rows)
        return lambda: self.graph.ingest(lines, mode="merge")

    def _mutate(self, source: str, **params: object) -> None:
        self.graph.mutate(source, params=params)

    def _name(self) -> str:
        return f"p{next(self.places) * 7_919 % self.size}"

    def _time(self, name: str, work: Callable[[], object]) -> None:
        start = time.perf_counter()
        work()
        self.durations.setdefault(name, []).append((time.perf_counter() - start) * 1_000)

    def median(self, name: str) -> float:
        return statistics.median(self.durations[name])


NAMES = {
    "one": "insert of one keyed node",
    "batch": "ingest of 100 new nodes",
    "ingest": "ingest of 8,192 new nodes",
    "update": f"update of {PER_AGE:,} nodes by a filter",
    "edge": "insert of one edge with `@card`",
    "delete": "delete of one node with its edges",
}


def run() -> Topic:
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        root = Path(folder)
        short, long = (build_history(root / f"history{depth}", SMALL, depth) for depth in (SHORT, LONG))
        large = build_history(root / "large", LARGE, SHORT)
        subjects = [Subject(short, SMALL), Subject(long, SMALL), Subject(large, LARGE)]
        for place in range(ROUNDS + 2):
            if place == 2:
                # The first rounds read what the others find in memory.
                for one in subjects:
                    one.durations.clear()
            for one in subjects:
                one.round()
        cold = _cold_table(root / "large")
        throughput = _throughput_table(root)
    return Topic("Writes", _ABOUT, tables=(_bare_table(subjects[0]), _size_table(*subjects), cold, throughput))


_ABOUT = (
    f"Warm writes to a type with `@key` and `@unique`. *Small* is {SMALL:,} entities after {SHORT} commits, *long* the"
    f" same after {LONG:,} commits of one entity, *large* {LARGE:,} entities. No index was built but where it says so."
)


def _ratio(one: float, other: float) -> str:
    return f"{one / other:.2f}"


def _bare_table(small: Subject) -> Table:
    rows = tuple(
        (NAMES[name], f"{small.median(name):.2f} ms", f"{bare:.2f} ms", _ratio(small.median(name), bare), aim)
        for name, aim in (("one", "1.5"), ("batch", "2"), ("ingest", "2"), ("update", "2"))
        for bare in (small.median(f"{name} bare"),)
    )
    about = "On the small graph, against the kernel's bare commit of as many rows: no parsing, no rules, no lookup."
    return Table(about, ("What", "Median", "Bare commit", "Ratio", "Aim"), rows)


def _size_table(small: Subject, long: Subject, large: Subject) -> Table:
    rows = tuple(
        (
            title,
            *(f"{one.median(name):.2f} ms" for one in (small, long, large)),
            _ratio(long.median(name), small.median(name)),
            _ratio(large.median(name), small.median(name)),
        )
        for name, title in NAMES.items()
    )
    about = "The same writes after a long history (aim 1.2) and on a large type (aim 1.3)."
    return Table(about, ("What", "Small", "Long", "Large", "Long / small", "Large / small"), rows)


def _cold_table(root: Path) -> Table:
    """Time the first writes of freshly opened graphs on the large type, without and with an index on the ids."""
    cells = []
    for name in ("no index", "index on `id`"):
        if name != "no index":
            _index_ids(root)
        first = []
        for _ in range(3):
            graph = og.open(root)
            start = time.perf_counter()
            graph.ingest([{"type": "Person", "data": {"name": f"p{next(_numbers)}"}}], mode="merge")
            first.append((time.perf_counter() - start) * 1_000)
            graph.close()
        cells.append((name, f"{statistics.median(first):.1f} ms"))
    about = f"The first write of a freshly opened graph: one keyed node into {LARGE:,}."
    return Table(about, ("With", "Median"), tuple(cells))


def _index_ids(root: Path) -> None:
    graph = og.open(root)
    kernel = session_of(graph).kernel

    def prepare(snapshot: Snapshot) -> Plan:
        dataset = kernel.writable(snapshot, PERSON)
        change = build(dataset, [IndexSpec("id", IndexKind.BTREE, "id_btree")])
        assert change is not None
        return Plan("ensure_indices", (Effect(PERSON, dataset, (change,)),))

    kernel.commit("main", prepare, CommitPolicy.MAINTENANCE)
    graph.close()


def _throughput_table(root: Path) -> Table:
    """Compare an ingest with parsing and writing the same file by pyarrow and Lance alone."""
    graph = og.init(root / "throughput", schema=SCHEMA)
    ours, plain = [], []
    for place in range(ROUNDS):
        file = root / "lines.ndjson"
        file.write_bytes(_lines(_fresh(8_192)))
        start = time.perf_counter()
        graph.ingest(file, mode="merge")
        middle = time.perf_counter()
        nested = arrow_json.read_json(file).select(["data"]).flatten()
        flat = nested.rename_columns([name.removeprefix("data.") for name in nested.column_names])
        lance.write_dataset(flat, str(root / "plain"), mode="append" if place else "create")
        ours.append(middle - start)
        plain.append(time.perf_counter() - middle)
    one, other = statistics.median(ours), statistics.median(plain)
    row = (f"{8_192 / one:,.0f}", f"{8_192 / other:,.0f}", _ratio(one, other))
    about = "Ingest of files of 8,192 lines, in rows a second, against `pyarrow.json` and `lance.write_dataset` alone."
    return Table(f"{about} Those check nothing and sync nothing.", ("Ours", "Plain", "Time ratio"), (row,))
