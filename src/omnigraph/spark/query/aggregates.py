"""The aggregates of the language as Spark columns.

`EXPRESSIONS` has every name of the table of aggregates in `lang.query.functions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from omnigraph.engine.query.aggregate import overflow_message
from omnigraph.lang.query import ir
from omnigraph.lang.scalars import FLOATS, RANGES, TIMES
from omnigraph.spark.datasource.options import stored_duration, time_column

# From `pyspark.sql.functions`, the aggregate and its argument to a column.
Expression: TypeAlias = Callable[[Any, ir.Aggregate, Any], Any]
# Wide enough for a sum of more 64-bit integers than any graph has rows.
_EXACT: Final = "decimal(38,0)"


def _count(functions: Any, call: ir.Aggregate, value: Any) -> Any:
    return functions.count_distinct(value) if call.is_distinct else functions.count(value)


def _total(functions: Any, call: ir.Aggregate, value: Any) -> Any:
    """Return a sum; integers are summed exactly, as decimals."""
    assert call.argument is not None
    assert call.argument.type is not None
    scalar = call.argument.type.scalar
    value = stored_duration(value) if scalar in TIMES else value
    wide = value.cast("double" if scalar in FLOATS else _EXACT)
    return functions.sum_distinct(wide) if call.is_distinct else functions.sum(wide)


def _sum(functions: Any, call: ir.Aggregate, value: Any) -> Any:
    """Return a sum that fails the query if it overflows the type of its column."""
    total, scalar = _total(functions, call, value), call.type.scalar
    if scalar in FLOATS:
        return total
    lowest, highest = RANGES[scalar]
    is_outside = (total < functions.lit(str(lowest)).cast(_EXACT)) | (total > functions.lit(str(highest)).cast(_EXACT))
    error = functions.raise_error(functions.lit(overflow_message(call.function, scalar)))
    checked = functions.when(is_outside, error).otherwise(total)
    return time_column(checked.cast("long"), scalar) if scalar in TIMES else checked


def _avg(functions: Any, call: ir.Aggregate, value: Any) -> Any:
    """Return an average, which rounds once, at the end."""
    total, count = _total(functions, call, value), _count(functions, call, value)
    if call.type.scalar in FLOATS:
        return total.cast("double") / count
    # Decimals are cut off towards zero where they are cast to integers.
    quotient = (total - total % count) / count
    return time_column(quotient.cast("long"), call.type.scalar)


def _collect(functions: Any, call: ir.Aggregate, value: Any) -> Any:
    collect = functions.collect_set if call.is_distinct else functions.collect_list
    return functions.sort_array(collect(value))


def _percentile(functions: Any, call: ir.Aggregate, value: Any) -> Any:
    """Return a percentile, of dates the earlier of the two in the middle."""
    if call.type.scalar not in FLOATS:
        middle = ((functions.count(value) - 1) / 2).cast("int")
        return functions.get(functions.sort_array(functions.collect_list(value)), middle)
    return functions.percentile(value.cast("double"), functions.lit(0.5 if call.fraction is None else call.fraction))


def _mode(functions: Any, call: ir.Aggregate, value: Any) -> Any:
    # Adding zero makes -0.0 the same value as 0.0.
    same = value + functions.lit(0.0) if call.type.scalar in FLOATS else value
    return functions.mode(same, deterministic=True)


EXPRESSIONS: Final[Mapping[str, Expression]] = {
    "count": _count,
    "sum": _sum,
    "avg": _avg,
    "min": lambda functions, _, value: functions.min(value),
    "max": lambda functions, _, value: functions.max(value),
    "collect": _collect,
    "stddev": lambda functions, _, value: functions.stddev_samp(value.cast("double")),
    "percentile": _percentile,
    "median": _percentile,
    "mode": _mode,
}
