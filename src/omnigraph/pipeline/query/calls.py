"""Calls on Spark: arithmetic, `coalesce` and `case` as Spark columns, everything else on Arrow batches.

A batch runs the code of the in-process engine, so that every function means the same on both engines. An expression
with any part of that kind runs there as a whole: Spark evaluates Python for all rows, which a `case` must not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from omnigraph.engine.query.expressions import compile_value
from omnigraph.engine.query.vectors import (
    UNIT_ROW,
    Constant,
    Rows,
    function_overflow_message,
    vector_from_arrow,
    vector_to_arrow,
)
from omnigraph.lang.catalog import PropertyType, Scalar
from omnigraph.lang.query import ir
from omnigraph.lang.schema.arrow_schema import arrow_type
from omnigraph.pipeline.datasource.options import to_spark_column
from omnigraph.pipeline.query.scan import ConstantsRun, carrier_type, is_mark, spark_type

if TYPE_CHECKING:
    from omnigraph.pipeline.query.expressions import Expressions

# Two 64-bit integers multiply to 38 digits at most.
_EXACT: Final = "decimal(38,0)"
_NATIVE: Final = frozenset({"+", "-", "*", "/", "%", "coalesce"})
_LEAVES: Final = ir.PropertyRef | ir.NodeRef | ir.HopsRef | ir.TypeRef | ir.PathRef | ir.ValueRef | ir.ColumnRef


def is_native(expression: ir.Expr) -> bool:
    """Return True if Spark computes an expression with its own functions."""
    if is_mark(expression):
        return True
    is_foreign = isinstance(expression, ir.Call) and expression.function not in _NATIVE
    if is_foreign or isinstance(expression, ir.Quantifier):
        return False
    if isinstance(expression, ir.Compare) and expression.op is ir.CompareOp.MATCHES:
        return False
    return all(is_native(part) for part in ir.children_of(expression))


def native_call(expressions: Expressions, call: ir.Call) -> Any:
    """Return a call as a Spark column."""
    columns = [expressions.value(argument) for argument in call.arguments]
    functions, name = expressions.functions, call.function
    if name == "coalesce":
        return functions.coalesce(*(column.cast(spark_type(call.type)) for column in columns))
    if call.type.scalar is Scalar.STRING:
        return functions.concat(*columns)
    if len(columns) == 1:
        columns = [functions.lit(0), *columns]
    left, right = columns
    if name in ("/", "%"):
        return _divide(functions, left, right, name, call.type)
    if call.type.scalar is Scalar.F64:
        return _OPERATORS[name](left.cast("double"), right.cast("double"))
    exact = _OPERATORS[name](_as_long(functions, left, name), _as_long(functions, right, name))
    return _fit_long(functions, exact, name).cast("long")


def _as_long(functions: Any, column: Any, name: str) -> Any:
    return _fit_long(functions, column.cast("decimal(20,0)"), name).cast("decimal(19,0)")


def _fit_long(functions: Any, column: Any, name: str) -> Any:
    """Return a column that fails the query where it does not fit 64 bits; not every session has ANSI arithmetic."""
    lowest, highest = (functions.lit(str(bound)).cast(_EXACT) for bound in (-(2**63), 2**63 - 1))
    message = functions.lit(function_overflow_message(name, Scalar.I64.value))
    is_outside = (column < lowest) | (column > highest)
    return functions.when(is_outside, functions.raise_error(message)).otherwise(column)


def _divide(functions: Any, left: Any, right: Any, name: str, type_: PropertyType) -> Any:
    """Divide, or give null where the divisor is zero."""
    if type_.scalar is Scalar.I64:
        left, right = (_as_long(functions, side, name).cast("long") for side in (left, right))
    else:
        left, right = left.cast("double"), right.cast("double")
    divisor = functions.when(right != 0, right)
    return left / divisor if name == "/" else left % divisor


_OPERATORS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
}


def native_case(expressions: Expressions, case: ir.Case) -> Any:
    """Return a `case` as a Spark column."""
    functions, type_ = expressions.functions, spark_type(case.type)
    chain: Any = functions
    for condition, value in case.branches:
        chain = chain.when(expressions.condition(condition), expressions.value(value).cast(type_))
    return chain.otherwise(expressions.value(case.otherwise).cast(type_))


def arrow_column(expressions: Expressions, expression: ir.Expr) -> Any:
    """Return an expression as a column that Arrow batches compute."""
    from pyspark.sql.pandas import functions

    leaves = list(dict.fromkeys(_leaves(expression)))
    names = {leaf: ir.ColumnRef(f"~{index}", leaf.type) for index, leaf in enumerate(leaves)}
    body, type_ = ir.substitute(expression, names), expression.type
    assert type_ is not None
    run: Any = ConstantsRun(expressions.params, expressions.now_ms)
    if not leaves:
        constant = compile_value(body)(run, UNIT_ROW)
        assert isinstance(constant, Constant)
        return expressions.literal(constant.value, type_)
    types = [leaf.type for leaf in leaves]

    # Spark reads the hints, and knows the bare class alone.
    def compute(*arrays: pa.Array) -> pa.Array:  # type: ignore[type-arg]
        return _compute(body, type_, types, run, arrays)

    # Its stubs know only the form with a number for the kind, which warns.
    make_udf: Any = functions.arrow_udf
    udf = make_udf(compute, spark_type(type_))
    return udf(*(expressions.leaf(leaf) for leaf in leaves))


def _compute(body: ir.Expr, type_: PropertyType, types: list[Any], run: Any, arrays: tuple[Any, ...]) -> pa.Array[Any]:
    from omnigraph.pipeline.query import from_spark_column

    count = len(arrays[0])
    values = {
        f"~{index}": vector_from_arrow(from_spark_column(array, leaf_type))
        for index, (array, leaf_type) in enumerate(zip(arrays, types, strict=True))
    }
    vector = compile_value(body)(run, Rows(count, {}, values))
    stored = vector_to_arrow(vector, arrow_type(type_), count)
    converted: pa.Array[Any] = to_spark_column(stored, type_, carrier_type(type_))
    return converted


def _leaves(expression: ir.Expr) -> Iterator[ir.Expr]:
    if is_mark(expression) or isinstance(expression, _LEAVES):
        yield expression
    elif isinstance(expression, ir.Quantifier):
        yield from _leaves(expression.collection)
        yield from (leaf for leaf in _leaves(expression.condition) if getattr(leaf, "name", "") != expression.item)
    else:
        for part in ir.children_of(expression):
            yield from _leaves(part)
