"""Lookup of rows by value: hash positions per fragment, and filters.

Reads one pinned version; positions in memory or an index make it cheap, and neither is needed for a right answer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import GraphError
from omnigraph.limits import POSITION_BUILD_ROWS_MAX, POSITION_CACHE_BYTES_MAX, SORTED_BYTES_MAX
from omnigraph.lru import LruCache
from omnigraph.store.read.dataset import FILTER_WORDS, Dataset

if TYPE_CHECKING:
    from lance.fragment import FragmentMetadata

    from omnigraph.store.read.dataset import FILTER_WORDS, DatasetRef


Hashes = npt.NDArray[np.uint64]

_WORD: Final = 8
# Texts are hashed by their first and last words, so that the work per value is bounded.
_WORDS_MAX: Final = 8
_MULTIPLIERS: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93))
_LOW_BYTES: Final = np.array([(1 << (8 * count)) - 1 for count in range(_WORD + 1)], np.uint64)


def is_hashable(type_: pa.DataType) -> bool:
    """Return True if values of a type can be hashed: texts, numbers, booleans, dates and times."""
    return pa.types.is_string(type_) or pa.types.is_large_string(type_) or _is_fixed(type_)


def hash_values(values: pa.Array[Any]) -> Hashes:
    """Return a hash for each value; there must be no nulls among them.

    >>> one, again, other = hash_values(pa.array(["a", "a", "b"])).tolist()
    >>> one == again, one == other
    (True, False)
    """
    assert values.null_count == 0, "a null has no hash"
    if _is_fixed(values.type):
        return _mixed(_bits(values), 0)
    return _text_hashes(values.cast(pa.large_string()))


def _is_fixed(type_: pa.DataType) -> bool:
    return pa.types.is_primitive(type_) and type_.bit_width <= 64


def _bits(values: pa.Array[Any]) -> Hashes:
    if pa.types.is_floating(values.type):
        # Adding zero makes both zeros the same one.
        return (np.asarray(values.cast(pa.float64())) + 0.0).view(np.uint64)
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    elif not pa.types.is_integer(values.type):
        values = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return np.asarray(values).astype(np.uint64)


def _mixed(words: Hashes, turn: int) -> Hashes:
    mixed = (words ^ np.uint64(turn)) * _MULTIPLIERS[0]
    mixed ^= mixed >> np.uint64(32)
    mixed *= _MULTIPLIERS[1]
    mixed ^= mixed >> np.uint64(29)
    return mixed


def _text_hashes(texts: pa.Array[Any]) -> Hashes:
    _, offset_buffer, data = texts.buffers()
    assert offset_buffer is not None
    offsets = np.frombuffer(memoryview(offset_buffer), np.int64)[texts.offset : texts.offset + len(texts) + 1]
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = _mixed(lengths.astype(np.uint64), 0)
    size = int(offsets[-1])
    padded = np.zeros(size + _WORD, np.uint8)
    if data is not None:
        padded[:size] = np.frombuffer(memoryview(data), np.uint8)[:size]
    # A word begins at every byte, so that one gather reads a word of every text.
    words: Hashes = np.ndarray((len(padded) - _WORD + 1,), "<u8", padded, strides=(1,))
    for turn in range(2 * _WORDS_MAX):
        rows = (lengths > turn * _WORD).nonzero()[0]
        if len(rows) == 0:
            break
        at = starts[rows] + turn * _WORD
        if turn >= _WORDS_MAX:
            at += np.maximum(lengths[rows] - 2 * _WORDS_MAX * _WORD, 0)
        left = np.minimum(starts[rows] + lengths[rows] - at, _WORD)
        hashes[rows] = _mixed(hashes[rows] ^ (words[at] & _LOW_BYTES[left]), turn + 1)
    return hashes


def sorted_hashes(values: pa.Array[Any]) -> Hashes:
    """Return the hashes of the values that are not null, ascending, each once."""
    return np.unique(hash_values(pc.drop_null(values)))


RowIds = npt.NDArray[np.uint64]
_Key = tuple[str, int, tuple[str, ...]]

_NO_ROWS: Final[RowIds] = np.array([], np.uint64)
_BYTES_PER_ROW: Final = 16
# Finding one value through an index takes about as long as taking this many rows into memory.
_PROBE_ROWS: Final = 400


@dataclass(frozen=True, slots=True)
class Segment:
    """The hashes of one fragment's values, ascending, each with the row that holds it.

    Row ids are unknown while only the writer of the fragment has seen it; that is enough to know that it holds no such
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

    def rows_of(self, hashes: Hashes) -> RowIds | None:
        """Return the rows that hold one of the hashes; None when some exist whose row ids are unknown."""
        # As methods: numpy's functions forward to these, and they cost more than the work where a segment is small.
        first = self.hashes.searchsorted(hashes)
        counts = self.hashes.searchsorted(hashes, "right") - first
        hits = counts.nonzero()[0]
        if len(hits) == 0:
            return _NO_ROWS
        if self.row_ids is None:
            return None
        ends = np.cumsum(counts[hits])
        positions = np.arange(ends[-1]) + np.repeat(first[hits] - ends + counts[hits], counts[hits])
        row_ids: RowIds = self.row_ids[positions]
        return row_ids


class Positions:
    """The segments of one graph, least recently used first out once they exceed their bytes; threads may share it."""

    def __init__(self, bytes_max: int = POSITION_CACHE_BYTES_MAX) -> None:
        self._segments: LruCache[_Key, Segment] = LruCache(sys.maxsize, bytes_max)
        self._spent: dict[tuple[str, int], int] = {}
        self._asked: dict[str, set[str]] = {}
        self._bytes_max = bytes_max

    def rows_of(self, dataset: Dataset, column: str, values: pa.Array[Any]) -> RowIds | None:
        """Return the row ids that may hold one of the values; None when a filter finds them with less work.

        Every row that holds one is among them.
        """
        if not is_hashable(values.type):
            return None
        field = dataset.field_ids[column]
        self._asked.setdefault(dataset.ref.path, set()).add(column)
        hashes = sorted_hashes(values)
        row_ids, absent = [_NO_ROWS], []
        for fragment in dataset.fragments:
            segment = self._get(dataset, field, fragment)
            rows = segment.rows_of(hashes) if segment is not None else None
            if rows is None:
                absent.append(fragment)
            elif len(rows):
                row_ids.append(rows)
        if absent and not self._is_worth_reading(dataset, field, absent, len(values)):
            return None
        for segment in self._read(dataset, column, field, absent):
            rows = segment.rows_of(hashes)
            assert rows is not None, "a segment that was read knows its rows"
            row_ids.append(rows)
        return np.concatenate(row_ids)

    def foresee(self, dataset: Dataset, rows: pa.Table, fragments: Sequence[FragmentMetadata]) -> None:
        """Take note of rows that were just written to new fragments, in columns that are asked for."""
        start = 0
        for fragment in fragments:
            fragment_rows = rows.slice(start, fragment.physical_rows)
            start += fragment.physical_rows
            for column in tuple(self._asked.get(dataset.ref.path, ())):
                if column in rows.column_names:
                    hashes = np.sort(hash_values(fragment_rows.column(column).drop_null().combine_chunks()))
                    segment = Segment(hashes, None)
                    self._segments.put(_key(dataset, dataset.field_ids[column], fragment), segment, segment.nbytes)

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
        segment = self._segments.get(_key(dataset, field, fragment))
        return segment if segment is not None and segment.serves(dataset.ref) else None

    def _read(
        self, dataset: Dataset, column: str, field: int, fragments: Sequence[FragmentMetadata]
    ) -> Iterator[Segment]:
        """Read fragments and keep what they hold; many small ones are one request."""
        for group in _groups(fragments):
            rows = dataset.read_fragments([fragment.id for fragment in group], column)
            rows = rows.filter(rows.column(column).is_valid())
            hashes = hash_values(rows.column(column).combine_chunks())
            row_ids, (owners, _) = rows.column(ROW_ID).to_numpy(), split_addresses(rows.column(ROW_ADDRESS).to_numpy())
            for fragment in group:
                members = np.flatnonzero(owners == fragment.id) if len(group) > 1 else np.arange(len(hashes))
                members = members[np.argsort(hashes[members])]
                segment = Segment(hashes[members], row_ids[members], dataset.ref if fragment.num_deletions else None)
                self._segments.put(_key(dataset, field, fragment), segment, segment.nbytes)
                yield segment


def _groups(fragments: Sequence[FragmentMetadata]) -> Iterator[list[FragmentMetadata]]:
    """Yield runs of fragments with no more rows in all than are read at once, larger ones alone."""
    group: list[FragmentMetadata] = []
    for fragment in fragments:
        if group and sum(member.num_rows for member in group) + fragment.num_rows > POSITION_BUILD_ROWS_MAX:
            yield group
            group = []
        group.append(fragment)
    if group:
        yield group


def _key(dataset: Dataset, field: int, fragment: FragmentMetadata) -> _Key:
    return dataset.ref.path, field, tuple(file.path for file in fragment.files)


def _is_indexed(dataset: Dataset, field: int) -> bool:
    return any(
        index.fields == [field] and index.index_type.lower() == "btree" for index in dataset.lance.describe_indices()
    )


ID: Final = "id"
ROW_ID: Final = "_rowid"
ROW_ADDRESS: Final = "_rowaddr"
PLACE: Final = (ID, ROW_ID, ROW_ADDRESS)


def split_addresses(addresses: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the fragment of each row address, its high 32 bits, and the offset within it, the low ones."""
    numbers = addresses.astype(np.uint64, copy=False)
    return (numbers >> np.uint64(32)).astype(np.int64), (numbers & np.uint64(0xFFFF_FFFF)).astype(np.int64)


# Above this many values one pass over the column costs less than a filter that lists them.
FILTER_VALUES_MAX: Final = 4_096
# Taking rows one by one costs about this many times what a pass over them costs.
_TAKE_COST: Final = 10

# A row with more columns than this is looked up by its keys first, and then taken.
_WIDE_COLUMNS: Final = 256


def is_filterable(stored: pa.DataType) -> bool:
    """Return True if Lance takes a typed filter on a column of this type; others need a filter text."""
    return stored not in FILTER_WORDS


def find(dataset: Dataset, ids: pa.Array[Any]) -> pa.Table:
    """Return id, row id and row address of every row whose id is among `ids`, in no particular order."""
    return find_rows(dataset, [ID], {ID: ids})


def find_rows(dataset: Dataset, columns: Sequence[str], where: Mapping[str, pa.Array[Any]]) -> pa.Table:
    """Return columns, row id and row address of the rows in which each column of `where` holds one of its values."""
    names = list(dict.fromkeys([*columns, *where]))
    if dataset.count() == 0 or any(len(values) == 0 for values in where.values()):
        return _nothing(dataset, columns)
    values = {name: _both_zeros(value_set) for name, value_set in where.items()}
    row_ids, is_wide = _candidates(dataset, values), len(names) > _WIDE_COLUMNS
    if row_ids is None and is_wide:
        # Lance plans a scan in time quadratic to the number of its columns, and a take of rows does not.
        row_ids = dataset.read(list(where), _condition(values), with_row_id=True).column(ROW_ID).to_numpy()
    if row_ids is not None and len(row_ids) == 0:
        return _nothing(dataset, columns)
    if row_ids is not None and (is_wide or len(row_ids) * _TAKE_COST < dataset.count()):
        rows = dataset.take(row_ids.tolist(), [*names, ROW_ID, ROW_ADDRESS])
    else:
        rows = dataset.read(names, _condition(values), with_row_id=True, with_row_address=True)
    for name, value_set in values.items():
        rows = rows.filter(pc.is_in(rows.column(name), value_set=value_set))
    return rows.select([*columns, ROW_ID, ROW_ADDRESS])


def _candidates(dataset: Dataset, where: Mapping[str, pa.Array[Any]]) -> RowIds | None:
    """Return the rows that may hold a value in every column, by their positions; None when those are unknown."""
    row_ids: RowIds | None = None
    for name, values in where.items():
        rows = dataset.store.positions.rows_of(dataset, name, values)
        if rows is not None:
            row_ids = rows if row_ids is None else np.intersect1d(row_ids, rows)
    return row_ids


def _condition(where: Mapping[str, pa.Array[Any]]) -> pc.Expression | None:
    condition = None
    for name, values in where.items():
        if len(values) <= FILTER_VALUES_MAX and is_filterable(values.type):
            clause = pc.field(name).isin(values)
            condition = clause if condition is None else condition & clause
    return condition


def _both_zeros(values: pa.Array[Any]) -> pa.Array[Any]:
    # Zero has two signs, which filters distinguish and rules do not.
    if not pa.types.is_floating(values.type):
        return values
    return pa.concat_arrays([values, pc.negate(values.filter(pc.equal(values, pa.scalar(0.0, values.type))))])


def _nothing(dataset: Dataset, columns: Sequence[str]) -> pa.Table:
    locations = [pa.field(name, pa.uint64()) for name in (ROW_ID, ROW_ADDRESS)]
    return pa.schema([*(dataset.schema.field(name) for name in columns), *locations]).empty_table()


def ids_of(rows: pa.Table) -> pa.Array[Any]:
    """Return the id column as one array; the caller has made sure that no id comes twice."""
    ids = rows.column(ID).combine_chunks()
    assert len(pc.unique(ids)) == len(ids), "ids must be distinct within one change"
    return ids


# A type too large to be sorted whole is fetched in windows that are a part of what may be: small ones would read the
# same pages over and over.
_WINDOW_PART: Final = 4
_WINDOW_ROWS_MIN: Final = 1_024
_BATCH_ROWS: Final = 8_192


def ordered_batches(dataset: Dataset, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Stream all rows by ascending id, each batch with the given columns and `_rowid`."""
    files = (file for fragment in dataset.fragments for file in fragment.files)
    stored = max(1, sum(file.file_size_bytes or 0 for file in files))
    with dataset.reading(f"reading {dataset.ref} in order"):
        if stored <= SORTED_BYTES_MAX:
            yield from _sorted(dataset, columns, _BATCH_ROWS)
            return
        rows = dataset.count() * SORTED_BYTES_MAX // _WINDOW_PART // stored
        for batch in _sorted(dataset, [ID], max(_WINDOW_ROWS_MIN, rows)):
            row_ids: Any = batch.column(ROW_ID)
            window = dataset.take(row_ids.to_pylist(), columns)
            assert window.num_rows == len(row_ids), "a pinned version keeps its rows"
            yield from window.append_column(ROW_ID, row_ids).combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)


def _sorted(dataset: Dataset, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    scanner = dataset.lance.scanner(
        columns=list(columns), order_by=[ID], with_row_id=True, batch_size=rows, strict_batch_size=True
    )
    yield from scanner.to_batches()


def read_blobs(dataset: Dataset, column: str, row_ids: pa.Array[Any]) -> list[bytes | None]:
    """Return the bytes of managed blobs by row id, in the order asked for; None where a row holds none."""
    if len(row_ids) == 0:
        return []
    with dataset.reading(f"reading blobs of {dataset.ref}", counted_as="take"):
        return [payload for _, payload in dataset.lance.read_blobs(column, ids=row_ids)]


def as_structs(cells: Any) -> Any:
    """Return a column of blob descriptors as the structs that they are stored as."""
    return cells.storage if isinstance(cells, pa.ExtensionArray) else cells


def blob_sizes(descriptors: pa.Array[Any]) -> pa.Array[Any]:
    """Return how many bytes each blob of a column of descriptors has; zero for none.

    Asked before any byte is read, so it refuses descriptors that refer to data outside of the graph. Only a foreign
    tool can write those, and reading them would open any file or address they name.
    """
    storage = as_structs(descriptors)
    if pc.any(pc.not_equal(pc.struct_field(storage, "blob_uri"), pa.scalar(""))).as_py():
        raise GraphError(
            "a blob refers to data outside of the graph, which is never read; restore the graph from a backup",
            code="blob.integrity",
        )
    sizes: pa.Array[Any] = pc.if_else(pc.is_valid(storage), pc.cast(pc.struct_field(storage, "size"), pa.int64()), 0)
    return sizes
