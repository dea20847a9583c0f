"""What it costs to tell what changed, against comparing all rows of both versions.

Both answer the same question on the same two versions, in turns.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.topic import Table, Topic
from omnigraph.engine.changes.row_diff import RowChanges, row_changes
from omnigraph.store.objects.uri import Location
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.store import Store
from omnigraph.store.write.compaction import execute, plan, rewritten
from omnigraph.store.write.transaction import Change, append
from omnigraph.store.write.upsert import upsert
from tests.support.full_comparison import row_changes_by_comparing
from tests.support.staged_fixtures import delete_ids

SIZES = (10_000, 100_000, 1_000_000)
CHANGED = 100
UPDATES = f"{CHANGED} updates"
ROUNDS = 5
_ID: pa.Field[pa.DataType] = pa.field(
    "id", pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}
)
_N: pa.Field[pa.DataType] = pa.field("n", pa.int64())
_TEXT: pa.Field[pa.DataType] = pa.field("text", pa.string())
_SCHEMA = pa.schema([_ID, _N, _TEXT])


def run() -> Topic:
    """Measure what was written, deleted and compacted, in types of several sizes."""
    rows = [row for size in SIZES for row in _rows(size)]
    about = f"Medians of {ROUNDS} rounds; the last column says how many times longer the comparison of all rows takes."
    header = ("entities", "between two versions", "what changed", "all rows compared", "ratio")
    return Topic(
        "Changes",
        "How long it takes to find the changed rows of one type between two of its versions.",
        tables=(Table(about, header, tuple(rows)),),
    )


def _rows(size: int) -> list[tuple[str, ...]]:
    with tempfile.TemporaryDirectory() as directory:
        return [_row(size, name, *pair) for name, pair in make_versions(Path(directory), size).items()]


def make_versions(folder: Path, size: int) -> dict[str, tuple[Dataset, Dataset]]:
    """Return pairs of versions of one type, by what lies between them."""
    base = Store(Location.parse(str(folder))).create("nodes/a", _SCHEMA)
    for half in np.array_split(np.arange(size), 2):
        base = _commit(base, append(base, _table(half, 0)))
    places = np.arange(0, size, size // CHANGED)
    updated = _commit(base, upsert(base, _table(places, 1)))
    deleted = _commit(updated, delete_ids(updated, _table(places + 1, 0).column("id").combine_chunks()))
    tasks = plan(deleted, rows_per_fragment=2 * size)
    compacted = _commit(deleted, rewritten(deleted, [execute(deleted, task) for task in tasks]))
    return {UPDATES: (base, updated), f"{CHANGED} deletes": (updated, deleted), "a compaction": (deleted, compacted)}


def _row(size: int, name: str, before: Dataset, after: Dataset) -> tuple[str, ...]:
    fast: list[float] = []
    full: list[float] = []
    for _ in range(ROUNDS):
        fast.append(_milliseconds(row_changes, before, after))
        full.append(_milliseconds(row_changes_by_comparing, before, after))
    one, two = statistics.median(fast), statistics.median(full)
    return f"{size:,}", name, f"{one:.1f} ms", f"{two:.0f} ms", f"{two / one:.0f} ×"


def _milliseconds(work: Callable[[Dataset, Dataset], RowChanges], before: Dataset, after: Dataset) -> float:
    start = time.perf_counter()
    work(before, after)
    return (time.perf_counter() - start) * 1_000


def _table(numbers: np.ndarray[tuple[int], np.dtype[np.int64]], salt: int) -> pa.Table:
    ids = pa.array([f"entity-{number:09d}" for number in numbers.tolist()])
    text = pa.array([f"a text of some length about entity {number}" for number in numbers.tolist()])
    return pa.table([ids, pa.array(numbers + salt), text], schema=_SCHEMA)


def _commit(dataset: Dataset, change: Change | None) -> Dataset:
    assert change is not None
    staged = dataset.store.commit(dataset, [change], {})
    dataset.store.link(staged.ref, staged.manifest)
    return staged.dataset
