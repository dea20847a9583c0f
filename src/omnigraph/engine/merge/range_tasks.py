"""The tasks of a merge: keys that moved, in hash buckets checked across rows, and the merge of one range of ids.

Runs in tasks. Invariant: a bucket holds every change of the ids and values that hash to it. An edge is in the bucket of
each endpoint, with the other endpoint null; a key that moves to another bucket counts as deleted in its old one.

Each task runs the code of an in-process merge on the rows of its range, and returns a few kilobytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.changes.blob_values import BlobValues
from omnigraph.engine.changes.row_diff import AFTER, BEFORE, candidates, compare
from omnigraph.engine.key_buckets.files import (
    Addresses,
    FileSlice,
    columns_of_keys,
    key_names,
    split_by_bucket,
    write_addresses,
    write_tables,
)
from omnigraph.engine.key_buckets.hashes import bucket_of, hash_rows
from omnigraph.engine.merge.ancestry import MergeBase, build_image, images, merge_from_virtual
from omnigraph.engine.merge.conflicts import Resolution, Resolutions, conflict_of, touches
from omnigraph.engine.merge.row_merge import RowMerge, as_merge, merge_rows
from omnigraph.engine.merge.three_way import Counted
from omnigraph.engine.tasks import GraphAccess, parse_catalog
from omnigraph.engine.write.staging import physical
from omnigraph.lang.catalog import Catalog, EdgeType, Type, TypeKey
from omnigraph.limits import MERGE_CONFLICTS_MAX
from omnigraph.public_values import Conflict
from omnigraph.rules.arrow_typing import Column, Numbers, pc
from omnigraph.rules.delta import Changes, Delta, Ids, one_array, without
from omnigraph.rules.set_rules import cardinality, endpoints, orphans, unique
from omnigraph.rules.validate import RULES, IndexedViolation, Rule, run_rules
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.read.lookup import FILTER_VALUES_MAX, ROW_ADDRESS, find, find_rows
from omnigraph.store.write.fragments import FragmentText, fragment_ids, read_fragment, write_fragments_with_blobs

_SET_RULES: Final[frozenset[Rule]] = frozenset({unique, endpoints, orphans, cardinality})
# All other rules look at single rows, and run where the rows are merged.
ROW_RULES: Final = tuple(rule for rule in RULES if rule not in _SET_RULES)

# The group of ids and endpoints; the other groups are the numbers of `@unique` tuples.
_ENDPOINTS: Final = "ends"


@dataclass(frozen=True, slots=True)
class MergeJob:
    """A merge as its tasks see it: the target dataset of each type, and the number of key buckets.

    `is_decided` if there are resolutions; rules are then checked even if the sides conflict.
    """

    access: GraphAccess
    scratch: str
    ir: str
    committed: Mapping[TypeKey, DatasetRef]
    buckets: int
    is_decided: bool = False

    @property
    def catalog(self) -> Catalog:
        return parse_catalog(self.ir)

    def partition_of(self, column: Column, parts: int) -> Numbers:
        return bucket_of(column, self.access.operation_id, parts)


@dataclass(frozen=True, slots=True)
class KeyPart:
    """Keys of one type in one bucket: of merged rows if `is_new`, otherwise ids of replaced rows."""

    bucket: int
    table_key: TypeKey
    group: str
    is_new: bool
    rows: FileSlice


def write_key_parts(job: MergeJob, type_: Type, new: pa.Table, old: pa.Table) -> list[KeyPart]:
    """Write the keys of merged rows, and the ids of replaced or deleted ones, by bucket."""
    parts = [
        (group, bucket, is_new, part if is_new else part.select(["id"]))
        for is_new, rows in ((True, new), (False, old))
        for group, bucket, part in _split_by_bucket(job, type_, rows)
    ]
    slices = write_tables(job.access.store(), job.scratch, (table for *_, table in parts))
    return [
        KeyPart(bucket, type_.table_key, group, is_new, rows)
        for (group, bucket, is_new, _), rows in zip(parts, slices, strict=True)
    ]


def _split_by_bucket(job: MergeJob, type_: Type, rows: pa.Table) -> Iterable[tuple[str, int, pa.Table]]:
    """Yield the non-empty parts of rows by group and bucket."""
    if isinstance(type_, EdgeType):
        buckets = {name: job.partition_of(rows.column(name), job.buckets) for name in ("src", "dst")}
        for bucket in np.unique(np.concatenate(list(buckets.values()))).tolist():
            inside = {name: numbers == bucket for name, numbers in buckets.items()}
            columns = {"id": rows.column("id")}
            columns |= {
                name: pc.if_else(pa.array(is_inside), rows.column(name), None) for name, is_inside in inside.items()
            }
            yield _ENDPOINTS, bucket, pa.table(columns).filter(pa.array(inside["src"] | inside["dst"]))
    else:
        for bucket, ids in split_by_bucket(rows.select(["id"]), job.partition_of(rows.column("id"), job.buckets)):
            yield _ENDPOINTS, bucket, ids
    for number, names in enumerate(type_.unique):
        # A tuple with a null equals no other. Lists cannot be compared, which the rule reports for each.
        complete = rows.select(list(dict.fromkeys(["id", *names]))).drop_null()
        plain = [column for name in names if not pa.types.is_nested((column := one_array(complete.column(name))).type)]
        hashes = hash_rows(plain, job.access.operation_id) if plain else np.zeros(complete.num_rows, np.uint64)
        for bucket, tuples in split_by_bucket(complete, hashes % np.uint64(job.buckets)):
            yield str(number), bucket, tuples


# -- checking --------------------------------------------------------------------------------------------------


def check_bucket(job: MergeJob, parts: Sequence[KeyPart]) -> list[IndexedViolation]:
    """Return the violations of one bucket, no more than a report shows."""
    bucket, committed, limit = parts[0].bucket, CommittedTarget(job), MERGE_CONFLICTS_MAX + 1
    by_group: dict[tuple[str, TypeKey], list[KeyPart]] = {}
    for part in parts:
        by_group.setdefault((part.group, part.table_key), []).append(part)
    # Rules look up committed rows of the target themselves, so a bucket needs only the changes that hash to it.
    ends = {
        key: _delta(job, group_parts) for (group, key), group_parts in sorted(by_group.items()) if group == _ENDPOINTS
    }
    violations = run_rules((endpoints, orphans), Changes(job.catalog, ends), committed, limit)
    # An edge is in two buckets, but counts for its source only in the bucket of that source.
    sources = {
        key: _with_local_source(delta) if isinstance(delta.type, EdgeType) else delta for key, delta in ends.items()
    }
    violations += run_rules((cardinality,), Changes(job.catalog, sources), _BucketSources(committed, bucket), limit)
    for (group, key), group_parts in sorted(by_group.items()):
        if group != _ENDPOINTS:
            delta = _delta(job, group_parts)
            delta = replace(delta, type=replace(delta.type, unique=(delta.type.unique[int(group)],)))
            violations += run_rules((unique,), Changes(job.catalog, {key: delta}), committed, limit)
    return violations[:limit]


def _delta(job: MergeJob, parts: Sequence[KeyPart]) -> Delta:
    type_, store = job.catalog.type_of(parts[0].table_key), job.access.store()
    new = [part.rows.read_table(store) for part in parts if part.is_new]
    old = [one_array(part.rows.read_table(store).column("id")) for part in parts if not part.is_new]
    removed = pa.concat_arrays([pa.array([], pa.string()), *old])
    if new:
        rows = pa.concat_tables(new).combine_chunks()
    else:
        names = {"id", "src", "dst"} if parts[0].group == _ENDPOINTS else {"id", *type_.unique[int(parts[0].group)]}
        schema = job.access.open(job.committed[type_.table_key]).schema
        rows = schema.empty_table().select([name for name in schema.names if name in names])
    return Delta(type_, rows, deleted=without(removed, one_array(rows.column("id"))))


def _with_local_source(delta: Delta) -> Delta:
    """Return the edges whose source is in this bucket; the others count as deleted from it."""
    local = delta.rows.filter(pc.is_valid(delta.rows.column("src"))).combine_chunks()
    return Delta(delta.type, local, deleted=without(delta.gone, one_array(local.column("id"))))


class CommittedTarget:
    """Committed rows of the target: a few by lookup, many by one scan of the fragments."""

    def __init__(self, job: MergeJob) -> None:
        self.job = job

    def existing(self, table_key: TypeKey, ids: Ids) -> Ids:
        return one_array(self.matching(table_key, ("id",), {"id": ids}).column("id"))

    def matching(self, table_key: TypeKey, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        """Return columns of the rows whose `where` columns have one of the values."""
        return self.with_addresses(table_key, columns, where).select(list(columns))

    def with_addresses(self, table_key: TypeKey, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        """Return the same rows with their addresses."""
        dataset = self.job.access.open(self.job.committed[table_key])
        if all(len(values) <= FILTER_VALUES_MAX for values in where.values()) or dataset.count() == 0:
            return find_rows(dataset, columns, where).select([*columns, ROW_ADDRESS])
        names = list(dict.fromkeys([*columns, *where]))
        parts = []
        for fragment in fragment_ids(dataset):
            rows = read_fragment(dataset, fragment, names)
            for name, values in where.items():
                rows = rows.filter(pc.is_in(_normalize_zero(rows.column(name)), value_set=_normalize_zero(values)))
            parts.append(rows.select([*columns, ROW_ADDRESS]))
        return pa.concat_tables(parts).combine_chunks()


def _normalize_zero(values: Column) -> Column:
    # A value set distinguishes 0.0 and -0.0; the rules do not.
    return pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values


@dataclass(frozen=True, slots=True)
class _BucketSources:
    """Committed edges whose source is in one bucket; the changes of other sources are in other buckets."""

    committed: CommittedTarget
    bucket: int

    def existing(self, table_key: TypeKey, ids: Ids) -> Ids:
        return self.committed.existing(table_key, ids)

    def matching(self, table_key: TypeKey, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        edges, job = self.committed.matching(table_key, columns, where), self.committed.job
        return edges.filter(pa.array(job.partition_of(edges.column("src"), job.buckets) == self.bucket))


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
    updated_ids = one_array(merge.updated.column("id"))
    old = _find_replaced_rows(committed, target, task, columns, pa.concat_arrays([updated_ids, merge.deleted]), moves)
    if job.buckets:
        changes = Changes(job.catalog, {type_.table_key: Delta(type_, rows, deleted=merge.deleted)})
        broken = run_rules(ROW_RULES, changes, committed, MERGE_CONFLICTS_MAX + 1)
        keys = write_key_parts(job, type_, rows.select(columns), old)
        merged = replace(merged, violations=tuple(broken[: MERGE_CONFLICTS_MAX + 1]), keys=tuple(keys))
    if not task.is_staged:
        return merged
    fragments: list[FragmentText] = []
    if rows.num_rows:
        # Updated rows may keep their stored blobs, so their current addresses are needed.
        current = find(target, updated_ids) if type_.has_blobs else old.slice(0, 0)
        rows, stored = blobs.with_kept_blobs(rows, target, current)
        fragments = write_fragments_with_blobs(target, physical(rows, target), stored, job.access.operation_id)
    replaced = write_addresses(job.access, job.scratch, old.column(ROW_ADDRESS).to_numpy())
    return replace(merged, fragments=tuple(fragments), replaced=replaced)


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
