"""Files of keys by bucket: slices, segments of sorted hashes, and the keys of a chunk that set rules compare.

Each attempt of a task writes files under new names, and the driver learns only those of the successful attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.engine.input.filesystems import open_file
from omnigraph.engine.key_buckets.hashes import Candidates, find_duplicates, hash_column, hash_rows, is_among
from omnigraph.engine.tasks import Runner
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import Cardinality, EdgeType, Type
from omnigraph.limits import LOAD_BUCKETS_MAX, LOAD_SPLIT_BYTES
from omnigraph.rules.arrow_typing import Column, Numbers, pc
from omnigraph.rules.delta import one_array
from omnigraph.store.read.dataset import Dataset, DatasetRef, lance_errors
from omnigraph.store.read.lookup import ROW_ADDRESS
from omnigraph.store.store import Store
from omnigraph.store.write.fragments import Marked, mark_rows

# -- slices ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A range of bytes in a file: an Arrow stream, or 64-bit integers."""

    path: str
    start: int
    stop: int

    def read(self, store: Store) -> bytes:
        with lance_errors(f"reading {self.path}"), open_file(store.root.child(self.path).uri) as file:
            return bytes(file.read_at(self.stop - self.start, self.start))

    def read_numbers(self, store: Store) -> Numbers:
        return np.frombuffer(self.read(store), np.int64)

    def read_table(self, store: Store) -> pa.Table:
        return pa.ipc.open_stream(self.read(store)).read_all()


@dataclass(frozen=True, slots=True)
class HeldTable:
    """A table that tasks of this process hand on in memory."""

    table: pa.Table

    def read_table(self, store: Store) -> pa.Table:
        return self.table


TableSlice: TypeAlias = FileSlice | HeldTable


def write_slices(store: Store, folder: str, pieces: Sequence[bytes]) -> list[FileSlice]:
    """Write pieces as one file and return where each of them is."""
    if not pieces:
        return []
    path = f"{folder}/{new_ulid()}.slices"
    store.objects.write(path, b"".join(pieces))
    stops = np.cumsum([len(piece) for piece in pieces]).tolist()
    return [FileSlice(path, stop - len(piece), stop) for piece, stop in zip(pieces, stops, strict=True)]


def split_by_bucket(rows: pa.Table, buckets: Numbers) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each bucket that has any, in the order of the buckets."""
    order = np.argsort(buckets, kind="stable")
    numbers, starts, counts = np.unique(buckets[order], return_index=True, return_counts=True)
    ordered = rows.take(order) if len(numbers) > 1 else rows
    for number, start, count in zip(numbers.tolist(), starts, counts, strict=True):
        yield number, ordered.slice(start, count)


def write_tables(store: Store, folder: str, tables: Iterable[pa.Table]) -> list[FileSlice]:
    """Write tables and return where each of them is; a file is closed once it is as large as a split."""
    slices: list[FileSlice] = []
    pieces: list[bytes] = []
    for table in tables:
        pieces.append(to_arrow_stream(table))
        if sum(map(len, pieces)) >= LOAD_SPLIT_BYTES:
            slices += write_slices(store, folder, pieces)
            pieces = []
    return slices + write_slices(store, folder, pieces)


def write_numbers(store: Store, folder: str, numbers: Numbers, groups: Numbers) -> dict[int, FileSlice]:
    """Write numbers, sorted by group, as one file and return the slice of each group."""
    keys, starts = np.unique(groups, return_index=True)
    pieces = [part.tobytes() for part in np.split(numbers.astype(np.int64), starts[1:])] if len(keys) else []
    return dict(zip(keys.tolist(), write_slices(store, folder, pieces), strict=True))


def to_arrow_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


# -- key segments ----------------------------------------------------------------------------------------------

# The arrays of one key: sorted `hash`, its first `row`, its `count`, and extra hashes of that row.
KeyArrays: TypeAlias = dict[str, Numbers]

_BUCKET_SHIFT: Final = np.uint64(64 - (LOAD_BUCKETS_MAX - 1).bit_length())
# The directory of a segment fits the first read, unless a type has very many keys.
_HEAD_BYTES: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class KeySegment:
    """The file of a segment, the row number that its rows count from, and the number of its keys."""

    path: str
    first: int
    keys: int


@dataclass(frozen=True, slots=True)
class HashRange:
    """Range `number` of `count` equal ranges of all hashes."""

    number: int
    count: int

    def bucket_bounds(self) -> tuple[int, int]:
        step = LOAD_BUCKETS_MAX // self.count
        return self.number * step, (self.number + 1) * step

    def select(self, hashes: Numbers) -> Numbers:
        """Return the hashes that fall into the range."""
        low, high = self.bucket_bounds()
        buckets = hashes >> _BUCKET_SHIFT
        return hashes[(buckets >= low) & (buckets < high)]


ALL_HASHES: Final = HashRange(0, 1)


def write_keys(store: Store, folder: str, arrays: Mapping[str, KeyArrays], first: int = 0) -> KeySegment:
    """Write a segment: hashes are sorted, with bucket offsets (fences), so that a task reads only its range of it.

    Each hash is there once, with a count, so that a frequent value (a hub node) cannot fill a range. Rows count from
    `first`.
    """
    pieces: list[bytes] = []
    directory: dict[str, dict[str, tuple[str, int, int]]] = {}
    position = 0
    for name, key_arrays in arrays.items():
        entries = directory.setdefault(name, {})
        for array_name, values in {"fence": _bucket_offsets(key_arrays["hash"]), **key_arrays}.items():
            entries[array_name] = (values.dtype.str, position, len(values))
            pieces.append(np.ascontiguousarray(values).tobytes())
            position += len(pieces[-1])
    head = orjson.dumps(directory)
    path = f"{folder}/{new_ulid()}.keys"
    store.objects.write(path, b"".join([len(head).to_bytes(8, "little"), head, *pieces]))
    return KeySegment(path, first, sum(len(key_arrays["hash"]) for key_arrays in arrays.values()))


def _bucket_offsets(hashes: Numbers) -> Numbers:
    starts = np.arange(LOAD_BUCKETS_MAX, dtype=np.uint64) << _BUCKET_SHIFT
    return np.append(np.searchsorted(hashes, starts), len(hashes)).astype(np.uint32)


def read_keys(store: Store, path: str, name: str, arrays: Sequence[str], within: HashRange = ALL_HASHES) -> KeyArrays:
    """Read arrays of one key within a range of hashes; empty if the segment lacks the key."""
    with lance_errors(f"reading {path}"), open_file(store.root.child(path).uri) as file:
        head: bytes = file.read_at(_HEAD_BYTES, 0)
        length = int.from_bytes(head[:8], "little")
        if length > len(head) - 8:
            head += file.read_at(length + 8 - len(head), len(head))
        entries = orjson.loads(head[8 : 8 + length]).get(name)
        if entries is None:
            return {array: np.zeros(0, np.uint64) for array in arrays}

        def read(array: str, start: int, stop: int) -> Numbers:
            dtype, position, _ = entries[array]
            size = np.dtype(dtype).itemsize
            raw = file.read_at((stop - start) * size, 8 + length + position + start * size)
            return np.frombuffer(raw, dtype)

        start, stop = 0, entries["hash"][2]
        if within.count > 1:
            low, high = within.bucket_bounds()
            fences = read("fence", low, high + 1)
            start, stop = int(fences[0]), int(fences[-1])
        return {array: read(array, start, stop) for array in arrays}


class DatasetAccess(Protocol):
    """What opens the datasets of an operation in a task."""

    def store(self) -> Store: ...

    def open(self, ref: DatasetRef) -> Dataset: ...


# The addresses of some rows, by fragment.
Addresses = Mapping[int, FileSlice]


def write_addresses(access: DatasetAccess, folder: str, addresses: Numbers) -> Addresses:
    """Write the addresses of rows by fragment, which is the upper half of an address."""
    ordered = np.sort(addresses.astype(np.int64))
    return write_numbers(access.store(), folder, ordered, ordered >> 32)


@dataclass(frozen=True, slots=True)
class MarkTask:
    """One fragment, and the file slices with the addresses of the rows to delete."""

    ref: DatasetRef
    fragment_id: int
    addresses: tuple[FileSlice, ...]


def mark_fragment(access: DatasetAccess, task: MarkTask) -> Marked:
    """Add rows of one fragment to its deletion file."""
    store = access.store()
    addresses = np.concatenate([slice_.read_numbers(store) for slice_ in task.addresses])
    return mark_rows(access.open(task.ref), task.fragment_id, pa.table({ROW_ADDRESS: addresses}))


def mark_replaced(
    runner: Runner, access: DatasetAccess, stage: str, replaced: Iterable[tuple[DatasetRef, Addresses]]
) -> dict[DatasetRef, list[Marked]]:
    """Mark all rows at some addresses as deleted, and return what was written of each dataset."""
    slices: dict[tuple[DatasetRef, int], tuple[FileSlice, ...]] = {}
    for ref, addresses in replaced:
        for fragment, slice_ in addresses.items():
            slices[ref, fragment] = (*slices.get((ref, fragment), ()), slice_)
    tasks = [MarkTask(ref, fragment, parts) for (ref, fragment), parts in slices.items()]
    marked: dict[DatasetRef, list[Marked]] = {}
    for task, result in zip(tasks, runner.run(stage, partial(mark_fragment, access), tasks), strict=True):
        marked.setdefault(task.ref, []).append(result)
    return marked


def key_names(type_: Type) -> tuple[str, ...]:
    """Return the keys that set rules compare: ids, endpoints, and each `@unique` by its number."""
    return ("id", *type_.ends, *unique_names(type_))


def unique_names(type_: Type) -> tuple[str, ...]:
    return tuple(map(str, range(len(type_.unique))))


def released_names(type_: Type) -> tuple[str, ...]:
    """Return the keys that an entity releases when it is replaced: unique values, and the edge count of its source."""
    is_counted = isinstance(type_, EdgeType) and type_.cardinality != Cardinality()
    return (*(("src",) if is_counted else ()), *unique_names(type_))


def columns_of_keys(type_: Type, names: Sequence[str]) -> list[str]:
    """Return the columns that some keys consist of."""
    tuples = {str(index): columns for index, columns in enumerate(type_.unique)}
    return list(dict.fromkeys(column for name in names for column in tuples.get(name, (name,))))


@dataclass(slots=True)
class Keys:
    """The keys of some rows, and the violations that are visible in these rows alone.

    `duplicates` are the first rows that repeat an earlier key, `incomparable` the first rows with values that the
    uniqueness rule refuses to compare.
    """

    arrays: dict[str, KeyArrays] = field(default_factory=dict)
    duplicates: dict[str, Candidates] = field(default_factory=dict)
    incomparable: dict[str, Numbers] = field(default_factory=dict)


def extract_keys(
    type_: Type, rows: pa.Table, names: Sequence[str], extra: Sequence[str], seed: str, limit: int
) -> Keys:
    """Hash the named keys of rows; `extra` hashes (a second one of the id, `check`, or released keys) go with ids."""
    keys = Keys()
    for name in names:
        if name.isdigit():
            columns = [one_array(rows.column(column)) for column in type_.unique[int(name)]]
            complete, incomparable = _find_comparable(columns)
            hashes = hash_rows([column.filter(pa.array(complete)) for column in columns], seed)
            _add_distinct(keys, name, hashes, np.flatnonzero(complete), {}, limit)
            keys.incomparable[name] = np.flatnonzero(incomparable)[:limit]
        elif name == "id":
            extras = {extra_name: _extra_hashes(type_, rows, extra_name, seed) for extra_name in extra}
            hashes = hash_column(rows.column("id"), seed)
            _add_distinct(keys, name, hashes, np.arange(rows.num_rows), extras, limit)
        else:
            keys.arrays[name] = build_key_arrays(hash_column(rows.column(name), seed), np.arange(rows.num_rows), {})
    return keys


def _add_distinct(
    keys: Keys, name: str, hashes: Numbers, rows: Numbers, extras: Mapping[str, Numbers], limit: int
) -> None:
    """Add a key that must be unique, and the rows that repeat it."""
    arrays = build_key_arrays(hashes, rows, extras)
    repeated = arrays["hash"][arrays.pop("count") > 1]
    if len(repeated):
        is_repeated = is_among(hashes, repeated)
        keys.duplicates[name] = find_duplicates(hashes[is_repeated], rows[is_repeated], limit)
    keys.arrays[name] = arrays


def _extra_hashes(type_: Type, rows: pa.Table, name: str, seed: str) -> Numbers:
    if name == "check":
        return hash_column(rows.column("id"), f"{seed}/check")
    if not name.isdigit():
        return hash_column(rows.column(name), seed)
    columns = [one_array(rows.column(column)) for column in type_.unique[int(name)]]
    complete, _ = _find_comparable(columns)
    # Zero marks an incomplete tuple. A tuple that happens to hash to zero costs a needless lookup, nothing more.
    hashes = np.zeros(rows.num_rows, np.uint64)
    hashes[complete] = hash_rows([column.filter(pa.array(complete)) for column in columns], seed)
    return hashes


def build_key_arrays(hashes: Numbers, rows: Numbers, extras: Mapping[str, Numbers]) -> KeyArrays:
    """Sort and deduplicate hashes; keep the first row of each, its count, and the extra hashes of that row.

    Equal hashes with different `check` hashes are different keys.
    """
    # Sorted, so that a range of hashes is a slice of the file, and deduplicated, so that skewed keys cost one entry.
    order = np.argsort(hashes)
    ordered = hashes[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    if "check" in extras and not is_new.all():
        order = np.lexsort((extras["check"], hashes))
        ordered, check = hashes[order], extras["check"][order]
        is_new[1:] = (ordered[1:] != ordered[:-1]) | (check[1:] != check[:-1])
    starts = np.flatnonzero(is_new)
    first_rows = np.minimum.reduceat(order, starts) if len(starts) else order
    counts = np.diff(np.append(starts, len(order)))
    arrays: KeyArrays = {
        "hash": ordered[starts],
        "row": rows[first_rows].astype(np.uint32),
        "count": counts.astype(np.uint32),
    }
    return arrays | {name: values[first_rows] for name, values in extras.items()}


def _find_comparable(columns: Sequence[Column]) -> tuple[Numbers, Numbers]:
    """Return masks of the rows without nulls, and of the rows with a value that cannot be compared."""
    complete = np.ones(len(columns[0]), bool)
    incomparable = np.zeros(len(columns[0]), bool)
    for column in columns:
        complete &= np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), bool)
        incomparable |= _is_incomparable(column)
    if any(pa.types.is_nested(column.type) for column in columns):
        complete[:] = False
    return complete, incomparable


def _is_incomparable(column: Column) -> Numbers:
    if pa.types.is_nested(column.type):
        mask: Any = pc.is_valid(column)
    elif pa.types.is_floating(column.type):
        mask = pc.fill_null(pc.invert(pc.is_finite(column)), False)
    else:
        return np.zeros(len(column), bool)
    return np.asarray(mask.to_numpy(zero_copy_only=False), bool)
