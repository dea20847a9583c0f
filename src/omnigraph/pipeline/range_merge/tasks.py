"""The tasks of a merge: find the rows that moved, and merge one range of the ids of one type.

Each task runs the code of an in-process merge on the rows of its range, and returns a few kilobytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from omnigraph.engine.changes.blob_values import BlobValues
from omnigraph.engine.changes.row_diff import AFTER, BEFORE, candidates, compare
from omnigraph.engine.merge.ancestry import MergeBase, build_image, images, merge_from_virtual
from omnigraph.engine.merge.apply_resolutions import Resolutions, touches
from omnigraph.engine.merge.conflicts import Resolution, conflict_of
from omnigraph.engine.merge.row_merge import RowMerge, as_merge, merge_rows
from omnigraph.engine.merge.three_way import Counted
from omnigraph.engine.write.staging import physical
from omnigraph.lang.catalog import Type, TypeKey
from omnigraph.limits import MERGE_CONFLICTS_MAX
from omnigraph.pipeline.key_buckets.files import Addresses, FileSlice, split_by_bucket, write_addresses, write_tables
from omnigraph.pipeline.key_buckets.type_keys import columns_of_keys, key_names
from omnigraph.pipeline.range_merge.keys import (
    CommittedTarget,
    KeyPart,
    MergeJob,
    check_row_rules,
    write_key_parts,
)
from omnigraph.public_values import Conflict
from omnigraph.rules.arrow_typing import pc
from omnigraph.rules.delta import Delta, Ids, one_array
from omnigraph.rules.validate import IndexedViolation
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.read.lookup import ROW_ADDRESS, find
from omnigraph.store.write.fragments import FragmentText, write_fragments_with_blobs

# Taking a row by id costs about this many times as much as scanning it.
_TAKE_COST = 10


@dataclass(frozen=True, slots=True)
class DiffTask:
    """Two versions of a type, and the number of id ranges that moved rows are cut into."""

    base: DatasetRef
    side: DatasetRef
    ranges: int


def write_moved_rows(job: MergeJob, task: DiffTask) -> Mapping[int, FileSlice]:
    """Write the rows that may differ, by range of their ids; nothing for a range without any."""
    rows = candidates(job.access.open(task.base), job.access.open(task.side))
    chunks = [job.partition_of(chunk, task.ranges) for chunk in rows.column("id").chunks]
    ranges = np.concatenate([np.zeros(0, np.uint64), *chunks])
    parts = (table for _, table in split_by_bucket(rows, ranges))
    return dict(zip(np.unique(ranges).tolist(), write_tables(job.access.store(), job.scratch, parts), strict=True))


@dataclass(frozen=True, slots=True)
class MergeTask:
    """One range of the ids of one type: the rows that may have moved from the base to each version, and resolutions.

    For a virtual base, moves lead from the first of its versions to each other one. `ours` is None if our side did not
    change the type. Data files are written only if `is_staged`.
    """

    table_key: TypeKey
    base: MergeBase[DatasetRef]
    theirs: DatasetRef
    ours: DatasetRef | None
    moves: Mapping[DatasetRef, FileSlice | None]
    is_staged: bool
    resolutions: tuple[Resolution, ...] = ()


@dataclass(frozen=True, slots=True)
class MergedRange:
    """The result of a range: conflicts, or the fragments of merged rows and the addresses of replaced ones."""

    table_key: TypeKey
    counts: Counted
    conflicts: tuple[Conflict, ...] = ()
    open: tuple[Resolution, ...] = ()
    # Entities that change here and have a resolution that settled nothing.
    touched: tuple[str, ...] = ()
    violations: tuple[IndexedViolation, ...] = ()
    keys: tuple[KeyPart, ...] = ()
    fragments: tuple[FragmentText, ...] = ()
    replaced: Addresses = field(default_factory=dict)


def merge_range(job: MergeJob, task: MergeTask) -> MergedRange:
    """Merge one range, stage it, and write the keys that set rules need."""
    type_ = job.catalog.type_of(task.table_key)
    moves = {ref: _read_moved_rows(job, task, ref) for ref in (task.theirs, *([task.ours] if task.ours else []))}
    blobs = BlobValues()
    merge = _merge(job, task, type_, moves, blobs)
    resolutions = Resolutions(task.resolutions)
    merge = resolutions.settle(type_, merge, blobs)
    touched = tuple(item.entity_id for item in resolutions.open if touches(merge, item.entity_id))
    merged = MergedRange(task.table_key, Counted.of(merge), open=resolutions.open, touched=touched)
    if merge.clashes:
        clashes = merge.clashes[: MERGE_CONFLICTS_MAX + 1]
        merged = replace(merged, conflicts=tuple(conflict_of(task.table_key, item, blobs) for item in clashes))
        if not job.is_decided:
            return merged
        # Violations in the rest show whether the open resolutions have something to settle.
        task = replace(task, is_staged=False)
    return merged if merge.changes_nothing else _stage_merge(job, task, merge, moves, merged, blobs)


def _merge(
    job: MergeJob, task: MergeTask, type_: Type, moves: Mapping[DatasetRef, pa.Table], blobs: BlobValues
) -> RowMerge:
    # All versions are compared with the first one of the base, so that their rows line up entity by entity.
    base = job.access.open(task.base.first)
    joined = set(task.base.states()) - {task.base.first} - moves.keys()
    moves = {**moves, **{ref: _read_moved_rows(job, task, ref) for ref in joined}} if task.base.is_virtual else moves
    compared = [compare(base, job.access.open(ref), moved, blobs) for ref, moved in moves.items()]
    deltas = dict(zip(moves, blobs.unified(compared), strict=True))
    if not task.base.is_virtual:
        theirs = deltas[task.theirs]
        return as_merge(theirs) if task.ours is None else merge_rows(type_, deltas[task.ours], theirs)
    assert task.ours is not None, "of a virtual base nothing is unchanged"
    old, rows = images(deltas)
    image = build_image(type_, task.base, lambda ref: rows.get(ref, old))
    return merge_from_virtual(type_, image, rows[task.ours], rows[task.theirs])


def _read_moved_rows(job: MergeJob, task: MergeTask, ref: DatasetRef) -> pa.Table:
    moved, base = task.moves[ref], job.access.open(task.base.first)
    return candidates(base, base) if moved is None else moved.read_table(job.access.store())


def _stage_merge(
    job: MergeJob,
    task: MergeTask,
    merge: RowMerge,
    moves: Mapping[DatasetRef, pa.Table],
    merged: MergedRange,
    blobs: BlobValues,
) -> MergedRange:
    type_, committed = job.catalog.type_of(task.table_key), CommittedTarget(job)
    target = job.access.open(job.committed[task.table_key])
    rows = pa.concat_tables([merge.updated, merge.inserted]).combine_chunks()
    columns = columns_of_keys(type_, key_names(type_))
    old = _find_replaced_rows(committed, target, task, columns, _replaced_ids(merge), moves)
    if job.buckets:
        broken = check_row_rules(job.catalog, Delta(type_, rows, deleted=merge.deleted), committed)
        keys = write_key_parts(job, type_, rows.select(columns), old)
        merged = replace(merged, violations=tuple(broken[: MERGE_CONFLICTS_MAX + 1]), keys=tuple(keys))
    if not task.is_staged:
        return merged
    fragments: list[FragmentText] = []
    if rows.num_rows:
        # Updated rows may keep their stored blobs, so their current addresses are needed.
        current = find(target, one_array(merge.updated.column("id"))) if type_.has_blobs else old.slice(0, 0)
        rows, stored = blobs.with_kept_blobs(rows, target, current)
        fragments = write_fragments_with_blobs(target, physical(rows, target), stored, job.access.operation_id)
    replaced = write_addresses(job.access, job.scratch, old.column(ROW_ADDRESS).to_numpy())
    return replace(merged, fragments=tuple(fragments), replaced=replaced)


def _replaced_ids(merge: RowMerge) -> Ids:
    return pa.concat_arrays([one_array(merge.updated.column("id")), merge.deleted])


def _find_replaced_rows(
    committed: CommittedTarget,
    target: Dataset,
    task: MergeTask,
    columns: list[str],
    ids: Ids,
    moves: Mapping[DatasetRef, pa.Table],
) -> pa.Table:
    """Return columns and addresses of the rows of our side with these ids, all of which exist.

    A row that our side did not change has the row id of the base; the row ids of changed rows are in `moves`.
    """
    if len(ids) * _TAKE_COST < target.count():
        row_ids = _row_ids(moves[task.theirs], BEFORE, ids)
        if task.ours is not None:
            row_ids = pc.coalesce(_row_ids(moves[task.ours], AFTER, ids), row_ids)
        if not row_ids.null_count:
            rows = target.take(row_ids.to_pylist(), [*columns, ROW_ADDRESS])
            if one_array(rows.column("id")).equals(ids):
                return rows
    rows = committed.with_addresses(task.table_key, columns, {"id": ids})
    assert rows.num_rows == len(ids), f"{target.ref} does not have all rows that a merge changes"
    return rows


def _row_ids(moves: pa.Table, column: str, ids: Ids) -> Ids:
    return one_array(moves.column(column)).take(pc.index_in(ids, value_set=one_array(moves.column("id"))))
