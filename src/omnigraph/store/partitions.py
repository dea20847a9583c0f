"""The partitions of a vector index as its files hold them: which vectors lie in each, and how far it reaches.

An index assigns every vector to the nearest of some centres. A partition whose nearest possible vector, by the triangle
inequality, is farther than what is found already need not be read, so a search by partitions is exact.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Any, Final

import numpy as np
from lance.dataset import Index
from lance.file import LanceFileSession

from omnigraph.limits import VECTOR_CACHE_BYTES_MAX
from omnigraph.store.bm25 import Scores
from omnigraph.store.dataset import Dataset, lance_errors
from omnigraph.store.index import base_uri
from omnigraph.store.live import RowIds
from omnigraph.store.matrix import Matrix, Vectors

# Lance is about to leave the centres out of its statistics unless it is asked for them.
os.environ.setdefault("LANCE_INCLUDE_VECTOR_CENTROIDS", "true")

_ROW_ID: Final = "_rowid"
_VECTOR: Final = "flat"
_FILE: Final = "auxiliary.idx"
_BATCH_ROWS: Final = 16_384
# Distances and radii are of double precision; this much of their sum covers what their last digits may be off by.
_SLACK: Final = 1e-9


class PartitionCache:
    """Partitions that were read, and what is known of each index: neither depends on a version."""

    def __init__(self, bytes_max: int = VECTOR_CACHE_BYTES_MAX) -> None:
        self._indexes: dict[str, Partitions] = {}
        self._parts: OrderedDict[Hashable, Matrix] = OrderedDict()
        self._bytes, self._bytes_max = 0, bytes_max
        self._lock = Lock()

    def index(self, dataset: Dataset, segment: Index) -> Partitions:
        """Return the partitions of a segment, whose reach is measured once."""
        with self._lock:
            known = self._indexes.get(segment.uuid)
        if known is None:
            known = Partitions(dataset, segment, self)
            with self._lock:
                self._indexes[segment.uuid] = known
        return known

    def get(self, key: Hashable) -> Matrix | None:
        with self._lock:
            if key in self._parts:
                self._parts.move_to_end(key)
            return self._parts.get(key)

    def put(self, key: Hashable, part: Matrix) -> None:
        with self._lock:
            if key not in self._parts:
                self._parts[key] = part
                self._bytes += part.vectors.nbytes
            while self._bytes > self._bytes_max and len(self._parts) > 1:
                self._bytes -= self._parts.popitem(last=False)[1].vectors.nbytes


class Partitions:
    """One segment of a vector index."""

    def __init__(self, dataset: Dataset, segment: Index, cache: PartitionCache) -> None:
        self._segment = segment
        self._cache = cache
        with lance_errors(f"reading an index of {dataset.ref}", dataset):
            told = dataset.lance.stats.index_stats(segment.name)["indices"]
            [own] = [one for one in told if one["uuid"] == segment.uuid]
            self._centres = np.array(own["centroids"], np.float64)
            self.sizes = np.array([part["size"] for part in own["partitions"]], np.int64)
            session = LanceFileSession(base_uri(dataset, segment), storage_options=dataset.store.lance_options or None)
            self._reader: Any = session.open_reader(f"_indices/{segment.uuid}/{_FILE}")
            self._ends = np.cumsum(self.sizes)
            self._radii = self._measured()

    @property
    def dimension(self) -> int:
        return int(self._centres.shape[1])

    def bounds(self, query: Vectors) -> tuple[Scores, Scores]:
        """Return how far the centre of each partition is, and what no vector in it can be nearer than."""
        with np.errstate(all="ignore"):
            far = np.sqrt(np.square(self._centres - query.astype(np.float64)).sum(axis=1))
            least = far - self._radii - _SLACK * (far + self._radii)
        # What is too large to be computed may be anywhere, and where nothing is, nothing is near.
        return far, np.where(self.sizes == 0, np.inf, np.where(np.isfinite(least), least, -np.inf))

    def read(self, place: int) -> Matrix:
        """Return the vectors of one partition."""
        key = (self._segment.uuid, place)
        known = self._cache.get(key)
        if known is None:
            size = int(self.sizes[place])
            with lance_errors("reading a partition of a vector index"):
                table = self._reader.read_range(int(self._ends[place]) - size, size).to_table()
            known = Matrix(*_contents(table, self.dimension))
            self._cache.put(key, known)
        return known

    def _measured(self) -> Scores:
        """Return the distance of the farthest vector of each partition from its centre."""
        radii = np.zeros(len(self.sizes))
        owners = np.repeat(np.arange(len(self.sizes)), self.sizes)
        start = 0
        for batch in self._reader.read_all(batch_size=_BATCH_ROWS).to_batches():
            _, vectors = _contents(batch, self.dimension)
            own = owners[start : start + len(vectors)]
            with np.errstate(all="ignore"):
                apart = vectors.astype(np.float64) - self._centres[own]
                distances = np.sqrt(np.einsum("ij,ij->i", apart, apart))
            np.maximum.at(radii, own, np.where(np.isnan(distances), np.inf, distances))
            start += len(vectors)
        assert start == len(owners), "the partitions of an index are all that it holds"
        return radii


def _contents(rows: Any, dimension: int) -> tuple[RowIds, Vectors]:
    column = rows.column(_VECTOR)
    vectors = (column.combine_chunks() if hasattr(column, "combine_chunks") else column).flatten()
    return rows.column(_ROW_ID).to_numpy(), vectors.to_numpy(zero_copy_only=False).reshape(-1, dimension)
