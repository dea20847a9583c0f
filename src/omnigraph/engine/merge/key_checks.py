"""Rules across rows, checked in hash buckets of the keys that a merge moves: ids, endpoints, and `@unique` tuples.

Equal keys fall into one bucket, so such a rule holds for the graph exactly if it holds in each bucket. A bucket holds
every change of the ids and values that hash to it. An edge is in the bucket of each endpoint, with the other endpoint
null; a key that moves to another bucket counts as deleted in its old one. A small merge has one bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.key_buckets.files import TableSlice, split_by_bucket
from omnigraph.engine.key_buckets.hashes import bucket_of, hash_rows
from omnigraph.engine.merge.merge_job import MergeJob
from omnigraph.lang.catalog import EdgeType, Type, TypeKey
from omnigraph.limits import MERGE_CONFLICTS_MAX
from omnigraph.rules.arrow_typing import Column, Numbers, pc
from omnigraph.rules.delta import Changes, Delta, Ids, one_array, without
from omnigraph.rules.set_rules import cardinality, endpoints, orphans, unique
from omnigraph.rules.validate import RULES, IndexedViolation, Rule, run_rules
from omnigraph.store.read.lookup import find_rows

_SET_RULES: Final[frozenset[Rule]] = frozenset({unique, endpoints, orphans, cardinality})
# All other rules look at single rows, and run where the rows are merged.
ROW_RULES: Final = tuple(rule for rule in RULES if rule not in _SET_RULES)

# The group of ids and endpoints; the other groups are the numbers of `@unique` tuples.
_ENDPOINTS: Final = "ends"


@dataclass(frozen=True, slots=True)
class KeyPart:
    """Keys of one type in one bucket: of written rows if `is_new`, otherwise ids of replaced or deleted rows."""

    bucket: int
    table_key: TypeKey
    group: str
    is_new: bool
    rows: TableSlice


def split_keys(job: MergeJob, type_: Type, new: pa.Table, old: pa.Table) -> list[KeyPart]:
    """Hand on the keys of written rows, and the ids of replaced or deleted ones, by bucket."""
    parts = [
        (group, bucket, is_new, part if is_new else part.select(["id"]))
        for is_new, rows in ((True, new), (False, old))
        for group, bucket, part in _split(job, type_, rows)
    ]
    slices = job.hand_on(table for *_, table in parts)
    return [
        KeyPart(bucket, type_.table_key, group, is_new, rows)
        for (group, bucket, is_new, _), rows in zip(parts, slices, strict=True)
    ]


def _split(job: MergeJob, type_: Type, rows: pa.Table) -> Iterator[tuple[str, int, pa.Table]]:
    """Yield the non-empty parts of rows by group and bucket."""
    if job.buckets == 1:
        groups = [_ENDPOINTS, *(map(str, range(len(type_.unique))))] if rows.num_rows else []
        yield from ((group, 0, rows.select(_columns(type_, group, rows))) for group in groups)
        return
    if isinstance(type_, EdgeType):
        yield from _split_edges(job, rows)
    else:
        for bucket, ids in split_by_bucket(rows.select(["id"]), _bucket_of(job, rows.column("id"))):
            yield _ENDPOINTS, bucket, ids
    for number, names in enumerate(type_.unique):
        # A tuple with a null equals no other. Lists cannot be compared, which the rule reports for each.
        complete = rows.select(list(dict.fromkeys(["id", *names]))).drop_null()
        plain = [column for name in names if not pa.types.is_nested((column := one_array(complete.column(name))).type)]
        hashes = hash_rows(plain, job.operation_id) if plain else np.zeros(complete.num_rows, np.uint64)
        for bucket, tuples in split_by_bucket(complete, hashes % np.uint64(job.buckets)):
            yield str(number), bucket, tuples


def _columns(type_: Type, group: str, rows: pa.Table) -> list[str]:
    names = ["id", *type_.ends] if group == _ENDPOINTS else list(dict.fromkeys(["id", *type_.unique[int(group)]]))
    return [name for name in names if name in rows.column_names]


def _split_edges(job: MergeJob, rows: pa.Table) -> Iterator[tuple[str, int, pa.Table]]:
    buckets = {name: _bucket_of(job, rows.column(name)) for name in ("src", "dst")}
    for bucket in np.unique(np.concatenate(list(buckets.values()))).tolist():
        inside = {name: numbers == bucket for name, numbers in buckets.items()}
        columns = {"id": rows.column("id")}
        columns |= {
            name: pc.if_else(pa.array(is_inside), rows.column(name), None) for name, is_inside in inside.items()
        }
        yield _ENDPOINTS, bucket, pa.table(columns).filter(pa.array(inside["src"] | inside["dst"]))


def _bucket_of(job: MergeJob, column: Column) -> Numbers:
    return bucket_of(column, job.operation_id, job.buckets)


def check_bucket(job: MergeJob, parts: Sequence[KeyPart]) -> list[IndexedViolation]:
    """Return the violations of one bucket, no more than a report shows."""
    bucket, committed, limit = parts[0].bucket, CommittedSide(job), MERGE_CONFLICTS_MAX + 1
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
    violations += run_rules((cardinality,), Changes(job.catalog, sources), CommittedSide(job, bucket), limit)
    for (group, key), group_parts in sorted(by_group.items()):
        if group != _ENDPOINTS:
            delta = _delta(job, group_parts)
            delta = replace(delta, type=replace(delta.type, unique=(delta.type.unique[int(group)],)))
            violations += run_rules((unique,), Changes(job.catalog, {key: delta}), committed, limit)
    return violations


def _delta(job: MergeJob, parts: Sequence[KeyPart]) -> Delta:
    type_ = job.catalog.type_of(parts[0].table_key)
    new = [job.receive(part.rows) for part in parts if part.is_new]
    old = [one_array(job.receive(part.rows).column("id")) for part in parts if not part.is_new]
    if not new:
        schema = job.open(job.committed[type_.table_key]).schema
        nothing = schema.empty_table()
        new = [nothing.select(_columns(type_, parts[0].group, nothing))]
    # In the order of ids, so that the report does not depend on how the ids were split.
    rows = pa.concat_tables(new).sort_by("id").combine_chunks()
    removed = pa.concat_arrays([pa.array([], pa.string()), *old])
    return Delta(type_, rows, deleted=without(removed, one_array(rows.column("id"))))


def _with_local_source(delta: Delta) -> Delta:
    """Return the edges whose source is in this bucket; the others count as deleted from it."""
    local = delta.rows.filter(pc.is_valid(delta.rows.column("src"))).combine_chunks()
    return Delta(delta.type, local, deleted=without(delta.gone, one_array(local.column("id"))))


@dataclass(frozen=True, slots=True)
class CommittedSide:
    """The rows of our side, as the rules look them up.

    With a `bucket`, of edges only those whose source is in it: the changes of other sources are in other buckets.
    """

    job: MergeJob
    bucket: int | None = None

    def existing(self, table_key: TypeKey, ids: Ids) -> Ids:
        return one_array(self._find(table_key, ("id",), {"id": ids}).column("id"))

    def matching(self, table_key: TypeKey, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        """Return columns of the rows whose `where` columns have one of the values."""
        rows = self._find(table_key, columns, where)
        if self.bucket is None or self.job.buckets == 1:
            return rows
        return rows.filter(pa.array(_bucket_of(self.job, rows.column("src")) == self.bucket))

    def _find(self, table_key: TypeKey, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        return find_rows(self.job.open(self.job.committed[table_key]), columns, where).select(list(columns))
