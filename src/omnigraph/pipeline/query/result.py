"""Results of queries on Spark, in the types that the same query has in process."""

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
from omnigraph.pipeline.spark.session import watched
from omnigraph.rules.coerce_column import list_column
from omnigraph.rules.delta import one_array


def result_of(frame: Any, query: CompiledQuery, view: View) -> Result:
    """Collect a DataFrame that a query made."""
    read = query.ir
    assert isinstance(read, ReadIR)
    try:
        table: pa.Table = watched(frame.sparkSession, "a query", frame.toArrow, lambda done: None)
    except PipelineError as error:
        raise_if_overflow(str(error.__cause__), read)
        raise
    columns = [
        from_frame(one_array(values), column.type) for values, column in zip(table.columns, read.columns, strict=True)
    ]
    made = pa.Table.from_arrays(columns, names=[column.name for column in read.columns])
    return Result(made, query.name, view.snapshot.branch, view.snapshot.head)


def raise_if_overflow(reason: str, read: ReadIR) -> None:
    """Raise ArithmeticOverflow if Spark failed because a sum of this read did not fit its type."""
    for column in read.columns:
        call = column.expression
        if isinstance(call, Aggregate) and overflow_message(call.function, column.type.scalar) in reason:
            raise overflow_error(call.function, column.type.scalar)


def from_frame(column: Any, type_: PropertyType) -> Any:
    """Return a column of Spark in the layout of a property.

    >>> from_frame(pa.array([0], pa.timestamp("us", "UTC")), PropertyType(Scalar.DATETIME)).type
    DataType(date64[ms])
    """
    if type_.scalar is not Scalar.DATETIME:
        return column.cast(arrow_type(type_))
    if type_.is_list:
        items = from_frame(column.values, PropertyType(Scalar.DATETIME))
        return list_column(column.offsets, items, column.is_null()).cast(arrow_type(type_))
    return column.cast(pa.timestamp("ms", "UTC")).view(pa.int64()).view(pa.date64())
