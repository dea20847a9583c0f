"""What a new schema does to the stored rows of a type: columns, constraints and ids that change, and their staging.

Stored rows are checked against the constraints that a schema adds by the rules of every write. Tasks run in threads or
on Spark executors. A type whose columns alone change is not read at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.engine.past_schemas import Columns, compare_columns
from omnigraph.engine.tasks import Runner, TaskStore
from omnigraph.engine.write.staging import gather_rows, put_column, rewrite_rows
from omnigraph.lang.catalog import (
    Cardinality,
    Catalog,
    CheckRule,
    EdgeType,
    NodeType,
    Property,
    RangeRule,
    Type,
    TypeKey,
)
from omnigraph.lang.schema.arrow_schema import arrow_schema, arrow_type, key_ids
from omnigraph.limits import SCHEMA_REWRITE_BATCH_ROWS, SCHEMA_REWRITE_BYTES, VIOLATIONS_MAX
from omnigraph.manifest.plan import Effect
from omnigraph.rules.arrow_typing import Column, arrays, pc
from omnigraph.rules.coerce import default_column, shown
from omnigraph.rules.delta import Changes, Delta, Findings, Ids, Intent, Violation, one_array
from omnigraph.rules.row_rules import ROW_RULES, errors_of
from omnigraph.rules.set_rules import cardinality, unique
from omnigraph.store.lance_schema import physical_schema
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.read.lookup import ROW_ID
from omnigraph.store.store import Staged
from omnigraph.store.write.fragments import (
    FragmentText,
    Marked,
    fragment_ids,
    fragment_runs,
    scan_fragments,
    scan_whole_rows,
    upserted,
)
from omnigraph.store.write.schema_change import convert_fragment, converted, converted_name, reshape
from omnigraph.store.write.transaction import Change

# How many holders of one key an error names.
_HOLDERS_SHOWN: Final = 3


@dataclass(frozen=True)
class TypeChange:
    """A kept type before and after a schema change."""

    old: Type
    new: Type

    @cached_property
    def columns(self) -> Columns:
        return compare_columns(self.old, self.new)

    @cached_property
    def kept(self) -> Mapping[str, tuple[Property, Property]]:
        """The properties that stay, before and after, by their new names."""
        before = {item.property_id: item for item in self.old.properties.values()}
        return {
            item.name: (before[item.property_id], item)
            for item in self.new.properties.values()
            if item.property_id in before
        }

    @property
    def retyped(self) -> dict[str, pa.DataType]:
        """The stored columns whose values are converted, by their old names, with their new Arrow types."""
        return {
            old.name: arrow_type(new.type)
            for old, new in self.kept.values()
            if arrow_type(old.type) != arrow_type(new.type)
        }

    @property
    def relaxed(self) -> tuple[str, ...]:
        """The stored columns that may hold nulls from now on, by their old names."""
        return tuple(old.name for old, new in self.kept.values() if new.type.nullable and not old.type.nullable)

    @property
    def filled(self) -> tuple[str, ...]:
        """The properties that stored rows do not have and need: they get their default."""
        return tuple(
            item.name for name, item in self.new.properties.items() if name not in self.kept and not item.type.nullable
        )

    @property
    def is_rekeyed(self) -> bool:
        """True if ids follow from another key than before."""
        if not self.new.key:
            return False
        former = {new.name: old.name for old, new in self.kept.values()}
        return tuple(former.get(name, name) for name in self.new.key) != self.old.key

    @property
    def is_checked(self) -> bool:
        """True if stored rows may break a constraint that the new type adds."""
        rules = self.added_rules()
        is_counted = isinstance(rules, EdgeType) and rules.cardinality != Cardinality()
        return bool(rules.properties or rules.unique) or is_counted

    def reshape(self, dataset: Dataset) -> Change | None:
        """Return the change of the stored columns by metadata alone, for values that keep their types."""
        columns = self.columns
        return reshape(dataset, add=columns.added, drop=columns.dropped, rename=columns.renamed, relax=self.relaxed)

    def added_rules(self) -> Type:
        """Return the new type with nothing but the constraints that its stored rows may break."""
        renamed = {old.name: new.name for old, new in self.kept.values()}

        def is_new(columns: Sequence[str], former: Sequence[Sequence[str]]) -> bool:
            return set(columns) not in [{renamed.get(name, name) for name in names} for names in former]

        added = tuple(names for names in self.new.unique if is_new(names, self.old.unique))
        if isinstance(self.new, EdgeType):
            assert isinstance(self.old, EdgeType)
            bounds = Cardinality() if self.new.cardinality == self.old.cardinality else self.new.cardinality
            properties = self._narrow(())
            return replace(self.new, properties=properties, unique=added, cardinality=bounds)
        assert isinstance(self.old, NodeType)
        former: list[RangeRule | CheckRule] = [*self.old.ranges, *self.old.checks]
        former = [replace(rule, property=renamed.get(rule.property, rule.property)) for rule in former]
        ranges = tuple(rule for rule in self.new.ranges if rule not in former)
        checks = tuple(rule for rule in self.new.checks if rule not in former)
        properties = self._narrow([*(rule.property for rule in ranges), *(rule.property for rule in checks)])
        return replace(self.new, properties=properties, unique=added, ranges=ranges, checks=checks)

    def _narrow(self, names: Sequence[str]) -> dict[str, Property]:
        """Return the named properties, and those whose own type asks for more than it did."""
        required = {new.name for old, new in self.kept.values() if old.type.nullable and not new.type.nullable}
        chosen = {*names, *required}
        return {
            name: item
            # A property that was required stays so; only what is new is looked at.
            if name in required
            else replace(item, type=replace(item.type, nullable=True))
            for name, item in self.new.properties.items()
            if name in chosen
        }


def read_as_new(change: TypeChange, table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return stored rows under the names and types of the new schema, with the values that they will have."""
    columns = {name: _read_column(change, table, name) for name in names}
    return pa.Table.from_arrays(list(columns.values()), names=list(columns))


def _read_column(change: TypeChange, table: pa.Table, name: str) -> Column:
    item = change.new.properties.get(name)
    if item is None:
        return one_array(table.column(name))
    if name in change.kept:
        return one_array(table.column(change.kept[name][0].name).cast(arrow_type(item.type)))
    if name in change.filled:
        # Constraints do not depend on the instant of `now()`.
        return default_column(item, table.num_rows, 0)
    return arrays.nulls(table.num_rows, arrow_type(item.type))


def stored_names(change: TypeChange, names: Sequence[str]) -> list[str]:
    """Return the stored columns that some columns of the new schema are read from."""
    system_columns = [name for name in names if name not in change.new.properties]
    return [*system_columns, *(change.kept[name][0].name for name in names if name in change.kept)]


@dataclass(frozen=True)
class DataCheck:
    """Checks the stored rows of changed types before anything is staged.

    Row rules run as tasks, a part of the rows at a time; rules across rows read the columns that they compare.
    """

    catalog: Catalog
    runner: Runner
    store: TaskStore
    unreadable: Set[str] = frozenset()

    def run(self, change: TypeChange, dataset: Dataset) -> None:
        """Raise `DataError` with samples if stored rows break a constraint that the new schema adds."""
        rules = change.added_rules()
        findings = Findings(VIOLATIONS_MAX, unit="row")
        if rules.properties:
            runs = fragment_runs(dataset)
            work = partial(_check_rows, self.store, change, rules, dataset.ref)
            for violations in self.runner.run(f"checking {rules.name}", work, runs):
                for violation in violations:
                    findings.add(violation)
        self._check_sets(change, rules, dataset, findings)
        self._raise(rules, findings)

    def check_key(self, type_: Type, old_ids: Ids, new_ids: Ids) -> None:
        """Raise `DataError` with samples if two stored rows have the same key."""
        findings = Findings(VIOLATIONS_MAX, unit="row")
        for violation in _repeated_keys(type_, old_ids, new_ids):
            findings.add(violation)
        self._raise(type_, findings)

    def _check_sets(self, change: TypeChange, rules: Type, dataset: Dataset, findings: Findings) -> None:
        columns = {name for names in rules.unique for name in names}
        is_counted = isinstance(rules, EdgeType) and rules.cardinality != Cardinality()
        if not columns and not is_counted:
            return
        names = list(dict.fromkeys(["id", *(["src"] if is_counted else []), *sorted(columns)]))
        rows = read_as_new(change, dataset.read(stored_names(change, names)), names)
        delta = Delta(rules, rows, Intent.REPLACE)
        changes = Changes(self.catalog, {delta.key: delta})
        for rule in (unique, cardinality):
            rule(changes, _NO_COMMITTED_ROWS, findings)

    def _raise(self, type_: Type, findings: Findings) -> None:
        if findings.violations and type_.name in self.unreadable:
            rule = findings.violations[0].rule
            hidden = Findings(1)
            message = f"stored rows of `{type_.name}` break a constraint that this schema adds. Nothing was applied"
            hidden.add(Violation(rule, message, type_.table_key))
            hidden.raise_if_any()
        findings.raise_if_any()


def _check_rows(
    store: TaskStore, change: TypeChange, rules: Type, ref: DatasetRef, fragment_ids: Sequence[int]
) -> list[Violation]:
    names = list(dict.fromkeys(["id", *rules.properties]))
    violations: list[Violation] = []
    for batch in scan_fragments(store.open(ref), fragment_ids, stored_names(change, names)):
        rows = read_as_new(change, pa.Table.from_batches([batch]), names)
        if isinstance(rules, EdgeType):
            # Endpoints of stored edges are never null, but the rule on required values checks them, too.
            ends: Any = pa.repeat("", rows.num_rows)
            rows = rows.append_column("src", ends).append_column("dst", ends)
        violations += _row_violations(rules, rows, VIOLATIONS_MAX - len(violations))
        if len(violations) >= VIOLATIONS_MAX:
            break
    return violations


def _row_violations(rules: Type, rows: pa.Table, limit: int) -> Iterator[Violation]:
    ids = rows.column("id")
    for rule in ROW_RULES:
        for breach in rule(rules, rows):
            for error in errors_of(breach, rows, limit).to_pylist():
                entity = ids[int(error["row"])].as_py()
                message = f"`{entity}`: {error['message']}"
                yield Violation(breach.rule, message, rules.table_key, entity, breach.property, error["value"])


def _repeated_keys(type_: Type, old_ids: Ids, new_ids: Ids) -> Iterator[Violation]:
    encoded = new_ids.dictionary_encode()
    codes = encoded.indices.to_numpy()
    counts = np.bincount(codes, minlength=len(encoded.dictionary))
    key = ", ".join(type_.key)
    for code in np.flatnonzero(counts > 1)[:VIOLATIONS_MAX].tolist():
        holders = old_ids.filter(pa.array(codes == code)).slice(0, _HOLDERS_SHOWN).to_pylist()
        value = encoded.dictionary[code].as_py()
        named = ", ".join(f"`{holder}`" for holder in holders)
        more = f" and {counts[code] - len(holders)} more" if counts[code] > len(holders) else ""
        message = (
            f"`@key({key})` cannot be added to `{type_.name}`: {named}{more} have the same key {shown(value)}; delete"
            " all but one of them, or add a property to the key. Nothing was applied"
        )
        yield Violation("E5", message, type_.table_key, holders[-1], key, value)


class _NoCommittedRows:
    """Committed rows for rules that see all rows of a type: none besides these."""

    def existing(self, table_key: TypeKey, ids: Ids) -> Ids:
        raise AssertionError("all rows are checked at once")

    def matching(self, table_key: TypeKey, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        assert not where, "all rows are checked at once"
        return pa.table({name: pa.array([], pa.string()) for name in columns})


_NO_COMMITTED_ROWS: Final = _NoCommittedRows()


# Old ids, and the ids that take their place.
IdMap: TypeAlias = tuple[Ids, Ids]


@dataclass(frozen=True, slots=True)
class RowRewrite:
    """How the rows of a type are written again: `filled` properties get their default, `endpoints` maps ids by column,
    `is_rekeyed` computes ids.
    """

    type: Type
    filled: tuple[str, ...] = ()
    now_ms: int = 0
    endpoints: Mapping[str, IdMap] = field(default_factory=dict)
    is_rekeyed: bool = False

    @property
    def is_needed(self) -> bool:
        return bool(self.filled or self.endpoints) or self.is_rekeyed

    def apply(self, rows: pa.Table) -> pa.Table:
        for name in self.filled:
            rows = put_column(rows, name, default_column(self.type.properties[name], rows.num_rows, self.now_ms))
        for name, (old_ids, new_ids) in self.endpoints.items():
            ends = one_array(rows.column(name))
            rows = put_column(rows, name, pc.coalesce(new_ids.take(pc.index_in(ends, value_set=old_ids)), ends))
        return put_column(rows, "id", one_array(key_ids(self.type, rows))) if self.is_rekeyed else rows


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Some fragments of a version; `manifest` is the staged one of a version that is not published yet."""

    ref: DatasetRef
    manifest: str | None
    fragment_ids: Sequence[int]


@dataclass(slots=True)
class RewrittenPart:
    """The new fragments of a task, and the old ones, of which no row is left."""

    fragments: list[FragmentText] = field(default_factory=list)
    marked: list[Marked] = field(default_factory=list)


def rewrite_part(store: TaskStore, rewrite: RowRewrite, operation_id: str, task: RewriteTask) -> RewrittenPart:
    dataset = store.open(task.ref, task.manifest)
    part = RewrittenPart()
    rewritten = map(rewrite.apply, _read_rows(dataset, rewrite.type, task.fragment_ids, part))
    for rows in gather_rows(rewritten, SCHEMA_REWRITE_BYTES):
        part.fragments += rewrite_rows(dataset, rows, operation_id)
    return part


def _read_rows(dataset: Dataset, type_: Type, fragment_ids: Sequence[int], part: RewrittenPart) -> Iterator[pa.Table]:
    """Yield the rows of fragments, and mark all of them as deleted in `part`."""
    names = arrow_schema(type_).names
    for fragment_id in fragment_ids:
        count = 0
        for batch in scan_whole_rows(dataset, fragment_id, names, SCHEMA_REWRITE_BATCH_ROWS):
            if batch.num_rows:
                count += batch.num_rows
                yield pa.Table.from_batches([batch]).select([*names, ROW_ID]).combine_chunks()
        part.marked.append(Marked(fragment_id, None, count))


def convert_part(
    store: TaskStore, types: Mapping[str, pa.DataType], operation_id: str, task: RewriteTask
) -> list[FragmentText]:
    dataset = store.open(task.ref, task.manifest)
    return [convert_fragment(dataset, fragment_id, types, operation_id) for fragment_id in task.fragment_ids]


@dataclass
class SchemaRewrite:
    """Stages the effects of a schema change, node types first: edges follow the ids of their nodes."""

    store: TaskStore
    runner: Runner
    check: DataCheck
    operation_id: str
    now_ms: int
    _id_maps: dict[str, IdMap] = field(default_factory=dict)

    def stage(self, change: TypeChange, dataset: Dataset) -> Effect | None:
        """Return what a schema change does to the dataset of a type; None if nothing."""
        begun = self._convert(change, dataset)
        base = begun.dataset if begun else dataset
        names = {name: converted_name(name) for name in change.retyped} if begun else {}
        metadata = self._reshape(change, base, names)
        rewrite = self._plan_rewrite(change)
        if not rewrite.is_needed or dataset.count() == 0:
            changes = () if metadata is None else (metadata,)
            return Effect(change.old.table_key, dataset, changes, begun) if changes or begun else None
        if metadata is not None:
            begun = dataset.store.commit(dataset, [metadata], {}, begun)
        updated = self._rewrite(rewrite, begun.dataset if begun else dataset, begun)
        if updated is None and begun is None:
            return None
        return Effect(change.old.table_key, dataset, () if updated is None else (updated,), begun)

    def _convert(self, change: TypeChange, dataset: Dataset) -> Staged | None:
        """Commit converted columns beside those they replace, as a version that nothing names yet."""
        types = change.retyped
        if not types or not fragment_ids(dataset):
            return None
        work = partial(convert_part, self.store, types, self.operation_id)
        tasks = [RewriteTask(dataset.ref, None, run) for run in fragment_runs(dataset)]
        texts = self.runner.run(f"converting {change.new.name}", work, tasks)
        merged = converted(dataset, [text for part in texts for text in part], types)
        return dataset.store.commit(dataset, [merged], {})

    def _reshape(self, change: TypeChange, base: Dataset, converted_names: Mapping[str, str]) -> Change | None:
        columns, retyped = change.columns, change.retyped
        drop = [*columns.dropped, *retyped]
        rename = {name: new for name, new in columns.renamed.items() if name not in retyped}
        add = [*columns.added]
        new_names = {old.name: new.name for old, new in change.kept.values()}
        if converted_names:
            rename |= {column: new_names[name] for name, column in converted_names.items()}
        else:
            # Without rows there is nothing to convert: the columns are replaced.
            schema = physical_schema(arrow_schema(change.new))
            add += [schema.field(new_names[name]) for name in retyped]
        relax = [name for name in change.relaxed if name not in retyped]
        return reshape(base, add=[item.with_nullable(True) for item in add], drop=drop, rename=rename, relax=relax)

    def _plan_rewrite(self, change: TypeChange) -> RowRewrite:
        new = change.new
        rewrite = RowRewrite(new, change.filled, self.now_ms, is_rekeyed=change.is_rekeyed)
        if isinstance(new, NodeType):
            return rewrite
        endpoints = self._follow_nodes(new)
        is_rekeyed = change.is_rekeyed or bool(endpoints.keys() & set(new.key))
        return replace(rewrite, endpoints=endpoints, is_rekeyed=is_rekeyed)

    def _follow_nodes(self, edge: EdgeType) -> dict[str, IdMap]:
        """Return, by column, the ids of nodes that have changed."""
        return {column: self._id_maps[node] for column, node in edge.ends.items() if node in self._id_maps}

    def _rewrite(self, rewrite: RowRewrite, dataset: Dataset, begun: Staged | None) -> Change | None:
        """Write all rows again; None if the ids are those they have already."""
        type_ = rewrite.type
        if rewrite.is_rekeyed:
            rows = dataset.read(list(dict.fromkeys(("id", *type_.ends, *type_.key, *rewrite.filled))))
            old_ids = one_array(rows.column("id"))
            new_ids = one_array(rewrite.apply(rows).column("id"))
            self.check.check_key(type_, old_ids, new_ids)
            if old_ids.equals(new_ids) and not rewrite.endpoints and not rewrite.filled:
                return None
            if isinstance(type_, NodeType):
                self._id_maps[type_.name] = (old_ids, new_ids)
        work = partial(rewrite_part, self.store, rewrite, self.operation_id)
        manifest = begun.manifest if begun else None
        tasks = [RewriteTask(dataset.ref, manifest, run) for run in fragment_runs(dataset)]
        parts = self.runner.run(f"rewriting {type_.name}", work, tasks)
        marked = [mark for part in parts for mark in part.marked]
        return upserted(dataset, [text for part in parts for text in part.fragments], marked)


def changed_keys(changes: Sequence[TypeChange]) -> set[TypeKey]:
    """Return the types whose stored rows or columns may change, by their old keys."""
    rekeyed = {change.new.name for change in changes if isinstance(change.new, NodeType) and change.is_rekeyed}
    return {
        change.old.table_key
        for change in changes
        if change.columns.changed
        or change.retyped
        or change.relaxed
        or change.is_rekeyed
        or rekeyed & {*change.new.ends.values()}
    }
