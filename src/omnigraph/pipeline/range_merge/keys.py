"""Key files of a merge: changed ids, endpoints and unique values, hash-partitioned into buckets that are checked alone.

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
from omnigraph.engine.write.ndjson.blocks import Type
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import Catalog, EdgeType
from omnigraph.limits import MERGE_CONFLICTS_MAX
from omnigraph.pipeline.bulk_load.key_hashes import hash_column, hash_rows
from omnigraph.rules.arrow_typing import Column, Numbers, pc
from omnigraph.rules.delta import Changes, Committed, Delta, Ids, one_array, without
from omnigraph.rules.edge_rules import cardinality, endpoints, orphans
from omnigraph.rules.unique_rules import unique
from omnigraph.rules.validate import RULES, Rule
from omnigraph.rules.violations import Findings, Violation
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.read.lookup import FILTER_VALUES_MAX, ROW_ADDRESS, find_rows
from omnigraph.store.store import Store
from omnigraph.store.write.fragments import fragment_ids, read_fragment

_SET_RULES: Final[frozenset[Rule]] = frozenset({unique, endpoints, orphans, cardinality})
# All other rules look at single rows, and run where the rows are merged.
ROW_RULES: Final = tuple(rule for rule in RULES if rule not in _SET_RULES)

# The group of ids and endpoints; the other groups are the numbers of `@unique` tuples.
_ENDPOINTS: Final = "ends"

# A violation with the index of its rule.
IndexedViolation = tuple[int, Violation]


@dataclass(frozen=True, slots=True)
class MergeJob:
    """A merge as its tasks see it: the target dataset of each type, and the number of key buckets.

    `is_decided` if there are resolutions; rules are then checked even if the sides conflict.
    """

    access: GraphAccess
    scratch: str
    ir: str
    committed: Mapping[str, DatasetRef]
    buckets: int
    is_decided: bool = False

    @property
    def catalog(self) -> Catalog:
        return parse_catalog(self.ir)

    def partition_of(self, column: Column, parts: int) -> Numbers:
        """Return the hash partition of each value."""
        return np.asarray(hash_column(column, self.access.operation_id) % np.uint64(parts))


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A file with keys of one type in one bucket: of merged rows if `is_new`, otherwise ids of replaced rows."""

    bucket: int
    table_key: str
    group: str
    is_new: bool
    path: str


def key_columns(type_: Type) -> list[str]:
    """Return the columns that set rules read."""
    ends = ("src", "dst") if isinstance(type_, EdgeType) else ()
    return list(dict.fromkeys(["id", *ends, *(name for columns in type_.unique for name in columns)]))


def write_table(store: Store, folder: str, rows: pa.Table) -> str:
    """Write a table under a new name and return its path."""
    path = f"{folder}/{new_ulid()}.arrow"
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    store.objects.write(path, sink.getvalue().to_pybytes())
    return path


def read_table(store: Store, path: str) -> pa.Table:
    return pa.ipc.open_stream(store.objects.read(path)).read_all()


def write_key_files(job: MergeJob, type_: Type, new: pa.Table, old: pa.Table) -> list[KeyFile]:
    """Write the keys of merged rows, and the ids of replaced or deleted ones, by bucket."""
    files: list[KeyFile] = []
    for is_new, rows in ((True, new), (False, old)):
        for group, bucket, part in _split_by_bucket(job, type_, rows):
            kept = part if is_new else part.select(["id"])
            path = write_table(job.access.store(), job.scratch, kept)
            files.append(KeyFile(bucket, type_.table_key, group, is_new, path))
    return files


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
        yield from _by_bucket(_ENDPOINTS, job.partition_of(rows.column("id"), job.buckets), rows.select(["id"]))
    for number, columns_ in enumerate(type_.unique):
        complete = rows.select(list(dict.fromkeys(["id", *columns_]))).filter(_is_complete(rows, columns_))
        # Lists cannot be compared, which the rule reports for each.
        plain = [
            one_array(complete.column(name))
            for name in columns_
            if not pa.types.is_nested(complete.schema.field(name).type)
        ]
        hashes = hash_rows(plain, job.access.operation_id) if plain else np.zeros(complete.num_rows, np.uint64)
        yield from _by_bucket(str(number), hashes % np.uint64(job.buckets), complete)


def _by_bucket(group: str, buckets: Numbers, rows: pa.Table) -> Iterable[tuple[str, int, pa.Table]]:
    for bucket in np.unique(buckets).tolist():
        yield group, bucket, rows.filter(pa.array(buckets == bucket))


def _is_complete(rows: pa.Table, columns: Sequence[str]) -> Column:
    complete = np.ones(rows.num_rows, bool)
    for name in columns:
        complete &= np.asarray(pc.is_valid(rows.column(name)).to_numpy(), bool)
    return pa.array(complete)


# -- checking --------------------------------------------------------------------------------------------------


def check_bucket(job: MergeJob, files: Sequence[KeyFile]) -> list[IndexedViolation]:
    """Return the violations of one bucket, no more than a report shows."""
    bucket, committed = files[0].bucket, CommittedTarget(job)
    by_group: dict[tuple[str, str], list[KeyFile]] = {}
    for file in files:
        by_group.setdefault((file.group, file.table_key), []).append(file)
    ends = {
        key: _delta(job, group_files) for (group, key), group_files in sorted(by_group.items()) if group == _ENDPOINTS
    }
    violations = _run_rules((endpoints, orphans), Changes(job.catalog, ends), committed)
    sources = {
        key: _with_local_source(delta) if isinstance(delta.type, EdgeType) else delta for key, delta in ends.items()
    }
    violations += _run_rules((cardinality,), Changes(job.catalog, sources), _BucketSources(committed, bucket))
    for (group, key), group_files in sorted(by_group.items()):
        if group != _ENDPOINTS:
            delta = _delta(job, group_files)
            delta = replace(delta, type=replace(delta.type, unique=(delta.type.unique[int(group)],)))
            violations += _run_rules((unique,), Changes(job.catalog, {key: delta}), committed)
    return violations[: MERGE_CONFLICTS_MAX + 1]


def check_row_rules(catalog: Catalog, delta: Delta, committed: Committed) -> list[IndexedViolation]:
    """Return the violations of row rules in merged rows."""
    return _run_rules(ROW_RULES, Changes(catalog, {delta.key: delta}), committed)


def _run_rules(rules: Sequence[Rule], changes: Changes, committed: Committed) -> list[IndexedViolation]:
    violations: list[IndexedViolation] = []
    for rule in rules:
        findings = Findings(MERGE_CONFLICTS_MAX + 1)
        rule(changes, committed, findings)
        violations += [(RULES.index(rule), violation) for violation in findings.violations]
    return violations


def _delta(job: MergeJob, files: Sequence[KeyFile]) -> Delta:
    type_, store = job.catalog.type_of(files[0].table_key), job.access.store()
    new = [read_table(store, file.path) for file in files if file.is_new]
    old = [one_array(read_table(store, file.path).column("id")) for file in files if not file.is_new]
    removed = pa.concat_arrays([pa.array([], pa.string()), *old])
    names = {"id", "src", "dst"} if files[0].group == _ENDPOINTS else {"id", *type_.unique[int(files[0].group)]}
    rows = pa.concat_tables(new).combine_chunks() if new else _empty_rows(job, type_.table_key, names)
    return Delta(type_, rows, deleted=without(removed, one_array(rows.column("id"))))


def _empty_rows(job: MergeJob, table_key: str, names: set[str]) -> pa.Table:
    schema = job.access.open(job.committed[table_key]).schema
    return schema.empty_table().select([name for name in schema.names if name in names])


def _with_local_source(delta: Delta) -> Delta:
    """Return the edges whose source is in this bucket; the others count as deleted from it."""
    here = delta.rows.filter(pc.is_valid(delta.rows.column("src"))).combine_chunks()
    return Delta(delta.type, here, deleted=without(delta.gone, one_array(here.column("id"))))


class CommittedTarget:
    """Committed rows of the target: a few by lookup, many by one scan of the fragments."""

    def __init__(self, job: MergeJob) -> None:
        self.job = job

    def existing(self, table_key: str, ids: Ids) -> Ids:
        """Return the ids that exist in a type."""
        return one_array(self.matching(table_key, ("id",), {"id": ids}).column("id"))

    def matching(self, table_key: str, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        """Return columns of the rows whose `where` columns have one of the values."""
        return self.with_addresses(table_key, columns, where).select(list(columns))

    def with_addresses(self, table_key: str, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
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

    def existing(self, table_key: str, ids: Ids) -> Ids:
        return self.committed.existing(table_key, ids)

    def matching(self, table_key: str, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        edges, job = self.committed.matching(table_key, columns, where), self.committed.job
        return edges.filter(pa.array(job.partition_of(edges.column("src"), job.buckets) == self.bucket))
