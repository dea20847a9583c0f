"""The partitions of an IVF vector index: their vectors, read and cached, and a lower bound of the distances in each.

An index assigns every vector to the nearest of some centres. Balls cover the vectors of a partition (a ball tree of one
level); by the triangle inequality no vector is nearer to a query than the nearest point of its ball. A partition whose
bound is above the k-th distance so far is skipped, so the search is exact; how much it saves depends on how far apart
the clusters of the data are.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Iterator
from threading import Lock
from typing import Any, Final

import numpy as np
import pyarrow as pa
from lance.dataset import Index
from lance.file import LanceFileSession
from numpy.typing import NDArray

from omnigraph.limits import VECTOR_CACHE_BYTES_MAX, VECTOR_UNPARTITIONED_ROWS_MAX
from omnigraph.lru import LruCache
from omnigraph.store.index.bm25 import Scores
from omnigraph.store.index.exact_knn import Matrix, Vectors, find_centres, label
from omnigraph.store.index.index_build import base_uri
from omnigraph.store.read.dataset import Dataset, lance_errors

_ROW_ID: Final = "_rowid"
_VECTOR: Final = "flat"
_FILE: Final = "auxiliary.idx"
_BATCH_ROWS: Final = 16_384
# Vectors in one ball, and balls that are kept for one index.
_BALL_ROWS: Final = 64
_BALLS_MAX: Final = 65_536
_PARTITION_BALLS_MAX: Final = 256
_ROUNDING: Final = 2.2 * float(np.finfo(np.float32).eps)
# Distances and radii are of double precision; this share of their sum covers their rounding errors.
_SLACK: Final = 1e-9


class PartitionCache:
    """Partitions that were read, and what is known of each index: neither depends on a version."""

    def __init__(self, bytes_max: int = VECTOR_CACHE_BYTES_MAX) -> None:
        self._indexes: dict[str, Partitions] = {}
        self._lock = Lock()
        self.parts: LruCache[Hashable, Matrix] = LruCache(sys.maxsize, bytes_max)

    def index(self, dataset: Dataset, segment: Index) -> Partitions:
        """Return the partitions of a segment, whose reach is measured once."""
        with self._lock:
            cached = self._indexes.get(segment.uuid)
        if cached is None:
            cached = Partitions(dataset, segment, self)
            with self._lock:
                self._indexes[segment.uuid] = cached
        return cached


class Partitions:
    """One segment of a vector index."""

    def __init__(self, dataset: Dataset, segment: Index, cache: PartitionCache) -> None:
        self._segment = segment
        self._cache = cache
        with lance_errors(f"reading an index of {dataset.ref}", dataset):
            indices = dataset.lance.stats.index_stats(segment.name)["indices"]
            [statistics] = [entry for entry in indices if entry["uuid"] == segment.uuid]
            self.dimension = _dimension(dataset, segment)
            self.sizes = np.array([part["size"] for part in statistics["partitions"]], np.int64)
            session = LanceFileSession(base_uri(dataset, segment), storage_options=dataset.store.lance_options or None)
            self._reader: Any = session.open_reader(f"_indices/{segment.uuid}/{_FILE}")
        self._ends = np.cumsum(self.sizes)
        self._balls: _Balls | None = None
        self._lock = Lock()

    @property
    def is_undivided(self) -> bool:
        """Whether there is nothing that could be left out, as in indexes of versions that had one partition alone."""
        return len(self.sizes) == 1 and int(self.sizes[0]) > VECTOR_UNPARTITIONED_ROWS_MAX

    @property
    def is_measured(self) -> bool:
        return self._balls is not None

    def measure(self) -> None:
        """Read all vectors once, to know how far each partition reaches."""
        with self._lock:
            if self._balls is None:
                self._balls = _Balls(self._batches(), self.sizes, self.dimension)

    def bounds(self, query: Vectors) -> Scores:
        """Return a lower bound for the distance of the vectors in each partition."""
        assert self._balls is not None, "partitions are measured before they are compared"
        return self._balls.bounds(query)

    def read(self, partition: int) -> Matrix:
        """Return the vectors of one partition."""
        size = int(self.sizes[partition]) * self.dimension * 4
        key = (self._segment.uuid, partition)
        return self._cache.parts.get_or_create(key, lambda: self._range(partition, partition + 1), size)

    def _range(self, first: int, end: int) -> Matrix:
        start = int(self._ends[first] - self.sizes[first])
        with lance_errors("reading partitions of a vector index"):
            table = self._reader.read_range(start, int(self._ends[end - 1]) - start).to_table()
        vectors = table.column(_VECTOR).combine_chunks().flatten().to_numpy(zero_copy_only=False)
        return Matrix(table.column(_ROW_ID).to_numpy(), vectors.reshape(-1, self.dimension))

    def _batches(self) -> Iterator[tuple[int, Vectors]]:
        """Return the vectors of one partition after the other, reading several at a time."""
        first = 0
        while first < len(self.sizes):
            end = int(np.searchsorted(self._ends, self._ends[first] - self.sizes[first] + _BATCH_ROWS, "right"))
            end = max(end, first + 1)
            starts = self._ends[first:end] - self.sizes[first:end] - (self._ends[first] - self.sizes[first])
            vectors = self._range(first, end).vectors
            for partition, start in zip(range(first, end), starts.tolist(), strict=True):
                yield partition, vectors[start : start + int(self.sizes[partition])]
            first = end


class _Balls:
    """Balls that hold the vectors of partitions, several for each, because a partition may hold several clusters."""

    def __init__(self, partitions: Iterable[tuple[int, Vectors]], sizes: NDArray[np.int64], dimension: int) -> None:
        rows = max(_BALL_ROWS, int(sizes.sum()) // _BALLS_MAX)
        centres, radii, owners = [np.empty((0, dimension), np.float32)], [np.empty(0)], [np.empty(0, np.intp)]
        for partition, vectors in partitions:
            if len(vectors):
                with np.errstate(all="ignore"):
                    ball_centres = find_centres(
                        vectors, min(max(len(vectors) // rows, 1), _PARTITION_BALLS_MAX), rounds=1
                    )
                    labels = label(vectors, ball_centres)
                    apart = vectors.astype(np.float64) - ball_centres[labels]
                    distances = np.sqrt(np.einsum("ij,ij->i", apart, apart))
                reach = np.full(len(ball_centres), -np.inf)
                np.maximum.at(reach, labels, np.where(np.isnan(distances), np.inf, distances))
                kept = reach >= 0
                centres.append(ball_centres[kept])
                radii.append(reach[kept])
                owners.append(np.full(int(kept.sum()), partition))
        self._centres = np.concatenate(centres)
        self._radii = np.concatenate(radii)
        # The balls of a partition follow each other, so the least of each partition is a reduction.
        self._owners, self._starts = np.unique(np.concatenate(owners), return_index=True)
        with np.errstate(all="ignore"):
            self._squares = np.einsum("ij,ij->i", self._centres, self._centres, dtype=np.float64)
        self._partitions = len(sizes)

    def bounds(self, query: Vectors) -> Scores:
        bounds = np.full(self._partitions, np.inf)
        if len(self._starts) == 0:
            return bounds
        square = float(np.square(query, dtype=np.float64).sum())
        with np.errstate(all="ignore"):
            product = (self._centres @ query).astype(np.float64)
            # A product of n single-precision terms is off by at most n rounding errors of the product of the lengths.
            error = _ROUNDING * len(query) * np.sqrt(self._squares * square)
            far = np.sqrt(np.maximum(self._squares - 2.0 * product + square - error, 0.0))
            least = far - self._radii - _SLACK * (far + self._radii)
        # After an overflow the vector may be anywhere.
        least = np.where(np.isfinite(least), least, -np.inf)
        bounds[self._owners] = np.minimum.reduceat(least, self._starts)
        return bounds


def _dimension(dataset: Dataset, segment: Index) -> int:
    [name] = [name for name, number in dataset.field_ids.items() if number == segment.fields[0]]
    type_ = dataset.schema.field(name).type
    assert isinstance(type_, pa.FixedSizeListType)
    return int(type_.list_size)
