"""Collect the result of a query on Spark, with the column types of the same query in process."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from omnigraph.engine.query.aggregate import overflow_error, overflow_message
from omnigraph.engine.query.result import Result
from omnigraph.engine.session import View
from omnigraph.errors import PipelineError
from omnigraph.lang.catalog import PropertyType, Scalar
from omnigraph.lang.query import CompiledQuery
from omnigraph.lang.query.ir import Aggregate, ReadIR
from omnigraph.lang.schema.arrow_schema import arrow_type
from omnigraph.pipeline.spark.session import run_job
from omnigraph.rules.coerce_column import list_column
from omnigraph.rules.delta import one_array


def collect_result(frame: Any, query: CompiledQuery, view: View) -> Result:
    """Collect the DataFrame of a query."""
    read = query.ir
    assert isinstance(read, ReadIR)
    try:
        table: pa.Table = run_job(frame.sparkSession, "a query", frame.toArrow, lambda done: None)
    except PipelineError as error:
        raise_if_overflow(str(error.__cause__), read)
        raise
    columns = [
        from_spark_column(one_array(values), column.type)
        for values, column in zip(table.columns, read.columns, strict=True)
    ]
    result = pa.Table.from_arrays(columns, names=[column.name for column in read.columns])
    return Result(result, query.name, view.snapshot.branch, view.snapshot.head)


def raise_if_overflow(reason: str, read: ReadIR) -> None:
    """Raise `ArithmeticOverflow` if Spark failed because a sum of this read overflowed."""
    for column in read.columns:
        call = column.expression
        if isinstance(call, Aggregate) and overflow_message(call.function, column.type.scalar) in reason:
            raise overflow_error(call.function, column.type.scalar)


def from_spark_column(column: Any, type_: PropertyType) -> Any:
    """Convert a Spark column to the layout of a property.

    >>> from_spark_column(pa.array([0], pa.timestamp("us", "UTC")), PropertyType(Scalar.DATETIME)).type
    DataType(date64[ms])
    """
    if type_.scalar is not Scalar.DATETIME:
        return column.cast(arrow_type(type_))
    if type_.is_list:
        items = from_spark_column(column.values, PropertyType(Scalar.DATETIME))
        return list_column(column.offsets, items, column.is_null()).cast(arrow_type(type_))
    return column.cast(pa.timestamp("ms", "UTC")).view(pa.int64()).view(pa.date64())
