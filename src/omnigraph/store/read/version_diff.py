"""Version diffs: the rows that may differ between two versions of a dataset, and those that both begin with.

Known from fragments and row versions alone. No column is read but the ids of rows that may differ, so the cost follows
what was written between the two versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceFragment
from numpy.typing import NDArray

from omnigraph.store.files.manifest_file import read_message
from omnigraph.store.read.dataset import Dataset, lance_errors
from omnigraph.store.read.live_rows import deleted_offsets, deletion_path, first_row_id
from omnigraph.store.read.lookup import ID, ROW_ADDRESS, ROW_ID, split_addresses

_UPDATED: Final = "_row_last_updated_at_version"

# Fetching one id by row id costs as much as reading this many of them in a row.
_TAKEN_PART: Final = 50

# Rows take about this many times as many bytes in memory as in files, which are compressed.
_EXPANSION: Final = 3

FileKey = tuple[tuple[str, tuple[int, ...]], ...]
Numbers = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of one version: their row ids, the versions that wrote them, and the fragments that hold them."""

    row_ids: Numbers
    versions: Numbers
    fragments: tuple[LanceFragment, ...]

    def keep(self, mask: NDArray[np.bool_]) -> _Rows:
        return _Rows(self.row_ids[mask], self.versions[mask], self.fragments)


def moved_rows(before: Dataset, after: Dataset) -> tuple[pa.Table, pa.Table]:
    """Return `id` and `_rowid` of the rows of each version that may differ from the other; all other rows are equal.

    A value that changes in place without a new row version would not be seen, so no staged operation does that.
    """
    with lance_errors(f"comparing {before.ref} with {after.ref}", before, after):
        old, new = _moved(before, after)
        return _ids(before, old), _ids(after, new)


def moved_row_ids(before: Dataset, after: Dataset) -> tuple[Numbers, Numbers]:
    """Return the row ids of the same rows; no column is read."""
    if before.ref == after.ref:
        return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
    with lance_errors(f"comparing {before.ref} with {after.ref}", before, after):
        old, new = _moved(before, after)
        return old.row_ids, new.row_ids


def _moved(before: Dataset, after: Dataset) -> tuple[_Rows, _Rows]:
    ours, theirs = _by_files(before), _by_files(after)
    same = [(ours[key], theirs[key]) for key in ours.keys() & theirs.keys()]
    trimmed = [pair for pair in same if deletion_path(pair[0].metadata) != deletion_path(pair[1].metadata)]
    live_pairs = [_live_only(before, old_fragment, after, new_fragment) for old_fragment, new_fragment in trimmed]
    old = _joined([*_only(ours, theirs), *(old_fragment for old_fragment, _ in live_pairs)])
    new = _joined([*_only(theirs, ours), *(new_fragment for _, new_fragment in live_pairs)])
    return _narrowed(before, old, after, new)


def row_version(dataset: Dataset, entity_id: str) -> int:
    """Return the version of a dataset that last wrote the row of an entity which it has."""
    with lance_errors(f"reading {dataset.ref}", dataset):
        rows = dataset.lance.to_table(columns=[_UPDATED], filter=pc.field(ID) == entity_id)
        return int(pc.max(rows.column(_UPDATED)).as_py())


@dataclass(frozen=True, slots=True)
class Moved:
    """How many rows may differ between versions, and about how many bytes they take in memory."""

    rows: int = 0
    bytes: int = 0

    def __add__(self, other: Moved) -> Moved:
        return Moved(self.rows + other.rows, self.bytes + other.bytes)


def moved_estimate(before: Dataset, after: Dataset) -> Moved:
    """Return about how much `moved_rows` would look at, from the lists of fragments alone."""
    with lance_errors(f"comparing {before.ref} with {after.ref}", before, after):
        ours, theirs = _by_files(before), _by_files(after)
        unshared = [ours.get(key) or theirs[key] for key in ours.keys() ^ theirs.keys()]
        gone = [abs(ours[key].num_deletions - theirs[key].num_deletions) for key in ours.keys() & theirs.keys()]
        rows = sum(fragment.metadata.num_rows for fragment in unshared) + sum(gone)
        return Moved(rows, rows * _row_bytes(before if before.fragments else after))


def stored_size(dataset: Dataset) -> Moved:
    """Return how much a version holds."""
    return Moved(dataset.count(), dataset.count() * _row_bytes(dataset))


def _row_bytes(dataset: Dataset) -> int:
    """Estimate how many bytes a row takes in memory."""
    stored = sum(file.file_size_bytes or 0 for fragment in dataset.fragments for file in fragment.files)
    rows = sum(fragment.physical_rows for fragment in dataset.fragments)
    return _EXPANSION * stored // max(1, rows)


def _by_files(dataset: Dataset) -> dict[FileKey, LanceFragment]:
    """Return the fragments by the files they consist of.

    Lance names data files at random, so a name means the same file in a dataset and in every fork of it.
    """
    return {
        tuple((file.path, tuple(file.fields)) for file in fragment.metadata.files): fragment
        for fragment in dataset.lance.get_fragments()
    }


def _only(fragments: Mapping[FileKey, LanceFragment], others: Mapping[FileKey, LanceFragment]) -> list[_Rows]:
    return [_facts(fragment)[1] for key, fragment in fragments.items() if key not in others]


def _live_only(before: Dataset, old: LanceFragment, after: Dataset, new: LanceFragment) -> tuple[_Rows, _Rows]:
    """Return the rows of a fragment that are live in one version and deleted in the other."""
    gone_old, gone_new = deleted_offsets(before, old), deleted_offsets(after, new)
    first_old, first_new = first_row_id(old), first_row_id(new)
    if gone_old is None or gone_new is None or first_old is None or first_new is None:
        (offsets_old, rows_old), (offsets_new, rows_new) = _facts(old), _facts(new)
        return rows_old.keep(~np.isin(offsets_old, offsets_new)), rows_new.keep(~np.isin(offsets_new, offsets_old))
    live_old, live_new = np.setdiff1d(gone_new, gone_old), np.setdiff1d(gone_old, gone_new)
    return _never_moved(old, live_old + np.uint64(first_old)), _never_moved(new, live_new + np.uint64(first_new))


def _never_moved(fragment: LanceFragment, row_ids: Numbers) -> _Rows:
    # No version is as new as this one, so a row that stayed where it is is not taken for one that was moved.
    return _Rows(row_ids, np.full(len(row_ids), np.iinfo(np.uint64).max, np.uint64), (fragment,))


def _facts(fragment: LanceFragment) -> tuple[NDArray[np.int64], _Rows]:
    # None of these is a stored column: they come from the manifest and the deletion file.
    facts = fragment.to_table(columns=[_UPDATED], with_row_id=True, with_row_address=True)
    row_ids, versions, addresses = (facts.column(name).to_numpy() for name in (ROW_ID, _UPDATED, ROW_ADDRESS))
    return split_addresses(addresses)[1], _Rows(row_ids, versions, (fragment,))


def _joined(parts: Iterable[_Rows]) -> _Rows:
    parts = [part for part in parts if len(part.row_ids)]
    nothing = np.array([], np.uint64)
    return _Rows(
        np.concatenate([nothing, *(part.row_ids for part in parts)]),
        np.concatenate([nothing, *(part.versions for part in parts)]),
        tuple(fragment for part in parts for fragment in part.fragments),
    )


def _narrowed(before: Dataset, old: _Rows, after: Dataset, new: _Rows) -> tuple[_Rows, _Rows]:
    """Leave out rows that a compaction only moved: of one row id, and written by one version of a common past."""
    if not len(old.row_ids) or not len(new.row_ids):
        return old, new
    _, in_old, in_new = np.intersect1d(old.row_ids, new.row_ids, assume_unique=True, return_indices=True)
    shared = old.versions[in_old] == new.versions[in_new]
    if not shared.any():
        return old, new
    # Past the point where they part, forks hand out the same row ids and version numbers to different rows.
    shared &= old.versions[in_old] <= np.uint64(_shared_version(before, after))
    kept_old, kept_new = np.ones(len(old.row_ids), np.bool_), np.ones(len(new.row_ids), np.bool_)
    kept_old[in_old[shared]] = False
    kept_new[in_new[shared]] = False
    return old.keep(kept_old), new.keep(kept_new)


def _shared_version(before: Dataset, after: Dataset) -> int:
    """Return the newest version that is in the past of both."""
    if before.ref.branch == after.ref.branch:
        return min(before.version, after.version)
    old_origin, new_origin = _origin(before), _origin(after)
    if old_origin is None or new_origin is None:
        return 0
    common = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(old_origin, new_origin, strict=False))))
    return min(
        old_origin[common][0] if common < len(old_origin) else before.version,
        new_origin[common][0] if common < len(new_origin) else after.version,
    )


def _origin(dataset: Dataset) -> list[tuple[int, str]] | None:
    """Return where each fork on the way to this one left its parent, oldest first; None when that is not known."""
    if dataset.ref.branch is None:
        return []
    raw = dataset.store.objects.read_if_exists(dataset.ref.branch_entry)
    if raw is None:
        return None
    return [(int(version), str(fork)) for version, fork in orjson.loads(raw)["identifier"]["version_mapping"]]


def _ids(dataset: Dataset, rows: _Rows) -> pa.Table:
    """Return the ids of rows: of few in large fragments by address, else by reading the ids of whole fragments."""
    row_count = sum(fragment.metadata.num_rows for fragment in rows.fragments)
    row_ids = pa.array(rows.row_ids)
    if _TAKEN_PART * len(row_ids) < row_count:
        table = dataset.take(rows.row_ids.tolist(), [ID])
        return table.append_column(ROW_ID, row_ids)
    if not rows.fragments:
        return pa.table({ID: pa.array([], pa.string()), ROW_ID: pa.array([], pa.uint64())})
    dataset.store.meter.count("scan", str(dataset.ref))
    scanner = dataset.lance.scanner(columns=[ID], with_row_id=True, fragments=list(rows.fragments))
    table = scanner.to_table()
    return table if len(row_ids) == row_count else table.filter(pc.is_in(table.column(ROW_ID), value_set=row_ids))


# What two fragments agree in when they hold the same rows: their data files, and the file of deleted rows.
_Identity: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Beginning:
    """The fragments, and rows in them, that two versions begin with alike."""

    fragments: int
    rows: int


def shared_beginning(dataset: Dataset, other: Dataset) -> Beginning:
    """Return what a version begins with just like another version or branch of the same dataset."""
    fragments = rows = 0
    if not dataset.schema.equals(other.schema, check_metadata=True):
        # The same files may mean something else when a column has gone and another one has taken its name.
        return Beginning(0, 0)
    for ours, theirs in zip(dataset.lance.get_fragments(), other.lance.get_fragments(), strict=False):
        if _identity(ours.metadata) != _identity(theirs.metadata):
            break
        fragments, rows = fragments + 1, rows + ours.metadata.num_rows
    return Beginning(fragments, rows)


def read_after(dataset: Dataset, beginning: Beginning, columns: Sequence[str]) -> pa.Table:
    """Return the rows that follow a beginning, in order."""
    appended = dataset.lance.get_fragments()[beginning.fragments :]
    if not appended:
        return dataset.schema.empty_table().select(list(columns))
    with dataset.reading():
        return dataset.lance.scanner(columns=list(columns), fragments=appended).to_table()


def _identity(fragment: Any) -> _Identity:
    files = [(file.path, tuple(file.fields)) for file in fragment.files]
    return *files, deletion_path(fragment), repr(fragment.overlays)


_RUN: Final = 1
_RUN_VERSION: Final = 2


def newest_row_version(dataset: Dataset, fragment: Any) -> int:
    """Return the newest version at which any row of a fragment was written, deleted rows included."""
    inline = (fragment.metadata.to_json().get("last_updated_at_version_meta") or {}).get("inline")
    if inline is not None:
        return max(_run_versions(bytes(inline)), default=0)
    with lance_errors(f"reading {dataset.ref}", dataset):
        versions = fragment.scanner(columns=[_UPDATED]).to_table().column(_UPDATED)
    return max((int(version or 0) for version in versions.unique().to_pylist()), default=0)


def _run_versions(message: bytes) -> Iterator[int]:
    """Return the versions of the runs of a row version sequence.

    >>> list(_run_versions(bytes([10, 8, 10, 4, 10, 2, 16, 20, 16, 3])))
    [3]
    """
    for tag, run in read_message(message):
        assert tag == _RUN, "a row version sequence consists of runs"
        assert isinstance(run, bytes)
        # Protobuf leaves out a zero.
        yield next((value for key, value in read_message(run) if key == _RUN_VERSION and isinstance(value, int)), 0)
