"""How fast the nearest of a million vectors are found by their index, and by comparing all; both in turn."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.topic import Table, Topic
from omnigraph.store.index.index_build import IndexKind, IndexSpec, build
from omnigraph.store.index.vector_search import SEARCHES_BEFORE_BALLS, PartitionCache, VectorSearch
from omnigraph.store.objects.uri import Location
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.store import Store
from omnigraph.store.write.transaction import append
from tests.support.staged_fixtures import commit

ROWS, DIMENSION, LIMIT, QUERIES = 1_000_000, 128, 10, 20
_PART = 250_000
_SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("vec", pa.list_(pa.float32(), DIMENSION))])
_INDEX = IndexSpec("vec", IndexKind.VECTOR, "vec")


@dataclass(frozen=True, slots=True)
class Cloud:
    """Vectors around centres: how many centres, and how wide each cluster is if centres are one apart per dimension."""

    clusters: int
    width: float

    def drawn(self, random: np.random.Generator, centres: NDArray[np.float32], count: int) -> NDArray[np.float32]:
        noise = random.standard_normal((count, DIMENSION), np.float32)
        return centres[random.integers(0, self.clusters, count)] + np.float32(self.width) * noise


@dataclass(frozen=True, slots=True)
class Compared:
    """Medians of the same questions by the index and by a scan, and how many of the true best the index found."""

    indexed_ms: float
    scan_ms: float
    recall: float

    @property
    def ratio(self) -> float:
        return self.scan_ms / self.indexed_ms


CLOUDS = (Cloud(1_000, 0.3), Cloud(1_000, 0.5), Cloud(100, 1.0))


def run(rows: int = ROWS, clouds: tuple[Cloud, ...] = CLOUDS) -> Topic:
    lines: list[tuple[str, ...]] = []
    for cloud in clouds:
        with tempfile.TemporaryDirectory() as folder:
            found = measured(folder, cloud, rows)
        lines += [(f"{cloud.clusters} clusters of width {cloud.width}", *line) for line in found]
    return Topic(
        "Vectors",
        f"The {LIMIT} nearest of {rows:,} vectors of {DIMENSION} numbers, warm. A scan is what a search without index"
        " does; both answer the same questions in turn, and both are exact.",
        tables=(Table("Medians.", ("Vectors", "Asked of", "Index ms", "Scan ms", "Ratio", "Recall"), tuple(lines)),),
    )


def measured(folder: str, cloud: Cloud, rows: int) -> list[tuple[str, ...]]:
    random = np.random.default_rng(7)
    centres = random.standard_normal((cloud.clusters, DIMENSION), np.float32)
    plain = _stored(folder, cloud, random, centres, rows)
    indexed = commit(plain, build(plain, [_INDEX]))
    scan, fast = VectorSearch(plain, "vec"), VectorSearch(indexed, "vec", PartitionCache())
    questions = cloud.drawn(random, centres, QUERIES)
    for _ in range(SEARCHES_BEFORE_BALLS + 1):
        fast.search(questions[0], None, LIMIT)
    lines: list[tuple[str, ...]] = []
    for share in (1.0, 0.5, 0.05):
        chosen = np.sort(random.choice(rows, int(rows * share), replace=False)).astype(np.uint64)
        got = compare(fast, scan, questions, None if share == 1 else chosen)
        cells = (f"{got.indexed_ms:.1f}", f"{got.scan_ms:.1f}", f"{got.ratio:.1f}", f"{got.recall:.3f}")
        lines.append((f"{share:.0%} of them", *cells))
    return lines


def compare(
    fast: VectorSearch, scan: VectorSearch, questions: NDArray[np.float32], candidates: NDArray[np.uint64] | None
) -> Compared:
    """Ask both in turn, so that what else the machine does weighs on both."""
    times: tuple[list[float], list[float]] = ([], [])
    held = 0
    for question in questions:
        answers = []
        for spent, search in zip(times, (fast, scan), strict=True):
            answers.append(_timed(spent, partial(search.search, question, candidates, LIMIT)))
        held += int(np.isin(answers[0], answers[1]).sum())
    recall = held / (LIMIT * len(questions))
    indexed_ms, scan_ms = (1_000 * statistics.median(one) for one in times)
    return Compared(indexed_ms, scan_ms, recall)


def _timed(times: list[float], work: Callable[[], tuple[NDArray[np.uint64], Any]]) -> NDArray[np.uint64]:
    start = time.perf_counter()
    rows, _ = work()
    times.append(time.perf_counter() - start)
    return rows[:LIMIT]


def _stored(folder: str, cloud: Cloud, random: np.random.Generator, centres: NDArray[np.float32], rows: int) -> Dataset:
    dataset = Store(Location.parse(folder)).create("nodes/a", _SCHEMA)
    for start in range(0, rows, _PART):
        count = min(_PART, rows - start)
        numbers = pa.array(cloud.drawn(random, centres, count).ravel())
        ids = pa.array([f"k{number}" for number in range(start, start + count)])
        table = pa.Table.from_arrays([ids, pa.FixedSizeListArray.from_arrays(numbers, DIMENSION)], schema=_SCHEMA)
        dataset = commit(dataset, append(dataset, table))
    return dataset
