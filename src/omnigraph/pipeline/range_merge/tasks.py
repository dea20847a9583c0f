"""Tasks of a merge: find what moved, and merge one range of ids of one type.

Run wherever tasks run. Each merges with the very code of a merge in process, on the entities of its range alone, and
returns a few kilobytes whatever the range holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from omnigraph.engine.changes.blob_values import BlobValues
from omnigraph.engine.changes.row_diff import AFTER, BEFORE, candidates, compare
from omnigraph.engine.merge.ancestry import MergeBase
from omnigraph.engine.merge.apply_resolutions import Resolutions, touches
from omnigraph.engine.merge.conflicts import Conflict, Resolution, conflict_of
from omnigraph.engine.merge.row_merge import RowMerge, Type, as_merge, merge_rows
from omnigraph.engine.merge.three_way import Counted
from omnigraph.engine.merge.virtual_base import build_image, images, merge_from_virtual
from omnigraph.engine.write.staging import physical
from omnigraph.limits import MERGE_CONFLICTS_MAX
from omnigraph.pipeline.bulk_load.key_files import Slice, write_numbers
from omnigraph.pipeline.bulk_load.matching import slices_of
from omnigraph.pipeline.range_merge.keys import (
    Broken,
    CommittedElsewhere,
    KeyFile,
    MergeJob,
    broken_rows,
    key_columns,
    read_table,
    write_key_files,
    write_table,
)
from omnigraph.rules.arrow_typing import pc
from omnigraph.rules.delta import Delta, Ids, one_array
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.read.lookup import ROW_ADDRESS, find
from omnigraph.store.write.fragments import FragmentText, write_fragments_with_blobs

# Taking rows one by one costs about this many times what a pass over them costs.
_TAKE_COST = 10


@dataclass(frozen=True, slots=True)
class LookTask:
    """Two versions of a type, and into how many ranges of ids what moved between them is cut."""

    base: DatasetRef
    side: DatasetRef
    ranges: int


def look(job: MergeJob, task: LookTask) -> list[str | None]:
    """Write down range by range which rows may differ; of a range without any there is no file."""
    rows = candidates(job.place.open(task.base), job.place.open(task.side))
    numbers = [job.part_of(chunk, task.ranges) for chunk in rows.column("id").chunks]
    ranges = np.concatenate([np.zeros(0, np.uint64), *numbers])
    store = job.place.store()
    found: list[str | None] = []
    for number in range(task.ranges):
        chosen = ranges == number
        found.append(write_table(store, job.side, rows.filter(pa.array(chosen))) if chosen.any() else None)
    return found


@dataclass(frozen=True, slots=True)
class MergeTask:
    """One range of ids of one type: what may have moved between the base and each other state, and what is decided.

    Of a virtual base, moves lead from the first of its versions to each other one. Without `ours`, our side did not
    change the type. Only of what `is_staged` files are written.
    """

    table_key: str
    base: MergeBase[DatasetRef]
    theirs: DatasetRef
    ours: DatasetRef | None
    moves: Mapping[DatasetRef, str | None]
    is_staged: bool
    resolutions: tuple[Resolution, ...] = ()


@dataclass(frozen=True, slots=True)
class Merged:
    """What became of a range: conflicts, or the fragments of merged rows and where those lie that go."""

    table_key: str
    counts: Counted
    conflicts: tuple[Conflict, ...] = ()
    open: tuple[Resolution, ...] = ()
    # Entities with an open resolution that change here.
    touched: tuple[str, ...] = ()
    broken: tuple[Broken, ...] = ()
    keys: tuple[KeyFile, ...] = ()
    fragments: tuple[FragmentText, ...] = ()
    gone: Mapping[int, Slice] = field(default_factory=dict)


def merge_range(job: MergeJob, task: MergeTask) -> Merged:
    """Merge one range, stage it, and write down what set rules have to know of it."""
    type_ = job.catalog.type_of(task.table_key)
    moves = {ref: _moves(job, task, ref) for ref in (task.theirs, *([task.ours] if task.ours else []))}
    blobs = BlobValues()
    merge = _merge(job, task, type_, moves, blobs)
    resolutions = Resolutions(task.resolutions)
    merge = resolutions.settle(type_, merge, blobs)
    touched = tuple(one.entity_id for one in resolutions.open if touches(merge, one.entity_id))
    done = Merged(task.table_key, Counted.of(merge), open=resolutions.open, touched=touched)
    if merge.clashes:
        told = merge.clashes[: MERGE_CONFLICTS_MAX + 1]
        done = replace(done, conflicts=tuple(conflict_of(task.table_key, one, blobs) for one in told))
        if not job.is_decided:
            return done
        # Rules that the rest breaks say whether the resolutions that are still open have something to settle.
        task = replace(task, is_staged=False)
    return done if merge.changes_nothing else _staged(job, task, merge, moves, done, blobs)


def _merge(
    job: MergeJob, task: MergeTask, type_: Type, moves: Mapping[DatasetRef, pa.Table], blobs: BlobValues
) -> RowMerge:
    base = job.place.open(task.base.first)
    joined = set(task.base.states()) - {task.base.first} - moves.keys()
    moves = {**moves, **{ref: _moves(job, task, ref) for ref in joined}} if task.base.is_virtual else moves
    compared = [compare(base, job.place.open(ref), own, blobs) for ref, own in moves.items()]
    deltas = dict(zip(moves, blobs.unified(compared), strict=True))
    if not task.base.is_virtual:
        theirs = deltas[task.theirs]
        return as_merge(theirs) if task.ours is None else merge_rows(type_, deltas[task.ours], theirs)
    assert task.ours is not None, "of a virtual base nothing is unchanged"
    old, rows = images(deltas)
    image = build_image(type_, task.base, lambda ref: rows.get(ref, old))
    return merge_from_virtual(type_, image, rows[task.ours], rows[task.theirs])


def _moves(job: MergeJob, task: MergeTask, ref: DatasetRef) -> pa.Table:
    path, base = task.moves[ref], job.place.open(task.base.first)
    return candidates(base, base) if path is None else read_table(job.place.store(), path)


def _staged(
    job: MergeJob,
    task: MergeTask,
    merge: RowMerge,
    moves: Mapping[DatasetRef, pa.Table],
    done: Merged,
    blobs: BlobValues,
) -> Merged:
    type_, store, committed = job.catalog.type_of(task.table_key), job.place.store(), CommittedElsewhere(job)
    target = job.place.open(job.committed[task.table_key])
    rows = pa.concat_tables([merge.updated, merge.inserted]).combine_chunks()
    columns = key_columns(type_)
    old = _places(committed, target, task, columns, _leaving(merge), moves)
    if job.buckets:
        broken = broken_rows(job.catalog, Delta(type_, rows, deleted=merge.deleted), committed)
        keys = write_key_files(job, type_, rows.select(columns), old)
        done = replace(done, broken=tuple(broken[: MERGE_CONFLICTS_MAX + 1]), keys=tuple(keys))
    if not task.is_staged:
        return done
    fragments: list[FragmentText] = []
    if rows.num_rows:
        # Where rows lie matters to those that may keep their blobs there.
        current = find(target, one_array(merge.updated.column("id"))) if type_.has_blobs else old.slice(0, 0)
        rows, stored = blobs.with_kept_blobs(rows, target, current)
        fragments = write_fragments_with_blobs(target, physical(rows, target), stored, job.place.operation_id)
    addresses = np.sort(old.column(ROW_ADDRESS).to_numpy().astype(np.int64))
    if not len(addresses):
        return replace(done, fragments=tuple(fragments))
    path = write_numbers(store, job.side, addresses)
    gone = {one: Slice(path, *cut) for one, cut in slices_of(addresses >> 32).items()}
    return replace(done, fragments=tuple(fragments), gone=gone)


def _leaving(merge: RowMerge) -> Ids:
    return pa.concat_arrays([one_array(merge.updated.column("id")), merge.deleted])


def _places(
    committed: CommittedElsewhere,
    target: Dataset,
    task: MergeTask,
    columns: list[str],
    ids: Ids,
    moves: Mapping[DatasetRef, pa.Table],
) -> pa.Table:
    """Return columns and addresses of the rows of our side with these ids, all of which are there.

    A row that our side left alone has the row id of the base; of the others it is known.
    """
    if len(ids) * _TAKE_COST < target.count():
        row_ids = _row_ids(moves[task.theirs], BEFORE, ids)
        if task.ours is not None:
            row_ids = pc.coalesce(_row_ids(moves[task.ours], AFTER, ids), row_ids)
        if not row_ids.null_count:
            found = target.take(row_ids.to_pylist(), [*columns, ROW_ADDRESS])
            if one_array(found.column("id")).equals(ids):
                return found
    found = committed.places(task.table_key, columns, {"id": ids})
    assert found.num_rows == len(ids), f"{target.ref} does not have all rows that a merge changes"
    return found


def _row_ids(moves: pa.Table, column: str, ids: Ids) -> Ids:
    return one_array(moves.column(column)).take(pc.index_in(ids, value_set=one_array(moves.column("id"))))
