"""Files of keys by bucket: slices with tables or numbers, and segments of sorted hashes.

Each attempt of a task writes files under new names, and the driver learns only those of the successful attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.engine.graph_access import GraphAccess
from omnigraph.engine.tasks import Runner
from omnigraph.ids import new_ulid
from omnigraph.limits import LOAD_BUCKETS_MAX, LOAD_SPLIT_BYTES
from omnigraph.pipeline.filesystems import open_file
from omnigraph.rules.arrow_typing import Numbers
from omnigraph.store.read.dataset import DatasetRef, lance_errors
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
    for bucket in np.unique(buckets).tolist():
        yield bucket, rows.filter(pa.array(buckets == bucket))


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


# The addresses of some rows, by fragment.
Addresses = Mapping[int, FileSlice]


def write_addresses(access: GraphAccess, folder: str, addresses: Numbers) -> Addresses:
    """Write the addresses of rows by fragment, which is the upper half of an address."""
    ordered = np.sort(addresses.astype(np.int64))
    return write_numbers(access.store(), folder, ordered, ordered >> 32)


@dataclass(frozen=True, slots=True)
class MarkTask:
    """One fragment, and the file slices with the addresses of the rows to delete."""

    ref: DatasetRef
    fragment_id: int
    addresses: tuple[FileSlice, ...]


def mark_fragment(access: GraphAccess, task: MarkTask) -> Marked:
    """Add rows of one fragment to its deletion file."""
    store = access.store()
    addresses = np.concatenate([slice_.read_numbers(store) for slice_ in task.addresses])
    return mark_rows(access.open(task.ref), task.fragment_id, pa.table({ROW_ADDRESS: addresses}))


def mark_replaced(
    runner: Runner, access: GraphAccess, stage: str, replaced: Iterable[tuple[DatasetRef, Addresses]]
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
