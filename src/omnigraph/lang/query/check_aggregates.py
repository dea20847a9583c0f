"""Check aggregates: their argument and result types, and which columns may stand beside them.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from omnigraph.lang.catalog import PropertyType, Scalar
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check_context import Context, with_null
from omnigraph.lang.query.check_values import describe

_GROUP_HINT = "return `$v.property` or `$v`, or aggregate it"


def type_aggregate(ctx: Context, call: ast.Call, argument: ir.Expr) -> ir.Expr | None:
    """Return an aggregate of a typed argument, or report a type that it does not take (T8)."""
    function, type_, written = call.function, argument.type, call.arguments[0]
    if type_ is None or reject_blob(ctx, written, argument, "aggregated"):
        return None
    if function == "count":
        return ir.Aggregate(function, argument, ir.I64, call.is_distinct)
    if function in ("sum", "avg", "stddev", "percentile"):
        return _type_statistic(ctx, call, argument, type_)
    if type_.is_list or type_.scalar is Scalar.VECTOR:
        verb = "compares" if function in ("min", "max") else "collects"
        ctx.report("T8", written.span, f"`{function}` {verb} single values, but {describe(argument)}")
        return None
    if function == "collect":
        items = PropertyType(type_.scalar, is_list=True, enum_values=type_.enum_values)
        return ir.Aggregate(function, argument, items, call.is_distinct)
    return ir.Aggregate(function, argument, with_null(type_, nullable=True))


def _type_statistic(ctx: Context, call: ast.Call, argument: ir.Expr, type_: PropertyType) -> ir.Expr | None:
    function = call.function
    if not type_.is_number:
        verb = "adds" if function in ("sum", "avg") else "takes"
        ctx.report("T8", call.arguments[0].span, f"`{function}` {verb} numbers, but {describe(argument)}")
        return None
    fraction = _check_fraction(ctx, call) if function == "percentile" else None
    if function == "percentile" and fraction is None:
        return None
    scalar = _sum_scalar(type_.scalar) if function == "sum" else Scalar.F64
    return ir.Aggregate(function, argument, PropertyType(scalar, nullable=True), call.is_distinct, fraction)


def _check_fraction(ctx: Context, call: ast.Call) -> float | None:
    """Return the second argument of `percentile`, or report what it is instead (T8)."""
    written = call.arguments[1]
    value = written.value if isinstance(written, ast.Literal) else None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    ctx.report("T8", written.span, "`percentile` takes a number between 0 and 1 here", "write 0.5 for the median")
    return None


def reject_blob(ctx: Context, expression: ast.Expression, typed: ir.Expr, usage: str) -> bool:
    """Report a Blob where values are shown or compared (T24)."""
    if typed.type is None or typed.type.scalar is not Scalar.BLOB:
        return False
    ctx.report(
        "T24", expression.span, f"{describe(typed)}, which cannot be {usage}", "read Blobs one by one through the API"
    )
    return True


def _sum_scalar(scalar: Scalar) -> Scalar:
    """Return the type of a sum: 64-bit integers for integers, floats for all else."""
    if scalar in (Scalar.U32, Scalar.U64):
        return Scalar.U64
    return Scalar.I64 if scalar in (Scalar.I32, Scalar.I64) else Scalar.F64


REFERENCES: Final = ir.PropertyRef | ir.NodeRef | ir.HopsRef | ir.TypeRef | ir.PathRef | ir.ValueRef | ir.VariableRef


def is_group_key(expression: ir.Expr) -> bool:
    """Return True if a column can be a group key: it reads a variable, and is no score."""
    if isinstance(expression, ir.Nearest | ir.Bm25 | ir.Rrf):
        return False
    is_reference = isinstance(expression, REFERENCES | ir.ColumnRef)
    return is_reference or any(is_group_key(part) for part in ir.children_of(expression))


def check_groups(ctx: Context, written: ast.Expression, typed: ir.Expr, keys: Collection[ir.Expr]) -> bool:
    """Return True if a column can stand in a grouped result, or report T9."""
    if not ir.has_aggregate(typed):
        if is_group_key(typed):
            return True
        message = "beside an aggregate, a column must be a variable or a property of one"
        ctx.report("T9", written.span, message, _GROUP_HINT)
        return False
    loose = find_ungrouped(typed, keys)
    if loose is None:
        return True
    message = f"{describe(loose)}; beside an aggregate, only group keys have one value"
    ctx.report("T9", written.span, message, "return it as a column of its own, or aggregate it")
    return False


def find_ungrouped(expression: ir.Expr, keys: Collection[ir.Expr]) -> ir.Expr | None:
    """Return what a column reads of single rows, outside aggregates and group keys."""
    if isinstance(expression, ir.Aggregate) or expression in keys:
        return None
    if isinstance(expression, REFERENCES):
        return expression
    return next(
        (loose for part in ir.children_of(expression) if (loose := find_ungrouped(part, keys)) is not None), None
    )
