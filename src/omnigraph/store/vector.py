"""Vector search on one pinned version: exact Euclidean distances, with or without an index.

An index only proposes rows; distances are always computed here, in double precision, from the stored vectors.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, Final

import numpy as np
import pyarrow as pa
from lance.dataset import serialize_row_addrs
from numpy.typing import NDArray

from omnigraph.limits import VECTOR_MATRIX_BYTES_MAX
from omnigraph.store.dataset import Dataset, lance_errors
from omnigraph.store.fields import field_ids
from omnigraph.store.index import IndexKind
from omnigraph.store.text import TOLD_ROWS_MAX, RowIds, Scores

Vectors = NDArray[np.float32]

# Below this many rows reading all vectors once costs less than asking an index.
UNINDEXED_ROWS_MAX: Final = 20_000
_BLOCK_ROWS: Final = 16_384
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
        self._is_indexed = dataset.count() > UNINDEXED_ROWS_MAX and _has_index(dataset, column)
        self._fits = dataset.count() * self.dimension * 4 <= VECTOR_MATRIX_BYTES_MAX
        self._lock = Lock()
        self._matrix: _Matrix | None = None

    @property
    def held_bytes(self) -> int:
        return self._matrix.vectors.nbytes if self._matrix is not None else 0

    def search(self, query: Vectors, candidates: RowIds | None, limit: int | None) -> tuple[RowIds, Scores]:
        """Return rows that have a vector with their distances, nearest first, equal ones in row id order.

        Rows as near as the last one within the limit come along, so that the caller can break the tie.
        """
        if limit == 0 or (candidates is not None and len(candidates) == 0):
            return np.empty(0, np.uint64), np.empty(0, np.float64)
        if candidates is not None and len(candidates) <= TOLD_ROWS_MAX and self._matrix is None:
            return self._taken(candidates).nearest(query, limit)
        is_told = candidates is None or len(candidates) <= TOLD_ROWS_MAX
        if self._is_indexed and limit is not None and is_told:
            return self._taken(self._proposed(query, candidates, limit)).nearest(query, limit)
        if self._fits:
            return self._all().among(candidates).nearest(query, limit)
        return self._streamed(query, candidates, limit)

    def _proposed(self, query: Vectors, candidates: RowIds | None, limit: int) -> RowIds:
        # Lance ranks in single precision, so a few more than asked for make sure that the best are among them.
        nearest = {"column": self._column, "q": query, "k": 2 * limit + 16, "minimum_nprobes": _PROBES_MIN}
        self._dataset.store.meter.count("search", str(self._dataset.ref))
        with lance_errors(f"searching `{self._column}` of {self._dataset.ref}"):
            found = self._dataset.lance.scanner(
                columns=["_distance"],
                nearest=nearest,
                prefilter=True,
                with_row_id=True,
                row_addr_allowlist=None if candidates is None else serialize_row_addrs(candidates.tolist()),
            ).to_table()
        rows: RowIds = found.column(_ROW_ID).to_numpy()
        return np.unique(rows)

    def _taken(self, rows: RowIds) -> _Matrix:
        vectors = self._dataset.take(rows.tolist(), [self._column]).column(self._column).combine_chunks()
        return _Matrix.of(rows, vectors, self.dimension)

    def _all(self) -> _Matrix:
        with self._lock:
            if self._matrix is None:
                table = self._dataset.read([self._column], with_row_id=True)
                rows: RowIds = table.column(_ROW_ID).to_numpy()
                self._matrix = _Matrix.of(rows, table.column(self._column).combine_chunks(), self.dimension)
            return self._matrix

    def _streamed(self, query: Vectors, candidates: RowIds | None, limit: int | None) -> tuple[RowIds, Scores]:
        rows, distances = np.empty(0, np.uint64), np.empty(0, np.float64)
        for batch in self._dataset.batches([self._column], with_row_id=True):
            part = _Matrix.of(batch.column(_ROW_ID).to_numpy(), batch.column(self._column), self.dimension)
            near, far = part.among(candidates).nearest(query, limit)
            rows, distances = _ranked(np.concatenate([rows, near]), np.concatenate([distances, far]), limit)
        return rows, distances


class _Matrix:
    """Vectors side by side, with the rows they belong to."""

    def __init__(self, rows: RowIds, vectors: Vectors) -> None:
        self.rows = rows
        self.vectors = vectors
        self._squares: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, rows: RowIds, vectors: Any, dimension: int) -> _Matrix:
        """Keep the rows that have a vector."""
        present = vectors.is_valid().to_numpy(zero_copy_only=False)
        numbers = vectors.flatten().to_numpy(zero_copy_only=False).astype(np.float32, copy=False)
        return cls(rows[present].astype(np.uint64, copy=False), numbers.reshape(-1, dimension))

    def among(self, candidates: RowIds | None) -> _Matrix:
        if candidates is None:
            return self
        keep = np.isin(self.rows, candidates)
        return _Matrix(self.rows[keep], self.vectors[keep])

    def nearest(self, query: Vectors, limit: int | None) -> tuple[RowIds, Scores]:
        chosen = self._plausible(query, limit)
        rows, vectors = (self.rows, self.vectors) if chosen is None else (self.rows[chosen], self.vectors[chosen])
        distances = np.empty(len(rows), np.float64)
        wide = query.astype(np.float64)
        for start in range(0, len(rows), _BLOCK_ROWS):
            block = vectors[start : start + _BLOCK_ROWS].astype(np.float64) - wide
            distances[start : start + _BLOCK_ROWS] = np.sqrt(np.einsum("ij,ij->i", block, block))
        return _ranked(rows, distances, limit)

    def _plausible(self, query: Vectors, limit: int | None) -> NDArray[np.intp] | None:
        """Return positions that hold the `limit` nearest for certain, from one single-precision product."""
        count = len(self.rows)
        if limit is None or count <= max(_BLOCK_ROWS, 4 * limit):
            return None
        if self._squares is None:
            self._squares = np.einsum("ij,ij->i", self.vectors, self.vectors, dtype=np.float64)
        with np.errstate(all="ignore"):
            rough = self._squares - 2.0 * (self.vectors @ query).astype(np.float64)
        if not np.isfinite(rough).all():
            return None
        # A product of n single-precision terms is off by at most n rounding errors of the product of the lengths.
        length = float(np.sqrt(self._squares.max() * np.square(query, dtype=np.float64).sum()))
        error = 2.2 * len(query) * float(np.finfo(np.float32).eps) * length
        last = float(np.partition(rough, limit - 1)[limit - 1])
        return np.flatnonzero(rough <= last + 2 * error)


def _ranked(rows: RowIds, distances: Scores, limit: int | None) -> tuple[RowIds, Scores]:
    order = np.lexsort((rows, distances))
    if limit is not None and len(order) > limit:
        end = np.searchsorted(distances[order], distances[order[limit - 1]], "right")
        order = order[:end]
    return rows[order], distances[order]


def _has_index(dataset: Dataset, column: str) -> bool:
    number = field_ids(dataset.lance.lance_schema)[column]
    with lance_errors(f"listing the indexes of {dataset.ref}"):
        return any(
            index.index_type.lower() == IndexKind.VECTOR.lower() and list(index.fields) == [number]
            for index in dataset.lance.describe_indices()
        )
