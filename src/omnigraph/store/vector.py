"""Vector search on one pinned version: exact Euclidean distances, with or without an index.

An index only proposes rows; distances are always computed by us, in double precision, from the stored vectors. A column
that is searched often is kept in memory, in clusters, as long as it is not too large.
"""

from __future__ import annotations

from threading import Lock
from typing import Final

import numpy as np
import pyarrow as pa
from lance.dataset import serialize_row_addrs

from omnigraph.limits import VECTOR_MATRIX_BYTES_MAX
from omnigraph.store.dataset import Dataset, lance_errors
from omnigraph.store.fields import field_ids
from omnigraph.store.index import IndexKind
from omnigraph.store.matrix import Clusters, Matrix, Vectors, ranked
from omnigraph.store.bm25 import Scores
from omnigraph.store.live import RowIds

# Up to this many candidates are looked at one by one.
TOLD_ROWS_MAX: Final = 10_000
# Below this many rows reading all vectors once costs less than asking an index.
UNINDEXED_ROWS_MAX: Final = 20_000
# Clustering takes as long as some dozens of searches do without; it is done for a column that is searched again.
SEARCHES_BEFORE_CLUSTERS: Final = 8
_PROBES_MIN: Final = 32
_ROW_ID: Final = "_rowid"


class VectorSearch:
    """How to search one vector column of one pinned version."""

    def __init__(self, dataset: Dataset, column: str) -> None:
        self._dataset = dataset
        self._column = column
        kind = dataset.schema.field(column).type
        assert isinstance(kind, pa.FixedSizeListType), f"`{column}` is no vector"
        self.dimension = kind.list_size
        self._is_large = dataset.count() > UNINDEXED_ROWS_MAX
        self._is_indexed = self._is_large and _has_index(dataset, column)
        self._fits = dataset.count() * self.dimension * 4 <= VECTOR_MATRIX_BYTES_MAX
        self._lock = Lock()
        self._searches = 0
        self._matrix: Matrix | None = None
        self._clusters: Clusters | None = None

    def search(self, query: Vectors, candidates: RowIds | None, limit: int | None) -> tuple[RowIds, Scores]:
        """Return rows that have a vector with their distances, nearest first, equal ones in row id order.

        Rows as near as the last one within the limit come along, so that the caller can break the tie.
        """
        if limit == 0 or (candidates is not None and len(candidates) == 0):
            return np.empty(0, np.uint64), np.empty(0, np.float64)
        if candidates is None and limit is not None and self._is_large and self._fits:
            self._searches += 1
            if self._searches > SEARCHES_BEFORE_CLUSTERS:
                return self._clustered().nearest(query, limit)
        if candidates is not None and len(candidates) <= TOLD_ROWS_MAX and self._matrix is None:
            return self._taken(candidates).nearest(query, limit)
        is_told = candidates is None or len(candidates) <= TOLD_ROWS_MAX
        if self._is_indexed and limit is not None and is_told:
            return self._taken(self._proposed(query, candidates, limit)).nearest(query, limit)
        if self._fits:
            return self._all().among(candidates).nearest(query, limit)
        return self._streamed(query, candidates, limit)

    def _clustered(self) -> Clusters:
        matrix = self._all()
        with self._lock:
            if self._clusters is None:
                self._clusters = Clusters(matrix)
                # The same vectors need not be held twice.
                self._matrix = self._clusters.matrix
            return self._clusters

    def _proposed(self, query: Vectors, candidates: RowIds | None, limit: int) -> RowIds:
        # Lance ranks in single precision, so a few more than asked for make sure that the best are among them.
        nearest = {"column": self._column, "q": query, "k": 2 * limit + 16, "minimum_nprobes": _PROBES_MIN}
        self._dataset.store.meter.count("search", str(self._dataset.ref))
        with lance_errors(f"searching `{self._column}` of {self._dataset.ref}", self._dataset):
            found = self._dataset.lance.scanner(
                columns=["_distance"],
                nearest=nearest,
                prefilter=True,
                with_row_id=True,
                row_addr_allowlist=None if candidates is None else serialize_row_addrs(candidates.tolist()),
            ).to_table()
        rows: RowIds = found.column(_ROW_ID).to_numpy()
        return np.unique(rows)

    def _taken(self, rows: RowIds) -> Matrix:
        vectors = self._dataset.take(rows.tolist(), [self._column]).column(self._column).combine_chunks()
        return Matrix.of(rows, vectors, self.dimension)

    def _all(self) -> Matrix:
        with self._lock:
            if self._matrix is None:
                table = self._dataset.read([self._column], with_row_id=True)
                rows: RowIds = table.column(_ROW_ID).to_numpy()
                self._matrix = Matrix.of(rows, table.column(self._column).combine_chunks(), self.dimension)
            return self._matrix

    def _streamed(self, query: Vectors, candidates: RowIds | None, limit: int | None) -> tuple[RowIds, Scores]:
        rows, distances = np.empty(0, np.uint64), np.empty(0, np.float64)
        for batch in self._dataset.batches([self._column], with_row_id=True):
            part = Matrix.of(batch.column(_ROW_ID).to_numpy(), batch.column(self._column), self.dimension)
            near, far = part.among(candidates).nearest(query, limit)
            rows, distances = ranked(np.concatenate([rows, near]), np.concatenate([distances, far]), limit)
        return rows, distances


def _has_index(dataset: Dataset, column: str) -> bool:
    number = field_ids(dataset.lance.lance_schema)[column]
    with lance_errors(f"listing the indexes of {dataset.ref}"):
        return any(
            index.index_type.lower() == IndexKind.VECTOR.lower() and list(index.fields) == [number]
            for index in dataset.lance.describe_indices()
        )
