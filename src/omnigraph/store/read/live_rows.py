"""The rows that live at one pinned version, by stable row id, and the files that say which rows are deleted.

What any index answers is checked against the rows that live.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Collection
from functools import partial
from threading import Lock
from typing import Any, Final, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
from lance import LanceFragment
from lance.fragment import FragmentMetadata
from numpy.typing import NDArray

from omnigraph.store.files.manifest_file import read_message
from omnigraph.store.read.dataset import Dataset, lance_errors, miscounted
from omnigraph.store.read.lookup import ROW_ID

RowIds: TypeAlias = NDArray[np.uint64]
Positions: TypeAlias = NDArray[Any]
Flags: TypeAlias = NDArray[np.bool_]


class LiveRows:
    """Row ids in the order of a scan; a position in it is what readers know a row by."""

    def __init__(self, dataset: Dataset) -> None:
        self.ids: RowIds = dataset.read([], with_row_id=True).column(ROW_ID).to_numpy()
        fragments = dataset.fragments
        self._fragment_ids = [fragment.id for fragment in fragments]
        self._ends = np.cumsum([fragment.num_rows for fragment in fragments])
        assert len(self.ids) == (int(self._ends[-1]) if len(fragments) else 0), (
            "a scan returns the rows of all fragments"
        )
        # Row ids grow with every insert, so a scan is sorted unless rows were moved; then a permutation maps back.
        is_sorted = len(self.ids) < 2 or bool(np.all(self.ids[1:] > self.ids[:-1]))
        self._order = None if is_sorted else np.argsort(self.ids, kind="stable")
        self._sorted = self.ids if self._order is None else self.ids[self._order]

    def positions(self, rows: RowIds) -> Positions:
        """Return where rows are, -1 for those that do not live at this version."""
        if len(self.ids) == 0:
            return np.full(len(rows), -1, np.intp)
        # A join by binary search; an id that is absent is not live at this version.
        sorted_positions = np.searchsorted(self._sorted, rows)
        sorted_positions[sorted_positions == len(self._sorted)] = 0
        is_live = self._sorted[sorted_positions] == rows
        positions: Positions = sorted_positions if self._order is None else self._order[sorted_positions]
        return np.where(is_live, positions, -1)

    def chosen(self, rows: RowIds, flags: Flags) -> Flags:
        """Return which rows live and are at a flagged position."""
        positions = self.positions(rows)
        is_known: Flags = positions >= 0
        is_known[is_known] = flags[positions[is_known]]
        return is_known

    def in_fragments(self, fragment_ids: Collection[int]) -> Flags:
        """Return which positions lie in some fragments."""
        flags = np.zeros(len(self.ids), np.bool_)
        start = 0
        for fragment_id, end in zip(self._fragment_ids, self._ends.tolist(), strict=True):
            flags[start:end] = fragment_id in fragment_ids
            start = end
        return flags

    def span(self, fragment_id: int) -> slice:
        """Return the positions of one fragment."""
        index = self._fragment_ids.index(fragment_id)
        return slice(int(self._ends[index - 1]) if index else 0, int(self._ends[index]))

    @property
    def nbytes(self) -> int:
        return self.ids.nbytes if self._order is None else 3 * self.ids.nbytes


_lock: Final = Lock()
_cache: Final[weakref.WeakKeyDictionary[Dataset, weakref.ref[LiveRows]]] = weakref.WeakKeyDictionary()


def live_rows(dataset: Dataset) -> LiveRows:
    """Return the live rows of a version, cached as long as they are referenced."""
    with _lock:
        cached = _cache.get(dataset)
        live = cached() if cached is not None else None
    if live is None:
        live = LiveRows(dataset)
        with _lock:
            _cache[dataset] = weakref.ref(live)
    return live


Offsets = NDArray[np.uint64]

# A list of row ids is a message of segments; the first kind of segment is a range with a start and an end.
_SEGMENT: Final = 1
_RANGE: Final = 1
_START: Final = 1
_ARROW_MARK: Final = b"ARROW1"
# How the portable form of a roaring bitmap begins.
_WITHOUT_RUNS: Final = 12_346
_WITH_RUNS: Final = 12_347


def deletion_path(fragment: FragmentMetadata) -> str | None:
    """Return the file that says which rows of a fragment are gone; None: all of them are there."""
    return None if fragment.deletion_file is None else str(fragment.deletion_file.path(fragment.id))


def deleted_offsets(dataset: Dataset, fragment: LanceFragment) -> Offsets | None:
    """Return the offsets of the deleted rows of a fragment, if they are few enough to be stored as a plain list."""
    file = fragment.metadata.deletion_file
    if file is None:
        return np.array([], np.uint64)
    directory = directory_of(dataset, file.base_id)
    if file.file_type != "array" or directory is None:
        return None
    raw = dataset.store.objects.read(f"{directory}/{file.path(fragment.fragment_id)}")
    offsets = np.sort(pa.ipc.open_file(raw).read_all().column(0).to_numpy()).astype(np.uint64)
    _require_count(dataset, fragment.metadata, len(offsets))
    return offsets


def deletion_paths(dataset: Dataset) -> list[str]:
    """Return the deletion files of a version, relative to the graph's root."""
    return list(_deletion_files(dataset))


def check_deletions(dataset: Dataset) -> Dataset:
    """Return a version whose deletion files hold as many rows as it says; otherwise one of them was exchanged.

    Call before changing a version: Lance would count the rows of such a file as gone from then on, and what was
    lost or came back with it could no longer be seen. Each file is read once by a process, and its own ones never.
    """
    files = _deletion_files(dataset)
    unread = [path for path in files if not dataset.store.prover.knows(path)]
    if unread:
        with lance_errors(f"reading the deletions of {dataset.ref}", dataset):
            dataset.store.in_parallel([partial(_check_file, dataset, path, files[path]) for path in unread])
    return dataset


def _deletion_files(dataset: Dataset) -> dict[str, FragmentMetadata]:
    """Return the fragments that have a deletion file in this graph, by its path."""
    files = {}
    for fragment in dataset.fragments:
        if (file := fragment.deletion_file) is not None and (directory := directory_of(dataset, file.base_id)):
            files[f"{directory}/{file.path(fragment.id)}"] = fragment
    return files


def _check_file(dataset: Dataset, path: str, fragment: FragmentMetadata) -> None:
    _require_count(dataset, fragment, count_deleted(dataset.store.objects.read(path)))
    dataset.store.prover.note(path)


def _require_count(dataset: Dataset, fragment: FragmentMetadata, deleted: int) -> None:
    if deleted != fragment.num_deletions:
        raise miscounted(dataset, dataset.count() + fragment.num_deletions - deleted)


def count_deleted(raw: bytes) -> int:
    """Return how many rows a deletion file names: an Arrow file lists them, larger sets are a roaring bitmap.

    >>> count_deleted(bytes.fromhex("3a300000 01000000 00000600")), count_deleted(bytes.fromhex("3b300000 01 00000600"))
    (7, 7)
    """
    if raw.startswith(_ARROW_MARK):
        return int(pa.ipc.open_file(raw).read_all().num_rows)
    cookie, size, start = *struct.unpack_from("<HH", raw), 4
    if cookie == _WITH_RUNS:
        containers = size + 1
        start += (containers + 7) // 8
    elif cookie == _WITHOUT_RUNS:
        (containers,) = struct.unpack_from("<I", raw, start)
        start += 4
    else:
        raise ValueError("it is neither an Arrow file nor a roaring bitmap")
    # One pair of numbers for each container: its key, and how many values it holds, less one.
    pairs = np.frombuffer(raw, "<u2", 2 * containers, start)
    return int(pairs[1::2].sum(dtype=np.int64)) + int(containers)


def first_row_id(fragment: LanceFragment) -> int | None:
    """Return the row id of the first row of a fragment, if those of the others just follow it."""
    row_id_meta = fragment.metadata.row_id_meta
    inline = orjson.loads(row_id_meta.json()).get("Inline") if row_id_meta is not None else None
    segments = read_message(bytes(inline)) if inline else ()
    if len(segments) != 1 or segments[0][0] != _SEGMENT:
        return None
    assert isinstance(segments[0][1], bytes)
    ranges = read_message(segments[0][1])
    if len(ranges) != 1 or ranges[0][0] != _RANGE:
        return None
    assert isinstance(ranges[0][1], bytes)
    start = dict(read_message(ranges[0][1])).get(_START, 0)
    return start if isinstance(start, int) else None


def directory_of(dataset: Dataset, base_id: int | None) -> str | None:
    """Return where a file lies, relative to the graph's root: a fork inherits files from where it was forked."""
    if base_id is None:
        return dataset.ref.directory
    base, root = dataset.lance.base_paths()[base_id].path.strip("/"), dataset.store.root.uri.strip("/")
    return base.removeprefix(f"{root}/") if base.startswith(f"{root}/") else None
