"""Positions: which rows of a dataset may hold a value, kept in memory for each fragment of each column asked for.

A fragment never changes its values, so what is kept belongs to its data files and serves every version and branch that
has them; a commit costs the reading of the fragments it made. Rows are named by stable row id, and may be gone by now.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.limits import POSITION_BUILD_ROWS_MAX, POSITION_CACHE_BYTES_MAX
from omnigraph.store.valuehash import Hashes, hash_values, is_hashable, sorted_hashes

if TYPE_CHECKING:
    from lance.fragment import FragmentMetadata

    from omnigraph.store.dataset import Dataset, DatasetRef

RowIds = npt.NDArray[np.uint64]
_Key = tuple[str, int, tuple[str, ...]]

_NO_ROWS: Final[RowIds] = np.array([], np.uint64)
_BYTES_PER_ROW: Final = 16
# Finding one value through an index takes about as long as taking this many rows into memory.
_PROBE_ROWS: Final = 400


@dataclass(frozen=True, slots=True)
class Segment:
    """The hashes of one fragment's values, ascending, each with the row that holds it.

    Row ids are unknown while only the writer of the fragment has seen it; that is enough to tell that it holds no such
    value. `since` is set where rows were deleted before it was made: older versions and other branches may still have
    them.
    """

    hashes: Hashes
    row_ids: RowIds | None
    since: DatasetRef | None = None

    @property
    def nbytes(self) -> int:
        return int(self.hashes.nbytes) + (0 if self.row_ids is None else int(self.row_ids.nbytes))

    def serves(self, ref: DatasetRef) -> bool:
        return self.since is None or (self.since.branch == ref.branch and self.since.version <= ref.version)

    def rows_of(self, wanted: Hashes) -> RowIds | None:
        """Return the rows that hold one of the hashes; None when there are some, and nobody knows which."""
        first = np.searchsorted(self.hashes, wanted)
        counts = np.searchsorted(self.hashes, wanted, "right") - first
        held = np.flatnonzero(counts)
        if len(held) == 0:
            return _NO_ROWS
        if self.row_ids is None:
            return None
        ends = np.cumsum(counts[held])
        places = np.arange(ends[-1]) + np.repeat(first[held] - ends + counts[held], counts[held])
        found: RowIds = self.row_ids[places]
        return found


class Positions:
    """The segments of one graph, least recently used first out once they exceed their bytes; threads may share it."""

    def __init__(self, bytes_max: int = POSITION_CACHE_BYTES_MAX) -> None:
        self._segments: OrderedDict[_Key, Segment] = OrderedDict()
        self._spent: dict[tuple[str, int], int] = {}
        self._asked: dict[str, set[str]] = {}
        self._bytes_max = bytes_max
        self._bytes = 0
        self._lock = threading.Lock()

    def rows_of(self, dataset: Dataset, column: str, values: pa.Array[Any]) -> RowIds | None:
        """Return the row ids that may hold one of the values; None when a filter finds them with less work.

        Every row that holds one is among them.
        """
        if not is_hashable(values.type):
            return None
        field = dataset.field_ids[column]
        self._asked.setdefault(dataset.ref.path, set()).add(column)
        wanted = sorted_hashes(values)
        found, absent = [_NO_ROWS], []
        for fragment in dataset.fragments:
            segment = self._get(dataset, field, fragment)
            rows = segment.rows_of(wanted) if segment is not None else None
            if rows is None:
                absent.append(fragment)
            elif len(rows):
                found.append(rows)
        if absent and not self._is_worth_reading(dataset, field, absent, len(values)):
            return None
        for segment in self._read(dataset, column, field, absent):
            rows = segment.rows_of(wanted)
            assert rows is not None, "a segment that was read knows its rows"
            found.append(rows)
        return np.concatenate(found)

    def foresee(self, dataset: Dataset, rows: pa.Table, fragments: Sequence[FragmentMetadata]) -> None:
        """Take note of rows that were just written to new fragments, in columns that are asked for."""
        start = 0
        for fragment in fragments:
            own = rows.slice(start, fragment.physical_rows)
            start += fragment.physical_rows
            for column in tuple(self._asked.get(dataset.ref.path, ())):
                if column in rows.column_names:
                    hashes = np.sort(hash_values(own.column(column).drop_null().combine_chunks()))
                    self._put(_key(dataset, dataset.field_ids[column], fragment), Segment(hashes, None))

    def _is_worth_reading(self, dataset: Dataset, field: int, absent: Sequence[FragmentMetadata], values: int) -> bool:
        """Weigh what lookups by filter have cost so far against reading the column once and for all."""
        rows = sum(fragment.num_rows for fragment in absent)
        if rows <= POSITION_BUILD_ROWS_MAX:
            return True
        if 2 * dataset.count() * _BYTES_PER_ROW > self._bytes_max:
            # It would push everything else out, and itself the next time.
            return False
        key = (dataset.ref.path, field)
        self._spent[key] = self._spent.get(key, 0) + (values * _PROBE_ROWS if _is_indexed(dataset, field) else rows)
        return self._spent[key] > rows

    def _get(self, dataset: Dataset, field: int, fragment: FragmentMetadata) -> Segment | None:
        key = _key(dataset, field, fragment)
        with self._lock:
            segment = self._segments.get(key)
            if segment is not None:
                self._segments.move_to_end(key)
        return segment if segment is not None and segment.serves(dataset.ref) else None

    def _read(
        self, dataset: Dataset, column: str, field: int, fragments: Sequence[FragmentMetadata]
    ) -> Iterator[Segment]:
        """Read fragments and keep what they hold; many small ones are one request."""
        for group in _groups(fragments):
            rows = dataset.read_fragments([fragment.id for fragment in group], column)
            rows = rows.filter(rows.column(column).is_valid())
            hashes = hash_values(rows.column(column).combine_chunks())
            row_ids, owners = rows.column("_rowid").to_numpy(), rows.column("_rowaddr").to_numpy() >> np.uint64(32)
            for fragment in group:
                own = np.flatnonzero(owners == fragment.id) if len(group) > 1 else np.arange(len(hashes))
                own = own[np.argsort(hashes[own])]
                segment = Segment(hashes[own], row_ids[own], dataset.ref if fragment.num_deletions else None)
                self._put(_key(dataset, field, fragment), segment)
                yield segment

    def _put(self, key: _Key, segment: Segment) -> None:
        with self._lock:
            replaced = self._segments.pop(key, None)
            self._segments[key] = segment
            self._bytes += segment.nbytes - (replaced.nbytes if replaced else 0)
            while self._bytes > self._bytes_max:
                _, dropped = self._segments.popitem(last=False)
                self._bytes -= dropped.nbytes


def _groups(fragments: Sequence[FragmentMetadata]) -> Iterator[list[FragmentMetadata]]:
    """Yield runs of fragments with no more rows in all than are read at once, larger ones alone."""
    group: list[FragmentMetadata] = []
    for fragment in fragments:
        if group and sum(one.num_rows for one in group) + fragment.num_rows > POSITION_BUILD_ROWS_MAX:
            yield group
            group = []
        group.append(fragment)
    if group:
        yield group


def _key(dataset: Dataset, field: int, fragment: FragmentMetadata) -> _Key:
    return dataset.ref.path, field, tuple(file.path for file in fragment.files)


def _is_indexed(dataset: Dataset, field: int) -> bool:
    return any(one.fields == [field] and one.index_type.lower() == "btree" for one in dataset.lance.describe_indices())
