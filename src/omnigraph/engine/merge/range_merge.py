"""The tasks of a merge: which rows moved, by range of their ids, and the merge of one range.

A small type is one range, whose task finds the moved rows itself and keeps what it merged in memory. Of a large one
every version is compared with the base once, the moved rows are split by range, and each range is staged as it is
merged. What a task returns is small, unless the job holds the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa

from omnigraph.engine.changes.blob_values import BlobValues
from omnigraph.engine.changes.row_diff import StoredRows, moved_row_ids, read_rows
from omnigraph.engine.key_buckets.files import (
    Addresses,
    TableSlice,
    columns_of_keys,
    key_names,
    write_addresses,
)
from omnigraph.engine.merge.conflicts import Resolution, Resolutions, conflict_of, touches
from omnigraph.engine.merge.key_checks import ROW_RULES, CommittedSide, KeyPart, split_keys
from omnigraph.engine.merge.merge_job import MergeJob
from omnigraph.engine.merge.moves import RangeMoves, TaskMoves, receive_rows
from omnigraph.engine.merge.row_merge import RowMerge, rows_without
from omnigraph.engine.merge.type_merge import TypeMerge
from omnigraph.engine.write.staging import physical
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import MERGE_CONFLICTS_MAX
from omnigraph.public_values import Conflict
from omnigraph.rules.delta import Changes, Delta
from omnigraph.rules.validate import IndexedViolation, run_rules
from omnigraph.store.read.lookup import ROW_ADDRESS
from omnigraph.store.write.fragments import FragmentText, write_fragments_with_blobs


@dataclass(frozen=True, slots=True)
class MergeTask:
    """One range of the ids of one type, with the resolutions for its conflicts, and those for rules that it breaks.

    `moves` are the rows that may have moved to each version; without it, the task looks for them. `stored` are all rows
    of our side, if these are rechecked. Data files are written only if `is_staged`.
    """

    table_key: TypeKey
    moves: RangeMoves | None = None
    stored: tuple[TableSlice, ...] = ()
    is_staged: bool = False
    resolutions: tuple[Resolution, ...] = ()
    overrides: tuple[Resolution, ...] = ()

    def stored_rows(self, job: MergeJob) -> StoredRows:
        ours = job.open(job.versions[self.table_key].ours)
        if self.moves is None:
            return read_rows(ours, moved_row_ids(None, ours)[1])
        return receive_rows(job, ours, self.stored)

    def may_change(self, job: MergeJob) -> bool:
        """Return False if their side equals the base in this range, so that ours stays, and nothing is rechecked."""
        if self.moves is None or self.stored:
            return True
        versions = job.versions[self.table_key]
        # A virtual base may differ from all of its states, so equality with the first one proves nothing there.
        parts = [part for ref in (versions.theirs, *versions.base.states()) for part in self.moves.get(ref, ())]
        return any(part.old or part.new for part in parts)


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of inserted, updated and deleted entities of one type."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @classmethod
    def of(cls, merge: RowMerge) -> Counted:
        return cls(merge.inserted.num_rows, merge.updated.num_rows, len(merge.deleted))

    def __add__(self, other: Counted) -> Counted:
        return Counted(self.inserted + other.inserted, self.updated + other.updated, self.deleted + other.deleted)


@dataclass(frozen=True, slots=True)
class MergedRange:
    """The result of a range: its conflicts, or what it changes, as fragments or in memory.

    `open` are the resolutions that settled nothing, `touched` the entities among theirs that change here; `violations`
    are those of single rows, `keys` what rules across rows need, `replaced` the addresses of rows that go.
    """

    table_key: TypeKey
    counts: Counted
    conflicts: tuple[Conflict, ...] = ()
    open: tuple[Resolution, ...] = ()
    touched: tuple[str, ...] = ()
    violations: tuple[IndexedViolation, ...] = ()
    keys: tuple[KeyPart, ...] = ()
    fragments: tuple[FragmentText, ...] = ()
    replaced: Addresses = field(default_factory=dict)
    rows: HeldRows | None = None


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Merged rows in memory, and what is needed to stage them."""

    merge: RowMerge
    blobs: BlobValues
    moves: TaskMoves


def merge_range(job: MergeJob, task: MergeTask) -> MergedRange:
    """Merge one range, check its rows, hand on its keys, and stage it unless it is held."""
    type_, moves = job.catalog.type_of(task.table_key), TaskMoves(job, task.table_key, task.moves)
    rows = TypeMerge(job.open, type_, job.versions[task.table_key])
    resolutions = Resolutions(task.resolutions)
    merge = resolutions.settle(type_, rows.merge(moves), rows.blobs)
    merge = Resolutions(task.overrides).override(rows, merge)
    touched = tuple(item.entity_id for item in resolutions.open if touches(merge, item.entity_id))
    merged = MergedRange(task.table_key, Counted.of(merge), open=resolutions.open, touched=touched)
    # One more than a report has, so that it can say that there are more.
    clashes = merge.clashes[: MERGE_CONFLICTS_MAX + 1]
    if clashes:
        merged = replace(merged, conflicts=tuple(conflict_of(task.table_key, item, rows.blobs) for item in clashes))
        if not job.is_decided:
            return merged
        # Violations in the rest show whether the open resolutions have something to settle.
    if merge.changes_nothing and task.table_key not in job.rechecked:
        return merged
    is_staged = task.is_staged and not clashes
    old = moves.replaced(merge, job.old_columns(type_), is_needed=is_staged and not job.is_held)
    if job.buckets:
        merged = _check(job, task, rows, merge, old, merged)
    if job.is_held:
        return replace(merged, rows=HeldRows(merge, rows.blobs, moves))
    return _stage(job, merge, rows.blobs, old, merged) if is_staged else merged


def _check(
    job: MergeJob, task: MergeTask, rows: TypeMerge, merge: RowMerge, old: pa.Table, merged: MergedRange
) -> MergedRange:
    """Return the range with the violations of its rows, and the keys for rules across rows."""
    type_ = rows.type
    written = merge.written
    if type_.table_key in job.rechecked:
        kept = rows_without(rows.our_rows(task.stored_rows(job)), merge.replaced_ids)
        written = pa.concat_tables([kept, written]).combine_chunks()
    changes = Changes(job.catalog, {type_.table_key: Delta(type_, written, deleted=merge.deleted)})
    broken = run_rules(ROW_RULES, changes, CommittedSide(job), MERGE_CONFLICTS_MAX + 1)
    keys = split_keys(job, type_, written.select(columns_of_keys(type_, key_names(type_))), old)
    return replace(merged, violations=tuple(broken), keys=tuple(keys))


def _stage(job: MergeJob, merge: RowMerge, blobs: BlobValues, old: pa.Table, merged: MergedRange) -> MergedRange:
    """Return the range with the fragments of its rows, and the addresses of those that they replace."""
    assert job.scratch is not None, "what is staged in tasks is passed on in files"
    target = job.open(job.targets[merged.table_key])
    fragments: list[FragmentText] = []
    if len(merge.written):
        rows, stored = blobs.with_kept_blobs(merge.written, target, old)
        fragments = write_fragments_with_blobs(target, physical(rows, target), stored, job.operation_id)
    replaced = write_addresses(job.store, job.scratch, old.column(ROW_ADDRESS).to_numpy())
    return replace(merged, fragments=tuple(fragments), replaced=replaced)
