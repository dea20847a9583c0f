"""How fast the kernel commits, opens and branches, against bare Lance doing the same writes and syncs.

Every durable write is synced, as by default. Variants take turns in blocks, so that all of them meet the same machine.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments

from benchmarks.histories import without_syncs
from benchmarks.topic import Measure, Topic, median_ms
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import TAIL_FRAGMENTS_MAX
from omnigraph.manifest import branches
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import Snapshot
from omnigraph.manifest.plan import CommitPolicy, Effect, Plan
from omnigraph.store.objects.durability import Disk
from omnigraph.store.objects.uri import Location
from omnigraph.store.read.dataset import Dataset, manifest_name
from omnigraph.store.write.compaction import fold_tail
from omnigraph.store.write.transaction import append
from tests.support.kernel_fixtures import CITY, KNOWS, PERSON, create, open_graph, rows_of, wide_schema

DEPTHS = (10, 100, 1_000, 5_000)
# Bare Lance takes longer with every fragment, so building it any deeper would take longer than all the rest.
FLOOR_DEPTHS = DEPTHS[:-1]
BLOCK, BLOCKS = 10, 10
TYPES = {1: (PERSON,), 3: (PERSON, CITY, KNOWS)}
CATALOG_ROWS = 200
_numbers = count()


class Floor:
    """Bare Lance: append to some datasets and replace a catalog of 200 rows, with the syncs that make it durable."""

    def __init__(self, root: Path) -> None:
        self._disk = Disk(Location.parse(str(root)))
        self._tables = [self._create(root / name) for name in ("person", "city", "knows")]
        self._catalog = self._create(root / "catalog")

    @staticmethod
    def _create(path: Path) -> LanceDataset:
        return lance.write_dataset(_rows(0), str(path), enable_v2_manifest_paths=True)

    def commit(self, types: int) -> None:
        files: list[str] = []
        for place in range(types):
            self._tables[place] = self._write(self._tables[place], 1, "append", files)
        staged = write_fragments(_rows(CATALOG_ROWS), self._catalog, mode="overwrite", return_transaction=True)
        assert isinstance(staged, Transaction)
        files += _data_files(self._catalog, staged)
        self._sync(files)
        overwrite = LanceOperation.Overwrite(self._catalog.schema, staged.operation.fragments)  # type: ignore[attr-defined]
        transaction = Transaction(self._catalog.version, overwrite)
        self._catalog = LanceDataset.commit(self._catalog, transaction, max_retries=0)
        self._sync([_manifest_file(self._catalog)])

    def _write(self, table: LanceDataset, rows: int, mode: str, files: list[str]) -> LanceDataset:
        staged = write_fragments(_rows(rows), table, mode=mode, return_transaction=True)
        assert isinstance(staged, Transaction)
        files += _data_files(table, staged)
        committed = LanceDataset.commit(table, staged, max_retries=0)
        files.append(_manifest_file(committed))
        return committed

    def _sync(self, files: list[str]) -> None:
        self._disk.sync(files, {os.path.dirname(file) for file in files})


def _rows(number: int) -> pa.Table:
    names = [f"p{next(_numbers)}" for _ in range(number)]
    columns: list[pa.Array[Any]] = [
        pa.array(names, pa.string()),
        pa.array(names, pa.string()),
        pa.nulls(number, pa.int32()),
    ]
    return pa.Table.from_arrays(columns, names=["id", "name", "age"])


def _data_files(table: LanceDataset, staged: Transaction) -> list[str]:
    fragments = staged.operation.fragments  # type: ignore[attr-defined]  # appends and overwrites both carry them
    return [f"{table.uri}/data/{file.path}" for fragment in fragments for file in fragment.files]


def _manifest_file(table: LanceDataset) -> str:
    return f"{table.uri}/_versions/{manifest_name(table.version)}"


def _commit(kernel: Kernel, types: int, branch: str = "main") -> None:
    """Commit one new row per type, folding a long tail of small fragments on the way, as mutations do."""

    def prepare(snapshot: Snapshot) -> Plan:
        return Plan("insert", tuple(_effect(kernel.writable(snapshot, key), key) for key in TYPES[types]))

    kernel.commit(branch, prepare, CommitPolicy.INSERT)


def _effect(dataset: Dataset, table_key: TypeKey) -> Effect:
    change = append(dataset, rows_of(dataset, [f"p{next(_numbers)}"]))
    fold = fold_tail(dataset, TAIL_FRAGMENTS_MAX)
    return Effect(table_key, dataset, (change,) if fold is None else (fold, change.following(fold)))


def run() -> Topic:
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        root = Path(folder)
        commits, flatness = _commit_measures(root)
        measures = (*commits, *_open_measures(root), *_throughput_measures(root))
    return Topic("Kernel", f"{_ABOUT} {flatness}", measures)


_ABOUT = (
    "One-row commits over one and three types, after so many commits before; the target is the floor: bare Lance that"
    " stages and commits the same datasets, replaces a catalog of 200 rows strictly, and syncs the same files. Ours"
    " folds small fragments every so often, as mutations do; the floor does not."
    " With several writers, the time is wall time per commit."
)

_Durations = dict[tuple[str, int, int], list[float]]


def _commit_measures(root: Path) -> tuple[list[Measure], str]:
    work: dict[tuple[str, int, int], Callable[[], None]] = {}
    for depth in DEPTHS:
        kernel = create(str(root / f"depth{depth}"))
        floor = Floor(root / f"floor{depth}") if depth in FLOOR_DEPTHS else None
        with without_syncs():
            for _ in range(depth):
                _commit(kernel, 3)
                if floor is not None:
                    floor.commit(3)
        for types in TYPES:
            work["ours", types, depth] = partial(_commit, kernel, types)
            if floor is not None:
                work["floor", types, depth] = partial(floor.commit, types)
    durations: _Durations = {key: [] for key in work}
    for _ in range(BLOCKS):
        for key, one in work.items():
            durations[key] += _timed(one, BLOCK)
    measures = []
    for types in TYPES:
        for depth in DEPTHS:
            ours, bare = durations["ours", types, depth], durations.get(("floor", types, depth))
            name = f"commit over {types} type{'s' if types > 1 else ''} at depth {depth:,}"
            measures.append(Measure(f"{name}, median", _median(ours), _median(bare) if bare else None, len(ours)))
            measures.append(Measure(f"{name}, 99th percentile", _tail(ours), _tail(bare) if bare else None, len(ours)))
    return measures, _flatness(durations)


def _flatness(durations: _Durations) -> str:
    def growth(who: str, types: int, depths: tuple[int, ...]) -> float:
        return _median(durations[who, types, depths[-1]]) / _median(durations[who, types, depths[0]])

    ours, bare = (
        " and ".join(f"{growth(who, types, depths):.2f}" for types in TYPES)
        for who, depths in (("ours", DEPTHS), ("floor", FLOOR_DEPTHS))
    )
    return (
        f"Median at depth {DEPTHS[-1]:,} over depth {DEPTHS[0]}, with one and three types: {ours}; the floor at depth"
        f" {FLOOR_DEPTHS[-1]:,}: {bare}."
    )


def _timed(work: Callable[[], None], rounds: int) -> list[float]:
    durations = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        durations.append((time.perf_counter() - start) * 1_000)
    return durations


def _median(durations: list[float]) -> float:
    return statistics.median(durations)


def _tail(durations: list[float]) -> float:
    return sorted(durations)[int(len(durations) * 0.99)]


def _open_measures(root: Path) -> list[Measure]:
    measures = []
    branching: list[float] = []
    for types in (2, 200):
        place = str(root / f"wide{types}")
        with without_syncs():
            kernel = create(place, wide_schema(types))
        cold = median_ms(lambda place=place: open_graph(place).snapshot(), rounds=30)  # type: ignore[misc]
        warm = median_ms(kernel.snapshot, rounds=200)
        branching.append(median_ms(lambda kernel=kernel: _branch(kernel), rounds=20))  # type: ignore[misc]
        measures += [
            Measure(f"cold open with {types} types", cold, rounds=30),
            Measure(f"warm snapshot with {types} types", warm, rounds=200),
            Measure(f"branch create with {types} types", branching[-1], branching[0] if types > 2 else None, 20),
        ]
    return measures


def _branch(kernel: Kernel) -> None:
    branches.create_branch(kernel, f"b{next(_numbers)}", kernel.snapshot())


def _throughput_measures(root: Path) -> list[Measure]:
    measures = []
    for is_shared, where in ((True, "one branch"), (False, "a branch each")):
        for threads in (1, 4, 16):
            kernel = create(str(root / f"threads{threads}{is_shared}"))
            names = ["main"] * threads if is_shared else _make_branches(kernel, threads)
            per_commit = _in_threads(kernel, names, 96 // threads)
            name = f"commit, {threads} thread{'s' if threads > 1 else ''} on {where}"
            measures.append(Measure(name, per_commit, rounds=96))
        place = str(root / f"processes{is_shared}")
        kernel = create(place)
        names = ["main"] * 4 if is_shared else _make_branches(kernel, 4)
        measures.append(Measure(f"commit, 4 processes on {where}", _in_processes(place, names, 25), rounds=100))
    return measures


def _make_branches(kernel: Kernel, number: int) -> list[str]:
    names = [f"t{place}" for place in range(number)]
    for name in names:
        branches.create_branch(kernel, name, kernel.snapshot())
        _commit(kernel, 1, name)
    return names


def _commits(kernel: Kernel, branch: str, number: int) -> None:
    for _ in range(number):
        _commit(kernel, 1, branch)


def _in_threads(kernel: Kernel, names: list[str], number: int) -> float:
    """Return the wall time per commit when each branch of a list has a thread of its own."""
    threads = [threading.Thread(target=_commits, args=(kernel, name, number)) for name in names]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - start) * 1_000 / (len(names) * number)


_PROGRAM = """
import sys
from omnigraph.errors import ConflictError
from tests.support.kernel_fixtures import PERSON, insert, open_graph
root, branch, name, number = sys.argv[1:]
kernel = open_graph(root)
def commit(turn):
    while True:
        try:
            return insert(kernel, {PERSON: [f"{name}-{turn}"]}, branch)
        except ConflictError:
            continue
commit("first")
print("ready", flush=True)
sys.stdin.readline()
for turn in range(int(number)):
    commit(turn)
"""


def _in_processes(root: str, names: list[str], number: int) -> float:
    """Return the wall time per commit when each branch of a list has a process of its own."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, root, branch, f"w{place}", str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for place, branch in enumerate(names)
    ]
    for one in started:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    start = time.perf_counter()
    for one in started:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in started:
        assert one.wait() == 0
    duration = time.perf_counter() - start
    for one in started:
        one.communicate()
    return duration * 1_000 / (len(names) * number)
