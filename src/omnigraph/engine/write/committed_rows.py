"""Look up committed rows of a snapshot for set rules and mutation statements.

Reads only what is asked for, and caches row addresses for staging.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import floor, isnan
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.session import View
from omnigraph.lang.catalog import PropertyType, Type, TypeKey
from omnigraph.lang.query.ir import CompareOp
from omnigraph.lang.scalars import FLOATS, INTEGERS, RANGES
from omnigraph.lang.schema.arrow_schema import PHYSICAL, arrow_schema, arrow_type
from omnigraph.rules.arrow_typing import Column, Numbers, arrays, pc
from omnigraph.rules.coerce import from_fitted
from omnigraph.rules.delta import Ids, one_array, without
from omnigraph.store.blobs.cells import blob_columns, without_blob_bytes
from omnigraph.store.read.dataset import FILTER_WORDS, Dataset, lance_errors
from omnigraph.store.read.lookup import PLACE, find, find_rows, is_filterable

_COMPARE: Final = {
    CompareOp.EQ: "equal",
    CompareOp.NE: "not_equal",
    CompareOp.GT: "greater",
    CompareOp.LT: "less",
    CompareOp.GE: "greater_equal",
    CompareOp.LE: "less_equal",
}


@dataclass(frozen=True, slots=True)
class ColumnTest:
    """A comparison of a column with a constant of its type; without a constant, with null."""

    column: str
    stored: pa.DataType
    op: CompareOp | None
    constant: Any = None

    @property
    def is_never(self) -> bool:
        return self.op is None and self.constant is None

    def condition(self) -> Any:
        """Return the test as a filter for Lance."""
        if not is_filterable(self.stored):
            return self._text()
        field = pc.field(self.column)
        if self.op is None:
            return field.is_valid()
        if pa.types.is_floating(self.constant.type) and self.constant.as_py() == 0:
            return self._zero(field)
        return getattr(pc, _COMPARE[self.op])(field, self.constant)

    def _text(self) -> str:
        if self.op is None:
            return f"`{self.column}` IS NOT NULL"
        number = self.constant.cast(PHYSICAL.get(self.stored, self.stored)).as_py()
        return f"`{self.column}` {self.op} arrow_cast({number}, '{FILTER_WORDS[self.stored]}')"

    def _zero(self, field: Any) -> Any:
        """Return the comparison with zero for both signs, which the filter engine distinguishes and we do not."""
        below, above = (pa.scalar(number, self.constant.type) for number in (-0.0, 0.0))
        return {
            CompareOp.EQ: (field >= below) & (field <= above),
            CompareOp.NE: (field < below) | (field > above),
            CompareOp.GT: field > above,
            CompareOp.LT: field < below,
            CompareOp.GE: field >= below,
            CompareOp.LE: field <= above,
        }[self.op or CompareOp.EQ]

    def mask(self, rows: pa.Table) -> Numbers:
        """Return for each row whether it passes; null does not."""
        column: Column = rows.column(self.column)
        if self.op is None:
            return np.asarray(pc.is_valid(column)) & (not self.is_never)
        passed = getattr(pc, _COMPARE[self.op])(column, self.constant)
        return np.asarray(pc.fill_null(passed, False), bool)


def comparison(column: str, type_: PropertyType, op: CompareOp, value: Any) -> ColumnTest:
    """Return the test that compares a column with a value that `fit` or a parameter gave; null passes nothing."""
    if value is None or type_.is_array or (isinstance(value, float) and isnan(value)):
        return ColumnTest(column, arrow_type(type_), None)
    if type_.scalar in INTEGERS:
        return _folded(column, type_, *_integer(op, value, *RANGES[type_.scalar]))
    if type_.scalar in FLOATS:
        return _folded(column, type_, *_float(op, value, arrow_type(type_).to_pandas_dtype()))
    return ColumnTest(column, arrow_type(type_), op, from_fitted([value], type_)[0])


def _folded(column: str, type_: PropertyType, verdict: bool | CompareOp, value: Any) -> ColumnTest:
    if isinstance(verdict, CompareOp):
        return ColumnTest(column, arrow_type(type_), verdict, pa.scalar(value, arrow_type(type_)))
    return ColumnTest(column, arrow_type(type_), None, True if verdict else None)


def _integer(op: CompareOp, value: float, low: int, high: int) -> tuple[bool | CompareOp, Any]:
    """Return a comparison with an integer in range that means the same, or a verdict for every value."""
    if value in (float("inf"), float("-inf")):
        value = high + 1 if value > 0 else low - 1
    if value != floor(value):
        if op in (CompareOp.EQ, CompareOp.NE):
            return op is CompareOp.NE, None
        # Between two integers, `less` and `greater` mean the nearest one on their side, itself included.
        op, value = (CompareOp.GT, floor(value)) if op in (CompareOp.GT, CompareOp.GE) else (CompareOp.LE, floor(value))
    value = int(value)
    if low <= value <= high:
        return op, value
    above = value > high
    if op in (CompareOp.EQ, CompareOp.NE):
        return op is CompareOp.NE, None
    return (op in (CompareOp.LT, CompareOp.LE)) is above, None


def _float(op: CompareOp, value: Any, width: Any) -> tuple[bool | CompareOp, Any]:
    """Return a comparison with a float that means the same; an integer may lie between two of them."""
    with np.errstate(over="ignore"):
        if isinstance(value, float):
            return op, float(width(value))
        try:
            number = width(value)
        except OverflowError:
            number = width("inf") if value > 0 else width("-inf")
    # Python compares a float with an integer exactly; numpy would round the integer first.
    if float(number) == value:
        return op, float(number)
    if op in (CompareOp.EQ, CompareOp.NE):
        return op is CompareOp.NE, None
    below = number if float(number) < value else np.nextafter(number, width("-inf"))
    return (CompareOp.GT if op in (CompareOp.GT, CompareOp.GE) else CompareOp.LE), float(below)


class CommittedRows:
    """The committed rows of a view; rows are read once per write."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.types_read: set[TypeKey] = set()
        self._found_rows: dict[TypeKey, list[pa.Table]] = {}
        self._answers: dict[tuple[str, ...], tuple[Mapping[str, Column], pa.Table]] = {}

    def existing(self, table_key: TypeKey, ids: Ids) -> Ids:
        """Return the ids that exist in a type."""
        return one_array(self.locate(table_key, ids).column("id"))

    def locate(self, table_key: TypeKey, ids: Ids) -> pa.Table:
        """Return id, row id and row address of the ids that exist in a type, each once."""
        if table_key in self._found_rows:
            rows = pa.concat_tables(self._found_rows[table_key]).combine_chunks()
            # A row may have been found by two lookups.
            matches = pc.index_in(pc.unique(ids), value_set=one_array(rows.column("id"))).drop_null()
            matched = rows.take(matches)
            others = find(self._dataset(table_key), without(ids, one_array(matched.column("id"))))
            return pa.concat_tables([matched, others])
        return find(self._dataset(table_key), ids)

    def matching(self, table_key: TypeKey, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        """Return columns of the rows in which each column of `where` holds one of its values."""
        question = (table_key, *columns, "where", *where)
        cached = self._answers.get(question)
        # Cached, because a delete looks up incident edges and the rules then check for dangling ones.
        if cached is None or not all(cached[0][name].equals(values) for name, values in where.items()):
            rows = find_rows(self._dataset(table_key), list(dict.fromkeys(["id", *columns])), where)
            self._see(table_key, rows)
            cached = self._answers[question] = (where, rows.select(list(columns)))
        return cached[1]

    def rows(self, type_: Type, test: ColumnTest) -> Iterator[pa.Table]:
        """Stream full rows that pass a test; blobs are replaced by whether there is one."""
        where = _lookup_condition(type_, test)
        if where is not None:
            yield self.rows_where(type_, where)
            return
        dataset, names = self._dataset(type_.table_key), arrow_schema(type_).names
        for rows in _scan(dataset, names, test.condition()):
            if rows.num_rows:
                yield self._full_rows(type_, dataset, rows)

    def rows_of(self, type_: Type, ids: Ids) -> pa.Table:
        """Return the full rows of ids; blobs are replaced by whether there is one."""
        return self.rows_where(type_, {"id": ids})

    def rows_where(self, type_: Type, where: Mapping[str, Column]) -> pa.Table:
        """Return the full rows in which each column of `where` holds one of its values, blobs as in `rows`."""
        dataset = self._dataset(type_.table_key)
        return self._full_rows(type_, dataset, find_rows(dataset, arrow_schema(type_).names, where))

    def _full_rows(self, type_: Type, dataset: Dataset, rows: pa.Table) -> pa.Table:
        self._see(type_.table_key, rows)
        logical = arrow_schema(type_)
        return without_blob_bytes(rows.select(logical.names), blob_columns(dataset)).cast(logical)

    def ids_passing(self, type_: Type, test: ColumnTest) -> Ids:
        """Return the ids of the rows that pass a test."""
        dataset = self._dataset(type_.table_key)
        where = _lookup_condition(type_, test)
        if where is not None:
            rows = find_rows(dataset, ["id"], where)
        else:
            rows = dataset.read(["id"], test.condition(), with_row_id=True, with_row_address=True)
        self._see(type_.table_key, rows)
        return one_array(rows.column("id"))

    def _dataset(self, table_key: TypeKey) -> Dataset:
        self.types_read.add(table_key)
        return self.view.sound_dataset(table_key)

    def _see(self, table_key: TypeKey, rows: pa.Table) -> None:
        if rows.num_rows:
            self._found_rows.setdefault(table_key, []).append(rows.select(list(PLACE)))


def _lookup_condition(type_: Type, test: ColumnTest) -> Mapping[str, Column] | None:
    """Return the value of an equality test if its column supports lookups by value."""
    keys = {"id", *type_.ends, *sum(type_.unique, ())}
    if test.op is not CompareOp.EQ or test.column not in keys:
        return None
    return {test.column: arrays.repeat(test.constant, 1)}


def _scan(dataset: Dataset, columns: Sequence[str], condition: Any) -> Iterator[pa.Table]:
    dataset.store.meter.count("scan", str(dataset.ref))
    with lance_errors(f"reading {dataset.ref}", dataset):
        scanner = dataset.lance.scanner(
            columns=list(columns),
            filter=condition,
            with_row_id=True,
            with_row_address=True,
            # Fetch the other columns only for matching rows, which may be few.
            late_materialization=True,
        )
        for batch in scanner.to_batches():
            yield pa.Table.from_batches([batch])
