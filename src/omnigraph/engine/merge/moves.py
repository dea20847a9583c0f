"""The rows that have moved between the versions of a merge, as a task sees them: found by itself, or handed to it.

A small type is one range, whose task reads its moved rows itself. Of a large one, tasks read the moved rows of each
version once, in parts in the order of storage, and split them by ranges of ids. Reading a few rows of many costs half
as much as reading all, so a range must not look for its rows by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from omnigraph.engine.changes.row_diff import StoredRows, moved_row_ids, read_moved_rows, read_rows, stored
from omnigraph.engine.key_buckets.files import TableSlice, split_by_bucket
from omnigraph.engine.key_buckets.hashes import bucket_of
from omnigraph.engine.merge.merge_job import MergeJob
from omnigraph.engine.merge.row_merge import RowMerge
from omnigraph.lang.catalog import TypeKey
from omnigraph.rules.arrow_typing import Numbers, pc
from omnigraph.rules.delta import Ids, is_among, one_array
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.read.lookup import ID, ROW_ADDRESS, ROW_ID, find_rows


@dataclass(frozen=True, slots=True)
class DiffTask:
    """A part of the rows that may differ between two versions of a type, to be split into ranges of their ids.

    Without a base, these are all rows of the version. With `lists_only`, no more is needed than the row ids of the
    base, and ids and row ids of the version.
    """

    base: DatasetRef | None
    version: DatasetRef
    ranges: int
    lists_only: bool = False
    part: int = 0
    parts: int = 1


@dataclass(frozen=True, slots=True)
class MovedParts:
    """Moved rows of the base and of the version, by range; `gone` are row ids of the base, of which nothing is read."""

    old: Mapping[int, TableSlice]
    new: Mapping[int, TableSlice]
    gone: TableSlice | None = None

    def of_range(self, number: int) -> MovedParts:
        old, new = ({number: parts[number]} if number in parts else {} for parts in (self.old, self.new))
        return MovedParts(old, new, self.gone)


def split_moved_rows(job: MergeJob, task: DiffTask) -> MovedParts:
    """Read moved rows, and hand them on by range; nothing for a range without any."""
    base, version = job.open(task.base) if task.base else None, job.open(task.version)
    # Rows are stored in about the order of their row ids, so each part reads other pages.
    old, new = (np.array_split(row_ids, task.parts)[task.part] for row_ids in moved_row_ids(base, version))
    if task.lists_only:
        [gone] = job.hand_on([pa.table({ROW_ID: old})])
        return MovedParts({}, _split(job, _list_rows(version, new), task.ranges), gone)
    old_rows = read_rows(base or version, old).rows
    return MovedParts(_split(job, old_rows, task.ranges), _split(job, read_rows(version, new).rows, task.ranges))


def _split(job: MergeJob, rows: pa.Table, ranges: int) -> dict[int, TableSlice]:
    numbers = bucket_of(one_array(rows.column(ID)), job.operation_id, ranges)
    parts = dict(split_by_bucket(rows, numbers))
    return dict(zip(parts, job.hand_on(parts.values()), strict=True))


def _list_rows(dataset: Dataset, row_ids: Numbers) -> pa.Table:
    ids = pa.array(row_ids, pa.uint64())
    listed = stored(dataset, ids, [ID]).column(ID) if len(ids) else pa.array([], pa.string())
    return pa.table({ID: listed, ROW_ID: ids})


# What was split of each version, for one range.
RangeMoves = Mapping[DatasetRef, Sequence[MovedParts]]


class TaskMoves:
    """The rows of one range that may differ between the first version of the base and another one.

    Without `parts`, those of a whole type.
    """

    def __init__(self, job: MergeJob, table_key: TypeKey, parts: RangeMoves | None) -> None:
        self._job = job
        self._table_key = table_key
        self._versions = job.versions[table_key]
        self._parts = parts
        # Where rows are on our side: by ids, the row ids of the base, and of our side for rows that it has moved.
        self._base_places = self._our_places = pa.table(
            {ID: pa.array([], pa.string()), ROW_ID: pa.array([], pa.uint64())}
        )

    def rows(self, ref: DatasetRef) -> tuple[StoredRows, StoredRows]:
        """Return the rows of the base, and those of the other version."""
        first, version = self._job.open(self._versions.base.first), self._job.open(ref)
        if self._parts is None:
            old, new = read_moved_rows(first, version)
        else:
            parts = self._parts.get(ref, ())
            old = receive_rows(self._job, first, [slice_ for part in parts for slice_ in part.old.values()])
            new = receive_rows(self._job, version, [slice_ for part in parts for slice_ in part.new.values()])
        if ref == self._versions.theirs:
            self._base_places = old.rows.select([ID, ROW_ID])
        if ref == self._versions.ours:
            self._our_places = new.rows.select([ID, ROW_ID])
        return old, new

    def rows_among(self, ref: DatasetRef, old: StoredRows, ids: Ids) -> tuple[StoredRows, StoredRows]:
        """Return the same, of the base only those among `old`, and of the other version only those of some ids."""
        version = self._job.open(ref)
        if self._parts is None:
            gone, new_ids = moved_row_ids(self._job.open(self._versions.base.first), version)
            listed = _list_rows(version, new_ids)
        else:
            parts = self._parts.get(ref, ())
            received = [self._job.receive(part.gone).column(ROW_ID) for part in parts if part.gone]
            gone = np.concatenate([np.zeros(0, np.uint64), *(column.to_numpy() for column in received)])
            slices = [slice_ for part in parts for slice_ in part.new.values()]
            listed = pa.concat_tables([_list_rows(version, np.zeros(0, np.uint64)), *map(self._job.receive, slices)])
        chosen = listed.filter(pa.array(is_among(one_array(listed.column(ID)), ids)))
        self._our_places = chosen
        is_gone = np.isin(old.row_ids.to_numpy(), gone) & is_among(old.ids, ids)
        return old.take(np.flatnonzero(is_gone)), read_rows(version, chosen.column(ROW_ID).to_numpy())

    def replaced(self, merge: RowMerge, columns: Sequence[str] = (), *, is_needed: bool = True) -> pa.Table:
        """Return the rows of our side that a merge replaces or deletes: ids, and if needed columns and where they are.

        A row that our side has not moved has the row id of the base.
        """
        ids = merge.replaced_ids
        if not (columns or is_needed):
            return pa.table({ID: ids})
        ours = self._job.open(self._job.committed[self._table_key])
        row_ids = pc.coalesce(_find_row_ids(self._our_places, ids), _find_row_ids(self._base_places, ids))
        if len(ids) and not row_ids.null_count:
            rows = ours.take(row_ids.to_pylist(), [*columns, ROW_ADDRESS])
            if rows.num_rows == len(ids):
                return rows.append_column(ID, ids).append_column(ROW_ID, row_ids)
        rows = find_rows(ours, [ID, *columns], {ID: ids})
        assert rows.num_rows == len(ids), f"{ours.ref} does not have all rows that a merge changes"
        return rows


def receive_rows(job: MergeJob, dataset: Dataset, slices: Sequence[TableSlice]) -> StoredRows:
    if not slices:
        return read_rows(dataset, np.zeros(0, np.uint64))
    return StoredRows(dataset, pa.concat_tables(map(job.receive, slices)))


def _find_row_ids(places: pa.Table, ids: Ids) -> Ids:
    return one_array(places.column(ROW_ID)).take(pc.index_in(ids, value_set=one_array(places.column(ID))))
