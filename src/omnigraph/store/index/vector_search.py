"""Vector search on one pinned version: exact Euclidean distances, with or without the partitions of an IVF index.

An index only shows which vectors can be skipped; distances are always computed here, in double precision, from
vectors of rows that live. A column that is searched often is kept in memory, in clusters, if it is not too large.

An index assigns every vector to the nearest of some centres. Balls cover the vectors of a partition (a ball tree of one
level); by the triangle inequality no vector is nearer to a query than the nearest point of its ball. A partition whose
bound is above the k-th distance so far is skipped, so the search is exact; how much it saves depends on how far apart
the clusters of the data are.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from threading import Lock
from typing import Any, Final

import numpy as np
from lance.dataset import Index
from numpy.typing import NDArray

from omnigraph.limits import VECTOR_CACHE_BYTES_MAX, VECTOR_MATRIX_BYTES_MAX, VECTOR_UNPARTITIONED_ROWS_MAX
from omnigraph.lru import LruCache
from omnigraph.store.index.exact_knn import (
    NOTHING_NEAR,
    Clusters,
    Matrix,
    Nearest,
    Vectors,
    dimension_of,
    find_centres,
    label,
    merge_ranked,
)
from omnigraph.store.index.index_build import IndexKind, open_files, segments_of
from omnigraph.store.index.text_analysis import Scores
from omnigraph.store.read.dataset import Dataset, lance_errors
from omnigraph.store.read.live_rows import Flags, LiveRows, Positions, RowIds, live_rows
from omnigraph.store.read.lookup import ROW_ID

_VECTOR: Final = "flat"
_FILE: Final = "auxiliary.idx"
_BATCH_ROWS: Final = 16_384
# Vectors in one ball, and balls that are kept for one index.
_BALL_ROWS: Final = 64
_BALLS_MAX: Final = 65_536
_PARTITION_BALLS_MAX: Final = 256
_BOUND_ROUNDING: Final = 2.2 * float(np.finfo(np.float32).eps)
# Distances and radii are of double precision; this share of their sum covers their rounding errors.
_SLACK: Final = 1e-9


class PartitionCache:
    """Partitions that were read, and what is known of each index: neither depends on a version."""

    def __init__(self, bytes_max: int = VECTOR_CACHE_BYTES_MAX) -> None:
        self._indexes: LruCache[str, Partitions] = LruCache(sys.maxsize)
        self.parts: LruCache[Hashable, Matrix] = LruCache(sys.maxsize, bytes_max)

    def index(self, dataset: Dataset, segment: Index) -> Partitions:
        """Return the partitions of a segment, whose reach is measured once."""
        return self._indexes.get_or_create(segment.uuid, lambda: Partitions(dataset, segment, self))


class Partitions:
    """One segment of a vector index."""

    def __init__(self, dataset: Dataset, segment: Index, cache: PartitionCache) -> None:
        self._segment = segment
        self._cache = cache
        with lance_errors(f"reading an index of {dataset.ref}", dataset):
            indices = dataset.lance.stats.index_stats(segment.name)["indices"]
            [statistics] = [entry for entry in indices if entry["uuid"] == segment.uuid]
            [column] = [name for name, number in dataset.field_ids.items() if number == segment.fields[0]]
            self.dimension = dimension_of(dataset, column)
            self.sizes = np.array([part["size"] for part in statistics["partitions"]], np.int64)
            self._reader: Any = open_files(dataset, segment).open_reader(f"_indices/{segment.uuid}/{_FILE}")
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
        size = int(self.sizes[partition]) * self.dimension * 4
        key = (self._segment.uuid, partition)
        return self._cache.parts.get_or_create(key, lambda: self._range(partition, partition + 1), size)

    def _range(self, first: int, end: int) -> Matrix:
        start = int(self._ends[first] - self.sizes[first])
        with lance_errors("reading partitions of a vector index"):
            table = self._reader.read_range(start, int(self._ends[end - 1]) - start).to_table()
        vectors = table.column(_VECTOR).combine_chunks().flatten().to_numpy(zero_copy_only=False)
        return Matrix(table.column(ROW_ID).to_numpy(), vectors.reshape(-1, self.dimension))

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
            error = _BOUND_ROUNDING * len(query) * np.sqrt(self._squares * square)
            far = np.sqrt(np.maximum(self._squares - 2.0 * product + square - error, 0.0))
            least = far - self._radii - _SLACK * (far + self._radii)
        # After an overflow the vector may be anywhere.
        least = np.where(np.isfinite(least), least, -np.inf)
        bounds[self._owners] = np.minimum.reduceat(least, self._starts)
        return bounds


# Up to this many candidates are compared one by one.
TAKEN_CANDIDATES_MAX: Final = 10_000
# Clustering takes as long as some dozens of searches do without; it is done for a column that is searched again.
SEARCHES_BEFORE_CLUSTERS: Final = 8
# Partitions that hold more than one in this many rows are not read one by one; Lance compares all of them faster.
READ_SHARE_MIN: Final = 16
# How far partitions reach is measured once for each index, by reading all of it; the first searches compare all.
SEARCHES_BEFORE_BALLS: Final = 4
# Lance computes squares of distances in single precision: how far one may be off, as a part of itself, per dimension.
_ROUNDING: Final = 4 * float(np.finfo(np.float32).eps)
_ASKED_MAX: Final = 65_536
_DISTANCE: Final = "_distance"


class VectorSearch:
    """How to search one vector column of one pinned version."""

    def __init__(self, dataset: Dataset, column: str, cache: PartitionCache | None = None) -> None:
        self._dataset = dataset
        self._column = column
        self.dimension = dimension_of(dataset, column)
        self._live = live_rows(dataset)
        self._is_large = dataset.count() > VECTOR_UNPARTITIONED_ROWS_MAX
        segments = segments_of(dataset, column, IndexKind.VECTOR) if self._is_large else []
        self._index = IndexedVectors(dataset, column, self._live, segments, cache or PartitionCache())
        self._fits = dataset.count() * self.dimension * 4 <= VECTOR_MATRIX_BYTES_MAX
        self._lock = Lock()
        self._searches = 0
        self._matrix: Matrix | None = None
        self._unindexed: Matrix | None = None
        self._clusters: Clusters | None = None

    def search(self, query: Vectors, candidates: RowIds | None, limit: int | None) -> Nearest:
        """Return rows that have a vector with their distances, nearest first, equal ones in row id order.

        Rows as near as the last one within the limit come along, so that the caller can break the tie.
        """
        if limit == 0 or (candidates is not None and len(candidates) == 0):
            return NOTHING_NEAR
        if candidates is None and limit is not None and self._is_large and self._fits:
            self._searches += 1
            if self._searches > SEARCHES_BEFORE_CLUSTERS:
                return self._clustered().nearest(query, limit)
        if candidates is not None and len(candidates) <= TAKEN_CANDIDATES_MAX and self._matrix is None:
            live = candidates[self._live.positions(candidates) >= 0]
            return Matrix.take(self._dataset, self._column, live).nearest(query, limit)
        if self._index.segments and limit is not None and self._matrix is None:
            nearest = self._by_index(query, candidates, limit)
            if nearest is not None:
                return nearest
        if self._fits:
            return self._all().among(candidates).nearest(query, limit)
        return self._streamed(query, candidates, limit, None)

    def describe(self, limit: int | None) -> str:
        """Describe how a search for this many results would read the vectors of this version."""
        if self._clusters is not None or (self._matrix is not None and limit is None):
            return "in memory, in clusters" if limit is not None else "in memory"
        if limit is None or self._matrix is not None or not self._index.segments:
            return "in memory" if self._fits else "all read from storage"
        return self._index.describe()

    def _by_index(self, query: Vectors, candidates: RowIds | None, limit: int) -> Nearest | None:
        """Search indexed rows by partitions, and scan the others."""
        if candidates is None:
            flags = self._index.known
        else:
            flags = np.zeros(len(self._live.ids), np.bool_)
            flags[self._live.positions(candidates)] = True
            flags &= self._index.known
        indexed = self._index.nearest(query, flags, limit)
        if indexed is None:
            return None
        others = self._unknown(query, candidates, limit)
        return merge_ranked(indexed, others, limit)

    def _unknown(self, query: Vectors, candidates: RowIds | None, limit: int) -> Nearest:
        fragments = [fragment.id for fragment in self._dataset.fragments if fragment.id not in self._index.covered]
        rows = sum(fragment.num_rows for fragment in self._dataset.fragments if fragment.id in fragments)
        if rows == 0:
            return NOTHING_NEAR
        if rows * self.dimension * 4 > VECTOR_MATRIX_BYTES_MAX:
            return self._streamed(query, candidates, limit, fragments)
        with self._lock:
            if self._unindexed is None:
                table = self._dataset.read_fragments(fragments, self._column)
                self._unindexed = Matrix.of_table(table, self._column, self.dimension)
        return self._unindexed.among(candidates).nearest(query, limit)

    def _clustered(self) -> Clusters:
        matrix = self._all()
        with self._lock:
            if self._clusters is None:
                self._clusters = Clusters(matrix)
                # Do not hold the same vectors twice.
                self._matrix = self._clusters.matrix
            return self._clusters

    def _all(self) -> Matrix:
        with self._lock:
            if self._matrix is None:
                table = self._dataset.read([self._column], with_row_id=True)
                self._matrix = Matrix.of_table(table, self._column, self.dimension)
            return self._matrix

    def _streamed(
        self, query: Vectors, candidates: RowIds | None, limit: int | None, fragments: Sequence[int] | None
    ) -> Nearest:
        nearest = NOTHING_NEAR
        with self._dataset.reading(f"reading `{self._column}` of {self._dataset.ref}"):
            for batch in self._dataset.scanner([self._column], fragments, with_row_id=True).to_batches():
                part = Matrix.of(batch.column(ROW_ID).to_numpy(), batch.column(self._column), self.dimension)
                nearest = merge_ranked(nearest, part.among(candidates).nearest(query, limit), limit)
        return nearest


class IndexedVectors:
    """The segments of one column's index, seen from one version."""

    def __init__(
        self,
        dataset: Dataset,
        column: str,
        live: LiveRows,
        segments: Sequence[tuple[Index, frozenset[int]]],
        cache: PartitionCache,
    ) -> None:
        self.segments = segments
        self.covered = frozenset().union(*(covered for _, covered in segments))
        self._dataset = dataset
        self._column = column
        self._live = live
        self._cache = cache
        self._searches = 0

    @cached_property
    def _indexes(self) -> list[Partitions]:
        return [self._cache.index(self._dataset, segment) for segment, _ in self.segments]

    def describe(self) -> str:
        indexes = self._indexes
        scanned = sum(fragment.num_rows for fragment in self._dataset.fragments if fragment.id not in self.covered)
        how = "bounded by their reach" if all(index.is_measured for index in indexes) else "all compared"
        unindexed = f", and {scanned} entities that the index does not know" if scanned else ""
        return f"{sum(len(index.sizes) for index in indexes)} partitions of the index, {how}{unindexed}"

    @cached_property
    def known(self) -> Flags:
        return self._live.in_fragments(self.covered)

    def nearest(self, query: Vectors, flags: Flags, limit: int) -> Nearest | None:
        """Return the nearest of the flagged rows; None when neither partitions nor Lance find them in time.

        Best-first search: partitions are read by what they may hold at best, until none can hold anything nearer.
        """
        indexes = self._indexes
        share = max(int(np.count_nonzero(flags)), 1) / max(sum(int(index.sizes.sum()) for index in indexes), 1)
        self._searches += 1
        is_early = self._searches <= SEARCHES_BEFORE_BALLS and not all(index.is_measured for index in indexes)
        if is_early or any(index.is_undivided for index in indexes):
            return self._compared(query, flags, limit, share)
        for index in indexes:
            index.measure()
        partitions = [(number, cell) for number, index in enumerate(indexes) for cell in range(len(index.sizes))]
        least = np.concatenate([index.bounds(query) for index in indexes])
        sizes = np.concatenate([index.sizes for index in indexes])
        nearest = NOTHING_NEAR
        is_read = np.zeros(len(partitions), np.bool_)
        while True:
            # Invariant: every vector nearer than `reach` is in `nearest` or in an unread partition whose bound is
            # within it.
            reach = nearest[1][limit - 1] if len(nearest[1]) >= limit else np.inf
            left = np.flatnonzero(~is_read & (least <= reach))
            if len(left) == 0:
                return nearest
            if len(nearest[1]) >= limit and READ_SHARE_MIN * sizes[left].sum() > sizes.sum():
                return self._compared(query, flags, limit, share)
            left = left[np.argsort(least[left], kind="stable")]
            # As many as should hold enough, and then half of what is left, because every read reduces that.
            enough = int(np.searchsorted(np.cumsum(sizes[left]), limit / share)) + 1
            following = left[: max(enough, len(left) // 2) if len(nearest[1]) >= limit else enough]
            more = self._read(indexes, [partitions[partition] for partition in following], flags).nearest(query, limit)
            is_read[following] = True
            nearest = merge_ranked(nearest, more, limit)

    def _read(self, indexes: Sequence[Partitions], partitions: Sequence[tuple[int, int]], flags: Flags) -> Matrix:
        """Return the flagged rows of some partitions; omits deleted rows and those that another segment covers."""
        rows, vectors = [np.empty(0, np.uint64)], [np.empty((0, indexes[0].dimension), np.float32)]
        self._dataset.store.meter.count("search", str(self._dataset.ref))
        # Several segments may remember a row; one is right about it.
        live_flags = [
            flags if len(indexes) == 1 else flags & self._live.in_fragments(fragment_ids)
            for _, fragment_ids in self.segments
        ]
        for number, partition in partitions:
            part = indexes[number].read(partition)
            kept = self._live.chosen(part.rows, live_flags[number])
            rows.append(part.rows[kept])
            vectors.append(part.vectors[kept])
        return Matrix(np.concatenate(rows), np.concatenate(vectors))

    def _compared(self, query: Vectors, flags: Flags, limit: int, share: float) -> Nearest | None:
        """Let Lance compare all vectors, in single precision; its results include deleted and unflagged rows."""
        error = 1.0 + _ROUNDING * len(query)
        requested = int((2 * limit + 16) / share)
        while requested <= _ASKED_MAX:
            positions, rough = self._proposed(query, requested)
            if not np.isfinite(rough).all():
                return None
            is_live = positions >= 0
            is_live[is_live] = flags[positions[is_live]]
            is_all = len(rough) < requested
            last = np.inf if is_all else float(np.sqrt(rough[-1])) / error
            positions, near = positions[is_live], np.sqrt(rough[is_live])
            if len(near) >= limit or is_all:
                bound = near[limit - 1] * error**2 if len(near) >= limit else np.inf
                # Two segments may both return a row.
                rows = self._live.ids[np.unique(positions[near <= bound])]
                nearest = Matrix.take(self._dataset, self._column, rows).nearest(query, limit)
                # Other rows are farther than the last result, up to the error of single precision.
                if is_all or nearest[1][limit - 1] < last:
                    return nearest
            requested *= 4
        return None

    def _proposed(self, query: Vectors, requested: int) -> tuple[Positions, Scores]:
        all_partitions = sum(len(index.sizes) for index in self._indexes)
        nearest = {"column": self._column, "q": query, "k": requested, "minimum_nprobes": all_partitions}
        with self._dataset.reading(f"searching `{self._column}` of {self._dataset.ref}", counted_as="search"):
            table = self._dataset.lance.scanner(
                columns=[_DISTANCE], nearest=nearest, prefilter=True, with_row_id=True, fast_search=True
            ).to_table()
        rough = table.column(_DISTANCE).to_numpy().astype(np.float64)
        order = np.argsort(rough, kind="stable")
        return self._live.positions(table.column(ROW_ID).to_numpy()[order]), rough[order]
