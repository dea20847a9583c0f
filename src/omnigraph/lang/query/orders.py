"""Order, skip and limit of a read.

Pure. A rank call, or a column that holds one, replaces the order keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.context import Context, Scope
from omnigraph.lang.query.expressions import describe, resolve
from omnigraph.lang.query.returns import Returned, refuse_blob
from omnigraph.lang.query.search import rank
from omnigraph.lang.query.words import AGGREGATES, RANKS, TEXT_PREDICATES, suggestion
from omnigraph.lang.types import INTEGERS, Scalar


@dataclass(frozen=True, slots=True)
class Ordered:
    """The checked order of a read: a ranking, or keys."""

    rank: ir.Rank | None
    keys: tuple[ir.OrderKey, ...]


def check_order(ctx: Context, scope: Scope, read: ast.Read, returned: tuple[Returned, ...], grouped: bool) -> Ordered:
    """Check `order`, with the limits that rankings need."""
    by_alias = {item.alias: item.column for item in reversed(returned) if item.alias is not None}
    remaining = _Remaining(returned, grouped) if grouped or read.distinct else None
    found: ir.Rank | None = None
    keys: list[ir.OrderKey] = []
    has_nearest = any(_is_call(key.expression, "nearest") for key in read.order)
    for position, key in enumerate(read.order):
        if isinstance(key.expression, ast.Alias) and has_nearest:
            hint = "return the call with an alias and order by that alone"
            ctx.report("T18", key.expression.span, "a column cannot order together with `nearest`", hint)
            continue
        typed = _key(ctx, scope, key.expression, by_alias)
        if typed is None:
            continue
        ranking = _ranking(typed, by_alias)
        if ranking is None:
            if remaining is not None and not isinstance(typed, ir.ColumnRef):
                remaining.check(ctx, key.expression, typed)
            keys.append(ir.OrderKey(typed, key.direction is not None and key.direction.text == "desc"))
            continue
        if position > 0:
            ctx.report("T33", key.expression.span, "a ranking must be the first order key", "move it to the front")
            continue
        if read.distinct and not isinstance(typed, ir.ColumnRef):
            message = "`distinct` orders by returned columns only"
            ctx.report("T38", key.expression.span, message, "return the call with an alias and order by that")
        if isinstance(typed, ir.ColumnRef):
            _check_direction(ctx, key, ranking)
        _check_limit(ctx, key.expression, ranking, read.limit)
        found = ranking
    return Ordered(found, () if found is not None else tuple(keys))


def check_bound(ctx: Context, bound: ast.Bound | None, word: str) -> int | ir.ParameterRef | None:
    """Check the operand of `skip` or `limit`."""
    if bound is None:
        return None
    if isinstance(bound.value, int):
        return bound.value
    name = bound.value.name
    parameter = ctx.params.get(name)
    if parameter is None:
        hint = suggestion(name, ctx.params, prefix="$", otherwise=f"declare it: `query …(${name}: I64)`")
        ctx.report("T36", bound.span, f"`${name}` is not a parameter of this query", hint)
        return None
    type_ = parameter.type
    if type_.scalar not in INTEGERS or type_.is_list or type_.nullable:
        message = f"`{word}` needs a required whole number, but `${name}` is {type_}"
        ctx.report("T36", bound.span, message, f"declare `${name}: I64`")
        return None
    return ir.ParameterRef(name, type_)


def _is_call(expression: ast.Expression, function: str) -> bool:
    return isinstance(expression, ast.Call) and expression.function == function


def _key(ctx: Context, scope: Scope, expression: ast.Expression, by_alias: Mapping[str, ir.Column]) -> ir.Expr | None:
    if isinstance(expression, ast.Alias):
        # A name that no column has is left to the run, as the language always did.
        match = by_alias.get(expression.name)
        return ir.ColumnRef(expression.name, match.type if match else None)
    if isinstance(expression, ast.Call) and expression.function in RANKS:
        return rank(ctx, scope, expression)
    if isinstance(expression, ast.Call) and expression.function in AGGREGATES | TEXT_PREDICATES:
        hint = "return it with an alias and order by that" if expression.function in AGGREGATES else "put it in `match`"
        ctx.report("T33", expression.span, f"`{expression.function}` cannot stand in `order`", hint)
        return None
    typed = resolve(ctx, scope, expression)
    if typed is None or refuse_blob(ctx, expression, typed, "ordered by"):
        return None
    if not isinstance(typed, ir.PropertyRef | ir.HopsRef):
        hint = "order by a property, a column alias, or a rank call"
        ctx.report("T33", expression.span, f"{describe(typed)}, which is not an order key", hint)
        return None
    if typed.type.is_list or typed.type.scalar is Scalar.VECTOR:
        ctx.report("T33", expression.span, f"{describe(typed)}, which has no order", "order by a single value")
        return None
    return typed


def _ranking(typed: ir.Expr, by_alias: Mapping[str, ir.Column]) -> ir.Rank | None:
    if isinstance(typed, ir.ColumnRef) and typed.name in by_alias:
        typed = by_alias[typed.name].expression
    return typed if isinstance(typed, ir.Nearest | ir.Bm25 | ir.Rrf) else None


def _check_direction(ctx: Context, key: ast.Ordering, ranking: ir.Rank) -> None:
    best_first = "asc" if isinstance(ranking, ir.Nearest) else "desc"
    if key.direction is not None and key.direction.text != best_first:
        message = f"a ranking puts the best first, which is `{best_first}` here"
        ctx.report("T32", key.direction.span, message, f"drop the direction or write `{best_first}`")


def _check_limit(ctx: Context, place: ast.Expression, ranking: ir.Rank, limit: ast.Bound | None) -> None:
    if isinstance(ranking, ir.Bm25):
        return
    code, word = ("T17", "nearest") if isinstance(ranking, ir.Nearest) else ("T21", "rrf")
    if limit is None:
        ctx.report(code, place.span, f"ordering by `{word}` needs a limit", "add `limit 10` after `order`")
    elif limit.value == 0:
        ctx.report(code, limit.span, f"ordering by `{word}` needs a limit of at least 1")


class _Remaining:
    """The columns that an aggregate or `distinct` leaves to order by."""

    def __init__(self, returned: tuple[Returned, ...], grouped: bool) -> None:
        self._word = "an aggregate" if grouped else "`distinct`"
        self._aliases: dict[ir.Expr, str | None] = {}
        for item in returned:
            # A group key with an alias is known by that alias alone.
            alias = item.alias if grouped else None
            if alias is None or item.column.expression not in self._aliases:
                self._aliases[item.column.expression] = alias

    def check(self, ctx: Context, place: ast.Expression, typed: ir.Expr) -> None:
        alias = self._aliases.get(typed, "")
        if alias is None:
            return
        hint = f"order by `{alias}`" if alias else "return it too"
        message = f"{describe(typed)}; after {self._word} only returned columns can be ordered by"
        ctx.report("T38", place.span, message, hint)
