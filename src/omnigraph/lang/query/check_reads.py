"""Check whole reads: the stages of `with`, whole entities in `return`, the last pattern, and unions of such blocks.

Pure. A stage and a union become reads that another read starts from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

from omnigraph.lang.catalog import PropertyType
from omnigraph.lang.diagnostic import Span, did_you_mean, join_words
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check_calls import is_null_literal
from omnigraph.lang.query.check_context import Context, Kind, Scope, Variable
from omnigraph.lang.query.check_expressions import Role, check_expression
from omnigraph.lang.query.check_patterns import Block, check_block, find_rebound
from omnigraph.lang.query.check_returns import (
    DescribedColumn,
    Remaining,
    Returned,
    check_bound,
    check_distinct_on,
    check_having,
    check_limit_per,
    check_order,
    check_projections,
)
from omnigraph.lang.query.check_values import describe
from omnigraph.lang.query.functions import common_scalar
from omnigraph.lang.scalars import PLAIN, Scalar

Checked: TypeAlias = tuple[ir.ReadIR, tuple[DescribedColumn, ...]]


def check_read(ctx: Context, name: str, body: ast.Read | ast.Union) -> Checked:
    """Check a read, which may be a union."""
    if isinstance(body, ast.Union):
        return _check_union(ctx, name, body)
    scope, source = Scope(), None
    ctx.dropped.clear()
    for stage in body.stages:
        ctx.is_stage = True
        block, returned, read = _check_part(ctx, name, stage, scope, source)
        source, scope = read, _bind_columns(ctx, block.scope, stage, returned)
        ctx.is_stage = False
    _, returned, read = _check_part(ctx, name, body, scope, source)
    return read, tuple(item.described for item in returned)


def _check_part(
    ctx: Context, name: str, read: ast.Read, scope: Scope, source: ir.ReadIR | None
) -> tuple[Block, tuple[Returned, ...], ir.ReadIR]:
    """Check a pattern and the `with` or `return` behind it."""
    is_stage, ctx.is_stage = ctx.is_stage, False
    for variable, clause in find_rebound((*read.clauses, *_result_patterns(read)), ctx.dropped - scope.keys()):
        message = f"`${variable}` was bound before a `with` that does not pass it on"
        ctx.report("T42", clause.span, message, f"add `${variable}` to the `with`, or use another name")
    block = check_block(ctx, read.clauses, scope)
    ctx.is_stage = is_stage
    projections = tuple(item for written in read.projections for item in _expand(ctx, block.scope, written))
    returned, is_grouped = check_projections(ctx, block.scope, projections)
    ctx.columns = {item.alias: item.column for item in reversed(returned) if item.alias is not None}
    having, hidden = check_having(ctx, block.scope, read, returned, is_grouped)
    remaining = Remaining(returned, is_grouped) if is_grouped or read.distinct else None
    rank, order = check_order(ctx, block.scope, read, remaining)
    distinct_on = check_distinct_on(ctx, block.scope, read, is_grouped, rank)
    limit_per = check_limit_per(ctx, block.scope, read, remaining, rank)
    counts, ctx.counts = ctx.counts, []
    pipeline: tuple[ir.Operator, ...] = ()
    if not is_refused(ctx):
        pipeline = (*ctx.lowering.block(block, frozenset(scope)), *ctx.lowering.result_counts(counts, block.scope))
    compiled = ir.ReadIR(
        name=name,
        params=tuple(ctx.params.values()),
        pipeline=pipeline,
        columns=(*(item.column for item in returned), *hidden),
        is_grouped=is_grouped,
        is_distinct=read.distinct,
        rank=rank,
        order=order,
        skip=check_bound(ctx, read.skip, "skip"),
        limit=check_bound(ctx, read.limit, "limit"),
        having=having,
        distinct_on=distinct_on,
        source=source,
        limit_per=limit_per,
    )
    return block, returned, compiled


def _result_patterns(read: ast.Read) -> Iterator[ast.Subquery]:
    """Yield the patterns in what a read makes of its rows."""
    columns = (item.expression for item in read.projections if isinstance(item, ast.Projection))
    per = read.limit_per.keys if read.limit_per is not None else ()
    for expression in (*columns, *(key.expression for key in read.order), *read.distinct_on, *per):
        yield from (part for part in ast.walk_expression(expression) if isinstance(part, ast.Subquery))


def is_refused(ctx: Context) -> bool:
    """Return True after an error: the scopes of a refused pattern do not fit together, so it cannot be lowered."""
    return bool(ctx.findings)


# -- entities -------------------------------------------------------------------------------------------------


def _expand(ctx: Context, scope: Scope, entity: ast.Projection | ast.EntityProjection) -> Iterator[ast.Projection]:
    """Yield a projection, or the properties of an entity; `$v.*` leaves out Blobs and vectors."""
    if isinstance(entity, ast.Projection):
        yield entity
        return
    variable = entity.variable
    bound = scope.get(variable.text)
    if bound is None or bound.kind not in (Kind.NODE, Kind.EDGE):
        if bound is None or bound.kind is not Kind.BROKEN:
            hint = did_you_mean(variable.text, scope, prefix="$", otherwise="name a node or an edge of the pattern")
            ctx.report("T6", variable.span, f"`${variable.text}` is not a node or edge of the pattern", hint)
        return
    names = entity.properties
    if names is None:
        properties = ctx.properties(bound).values()
        shown = [item.name for item in properties if item.type.scalar in PLAIN]
        if not shown:
            message = f"`{bound.type_name}` has no properties that `.*` could show"
            ctx.report("T6", entity.span, message, "name the properties to return, or leave it out")
        names = tuple(ast.Name(name, entity.span) for name in shown)
    for name in names:
        yield ast.Projection(ast.PropertyAccess(variable, name, name.span), None)


# -- stages ----------------------------------------------------------------------------------------------------


def _bind_columns(ctx: Context, scope: Scope, stage: ast.Read, returned: tuple[Returned, ...]) -> Scope:
    """Return the variables that a `with` binds; one whose value has an error is bound as broken."""
    columns = {item.column.name: item.column for item in returned}
    bound = Scope()
    for projection in stage.projections:
        assert isinstance(projection, ast.Projection)
        name = _name_of(ctx, projection)
        if name is None:
            continue
        if name.text in bound:
            ctx.report("T42", name.span, f"`${name.text}` is bound twice", "rename one of them, as in `… as $other`")
            bound[name.text] = Variable(name.text, Kind.BROKEN)
        elif name.text in ctx.params or name.text == "_":
            noun = "stands for anything" if name.text == "_" else "is a parameter"
            hint = "use another name" if projection.is_variable else "leave it out: parameters are known everywhere"
            ctx.report("T42", name.span, f"`${name.text}` {noun} and cannot be bound by a `with`", hint)
        else:
            bound[name.text] = _variable(scope, name.text, columns.get(name.text))
    ctx.dropped |= scope.keys() - bound.keys()
    ctx.dropped -= bound.keys()
    return bound


def _name_of(ctx: Context, projection: ast.Projection) -> ast.Name | None:
    expression = projection.expression
    if projection.alias is not None:
        return projection.alias
    if isinstance(expression, ast.Variable):
        return ast.Name(expression.name, expression.span)
    return ctx.report("T42", expression.span, "a value that a `with` passes on needs a name", "write `… as $name`")


def _variable(scope: Scope, name: str, column: ir.Column | None) -> Variable:
    if column is None:
        return Variable(name, Kind.BROKEN)
    expression = column.expression
    if isinstance(expression, ir.VariableRef):
        return replace(scope[expression.variable], name=name)
    return Variable(name, Kind.VALUE, value_type=column.type)


# -- unions ----------------------------------------------------------------------------------------------------


def _check_union(ctx: Context, name: str, union: ast.Union) -> Checked:
    checked = [check_read(ctx, name, part) for part in union.parts]
    first, described = checked[0]
    names = [column.name for column in first.returned]
    columns = list(first.returned)
    for part, (read, _) in zip(union.parts[1:], checked[1:], strict=True):
        other = [column.name for column in read.returned]
        if other != names and not ctx.findings:
            message = f"the first block of the union returns {_list(names)}, but this one returns {_list(other)}"
            hint = "return the same columns in the same order, named with `as`"
            ctx.report("T43", _span_of(part), message, hint)
        elif other == names:
            columns = list(_common_columns(ctx, part, columns, read.returned))
    bound = tuple(ir.Column(item.name, ir.ValueRef(item.name, item.type), item.type) for item in columns)
    read = ir.ReadIR(
        name=name,
        params=tuple(ctx.params.values()),
        pipeline=(),
        columns=bound,
        is_distinct=not union.is_all,
        order=tuple(_union_keys(ctx, union, bound)),
        skip=check_bound(ctx, union.skip, "skip"),
        limit=check_bound(ctx, union.limit, "limit"),
        source=ir.Union(tuple(read for read, _ in checked), bound),
    )
    return read, tuple(
        replace(item, type=item.type if all(item in other for _, other in checked) else str(column.type))
        for item, column in zip(described, bound, strict=False)
    )


def _span_of(part: ast.Read) -> Span:
    first = part.projections[0]
    return first.span if isinstance(first, ast.EntityProjection) else first.expression.span


def _list(names: list[str]) -> str:
    return join_words([f"`{name}`" for name in names], conjunction="and")


def _common_columns(
    ctx: Context, part: ast.Read, columns: list[ir.Column], others: tuple[ir.Column, ...]
) -> Iterator[ir.Column]:
    for column, other in zip(columns, others, strict=True):
        if is_null_literal(column.expression):
            yield replace(other, type=replace(other.type, nullable=True))
            continue
        common = _common_type(column.type, column.type if is_null_literal(other.expression) else other.type)
        if common is None:
            message = f"column `{column.name}` is {column.type} in one block of the union and {other.type} in another"
            ctx.report("T43", _span_of(part), message, _conversion_hint(column.type, other.type))
        yield replace(column, type=common or column.type)


def _conversion_hint(first: PropertyType, second: PropertyType) -> str:
    if first.is_array or second.is_array:
        return "return values of one type in every block"
    pair = (first.scalar, second.scalar)
    targets = [second for first, second in (pair, pair[::-1]) if second in first.facts.casts]
    target = common_scalar(pair) or max(targets, key=[*Scalar].index, default=Scalar.STRING)
    return f"convert one of them: `cast(… as {target})`"


def _common_type(first: PropertyType, second: PropertyType) -> PropertyType | None:
    """Return the type of a column in which values of two types stand; None if they are not of one kind."""
    kinds = [(type_.scalar, type_.is_list, type_.dimension) for type_ in (first, second)]
    if kinds[0] != kinds[1]:
        return None
    words = first.enum_values if first.enum_values == second.enum_values else None
    return replace(first, nullable=first.nullable or second.nullable, enum_values=words)


def _union_keys(ctx: Context, union: ast.Union, columns: tuple[ir.Column, ...]) -> Iterator[ir.OrderKey]:
    ctx.columns = {column.name: column for column in columns}
    # A column with an error of its own is missing from `columns`, and is no second error where the order names it.
    projections = (item for item in union.parts[0].projections if isinstance(item, ast.Projection))
    written = {item.alias.text for item in projections if item.alias is not None}
    for key in union.order:
        # Of several mistakes in a key, the last is reported.
        parts = [*ast.walk_expression(key.expression)][::-1]
        variable = next((part for part in parts if isinstance(part, ast.PropertyAccess)), None) or next(
            (part for part in parts if isinstance(part, ast.Variable) and part.name not in ctx.params), None
        )
        if variable is not None:
            hint = "name the column with `as` in every block, and order by that name"
            ctx.report("T38", variable.span, "a union is ordered by its columns, not by variables", hint)
            continue
        unknown = next((part for part in parts if isinstance(part, ast.Alias) and part.name not in ctx.columns), None)
        if unknown is not None and (unknown.name in written or not columns):
            continue
        if unknown is not None:
            near = did_you_mean(unknown.name, ctx.columns, otherwise=f"it returns {_list(list(ctx.columns))}")
            ctx.report("T38", unknown.span, f"no column of the union is called `{unknown.name}`", near)
            continue
        typed = check_expression(ctx, Scope(), key.expression, Role.ORDER)
        if typed is None or typed.type is None:
            continue
        if typed.type.is_list or typed.type.dimension is not None:
            ctx.report("T33", key.expression.span, f"{describe(typed)}, which has no order", "order by a single value")
            continue
        yield ir.OrderKey(typed, key.direction is not None and key.direction.text == "desc")
