"""Checks the result of a read: returned columns, aggregates, `order`, `skip` and `limit`.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check_calls import REFERENCES, check_groups, find_ungrouped, is_group_key, rank, reject_blob
from omnigraph.lang.query.check_context import Context, Kind, Scope
from omnigraph.lang.query.check_expressions import Role, check_condition, check_expression
from omnigraph.lang.query.check_traversals import integer_bound
from omnigraph.lang.query.check_values import describe, has_property
from omnigraph.lang.query.functions import AGGREGATES, RANKS


@dataclass(frozen=True, slots=True)
class DescribedColumn:
    """A column as tools see it before the query runs: `type` is a property type, or `object` for a node."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Returned:
    """A checked column with its alias and description."""

    column: ir.Column
    alias: str | None
    described: DescribedColumn


def check_projections(
    ctx: Context, scope: Scope, projections: tuple[ast.Projection, ...]
) -> tuple[tuple[Returned, ...], bool]:
    """Check `return`; the second value is True if it aggregates."""
    parts = (part for projection in projections for part in ast.walk_expression(projection.expression))
    is_grouped = any(isinstance(part, ast.Call) and part.function in AGGREGATES for part in parts)
    columns: list[tuple[ast.Projection, ir.Expr]] = []
    aliases: set[str] = set()
    for projection in projections:
        if projection.alias is not None and projection.alias.text in aliases:
            message = f"duplicate column name `{projection.alias.text}`"
            ctx.report("T39", projection.alias.span, message, "rename one of the columns")
        aliases |= {projection.alias.text} if projection.alias is not None else set()
        typed = _project(ctx, scope, projection)
        if typed is not None and typed.type is not None:
            columns.append((projection, typed))
    keys = {typed for _, typed in columns if not ir.has_aggregate(typed)}
    returned = [
        _returned(projection, typed)
        for projection, typed in columns
        if not is_grouped or check_groups(ctx, projection.expression, typed, keys)
    ]
    return _with_unique_names(returned, aliases), is_grouped


def _returned(projection: ast.Projection, typed: ir.Expr) -> Returned:
    assert typed.type is not None
    alias = projection.alias.text if projection.alias else None
    name, written = _column_name(typed), projection.expression
    if isinstance(typed, ir.TypeRef) and isinstance(written, ast.PropertyAccess):
        # `type($v)` and `$v.@type` are one value, named as they are written.
        name = f"{written.variable.text}.{written.property.text}"
    if isinstance(written, ast.Subquery):
        name = written.word
    column = ir.Column(alias or name, typed, typed.type)
    type_name = "object" if isinstance(typed, ir.NodeRef) else str(typed.type)
    described = name if isinstance(written, ast.Subquery) else _described_name(typed)
    return Returned(column, alias, DescribedColumn(alias or described, type_name))


def _with_unique_names(returned: list[Returned], names: set[str]) -> tuple[Returned, ...]:
    """Make column names unique: aliases stay, other names get a number if they are taken."""
    renamed: list[Returned] = []
    # The last number by name, so that many columns of the same name take linear time.
    numbers: dict[str, int] = {}
    for item in returned:
        name = base = item.column.name
        while item.alias is None and name in names:
            numbers[base] = numbers.get(base, 1) + 1
            name = f"{base}_{numbers[base]}"
        names.add(name)
        renamed.append(replace(item, column=replace(item.column, name=name)))
    return tuple(renamed)


def _project(ctx: Context, scope: Scope, projection: ast.Projection) -> ir.Expr | None:
    expression = projection.expression
    passed = _passed_variable(ctx, scope, expression)
    if passed is not None:
        return passed
    if isinstance(expression, ast.Call) and expression.function in RANKS:
        score = rank(ctx, scope, expression)
        if score is not None and projection.alias is None:
            hint = f"write `{expression.function}(…) as score`"
            return ctx.report("T32", expression.span, "a score column needs a name", hint)
        return score
    typed = check_expression(ctx, scope, expression, Role.RETURN)
    return None if typed is None or reject_blob(ctx, expression, typed, "returned") else typed


def _column_name(expression: ir.Expr) -> str:
    if isinstance(expression, ir.PropertyRef):
        return f"{expression.variable}.{expression.written()}"
    if isinstance(expression, ir.Aggregate):
        return expression.function if expression.argument is None else _column_name(expression.argument)
    return _described_name(expression)


def _described_name(expression: ir.Expr) -> str:
    match expression:
        case ir.PropertyRef(property=name) | ir.ParameterRef(name=name) | ir.Aggregate(function=name):
            return name
        case ir.PathRef(function=name) if name != "nodes":
            return name
        case ir.NodeRef() | ir.HopsRef() | ir.ValueRef() | ir.VariableRef() | ir.PathRef():
            return expression.variable
        case ir.Call(function=name) if name.isidentifier():
            return name
        case ir.TypeRef():
            return "type"
        case ir.Literal():
            return "literal"
    return "now" if isinstance(expression, ir.Now) else "expression"


def check_order(
    ctx: Context, scope: Scope, read: ast.Read, remaining: Remaining | None
) -> tuple[ir.Rank | None, tuple[ir.OrderKey, ...]]:
    """Check `order`, with the limits that rankings need; returns a ranking or keys."""
    rank: ir.Rank | None = None
    keys: list[ir.OrderKey] = []
    calls = [key.expression for key in read.order if isinstance(key.expression, ast.Call)]
    has_nearest = any(call.function == "nearest" for call in calls)
    for position, key in enumerate(read.order):
        if isinstance(key.expression, ast.Alias) and has_nearest:
            hint = "return the call with an alias and order by that alone"
            ctx.report("T18", key.expression.span, "a column cannot order together with `nearest`", hint)
            continue
        typed = _key(ctx, scope, key.expression)
        if typed is None:
            continue
        ranking = _ranking(typed, ctx.columns)
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
        rank = ranking
    return rank, () if rank is not None else tuple(keys)


def check_having(
    ctx: Context, scope: Scope, read: ast.Read, returned: tuple[Returned, ...], grouped: bool
) -> tuple[ir.Expr | None, tuple[ir.Column, ...]]:
    """Check `having`; returns it over the columns, and the hidden columns that it needs besides."""
    if read.having is None:
        return None, ()
    if not grouped:
        message = "`having` filters groups, but no column is an aggregate"
        ctx.report("T33", read.having.span, message, "put the condition into `match`")
        return None, ()
    typed = check_condition(ctx, scope, read.having, Role.HAVING)
    if typed is None:
        return None, ()
    keys = {item.column.expression for item in returned if not ir.has_aggregate(item.column.expression)}
    loose = find_ungrouped(typed, keys)
    if loose is not None:
        message = f"{describe(loose)}; `having` reads aggregates and group keys"
        ctx.report("T9", read.having.span, message, "return it as a column, or filter it in `match`")
        return None, ()
    columns = {item.column.expression: item.column for item in reversed(returned)}
    hidden: list[ir.Column] = []
    for call in dict.fromkeys(_aggregates_of(typed, columns)):
        columns[call] = ir.Column(f"~{len(hidden)}", call, call.type, is_hidden=True)
        hidden.append(columns[call])
    references = {expression: ir.ColumnRef(column.name, column.type) for expression, column in columns.items()}
    return ir.substitute(typed, references), tuple(hidden)


def _aggregates_of(expression: ir.Expr, columns: Mapping[ir.Expr, ir.Column]) -> Iterator[ir.Aggregate]:
    """Yield the aggregates of an expression that no column has."""
    if expression in columns:
        return
    if isinstance(expression, ir.Aggregate):
        yield expression
        return
    for part in ir.children_of(expression):
        yield from _aggregates_of(part, columns)


def check_distinct_on(
    ctx: Context, scope: Scope, read: ast.Read, grouped: bool, rank: ir.Rank | None
) -> tuple[ir.Expr, ...]:
    """Check the keys of `distinct on`."""
    if read.distinct_on and (grouped or rank is not None):
        other = "aggregates" if grouped else "a ranking"
        message = f"`distinct on` takes rows of the pattern and does not go with {other}"
        ctx.report("T33", read.distinct_on[0].span, message)
        return ()
    words = "a variable or a property"
    keys = [_row_key(ctx, scope, written, Role.RETURN, words) for written in read.distinct_on]
    return tuple(key for key in keys if key is not None)


def _row_key(ctx: Context, scope: Scope, written: ast.Expression, role: Role, words: str) -> ir.Expr | None:
    """Check what tells rows apart; `words` say what that may be."""
    typed = check_expression(ctx, scope, written, role)
    if typed is None or typed.type is None or reject_blob(ctx, written, typed, "compared"):
        return None
    if is_group_key(typed):
        return typed
    return ctx.report("T33", written.span, f"{describe(typed)}, which is the same in all rows", f"name {words}")


def check_limit_per(
    ctx: Context, scope: Scope, read: ast.Read, remaining: Remaining | None, rank: ir.Rank | None
) -> ir.GroupLimit | None:
    """Check `limit n per { key, … }`."""
    per = read.limit_per
    if per is None:
        return None
    if rank is not None:
        message = "`limit … per` takes rows in their order and does not go with a ranking"
        return ctx.report("T33", per.span, message, "return the score in a `with`, and order by it behind that")
    keys = [_limit_key(ctx, scope, key, remaining) for key in per.keys]
    count = check_bound(ctx, per.count, "limit")
    typed = tuple(key for key in keys if key is not None)
    return None if count is None or len(typed) < len(keys) else ir.GroupLimit(count, typed)


def _limit_key(ctx: Context, scope: Scope, written: ast.Expression, remaining: Remaining | None) -> ir.Expr | None:
    words = "a variable, a property or a column"
    typed = _passed_variable(ctx, scope, written) or _row_key(ctx, scope, written, Role.ORDER, words)
    if remaining is not None and typed is not None and not isinstance(typed, ir.ColumnRef):
        remaining.check(ctx, written, typed, "only rows that are equal in returned columns can be taken together")
    return typed


def _passed_variable(ctx: Context, scope: Scope, expression: ast.Expression) -> ir.VariableRef | None:
    """Return a node, edge or path that a `with` passes on as it is."""
    if not ctx.is_stage or not isinstance(expression, ast.Variable) or expression.name in ctx.params:
        return None
    bound = scope.get(expression.name)
    if bound is None or bound.kind not in (Kind.NODE, Kind.EDGE, Kind.PATH):
        return None
    return ir.VariableRef(bound.name, bound.kind.value, bound.owner)


def check_bound(ctx: Context, bound: ast.Bound | None, word: str) -> int | ir.ParameterRef | None:
    """Check the operand of `skip` or `limit`."""
    return None if bound is None else integer_bound(ctx, bound.value, "T36", f"`{word}`")


def _key(ctx: Context, scope: Scope, expression: ast.Expression) -> ir.Expr | None:
    if isinstance(expression, ast.Alias) and expression.name not in ast.SYSTEM_FIELDS:
        match = ctx.columns.get(expression.name)
        if match is None and ctx.is_stage:
            _report_unknown_key(ctx, scope, expression)
            return None
        # An unknown column name is reported when the query runs, as in earlier releases.
        return ir.ColumnRef(expression.name, match.type if match else None)
    if isinstance(expression, ast.Call) and expression.function in RANKS:
        return rank(ctx, scope, expression)
    typed = check_expression(ctx, scope, expression, Role.ORDER)
    if typed is None or typed.type is None or reject_blob(ctx, expression, typed, "ordered by"):
        return None
    if isinstance(typed, ir.NodeRef) or not is_group_key(typed):
        hint = "order by a property, a column alias, or a rank call"
        return ctx.report("T33", expression.span, f"{describe(typed)}, which is not an order key", hint)
    if typed.type.is_array:
        return ctx.report("T33", expression.span, f"{describe(typed)}, which has no order", "order by a single value")
    return typed


def _report_unknown_key(ctx: Context, scope: Scope, name: ast.Alias) -> None:
    """Report a bare name in the `order` of a `with`, whose keys are variables and their properties."""
    owner = next((item.name for item in scope.values() if has_property(ctx, item, name.name)), None)
    values = [*ctx.columns, *(item.name for item in scope.values() if item.kind in (Kind.HOPS, Kind.VALUE))]
    otherwise = "order by a value that it binds, `$n`, or by a property, `$v.property`"
    hint = did_you_mean(name.name, values, prefix="$", otherwise=otherwise)
    if owner is not None:
        hint = f"write `${owner}.{name.name}`"
    elif name.name in scope and name.name not in values:
        hint = f"order by a property of `${name.name}`, or by `${name.name}.@id`"
    ctx.report("T38", name.span, f"no variable of this `with` is called `{name.name}`", hint)


def _ranking(typed: ir.Expr, columns: Mapping[str, ir.Column]) -> ir.Rank | None:
    if isinstance(typed, ir.ColumnRef) and typed.name in columns:
        typed = columns[typed.name].expression
    return typed if isinstance(typed, ir.Nearest | ir.Bm25 | ir.Rrf) else None


def _check_direction(ctx: Context, key: ast.Ordering, ranking: ir.Rank) -> None:
    best_first = "asc" if isinstance(ranking, ir.Nearest) else "desc"
    if key.direction is not None and key.direction.text != best_first:
        message = f"a ranking puts the best first, which is `{best_first}` here"
        ctx.report("T32", key.direction.span, message, f"drop the direction or write `{best_first}`")


def _check_limit(ctx: Context, expression: ast.Expression, ranking: ir.Rank, limit: ast.Bound | None) -> None:
    if isinstance(ranking, ir.Bm25):
        return
    code, word = ("T17", "nearest") if isinstance(ranking, ir.Nearest) else ("T21", "rrf")
    if limit is None:
        ctx.report(code, expression.span, f"ordering by `{word}` needs a limit", "add `limit 10` after `order`")
    elif limit.value == 0:
        ctx.report(code, limit.span, f"ordering by `{word}` needs a limit of at least 1")


_ORDER_RULE: Final = "only returned columns can be ordered by"


class Remaining:
    """The columns that can be ordered by after an aggregate or `distinct`."""

    def __init__(self, returned: tuple[Returned, ...], grouped: bool) -> None:
        self._word = "an aggregate" if grouped else "`distinct`"
        self._aliases: dict[ir.Expr, str | None] = {}
        for item in returned:
            # A group key with an alias can be ordered only by that alias.
            alias = item.alias if grouped else None
            if alias is None or item.column.expression not in self._aliases:
                self._aliases[item.column.expression] = alias

    def check(
        self,
        ctx: Context,
        expression: ast.Expression,
        typed: ir.Expr,
        rule: str = _ORDER_RULE,
    ) -> None:
        alias = self._aliases.get(typed, "")
        if alias is None or isinstance(typed, ir.ColumnRef | ir.Literal | ir.ParameterRef | ir.Now):
            return
        if not isinstance(typed, REFERENCES):
            for part in ir.children_of(typed):
                self.check(ctx, expression, part, rule)
            return
        hint = f"order by `{alias}`" if alias else "return it too"
        if alias and rule is not _ORDER_RULE:
            hint = f"write `{alias}`"
        message = f"{describe(typed)}; after {self._word} {rule}"
        ctx.report("T38", expression.span, message, hint)
