"""Scans on Spark: the entities of one type that pass conditions, read by tasks, a few fragments each.

Conditions are checked in the task, on Arrow columns, by the very code that checks them in process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.params import Value, missing_parameter_error
from omnigraph.engine.query.entities import quote_literal
from omnigraph.engine.query.expressions import Predicate, compile_predicate, walk
from omnigraph.engine.query.vectors import Ids, Mask, Rows, vector_from_arrow
from omnigraph.engine.write.committed_rows import comparison
from omnigraph.lang.catalog import INTEGERS, PropertyType, Scalar
from omnigraph.lang.query import ir
from omnigraph.lang.schema.arrow_schema import arrow_type
from omnigraph.pipeline.datasource.spark_types import SPARK_TYPES, to_frame
from omnigraph.pipeline.datasource.table_reader import Scan
from omnigraph.pipeline.query.needs import Mark
from omnigraph.store.read.ordered_scan import ROW_ID
from omnigraph.store.write.fragments import scan_fragments

_PUSHED = frozenset({ir.CompareOp.EQ, ir.CompareOp.LT, ir.CompareOp.LE, ir.CompareOp.GT, ir.CompareOp.GE})
# What carries the values of types that Spark lacks.
_CARRIERS: Final[Mapping[Scalar, pa.DataType]] = {
    Scalar.U32: pa.int64(),
    Scalar.U64: pa.decimal128(20, 0),
    Scalar.DATETIME: pa.timestamp("us", "UTC"),
    Scalar.VECTOR: pa.float32(),
}
_UNSIGNED = {Scalar.U32: "UInt32", Scalar.U64: "UInt64"}


@dataclass(frozen=True, slots=True)
class Source:
    """One scan as its tasks know it.

    `outputs` are (name, column, type) of what is given out; `marks` come after them. `matches` holds the row ids that
    each text condition found.
    """

    scan: Scan
    runs: Sequence[Sequence[int]]
    variable: str
    outputs: tuple[tuple[str, str, PropertyType], ...]
    marks: tuple[tuple[str, Mark], ...]
    conditions: tuple[ir.Expr, ...]
    where: str | None
    params: Mapping[str, Value]
    now_ms: int
    matches: Mapping[ir.TextMatch, Any]

    @property
    def schema(self) -> str:
        """The columns in the words of Spark."""
        columns = [f"`{name}` {spark_type(type_)}" for name, _, type_ in self.outputs]
        return ", ".join(columns + [f"`{name}` boolean" for name, _ in self.marks])


def spark_type(type_: PropertyType) -> str:
    """Return what Spark calls a type.

    >>> spark_type(PropertyType(Scalar.U64, is_list=True))
    'array<decimal(20,0)>'
    """
    word = SPARK_TYPES[type_.scalar]
    return f"array<{word}>" if type_.is_list or type_.scalar is Scalar.VECTOR else word


def frame_of(spark: Any, source: Source) -> Any:
    """Return a scan as a DataFrame; nothing is read before its rows are asked for."""
    if not source.runs:
        return spark.createDataFrame([], source.schema)
    tasks = spark.range(0, len(source.runs), 1, len(source.runs))
    return tasks.mapInArrow(partial(_run_tasks, source), source.schema)


def _run_tasks(source: Source, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for place in batch.column(0).to_numpy().tolist():
            yield from _scan_run(source, source.runs[place])


def _scan_run(source: Source, fragments: Sequence[int]) -> Iterator[pa.RecordBatch]:
    read = _columns_read(source)
    targets = [_arrow_type(type_) for _, _, type_ in source.outputs]
    tests = [compile_condition(condition, source.matches) for condition in source.conditions]
    marks = [compile_condition(mark, source.matches) for _, mark in source.marks]
    for batch in scan_fragments(source.scan.open(), fragments, read, source.where):
        run: Any = _BatchRun(batch, source.params, source.now_ms)
        rows = Rows(batch.num_rows, {source.variable: np.arange(batch.num_rows)})
        passed = np.logical_and.reduce([np.ones(batch.num_rows, np.bool_), *(test(run, rows) for test in tests)])
        truths = [pa.array(mark(run, rows)) for mark in marks]
        columns = [
            to_frame(run.column(name), type_, target)
            for (_, name, type_), target in zip(source.outputs, targets, strict=True)
        ]
        names = [name for name, _, _ in source.outputs] + [name for name, _ in source.marks]
        found = pa.RecordBatch.from_arrays([*columns, *truths], names=names)
        yield found if passed.all() else found.filter(pa.array(passed))


def _columns_read(source: Source) -> list[str]:
    """Return the stored columns that a scan reads: what it gives out and what its conditions look at."""
    read = {name for _, name, _ in source.outputs if name != ROW_ID}
    for condition in (*source.conditions, *(mark for _, mark in source.marks)):
        parts = list(walk(condition))
        hidden = {id(part.field) for part in parts if isinstance(part, ir.TextMatch)}
        read |= {part.property for part in parts if isinstance(part, ir.PropertyRef) and id(part) not in hidden}
        if any(isinstance(part, ir.NodeRef) for part in parts):
            read.add("id")
    return sorted(read)


class _BatchRun:
    """A batch in the place of a run: its rows are all entities there are."""

    def __init__(self, batch: pa.RecordBatch, params: Mapping[str, Value], now_ms: int) -> None:
        self._batch = batch
        self._params = params
        self.now_ms = now_ms

    def parameter(self, name: str) -> Value:
        if name not in self._params:
            raise missing_parameter_error(name)
        return self._params[name]

    def entities(self, key: str) -> _BatchRun:
        return self

    def column(self, name: str) -> Any:
        return self._batch.column(self._batch.schema.get_field_index(name))

    def values(self, name: str, ids: Ids) -> Any:
        return vector_from_arrow(self.column(name))

    def coded(self, name: str, ids: Ids) -> None:
        return None

    def null_mask(self, name: str) -> Mask:
        mask: Mask = self.column(name).is_null().to_numpy(zero_copy_only=False)
        return mask


def compile_condition(condition: ir.Expr, matches: Mapping[ir.TextMatch, Any]) -> Predicate:
    """Return the test of a condition in which texts were searched beforehand."""
    if isinstance(condition, ir.TextMatch):
        found = matches[condition]
        return lambda run, rows: _is_found(run, found)
    if isinstance(condition, ir.And | ir.Or):
        tests = [compile_condition(part, matches) for part in condition.conditions]
        joined: Callable[..., Any] = np.logical_and if isinstance(condition, ir.And) else np.logical_or
        return lambda run, rows: joined.reduce([test(run, rows) for test in tests])  # type: ignore[attr-defined]
    return compile_predicate(condition)


def _is_found(run: Any, found: Any) -> Mask:
    mask: Mask = np.isin(run.column(ROW_ID).to_numpy(zero_copy_only=False), found)
    return mask


def _arrow_type(type_: PropertyType) -> pa.DataType:
    """Return the Arrow type that Spark has for a property."""
    found = _CARRIERS.get(type_.scalar) or arrow_type(PropertyType(type_.scalar))
    return pa.list_(found) if type_.is_list or type_.scalar is Scalar.VECTOR else found


def pushed_down(conditions: Sequence[ir.Expr], constant: Callable[[ir.Expr], Any]) -> str | None:
    """Return those of the conditions that storage can check itself, where an index may help, as a filter.

    The task checks all of them again, so it is only ever a matter of how much is read.
    """
    parts = [text for one in conditions if (text := _pushed(one, constant)) is not None]
    return " AND ".join(parts) or None


def _pushed(condition: ir.Expr, constant: Callable[[ir.Expr], Any]) -> str | None:
    if not isinstance(condition, ir.Compare) or condition.op not in _PUSHED:
        return None
    place, value = condition.left, condition.right
    if not isinstance(place, ir.PropertyRef) or not isinstance(value, ir.Literal | ir.ParameterRef):
        return None
    is_simple = place.type.is_text or (place.type.scalar in INTEGERS and not place.type.is_list)
    sought = constant(value)
    if not is_simple or sought is None:
        return None
    test = comparison(place.property, place.type, condition.op, sought)
    if test.op is None:
        return None
    number = test.constant.as_py()
    if place.type.is_text:
        return f"`{place.property}` {test.op} {quote_literal(number)}"
    word = _UNSIGNED.get(place.type.scalar)
    shown = f"arrow_cast({number}, '{word}')" if word else str(number)
    return f"`{place.property}` {test.op} {shown}"
