"""Columns of one node or edge type at one version, addressed by dense id and loaded on demand.

A dense id is the position in the scan order of the pinned version and is valid for that version only.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.query.budget import charge_running, reserve_for_read
from omnigraph.engine.query.ordering import string_ranks
from omnigraph.engine.query.vectors import Ids, Lists, Mask, Numbers, Strings, vector_from_arrow, vector_to_arrow
from omnigraph.store.index.index_build import unindexed_rows
from omnigraph.store.read.dataset import Dataset, miscounted
from omnigraph.store.read.live_rows import LiveRows, live_rows
from omnigraph.store.read.version_diff import read_after, shared_beginning

# A text column is worth coding when its first values repeat this often.
_SAMPLE: Final = 4_096
_SAMPLE_DISTINCT_MAX: Final = 512
_SCALAR_TAKES_MAX: Final = 4


class Column:
    """A whole column."""

    def __init__(self, array: Any) -> None:
        self.array = array

    @cached_property
    def vector(self) -> Numbers | Strings | Lists:
        return vector_from_arrow(self.array)

    def take(self, ids: Ids) -> Numbers | Strings | Lists:
        """Return the values of entities by dense id; a negative id gives null."""
        vector = self.vector
        if isinstance(vector, Numbers):
            return take_numbers(vector, ids)
        if isinstance(vector, Strings) and len(ids) <= _SCALAR_TAKES_MAX:
            # The fixed cost of a kernel is that of many single values. Lists stay with it: as Python values, instants
            # in them would come back as whole days.
            array = self.array
            values = [array[index].as_py() if index >= 0 else None for index in ids.tolist()]
            return Strings(pa.array(values, array.type))
        charge_running(len(ids) * self._value_bytes, "reading values")
        if isinstance(vector, Strings) and self.pays_to_encode(len(ids)):
            encoded: Any = pa.DictionaryArray.from_arrays(_arrow_indices(self.codes_of(ids)), self.dictionary)
            return Strings(encoded.cast(pa.string()))
        return type(vector)(vector.array.take(_arrow_indices(ids)))

    @cached_property
    def _value_bytes(self) -> int:
        return int(self.array.nbytes) // max(len(self.array), 1)

    def ranks_of(self, ids: Ids) -> npt.NDArray[np.int64]:
        """Return the rank of each text among the distinct ones of the column; -1 for null and for a negative id.

        Sorting by them needs no text of any row, of which there may be many more than entities.
        """
        return self._ranks.take(ids, mode="wrap")

    @cached_property
    def _ranks(self) -> npt.NDArray[np.int64]:
        return np.append(string_ranks(self.array), np.int64(-1))

    def take_arrow(self, ids: Ids, type_: Any) -> Any:
        array = self.array
        if len(ids) == 1 and array.type == type_ and ids[0] >= 0:
            # A slice costs a tenth of a gather.
            return array.slice(ids[0], 1)
        return vector_to_arrow(self.take(ids), type_, len(ids))

    def pays_to_encode(self, count: int) -> bool:
        return count > _SAMPLE and self.is_repetitive

    @cached_property
    def is_repetitive(self) -> bool:
        """True if a sample has few distinct strings, so that dictionary codes are smaller and faster."""
        if not isinstance(self.vector, Strings) or len(self.array) <= _SAMPLE:
            return False
        return len(pc.unique(self.array.slice(0, _SAMPLE))) <= _SAMPLE_DISTINCT_MAX

    @cached_property
    def _encoded(self) -> Any:
        return self.array.dictionary_encode()

    @cached_property
    def _codes(self) -> npt.NDArray[np.int32]:
        # The extra last entry is what a null id (-1) reads.
        codes: npt.NDArray[np.int32] = self._encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return np.append(codes, np.int32(-1))

    @property
    def codes(self) -> npt.NDArray[np.int32]:
        """The index of each value in `dictionary`; -1 for null."""
        return self._codes[:-1]

    def codes_of(self, ids: Ids) -> npt.NDArray[np.int32]:
        """Return the codes of entities by dense id; -1 for a negative id."""
        return self._codes.take(ids, mode="wrap")

    @property
    def dictionary(self) -> Any:
        return self._encoded.dictionary

    @property
    def nbytes(self) -> int:
        total = int(self.array.nbytes)
        cached = self.__dict__
        if "vector" in cached and isinstance(self.vector, Numbers):
            total += int(self.vector.data.nbytes) + (0 if self.vector.valid is None else int(self.vector.valid.nbytes))
        if "_encoded" in cached:
            total += int(self._encoded.nbytes) * 2
        total += sum(int(cached[name].nbytes) for name in ("_codes", "_ranks") if name in cached)
        return total


def take_numbers(vector: Numbers, ids: Ids) -> Numbers:
    """Return the numbers at some places; a negative place gives null."""
    if len(vector.data) == 0:
        return Numbers(np.zeros(len(ids), vector.data.dtype), np.zeros(len(ids), np.bool_))
    # A negative id reads the last value, which the mask then hides.
    selected = vector.take(ids)
    if len(ids) and ids.min() < 0:
        present = ids >= 0
        return Numbers(selected.data, present if selected.valid is None else selected.valid & present)
    return selected


def _arrow_indices(indices: Ids) -> Any:
    if len(indices) and indices.min() < 0:
        return pa.array(indices, mask=indices < 0)
    return pa.array(indices)


ID: Final = "id"
ROW_ID: Final = "_rowid"

# Below this size a whole column costs about as much as a few of its values.
_SMALL_ROWS: Final = 65_536
# Values of fewer than one row in this many are taken one by one, the first few times.
_SELECTIVE: Final = 64
_TAKES_MAX: Final = 4
# A dictionary of all ids pays for itself after this many lookups of single ids.
_LOOKUPS_BEFORE_DICTIONARY: Final = 8
_PROBED_IDS_MAX: Final = 4_096
# The assumed size of a string, in bytes, without statistics.
_STRING_BYTES_ESTIMATE: Final = 24


class Entities:
    """One type at one version."""

    def __init__(self, dataset: Dataset, grow: Callable[[], None], previous: Entities | None = None) -> None:
        self._start_empty(dataset.count(), grow)
        self.dataset = dataset
        # A weak reference: the previous version only saves reads while something else keeps it.
        self._previous = None if previous is None else weakref.ref(previous)
        self._takes: dict[str, int] = {}
        self._unindexed: dict[str, int] = {}
        self._lookups = 0

    def _start_empty(self, count: int, grow: Callable[[], None]) -> None:
        self.count = count
        self.dtype = np.int32 if count < 2**31 else np.int64
        self._grow = grow
        self._columns: dict[str, Column] = {}
        self._nulls: dict[str, Mask] = {}
        self._live: LiveRows | None = None
        self._all: Ids | None = None
        self._positions: dict[str, int] | None = None
        self._ranks: Ids | None = None
        self._lock = threading.RLock()

    def unindexed_rows(self, name: str) -> int:
        """Return how many entities a lookup by a column has to scan; read from storage once."""
        if name not in self._unindexed:
            self._unindexed[name] = unindexed_rows(self.dataset, name)
        return self._unindexed[name]

    @property
    def all(self) -> Ids:
        """All dense ids; the same array each time, so that a caller can see that it has everything."""
        if self._all is None:
            self._all = np.arange(self.count, dtype=self.dtype)
        return self._all

    # -- columns -----------------------------------------------------------------------------------------------

    def column(self, name: str) -> Column:
        """Return a whole column, reading it once."""
        column = self._columns.get(name)
        if column is None:
            with self._lock:
                column = self._columns.get(name)
                if column is None:
                    with reserve_for_read(
                        self.count, _estimate_value_bytes(self.dataset.schema.field(name).type), f"reading `{name}`"
                    ):
                        column = Column(self._read(name))
                    if len(column.array) != self.count:
                        raise miscounted(self.dataset, len(column.array))
                    self._columns[name] = column
                    self._grow()
        return column

    def _read(self, name: str) -> Any:
        """Read a whole column; after an append only the new rows, if the others are still in memory."""
        previous = self._previous() if self._previous is not None else None
        if previous is not None and name in previous._columns:
            prefix = shared_beginning(self.dataset, previous.dataset)
            if prefix.rows:
                previous_rows = previous.column(name).array.slice(0, prefix.rows)
                added = read_after(self.dataset, prefix, [name]).column(name).cast(previous_rows.type)
                return _combine_chunks(pa.chunked_array([previous_rows, *added.chunks], previous_rows.type))
        return _combine_chunks(self.dataset.read([name]).column(name))

    def values(self, name: str, ids: Ids) -> Numbers | Strings | Lists:
        """Return a property of some entities; a negative id gives null."""
        if ids is self._all:
            return self.column(name).vector
        if name not in self._columns and self._is_selective(name, len(ids)):
            return self._take(name, ids)
        return self.column(name).take(ids)

    def arrow(self, name: str, ids: Ids, type_: Any) -> Any:
        column = self._columns.get(name)
        if column is None:
            return vector_to_arrow(self.values(name, ids), type_, len(ids))
        if ids is self._all:
            return column.array if column.array.type == type_ else vector_to_arrow(column.vector, type_, len(ids))
        return column.take_arrow(ids, type_)

    def dictionary_codes(self, name: str, ids: Ids) -> tuple[Any, Ids] | None:
        """Return the distinct strings of a column and the code of each entity, if enough values are requested."""
        if name not in self._columns and ids is not self._all:
            return None
        column = self.column(name)
        if not column.pays_to_encode(len(ids)):
            return None
        return column.dictionary, column.codes if ids is self._all else column.codes_of(ids)

    def _is_selective(self, name: str, count: int) -> bool:
        if self.count <= _SMALL_ROWS or count * _SELECTIVE > self.count:
            return False
        with self._lock:
            self._takes[name] = self._takes.get(name, 0) + 1
            return self._takes[name] <= _TAKES_MAX

    def _take(self, name: str, ids: Ids) -> Numbers | Strings | Lists:
        present = ids >= 0
        rows = self.row_ids[ids[present]]
        distinct, positions = np.unique(rows, return_inverse=True)
        array = _combine_chunks(self.dataset.take(distinct.tolist(), [name]).column(name))
        indices = np.zeros(len(ids), np.int64)
        indices[present] = positions
        return vector_from_arrow(array.take(pa.array(indices, mask=~present)))

    def null_mask(self, name: str) -> Mask:
        """Return which entities lack a property; works for Blobs too, whose bytes are never read here."""
        mask = self._nulls.get(name)
        if mask is None:
            present = self.dataset.read([], f"`{name}` IS NOT NULL", with_row_id=True).column(ROW_ID).to_numpy()
            mask = np.ones(self.count, np.bool_)
            mask[self.from_row_ids(present)] = False
            self._nulls[name] = mask
        return mask

    # -- row ids -----------------------------------------------------------------------------------------------

    @property
    def row_ids(self) -> npt.NDArray[np.uint64]:
        """The stable row id of every entity, by dense id."""
        return self._rows.ids

    def from_row_ids(self, rows: npt.NDArray[np.uint64]) -> Ids:
        """Return the dense ids of stable row ids, all of which live at this version."""
        dense_ids = self._rows.positions(rows)
        assert len(dense_ids) == 0 or dense_ids.min() >= 0, f"{self.dataset.ref} has no such rows"
        return dense_ids.astype(self.dtype, copy=False)

    @property
    def _rows(self) -> LiveRows:
        if self._live is None:
            self._live = live_rows(self.dataset)
        return self._live

    # -- ids ---------------------------------------------------------------------------------------------------

    @property
    def ids(self) -> Any:
        return self.column(ID).array

    def find(self, entity_id: str) -> int:
        """Return the dense id of one id, or -1."""
        if self._positions is not None:
            return self._positions.get(entity_id, -1)
        self._lookups += 1
        if ID not in self._columns and self.count > _SMALL_ROWS and self._lookups <= _TAKES_MAX:
            return int(self._probe([entity_id])[0])
        if self._lookups <= _LOOKUPS_BEFORE_DICTIONARY:
            return int(pc.index(self.ids, pa.scalar(entity_id, self.ids.type)).as_py())
        self._positions = {entity_id_: index for index, entity_id_ in enumerate(self.ids.to_pylist())}
        self._grow()
        return self._positions.get(entity_id, -1)

    def find_all(self, entity_ids: Any) -> Ids:
        """Return the dense ids of an Arrow array of ids, -1 for missing ones."""
        if ID not in self._columns and len(entity_ids) <= _PROBED_IDS_MAX and len(entity_ids) * _SELECTIVE < self.count:
            return self._probe(entity_ids.to_pylist())
        entity_ids = entity_ids if entity_ids.type == self.ids.type else entity_ids.cast(self.ids.type)
        if len(entity_ids) * _SELECTIVE < self.count:
            return self._find_few(entity_ids)
        return _index_in(entity_ids, self.ids)

    def _find_few(self, entity_ids: Any) -> Ids:
        # Hash the few requested ids and scan all: cheaper than hashing all ids.
        distinct = pc.unique(entity_ids)
        positions = _index_in(self.ids, distinct)
        matched = np.flatnonzero(positions >= 0)
        dense = np.full(len(distinct), -1, self.dtype)
        dense[positions[matched]] = matched
        dense_ids: Ids = dense[_index_in(entity_ids, distinct)]
        return dense_ids

    def _probe(self, entity_ids: Sequence[str]) -> Ids:
        """Look ids up in storage, where an index on `id` makes it cheap."""
        if not entity_ids:
            return np.empty(0, self.dtype)
        table = self.dataset.read(
            [ID], f"id IN ({', '.join(quote_literal(entity_id) for entity_id in entity_ids)})", with_row_id=True
        )
        indices = _index_in(pa.array(entity_ids, pa.string()), _combine_chunks(table.column(ID)))
        dense = np.append(self.from_row_ids(table.column(ROW_ID).to_numpy()), self.dtype(-1))
        dense_ids: Ids = dense[indices]
        return dense_ids

    @property
    def id_ranks(self) -> Ids:
        """The rank of every entity by id."""
        if self._ranks is None:
            order = pc.array_sort_indices(self.ids).to_numpy()
            ranks = np.empty(self.count, self.dtype)
            ranks[order] = self.all
            self._ranks = ranks
        return self._ranks

    @property
    def nbytes(self) -> int:
        arrays = [self._live, self._all, self._ranks, *self._nulls.values()]
        total = sum(int(array.nbytes) for array in arrays if array is not None)
        total += sum(column.nbytes for column in list(self._columns.values()))
        # About the size of one entry of a Python dict of strings.
        return total + (120 * self.count if self._positions is not None else 0)


def _index_in(values: Any, value_set: Any) -> Ids:
    indices: Ids = pc.index_in(values, value_set=value_set).fill_null(-1).to_numpy(zero_copy_only=False)
    return indices


def _estimate_value_bytes(type_: Any) -> int:
    if pa.types.is_fixed_size_list(type_):
        return int(type_.list_size) * 4
    try:
        return int(type_.bit_width) // 8 or 1
    except ValueError:
        return _STRING_BYTES_ESTIMATE


def quote_literal(text: str) -> str:
    """Return a text as a literal of a storage filter.

    >>> quote_literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def _combine_chunks(column: Any) -> Any:
    """Return a column as one array; strings beyond 32-bit offsets become large_string."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.num_chunks == 0:
        return pa.array([], column.type)
    if pa.types.is_string(column.type) and column.nbytes > 2**31 - 2**20:
        column = column.cast(pa.large_string())
    return pa.concat_arrays(column.chunks)
