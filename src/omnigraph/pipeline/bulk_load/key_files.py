"""Key segments: sorted files of the key hashes of one chunk of an input, or of one committed fragment.

Hashes are sorted, with bucket offsets, so that a task reads only its range of a segment. Each hash is stored
once per segment, with a count, so that a frequent value (a hub node) cannot fill a range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.engine.write.ndjson.blocks import Type
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import Cardinality, EdgeType
from omnigraph.limits import LOAD_BUCKETS_MAX
from omnigraph.pipeline.bulk_load.key_hashes import Candidates, find_duplicates, hash_column, hash_rows, is_among
from omnigraph.pipeline.bulk_load.splits import open_file
from omnigraph.rules.arrow_typing import Column, Numbers, pc
from omnigraph.rules.delta import one_array
from omnigraph.store.read.dataset import lance_errors
from omnigraph.store.store import Store

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


def key_names(type_: Type) -> tuple[str, ...]:
    """Return the keys that set rules compare: ids, endpoints, and each `@unique` by its number."""
    ends = ("src", "dst") if isinstance(type_, EdgeType) else ()
    return ("id", *ends, *unique_names(type_))


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
            complete, odd = _find_comparable(columns)
            hashes = hash_rows([column.filter(pa.array(complete)) for column in columns], seed)
            _add_distinct(keys, name, hashes, np.flatnonzero(complete), {}, limit)
            keys.incomparable[name] = np.flatnonzero(odd)[:limit]
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
    odd = np.zeros(len(columns[0]), bool)
    for column in columns:
        complete &= np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), bool)
        odd |= _is_incomparable(column)
    if any(pa.types.is_nested(column.type) for column in columns):
        complete[:] = False
    return complete, odd


def _is_incomparable(column: Column) -> Numbers:
    if pa.types.is_nested(column.type):
        mask: Any = pc.is_valid(column)
    elif pa.types.is_floating(column.type):
        mask = pc.fill_null(pc.invert(pc.is_finite(column)), False)
    else:
        return np.zeros(len(column), bool)
    return np.asarray(mask.to_numpy(zero_copy_only=False), bool)


# -- files -----------------------------------------------------------------------------------------------------


def write_keys(store: Store, folder: str, arrays: Mapping[str, KeyArrays], first: int = 0) -> KeySegment:
    """Write a segment under a new name; its rows count from `first`.

    Each attempt of a task writes its own file, and the driver learns only that of the successful attempt.
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


def write_numbers(store: Store, folder: str, numbers: Numbers) -> str:
    """Write an array of numbers under a new name and return its path."""
    path = f"{folder}/{new_ulid()}.numbers"
    store.objects.write(path, np.ascontiguousarray(numbers).tobytes())
    return path


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A slice of the numbers in a file."""

    path: str
    start: int
    stop: int

    def read(self, store: Store, kind: str) -> Numbers:
        with lance_errors(f"reading {self.path}"), open_file(store.root.child(self.path).uri) as file:
            size = np.dtype(kind).itemsize
            return np.frombuffer(file.read_at((self.stop - self.start) * size, self.start * size), kind)
