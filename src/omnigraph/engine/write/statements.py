"""Runs the statements of a mutation in memory, against one snapshot: what they match, insert, replace and delete.

Vectorised: the query engine gives columns, which are cast to the stored types and aligned by id.

Statements see committed and pending rows as one table. Nothing here is durable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.arguments import decode_params, missing_parameter_error
from omnigraph.engine.external_blobs import BlobReader
from omnigraph.engine.json_text import json_text
from omnigraph.engine.query.budget import DEFAULT_BUDGET, BudgetUsage, charge_to, report_arrow_overflow
from omnigraph.engine.query.context import Caches, QueryRun
from omnigraph.engine.query.physical_plan import ReadPlan
from omnigraph.engine.session import View
from omnigraph.engine.write.committed_rows import ColumnTest, comparison
from omnigraph.engine.write.pending_changes import PendingChanges
from omnigraph.engine.write.rename import rename_entities
from omnigraph.errors import DataError
from omnigraph.ids import new_ulid, new_ulids
from omnigraph.lang.catalog import FLOATS, NUMBERS, EdgeType, NodeType, Property, PropertyType, Type, TypeKey
from omnigraph.lang.query import ir
from omnigraph.lang.query.check_context import pattern_reads
from omnigraph.lang.schema.arrow_schema import arrow_type, key_id, key_ids
from omnigraph.rules.arrow_typing import arrays, pc
from omnigraph.rules.coerce import Misfit, default_value, fit, from_fitted, shown
from omnigraph.rules.delta import Ids, is_among, one_array


def stored_columns(type_: Type, rows: pa.Table, types: tuple[PropertyType, ...], names: list[str]) -> dict[str, Any]:
    """Return columns in the types that they are stored in; E4 for a value that does not fit."""
    stored = {}
    for name, expected in zip(names, types, strict=True):
        target = arrow_type(expected)
        try:
            stored[name] = one_array(rows.column(name)).cast(target)
        except pa.ArrowInvalid as error:
            raise DataError(
                f"a computed value does not fit `{type_.name}.{name}`, which is {expected}: {error}",
                rule="E4",
                property=f"{type_.name}.{name}",
            ) from None
    return stored


def first_of_each(type_: Type, ids: Ids, columns: Mapping[str, Any]) -> Any:
    """Return the positions of the first row of each id; rows of one id with different values are an error.

    Which of them would win is undefined, so none does.
    """
    firsts = _first_positions(ids)
    if len(firsts) == len(ids):
        return firsts
    origin = firsts.take(pc.index_in(ids, value_set=ids.take(firsts)))
    for name, values in columns.items():
        texts = json_text(values) if pa.types.is_nested(values.type) else values
        repeated = texts.take(origin)
        same = pc.fill_null(pc.equal(texts, repeated), False)
        both_null = pc.and_(pc.is_null(texts), pc.is_null(repeated))
        differing = np.flatnonzero(~np.asarray(pc.or_(same, both_null)))
        if len(differing):
            entity = ids[int(differing[0])].as_py()
            raise DataError(
                f"the pattern gives `{type_.name}` `{entity}` several values for `{name}`; nothing was written. Narrow"
                " the pattern until each entity has one value",
                rule="E4",
                property=f"{type_.name}.{name}",
                entity_id=entity,
            )
    return firsts


def _first_positions(ids: Ids) -> Any:
    encoded = ids.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    _, first = np.unique(encoded, return_index=True)
    return pa.array(np.sort(first))


class Constants:
    """The parameter values of a mutation, and its single `now()`."""

    def __init__(
        self,
        params: tuple[ir.Parameter, ...],
        values: Mapping[str, object],
        now_us: int,
        blobs: BlobReader | None = None,
    ) -> None:
        self.values = decode_params(params, values)
        self.now_ms = now_us // 1_000
        self._blobs = blobs

    def value(self, expression: ir.Expr) -> Any:
        """Return the value of a literal, parameter or `now()`; E2 when a parameter was not given."""
        if isinstance(expression, ir.Now):
            return self.now_ms
        if isinstance(expression, ir.Literal):
            return expression.value
        assert isinstance(expression, ir.ParameterRef), "a mutation holds constants only"
        if expression.name not in self.values:
            raise missing_parameter_error(expression.name)
        return self.values[expression.name]

    def default(self, item: Property) -> Any:
        """Return the default of a property in the form that a column stores."""
        return default_value(item, self.now_ms)

    def fitted(self, expression: ir.Expr, type_: PropertyType, target: str, *, is_key: bool = False) -> Any:
        """Return a value in the form that a column stores; E4 when it does not fit, E6 for a non-finite key."""
        value = self.value(expression)
        if isinstance(expression, ir.Now):
            return value
        try:
            if type_.scalar in FLOATS and not type_.is_list and isinstance(value, int):
                raise Misfit(f"{shown(value)} is an integer, not a `{type_}`; write it with a decimal point")
            if self._blobs is not None and type_.is_blob:
                [value] = self._blobs.resolve([value])
            return fit(value, type_)
        except Misfit as misfit:
            rule = "E6" if is_key and isinstance(value, float) and type_.scalar in FLOATS else "E4"
            raise DataError(
                f"`{target}` cannot hold this value: {misfit.reason}", rule=rule, property=target, value=shown(value)
            ) from None


@dataclass
class Run:
    """One execution of the statements.

    Patterns match `readable`, the part of the snapshot that the actor may read. `view` is all of it: what is replaced,
    which edges go with a deleted node, and what the rules check. `fresh` has the ids and UUIDs that it made, by
    statement, and `affected` counts entities by kind; deleted edges that the actor may not read are left out.
    """

    view: View
    readable: View
    constants: Constants
    caches: Caches
    fresh: dict[tuple[int, str], str]
    affected: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.pending = PendingChanges(self.view)

    def execute(self, index: int, statement: ir.Statement) -> None:
        """Run a statement, which sees the effects of earlier ones."""
        if isinstance(statement, ir.Insert):
            self._insert(index, statement)
        elif isinstance(statement, ir.Update):
            self._update(statement)
        elif isinstance(statement, ir.Delete):
            self._delete(statement)
        elif isinstance(statement, ir.InsertMatched):
            self._insert_matched(statement)
        elif isinstance(statement, ir.UpdateMatched):
            self._update_matched(statement)
        else:
            self._delete_matched(statement)

    def _insert(self, index: int, statement: ir.Insert) -> None:
        type_ = self.view.catalog.type_of(TypeKey.of(statement.kind, statement.type_name))
        values = {assignment.column: self._fitted(type_, assignment) for assignment in statement.assignments}
        if type_.key:
            values |= self._defaults(index, type_, set(type_.key) - values.keys())
            values["id"] = key_id(type_, values)
        else:
            # Ids are reused by a retry, so that it inserts the same entity.
            values["id"] = self.fresh.setdefault((index, "id"), new_ulid())
        self._put(index, type_, statement.verb, values)
        self.affected[statement.kind] += 1

    def _put(self, index: int, type_: Type, verb: ir.Verb, values: dict[str, Any]) -> None:
        """Insert a row, as the verb treats one that exists."""
        pending, ids = self.pending.of(type_), pa.array([values["id"]], pa.string())
        current = pending.current(ids) if verb is not ir.Verb.INSERT else None
        if current is None or not current.num_rows:
            pending.insert(values | self._defaults(index, type_, type_.properties.keys() - values.keys()))
        elif verb is ir.Verb.CREATE:
            raise _exists(type_, values["id"])
        else:
            pending.update(current, {name: values[name] for name in values.keys() - {"id", *type_.key}})

    def _defaults(self, index: int, type_: Type, absent: Collection[str]) -> dict[str, Any]:
        """Return the defaults of absent properties that have one."""
        items = [item for name, item in type_.properties.items() if name in absent and item.default is not None]
        values = {item.name: self.constants.default(item) for item in items}
        for item in items:
            if item.default is not None and item.default.kind == "uuid":
                # A retry inserts the same entity, so it reuses the value.
                values[item.name] = self.fresh.setdefault((index, item.name), values[item.name])
        return values

    def _update(self, statement: ir.Update) -> None:
        type_ = self.view.catalog.nodes[statement.type_name]
        pending = self.pending.of(type_)
        test, lookup = self._test(type_, statement.predicate)
        values = {assignment.column: self._fitted(type_, assignment) for assignment in statement.assignments}
        rows = pending.matching(test, lookup)
        if rows.num_rows:
            self._change(statement, type_, rows, pending.constant_columns(rows, values))
        self.affected["node"] += rows.num_rows

    def _change(
        self, statement: ir.Update | ir.UpdateMatched, type_: Type, rows: pa.Table, columns: Mapping[str, Any]
    ) -> None:
        """Put columns into current rows; a `rename` changes their ids, and takes all their edges along.

        Edges that the actor may not read are not counted.
        """
        if not isinstance(statement, ir.Rename | ir.RenameMatched):
            self.pending.of(type_).update_columns(rows, columns)
            return
        repointed = rename_entities(self.pending, type_, rows, columns)
        self.affected["edge"] += sum(repointed[name] for name in repointed.keys() & self.readable.catalog.edges.keys())

    def _delete(self, statement: ir.Delete) -> None:
        type_ = self.view.catalog.type_of(TypeKey.of(statement.kind, statement.type_name))
        _, lookup = self._test(type_, statement.predicate)
        self._delete_ids(statement, type_, self.pending.of(type_).ids_matching(lookup))

    def _delete_ids(self, statement: ir.Delete | ir.DeleteMatched, type_: Type, ids: Ids) -> None:
        self.affected[statement.kind] += self.pending.of(type_).delete(ids)
        if isinstance(type_, NodeType) and len(ids):
            self._cascade(type_, ids)

    def _cascade(self, type_: NodeType, ids: Ids) -> None:
        """Delete the edges of deleted nodes, also those that the actor may not read, which are not counted."""
        for name in self.view.catalog.edges_at(type_.name):
            deleted = self.pending.delete_incident(self.view.catalog.edges[name], type_.name, ids)
            self.affected["edge"] += deleted if name in self.readable.catalog.edges else 0

    def _insert_matched(self, statement: ir.InsertMatched) -> None:
        type_ = self._type(statement)
        rows = self._read(statement)
        names = [column.name for column in statement.read.columns]
        columns = stored_columns(type_, rows, statement.types, names)
        if not rows.num_rows:
            return
        _check_ends(type_, columns)
        if type_.key:
            keys = self._with_defaults(type_, columns, rows.num_rows, set(type_.key))
            columns |= {name: keys[name] for name in type_.key}
            ids = one_array(key_ids(type_, pa.table(columns)))
            firsts = first_of_each(type_, ids, columns)
            ids, columns = ids.take(firsts), {name: column.take(firsts) for name, column in columns.items()}
        else:
            ids = one_array(pa.array(new_ulids(rows.num_rows), pa.string()))
        self._put_rows(type_, statement.verb, ids, columns)
        self.affected[statement.kind] += len(ids)

    def _put_rows(self, type_: Type, verb: ir.Verb, ids: Ids, columns: Mapping[str, Any]) -> None:
        pending = self.pending.of(type_)
        if verb is ir.Verb.INSERT or not type_.key:
            pending.insert_rows(ids, self._with_defaults(type_, columns, len(ids)))
            return
        current = pending.current(ids)
        present = one_array(current.column("id"))
        if verb is ir.Verb.CREATE and len(present):
            raise _exists(type_, present[0].as_py(), len(present))
        is_new = pa.array(~is_among(ids, present))
        new_ids, new = ids.filter(is_new), {name: column.filter(is_new) for name, column in columns.items()}
        if len(new_ids):
            pending.insert_rows(new_ids, self._with_defaults(type_, new, len(new_ids)))
        if len(present):
            positions = pc.index_in(present, value_set=ids)
            changed = {name: columns[name].take(positions) for name in columns.keys() - set(type_.key)}
            pending.update_columns(current, changed)

    def _with_defaults(
        self, type_: Type, named: Mapping[str, Any], count: int, only: Collection[str] | None = None
    ) -> dict[str, Any]:
        columns = dict(named)
        for name, item in type_.properties.items():
            if name not in columns and item.default is not None and (only is None or name in only):
                values = [self.constants.default(item) for _ in range(count if item.default.kind == "uuid" else 1)]
                fitted = from_fitted(values, item.type)
                columns[name] = fitted if len(fitted) == count else arrays.repeat(fitted[0], count)
        return columns

    def _update_matched(self, statement: ir.UpdateMatched) -> None:
        type_ = self._type(statement)
        rows = self._read_matched(statement)
        names = [column.name for column in statement.read.columns[1:]]
        columns = stored_columns(type_, rows, statement.types, names)
        ids = one_array(rows.column(ir.MATCHED_ID)).cast(pa.string())
        firsts = first_of_each(type_, ids, columns)
        pending = self.pending.of(type_)
        current = pending.current(ids.take(firsts))
        if current.num_rows:
            positions = firsts.take(pc.index_in(one_array(current.column("id")), value_set=ids.take(firsts)))
            values = {name: column.take(positions) for name, column in columns.items()}
            self._change(statement, type_, current, values)
        self.affected[statement.kind] += current.num_rows

    def _delete_matched(self, statement: ir.DeleteMatched) -> None:
        type_ = self._type(statement)
        rows = self._read_matched(statement)
        self._delete_ids(statement, type_, pc.unique(one_array(rows.column(ir.MATCHED_ID))).cast(pa.string()))

    def _type(self, statement: ir.Matched) -> Type:
        self.pending.committed.types_read |= {
            TypeKey.of(use.kind, use.type_name) for use in pattern_reads(statement, self.readable.catalog)
        }
        return self.view.catalog.type_of(TypeKey.of(statement.kind, statement.type_name))

    def _read_matched(self, statement: ir.UpdateMatched | ir.DeleteMatched) -> pa.Table:
        """Return the rows of a pattern that have an entity: a variable of an optional block may have none."""
        rows = self._read(statement)
        return rows.filter(pc.is_valid(rows.column(ir.MATCHED_ID)))

    def _read(self, statement: ir.Matched) -> pa.Table:
        """Return the rows of the pattern of a statement, with the parameters and the time of the mutation."""
        spending, view = BudgetUsage(DEFAULT_BUDGET), self.readable
        run = QueryRun(view, self.constants.values, self.constants.now_ms, spending, self.caches, None)
        try:
            with charge_to(spending), report_arrow_overflow(spending):
                return ReadPlan(statement.read, view.catalog).run(run).combine_chunks()
        finally:
            self.caches.trim()

    def _test(self, type_: Type, predicate: ir.Predicate) -> tuple[ColumnTest, ColumnTest]:
        """Return the test of a predicate, and an equivalent test on committed rows that can use an index."""
        column, expected = predicate.column, predicate.type
        if expected.scalar in NUMBERS:
            value = self.constants.value(predicate.value)
        elif expected.is_list:
            value = None
        else:
            value = self.constants.fitted(predicate.value, expected, f"{type_.name}.{column}")
        test = comparison(column, expected, predicate.op, value)
        if isinstance(type_, NodeType) and type_.key == (column,) and test.op is ir.CompareOp.EQ:
            # The id is derived from the key, so a key test becomes a lookup by id.
            entity_id = key_ids(type_, pa.table({column: arrays.repeat(test.constant, 1)}))[0]
            return test, ColumnTest("id", pa.string(), test.op, entity_id)
        return test, test

    def _fitted(self, type_: Type, assignment: ir.Assignment) -> Any:
        in_tuple = any(assignment.column in columns for columns in type_.unique)
        is_key = assignment.column in type_.key or (isinstance(type_, NodeType) and in_tuple)
        target = f"{type_.name}.{assignment.column}"
        return self.constants.fitted(assignment.value, assignment.type, target, is_key=is_key)


def _exists(type_: Type, entity_id: str, count: int = 1) -> DataError:
    more = f" and {count - 1} more" if count > 1 else ""
    return DataError(
        f"`{type_.name}` `{entity_id}`{more} exists already; nothing was written. `insert` replaces it, `upsert` sets"
        " the properties that are named",
        rule="E11",
        type=type_.name,
        entity_id=entity_id,
    )


def _check_ends(type_: Type, columns: Mapping[str, Any]) -> None:
    for column, end in (("src", "from"), ("dst", "to")):
        if isinstance(type_, EdgeType) and columns[column].null_count:
            raise DataError(
                f"`{end}` of `{type_.name}` is null in a row of the pattern, but an edge has both ends; nothing was"
                " written. Bind the variable outside of `optional`, or filter with `is not null`",
                rule="E4",
                property=f"{type_.name}.{end}",
            )
