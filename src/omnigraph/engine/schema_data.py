"""What a new schema asks of the stored rows of a type: columns to convert, constraints to check, ids to compute.

Checks stored rows against the constraints that a schema change adds, with the rules that every write is checked by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.graph_access import TaskStore
from omnigraph.engine.past_names import Columns, compare_columns
from omnigraph.engine.tasks import Runner
from omnigraph.lang.catalog import Cardinality, Catalog, EdgeType, NodeType, Property, Type, TypeKey
from omnigraph.lang.schema.arrow_schema import arrow_type
from omnigraph.limits import VIOLATIONS_MAX
from omnigraph.rules.arrow_typing import Column, arrays
from omnigraph.rules.coerce import shown
from omnigraph.rules.defaults import default_column
from omnigraph.rules.delta import Changes, Delta, Findings, Ids, Intent, Violation, one_array
from omnigraph.rules.edge_rules import cardinality
from omnigraph.rules.row_rules import ROW_RULES, errors_of
from omnigraph.rules.unique_rules import unique
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.write.fragments import fragment_runs, scan_fragments

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
        ranges = {replace(rule, property=renamed.get(rule.property, rule.property)) for rule in self.old.ranges}
        checks = {replace(rule, property=renamed.get(rule.property, rule.property)) for rule in self.old.checks}
        new_ranges = tuple(rule for rule in self.new.ranges if rule not in ranges)
        new_checks = tuple(rule for rule in self.new.checks if rule not in checks)
        properties = self._narrow([*(rule.property for rule in new_ranges), *(rule.property for rule in new_checks)])
        return replace(self.new, properties=properties, unique=added, ranges=new_ranges, checks=new_checks)

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


# -- checks ------------------------------------------------------------------------------------------------------


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
    names = ["id", *rules.properties]
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
    """Committed rows for rules that see all rows of a type."""

    def existing(self, table_key: TypeKey, ids: Ids) -> Ids:
        raise AssertionError("all rows are checked at once")

    def matching(self, table_key: TypeKey, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        raise AssertionError("all rows are checked at once")


_NO_COMMITTED_ROWS: Final = _NoCommittedRows()
