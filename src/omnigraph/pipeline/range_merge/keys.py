"""The keys of a merge: changed ids, endpoints and unique values, hash-partitioned into buckets that are checked alone.

Runs in tasks. Invariant: a bucket holds every change of the ids and values that hash to it. An edge is in the bucket of
each endpoint, with the other endpoint null; a key that moves to another bucket counts as deleted in its old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.graph_access import GraphAccess, parse_catalog
from omnigraph.lang.catalog import Catalog, EdgeType, Type, TypeKey
from omnigraph.limits import MERGE_CONFLICTS_MAX
from omnigraph.pipeline.key_buckets.files import FileSlice, split_by_bucket, write_tables
from omnigraph.pipeline.key_buckets.hashes import bucket_of, hash_rows
from omnigraph.rules.arrow_typing import Column, Numbers, pc
from omnigraph.rules.delta import Changes, Committed, Delta, Ids, one_array, without
from omnigraph.rules.edge_rules import cardinality, endpoints, orphans
from omnigraph.rules.unique_rules import unique
from omnigraph.rules.validate import RULES, IndexedViolation, Rule, run_rules
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.read.lookup import FILTER_VALUES_MAX, ROW_ADDRESS, find_rows
from omnigraph.store.write.fragments import fragment_ids, read_fragment

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
        """Return the hash partition of each value."""
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


def check_row_rules(catalog: Catalog, delta: Delta, committed: Committed) -> list[IndexedViolation]:
    """Return the violations of row rules in merged rows."""
    return run_rules(ROW_RULES, Changes(catalog, {delta.key: delta}), committed, MERGE_CONFLICTS_MAX + 1)


def _delta(job: MergeJob, parts: Sequence[KeyPart]) -> Delta:
    type_, store = job.catalog.type_of(parts[0].table_key), job.access.store()
    new = [part.rows.read_table(store) for part in parts if part.is_new]
    old = [one_array(part.rows.read_table(store).column("id")) for part in parts if not part.is_new]
    removed = pa.concat_arrays([pa.array([], pa.string()), *old])
    names = {"id", "src", "dst"} if parts[0].group == _ENDPOINTS else {"id", *type_.unique[int(parts[0].group)]}
    rows = pa.concat_tables(new).combine_chunks() if new else _empty_rows(job, type_.table_key, names)
    return Delta(type_, rows, deleted=without(removed, one_array(rows.column("id"))))


def _empty_rows(job: MergeJob, table_key: TypeKey, names: set[str]) -> pa.Table:
    schema = job.access.open(job.committed[table_key]).schema
    return schema.empty_table().select([name for name in schema.names if name in names])


def _with_local_source(delta: Delta) -> Delta:
    """Return the edges whose source is in this bucket; the others count as deleted from it."""
    local = delta.rows.filter(pc.is_valid(delta.rows.column("src"))).combine_chunks()
    return Delta(delta.type, local, deleted=without(delta.gone, one_array(local.column("id"))))


class CommittedTarget:
    """Committed rows of the target: a few by lookup, many by one scan of the fragments."""

    def __init__(self, job: MergeJob) -> None:
        self.job = job

    def existing(self, table_key: TypeKey, ids: Ids) -> Ids:
        """Return the ids that exist in a type."""
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
