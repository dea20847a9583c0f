"""Whole entities in `return`: `$v.*` and `$v { a, b }` as one column per property.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.lang.catalog import Scalar
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.lang.query import ast
from omnigraph.lang.query.check_context import Context, Kind, Scope

# Large values, which a caller asks for by name.
_LEFT_OUT = (Scalar.BLOB, Scalar.VECTOR)


def expand_entities(
    ctx: Context, scope: Scope, projections: tuple[ast.Projection | ast.EntityProjection, ...]
) -> tuple[ast.Projection, ...]:
    """Return the projections with each entity replaced by its properties; `$v.*` leaves out Blobs and vectors."""
    expanded: list[ast.Projection] = []
    for projection in projections:
        if isinstance(projection, ast.Projection):
            expanded.append(projection)
        else:
            expanded.extend(_expand(ctx, scope, projection))
    return tuple(expanded)


def _expand(ctx: Context, scope: Scope, entity: ast.EntityProjection) -> Iterator[ast.Projection]:
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
        shown = [item.name for item in properties if item.type.scalar not in _LEFT_OUT]
        if not shown:
            message = f"`{bound.type_name}` has no properties that `.*` could show"
            ctx.report("T6", entity.span, message, "name the properties to return, or leave it out")
        names = tuple(ast.Name(name, entity.span) for name in shown)
    for name in names:
        access = ast.PropertyAccess(variable, name, entity.span if entity.properties is None else name.span)
        yield ast.Projection(access, None)
