"""What a read gives back: columns, aggregates, and their static description.

Pure. Ordering and paging are in `orders`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.context import Context, Scope, with_null
from omnigraph.lang.query.expressions import describe, resolve
from omnigraph.lang.query.search import rank
from omnigraph.lang.query.words import AGGREGATES, RANKS, TEXT_PREDICATES
from omnigraph.lang.types import PropertyType, Scalar


@dataclass(frozen=True, slots=True)
class DescribedColumn:
    """A column as tools see it before the query runs: `type` is a property type, or `object` for a node."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Returned:
    """One checked column with its alias and its place."""

    column: ir.Column
    alias: str | None
    described: DescribedColumn


def check_projections(
    ctx: Context, scope: Scope, projections: tuple[ast.Projection, ...]
) -> tuple[tuple[Returned, ...], bool]:
    """Check `return`; tells also whether it aggregates."""
    is_grouped = any(_is_aggregate(projection.expression) for projection in projections)
    returned: list[Returned] = []
    aliases: set[str] = set()
    for projection in projections:
        if projection.alias is not None and projection.alias.text in aliases:
            message = f"another column is called `{projection.alias.text}` already"
            ctx.report("T39", projection.alias.span, message, "give each column a name of its own")
        aliases |= {projection.alias.text} if projection.alias is not None else set()
        typed = _project(ctx, scope, projection)
        if typed is None or typed.type is None:
            continue
        groups = isinstance(typed, ir.PropertyRef | ir.NodeRef | ir.HopsRef | ir.Aggregate)
        if is_grouped and not groups:
            message = "beside an aggregate, a column must be a variable or a property of one"
            ctx.report("T9", projection.expression.span, message, "return `$v.property` or `$v`, or aggregate it")
            continue
        alias = projection.alias.text if projection.alias else None
        column = ir.Column(alias or _column_name(typed), typed, typed.type)
        type_name = "object" if isinstance(typed, ir.NodeRef) else str(typed.type)
        returned.append(Returned(column, alias, DescribedColumn(alias or _described_name(typed), type_name)))
    return _distinctly_named(returned, aliases), is_grouped


def _distinctly_named(returned: list[Returned], taken: set[str]) -> tuple[Returned, ...]:
    """Return the columns under names that differ: an alias stays, any other name that is taken gets a number."""
    made: list[Returned] = []
    # Where to go on counting, so that many columns of one name do not start from the first number each.
    numbers: dict[str, int] = {}
    for one in returned:
        name = own = one.column.name
        while one.alias is None and name in taken:
            numbers[own] = numbers.get(own, 1) + 1
            name = f"{own}_{numbers[own]}"
        taken.add(name)
        made.append(replace(one, column=replace(one.column, name=name)))
    return tuple(made)


def refuse_blob(ctx: Context, place: ast.Expression, typed: ir.Expr, what: str) -> bool:
    """Report a Blob where values are shown or compared (T24)."""
    if typed.type is None or typed.type.scalar is not Scalar.BLOB:
        return False
    ctx.report("T24", place.span, f"{describe(typed)}, which cannot be {what}", "read Blobs one by one through the API")
    return True


def _is_aggregate(expression: ast.Expression) -> bool:
    return isinstance(expression, ast.Call) and expression.function in AGGREGATES


def _project(ctx: Context, scope: Scope, projection: ast.Projection) -> ir.Expr | None:
    expression = projection.expression
    if isinstance(expression, ast.Alias):
        message = f"`{expression.name}` is not a value: a column cannot refer to another column"
        ctx.report("T33", expression.span, message, f'write `$v.{expression.name}`, or `"{expression.name}"`')
        return None
    if isinstance(expression, ast.Call):
        if expression.function in AGGREGATES:
            return _aggregate(ctx, scope, expression)
        if expression.function in TEXT_PREDICATES:
            message = f"`{expression.function}` is a condition and cannot be returned"
            ctx.report("T33", expression.span, message, "put it in `match`; to return a score, use `bm25`")
            return None
        if expression.function in RANKS:
            return _score(ctx, scope, expression, projection.alias)
    typed = resolve(ctx, scope, expression)
    if typed is None or refuse_blob(ctx, expression, typed, "returned"):
        return None
    return typed


def _score(ctx: Context, scope: Scope, call: ast.Call, alias: ast.Name | None) -> ir.Expr | None:
    typed = rank(ctx, scope, call)
    if typed is not None and alias is None:
        ctx.report("T32", call.span, "a score column needs a name", f"write `{call.function}(…) as score`")
        return None
    return typed


def _aggregate(ctx: Context, scope: Scope, call: ast.Call) -> ir.Expr | None:
    if not call.arguments:
        return ir.Aggregate("count", None, ir.I64)
    place, function = call.arguments[0], call.function
    if isinstance(place, ast.Alias) or (isinstance(place, ast.Call) and place.function != "now"):
        what = f"`{place.name}`" if isinstance(place, ast.Alias) else f"`{place.function}(…)`"
        ctx.report("T8", place.span, f"`{function}` aggregates values of the pattern, not {what}")
        return None
    typed = resolve(ctx, scope, place)
    if typed is None or typed.type is None or refuse_blob(ctx, place, typed, "aggregated"):
        return None
    if function == "count":
        return ir.Aggregate(function, typed, ir.I64)
    type_ = typed.type
    is_node = isinstance(typed, ir.NodeRef)
    if function in ("sum", "avg"):
        if not type_.is_number:
            ctx.report("T8", place.span, f"`{function}` adds numbers, but {describe(typed)}")
            return None
        scalar = _sum_scalar(type_.scalar) if function == "sum" else Scalar.F64
        return ir.Aggregate(function, typed, PropertyType(scalar, nullable=True))
    if not (is_node or type_.is_number or type_.is_text):
        message = f"`{function}` compares numbers or Strings, but {describe(typed)}"
        ctx.report("T8", place.span, message, "order by it and take `limit 1`")
        return None
    return ir.Aggregate(function, typed, with_null(type_, nullable=True))


def _sum_scalar(scalar: Scalar) -> Scalar:
    """Return the type of a sum: integers add up exactly in 64 bits, everything else in floats."""
    if scalar in (Scalar.U32, Scalar.U64):
        return Scalar.U64
    return Scalar.I64 if scalar in (Scalar.I32, Scalar.I64) else Scalar.F64


def _column_name(expression: ir.Expr) -> str:
    if isinstance(expression, ir.PropertyRef):
        return f"{expression.variable}.{expression.property}"
    if isinstance(expression, ir.Aggregate):
        return "count" if expression.argument is None else _column_name(expression.argument)
    return _described_name(expression)


def _described_name(expression: ir.Expr) -> str:
    if isinstance(expression, ir.PropertyRef):
        return expression.property
    if isinstance(expression, ir.NodeRef | ir.HopsRef):
        return expression.variable
    if isinstance(expression, ir.ParameterRef):
        return expression.name
    if isinstance(expression, ir.Aggregate):
        return expression.function
    return "now" if isinstance(expression, ir.Now) else "literal"
