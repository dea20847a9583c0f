"""Compile expressions of the IR to Spark columns; calls that Spark lacks run on Arrow batches.

Mixed numeric types compare by exact value, and NaN equals nothing, as in process; Spark by itself does neither.

A batch runs the code of the in-process engine, so that every function means the same on both engines. An expression
with any part of that kind runs there as a whole: Spark evaluates Python for all rows, which a `case` must not.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any, Final

import pyarrow as pa

from omnigraph.engine.arguments import Value
from omnigraph.engine.query.compare import COMPARISONS, MIRRORED
from omnigraph.engine.query.expressions import compile_constant, compile_value, variables_of
from omnigraph.engine.query.vectors import (
    Rows,
    function_overflow_message,
    vector_from_arrow,
    vector_to_arrow,
)
from omnigraph.errors import DataError
from omnigraph.lang.catalog import KINDS, PropertyType
from omnigraph.lang.query import ir
from omnigraph.lang.scalars import FLOATS, INTEGERS, RANGES, TIMES, narrow_float
from omnigraph.lang.schema.arrow_schema import arrow_type
from omnigraph.spark.datasource.options import time_column, to_spark_column
from omnigraph.spark.query.paths import PATH_COLUMNS
from omnigraph.spark.query.scan import TYPE_MARK, VALUE, ConstantsRun, Names, carrier_type, is_mark, spark_type

# Two 64-bit integers multiply to 38 digits at most.
_EXACT: Final = "decimal(38,0)"
_OPERATIONS: Final = frozenset({"+", "-", "*", "/", "%"})
_NATIVE: Final = _OPERATIONS | {"coalesce"}
_LEAVES: Final = ir.PropertyRef | ir.NodeRef | ir.HopsRef | ir.TypeRef | ir.PathRef | ir.ValueRef | ir.ColumnRef


def is_native(expression: ir.Expr) -> bool:
    """Return True if Spark computes an expression with its own functions."""
    if is_mark(expression):
        return True
    if isinstance(expression, ir.Call) and (expression.function not in _NATIVE or _reads_times(expression)):
        return False
    if isinstance(expression, ir.Quantifier):
        return False
    if isinstance(expression, ir.Compare) and expression.op is ir.CompareOp.MATCHES:
        return False
    return all(is_native(part) for part in ir.children_of(expression))


def _reads_times(call: ir.Call) -> bool:
    """Return True for arithmetic on dates and times, for which Spark has rules of its own."""
    types = [argument.type for argument in call.arguments]
    return call.function in _OPERATIONS and any(type_ is not None and type_.scalar in TIMES for type_ in types)


def native_call(expressions: Expressions, call: ir.Call) -> Any:
    """Return a call as a Spark column."""
    columns = [expressions.value(argument) for argument in call.arguments]
    functions, name = expressions.functions, call.function
    if name == "coalesce":
        return functions.coalesce(*(column.cast(spark_type(call.type)) for column in columns))
    if call.type.is_text:
        return functions.concat(*columns)
    if len(columns) == 1:
        columns = [functions.lit(0), *columns]
    left, right = columns
    if name in ("/", "%"):
        return _divide(functions, left, right, name, call.type)
    if call.type.scalar in FLOATS:
        return _ARITHMETIC[name](left.cast("double"), right.cast("double"))
    exact = _ARITHMETIC[name](_as_long(functions, left, name), _as_long(functions, right, name))
    return _fit_long(functions, exact, name).cast("long")


def _as_long(functions: Any, column: Any, name: str) -> Any:
    return _fit_long(functions, column.cast("decimal(20,0)"), name).cast("decimal(19,0)")


def _fit_long(functions: Any, column: Any, name: str) -> Any:
    """Return a column that fails the query where it does not fit 64 bits; not every session has ANSI arithmetic."""
    lowest, highest = (functions.lit(str(bound)).cast(_EXACT) for bound in (-(2**63), 2**63 - 1))
    message = functions.lit(function_overflow_message(name, ir.I64.scalar))
    is_outside = (column < lowest) | (column > highest)
    return functions.when(is_outside, functions.raise_error(message)).otherwise(column)


def _divide(functions: Any, left: Any, right: Any, name: str, type_: PropertyType) -> Any:
    """Divide, or give null where the divisor is zero."""
    if type_.scalar in INTEGERS:
        left, right = (_as_long(functions, side, name).cast("long") for side in (left, right))
    else:
        left, right = left.cast("double"), right.cast("double")
    divisor = functions.when(right != 0, right)
    return left / divisor if name == "/" else left % divisor


_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
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
    run = expressions.run
    if not leaves:
        return expressions.literal(expressions.constant(body), type_)
    types = [leaf.type for leaf in leaves]

    # Spark reads the hints, and knows the bare class alone.
    def compute(*arrays: pa.Array) -> pa.Array:  # type: ignore[type-arg]
        return _compute(body, type_, types, run, arrays)

    # Its stubs know only the form with a number for the kind, which warns.
    make_udf: Any = functions.arrow_udf
    udf = make_udf(compute, spark_type(type_))
    return udf(*(expressions.leaf(leaf) for leaf in leaves))


def _compute(body: ir.Expr, type_: PropertyType, types: list[Any], run: Any, arrays: tuple[Any, ...]) -> pa.Array[Any]:
    from omnigraph.spark.query import from_spark_column

    count = len(arrays[0])
    values = {
        f"~{index}": vector_from_arrow(from_spark_column(array, leaf_type))
        for index, (array, leaf_type) in enumerate(zip(arrays, types, strict=True))
    }
    vector = compile_value(body)(run, Rows(count, {}, values))
    stored = vector_to_arrow(vector, arrow_type(type_), count)
    converted: pa.Array[Any] = to_spark_column(stored, carrier_type(type_))
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


Op = ir.CompareOp
_OPERATORS: Mapping[ir.CompareOp, Callable[[Any, Any], Any]] = {
    **COMPARISONS,
    Op.STARTS_WITH: lambda left, right: left.startswith(right),
    Op.ENDS_WITH: lambda left, right: left.endswith(right),
    Op.STRING_CONTAINS: lambda left, right: left.contains(right),
}
_I64_LOW, _I64_HIGH = -(2.0**63), 2.0**63
_U64_HIGH = 2.0**64
_LONG_MAX = 2**63 - 1
_HALF = 2**32
# Up to here every integer is a float of its own.
_EXACT_FLOAT = 2**53


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of a comparison: a column, its type, and its value if it is a constant."""

    column: Any
    type: PropertyType
    value: Value = None
    is_constant: bool = False


class Expressions:
    """Compiles expressions to columns; `names` has the column of a property, id or mark."""

    def __init__(self, run: ConstantsRun, names: Names) -> None:
        from pyspark.sql import functions

        self.functions = functions
        # Poses as a query run; tasks get it as well.
        self.run: Any = run
        self.names = names

    def constant(self, expression: ir.Expr) -> Value:
        """Return the value of an expression that reads no column."""
        value: Value = compile_constant(expression)(self.run)
        return value

    def value(self, expression: ir.Expr) -> Any:
        """Return an expression as a column."""
        functions, col = self.functions, self.functions.col
        match expression:
            case ir.Literal() | ir.ParameterRef() | ir.Now():
                return self.literal(self.constant(expression), expression.type)
            case (
                ir.PropertyRef(variable=variable, property="id", owner=owner)
                | ir.NodeRef(variable=variable, node_type=owner)
            ):
                column = col(self.names(variable, "id"))
                return self.plain_id(column) if ir.is_union(owner) else column
            case ir.PropertyRef(variable=variable, property=name):
                return col(self.names(variable, name))
            case ir.PathRef(variable=variable, function=function, space=space):
                column = col(self.names(variable, "hops" if function == "nodes" else function))
                is_tagged = function == "nodes" and ir.is_union(space)
                return functions.transform(column, self.plain_id) if is_tagged else column
            case ir.TypeRef(variable=variable, owner=owner):
                column = col(self.names(variable, "id"))
                if ir.is_union(owner):
                    return self.type_name(column)
                return functions.when(column.isNotNull(), functions.lit(owner))
            case ir.ValueRef(variable=variable):
                return col(self.names(variable, VALUE))
            case ir.VariableRef():
                return self._entity(expression)
            case ir.HopsRef(variable=variable):
                return col(self.names(variable, "hops"))
            case ir.ColumnRef(name=name, type=type_) if type_ is not None:
                return col(name)
            case ir.Call() | ir.Case() | ir.Quantifier():
                return self._computed(expression)
            case ir.Compare() | ir.IsNull() | ir.In() | ir.Not() | ir.And() | ir.Or():
                return self.condition(expression)
        name = f"`{expression.name}`" if isinstance(expression, ir.ColumnRef) else type(expression).__name__.lower()
        raise DataError(f"{name} cannot be evaluated here; no column has that name", rule="E2")

    def _operand(self, expression: ir.Expr) -> Operand:
        column, type_ = self.value(expression), expression.type
        assert type_ is not None, "what has a column has a type"
        is_constant = isinstance(expression, ir.Literal | ir.ParameterRef | ir.Now)
        return Operand(column, type_, self.constant(expression) if is_constant else None, is_constant)

    def _entity(self, passed: ir.VariableRef) -> Any:
        """Return a node or edge as its id, with its type if there are several; a path as all that is known of it."""
        col = self.functions.col
        if passed.kind in KINDS:
            return col(self.names(passed.variable, "id"))
        columns = [col(self.names(passed.variable, name)).alias(name) for name, _ in PATH_COLUMNS]
        return self.functions.when(columns[0].isNotNull(), self.functions.struct(*columns))

    def type_name(self, column: Any) -> Any:
        """Return the type of ids of several types."""
        return self.functions.substring_index(column, TYPE_MARK, 1)

    def plain_id(self, column: Any) -> Any:
        """Return ids of several types without their type."""
        return self.functions.regexp_replace(column, f"^[^{TYPE_MARK}]*{TYPE_MARK}", "")

    def _computed(self, expression: ir.Call | ir.Case | ir.Quantifier) -> Any:
        if isinstance(expression, ir.Quantifier) or not is_native(expression):
            return arrow_column(self, expression)
        return native_call(self, expression) if isinstance(expression, ir.Call) else native_case(self, expression)

    def leaf(self, expression: ir.Expr) -> Any:
        """Return what a scan or group provides: a property, an id, a number of hops, a mark or a column."""
        return self.condition(expression) if is_mark(expression) else self.value(expression)

    def literal(self, value: Value, type_: PropertyType) -> Any:
        """Return a constant as a column of its Spark type."""
        lit = self.functions.lit
        if value is None:
            return lit(None).cast(spark_type(type_))
        if type_.is_array:
            assert isinstance(value, tuple)
            items = [self.literal(item, type_.item_type) for item in value]
            return self.functions.array(*items).cast(spark_type(type_))
        if type_.scalar in TIMES:
            return time_column(lit(value), type_.scalar)
        if isinstance(value, int) and value > _LONG_MAX:
            # Exceeds a Java long; unsigned 64-bit columns are decimals in Spark anyway.
            return lit(Decimal(value)).cast(spark_type(type_))
        return lit(value).cast(spark_type(type_))

    # -- conditions --------------------------------------------------------------------------------------------

    def condition(self, condition: ir.Expr) -> Any:
        """Return a condition as a column of three-valued logic."""
        if is_mark(condition):
            [variable] = variables_of(condition)
            return self.functions.col(self.names(variable, condition))
        match condition:
            case ir.Not(condition=inner):
                return ~self.condition(inner)
            case ir.And(conditions=parts):
                return reduce(operator.and_, map(self.condition, parts))
            case ir.Or(conditions=parts):
                return reduce(operator.or_, map(self.condition, parts))
            case ir.Compare(op=op, left=ir.NodeRef(variable=left_variable), right=ir.NodeRef(variable=right_variable)):
                # Nodes are compared as they are bound, with their types.
                sides = (self.functions.col(self.names(name, "id")) for name in (left_variable, right_variable))
                return _OPERATORS[op](*sides)
            case ir.Compare(op=Op.MATCHES):
                return arrow_column(self, condition)
            case ir.Compare(op=op, left=left, right=right):
                return self._compare(op, self._operand(left), self._operand(right))
            case ir.IsNull(operand=operand, negated=negated):
                column = self.value(operand)
                return column.isNotNull() if negated else column.isNull()
            case ir.In(operand=operand, collection=collection):
                return self._member(self._operand(operand), self.constant(collection), collection.type)
        return self.value(condition)

    def _member(self, operand: Operand, items: Value, type_: PropertyType) -> Any:
        if items is None:
            return self.functions.lit(None).cast("boolean")
        assert isinstance(items, tuple)
        item_type = type_.item_type
        non_null = [item for item in items if item is not None]
        if operand.type.is_text:
            return self._unknown_among(operand.column.isin(non_null), items)
        parts = [
            self._compare(Op.EQ, operand, Operand(self.literal(item, item_type), item_type, item, True))
            for item in non_null
        ]
        membership = reduce(operator.or_, parts, self.functions.lit(False))
        if not parts:
            membership = self.functions.when(operand.column.isNotNull(), membership)
        return self._unknown_among(membership, items)

    def _unknown_among(self, membership: Any, items: tuple[Any, ...]) -> Any:
        """Return membership that is unknown instead of false if a null is among the items."""
        return self.functions.when(membership, True) if None in items else membership

    def _compare(self, op: ir.CompareOp, left: Operand, right: Operand) -> Any:
        if op is Op.CONTAINS:
            item = left.type.item_type
            return self.functions.exists(
                left.column, lambda element: self._compare(Op.EQ, Operand(element, item), right)
            )
        left, right = _narrow_constant(left, right, self), _narrow_constant(right, left, self)
        kinds = {left.type.scalar in FLOATS, right.type.scalar in FLOATS}
        if kinds == {False}:
            return _OPERATORS[op](left.column, right.column)
        if kinds == {True}:
            return self._floats(op, left.column.cast("double"), right.column.cast("double"))
        if left.type.scalar in FLOATS:
            left, right, op = right, left, MIRRORED[op]
        if RANGES[left.type.scalar][1] > _EXACT_FLOAT:
            return self._wide_with_float(op, left, right.column.cast("double"))
        return self._floats(op, left.column.cast("double"), right.column.cast("double"))

    def _floats(self, op: ir.CompareOp, left: Any, right: Any) -> Any:
        """Compare floats by IEEE 754: NaN differs from everything and is unordered."""
        nan = self.functions.isnan(left) | self.functions.isnan(right)
        plain = _OPERATORS[op](left, right)
        return self.functions.when(plain.isNull(), plain).otherwise(plain | nan if op is Op.NE else plain & ~nan)

    def _wide_with_float(self, op: ir.CompareOp, integer: Operand, number: Any) -> Any:
        """Compare 64-bit integers with floats exactly, through the floor of the float if it is within their range."""
        functions = self.functions
        is_signed = RANGES[integer.type.scalar][0] < 0
        low, high = (_I64_LOW, _I64_HIGH) if is_signed else (0.0, _U64_HIGH)
        inside = (number >= low) & (number < high)
        safe = functions.when(inside, number).otherwise(functions.lit(0.0))
        floor = functions.floor(safe)
        if not is_signed:
            # Built from 32-bit halves: Spark's cast of a large float to a decimal is not exact.
            upper = functions.floor(safe / _HALF)
            lower = functions.floor(safe - upper.cast("double") * _HALF)
            floor = upper.cast("decimal(20,0)") * functions.lit(_HALF).cast("decimal(20,0)") + lower
        is_whole = functions.floor(safe).cast("double") == safe if is_signed else lower.cast("double") == (
            safe - upper.cast("double") * _HALF
        )  # fmt: skip
        above = functions.when(inside, integer.column > floor).otherwise(number < low)
        equal = inside & is_whole & (integer.column == floor)
        below = ~(above | equal | functions.isnan(number))
        strict = below if op in (Op.LT, Op.LE) else above
        answer = {Op.EQ: equal, Op.NE: ~equal, Op.LT: strict, Op.GT: strict}.get(op, strict | equal)
        missing = integer.column.isNull() | number.isNull()
        return functions.when(missing, functions.lit(None).cast("boolean")).otherwise(answer)


def _narrow_constant(side: Operand, other: Operand, expressions: Expressions) -> Operand:
    """Round a float constant to 32 bits if it is compared with a 32-bit column, as that column stores it."""
    if not side.is_constant or other.is_constant or not isinstance(side.value, float):
        return side
    # A constant beyond 32 bits stays what it is.
    with suppress(OverflowError):
        narrow = narrow_float(side.value, other.type.scalar)
        return Operand(expressions.literal(narrow, ir.F64), ir.F64, narrow, is_constant=True)
    return side
