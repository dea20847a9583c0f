"""Expressions: variables, properties, literals and parameters, resolved and typed.

Pure. Returns None after reporting, so that callers stay silent about what is already said.
"""

from __future__ import annotations

from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.context import Context, Kind, Scope, Variable, with_null
from omnigraph.lang.query.values import type_literal
from omnigraph.lang.query.words import suggestion


def resolve(ctx: Context, scope: Scope, expression: ast.Expression) -> ir.Expr | None:
    """Resolve anything but an alias or a call other than `now()`; those depend on where they stand."""
    if isinstance(expression, ast.PropertyAccess):
        return resolve_property(ctx, scope, expression, code="T6")
    if isinstance(expression, ast.Variable):
        return resolve_variable(ctx, scope, expression)
    if isinstance(expression, ast.Literal | ast.ListLiteral):
        return type_literal(ctx, expression)
    assert isinstance(expression, ast.Call)
    assert expression.function == "now"
    return ir.Now()


def resolve_variable(ctx: Context, scope: Scope, variable: ast.Variable) -> ir.Expr | None:
    """Resolve a bare `$x`: a parameter first, then a node or a number of hops."""
    parameter = ctx.params.get(variable.name)
    if parameter is not None:
        return ir.ParameterRef(parameter.name, parameter.type)
    found = scope.get(variable.name)
    if found is None:
        hint = _variable_hint(ctx, scope, variable.name)
        ctx.report("T26", variable.span, f"`${variable.name}` is neither bound here nor a parameter", hint)
        return None
    if found.kind is Kind.EDGE:
        ctx.report(
            "T23", variable.span, f"`${variable.name}` is an edge and has no value of its own", _edge_hint(ctx, found)
        )
        return None
    if found.kind is Kind.BROKEN:
        return None
    if found.kind is Kind.HOPS:
        return ir.HopsRef(found.name, with_null(ir.I64, found.nullable))
    assert found.type_name is not None
    return ir.NodeRef(found.name, found.type_name, with_null(ir.ID, found.nullable))


def resolve_property(ctx: Context, scope: Scope, access: ast.PropertyAccess, *, code: str) -> ir.PropertyRef | None:
    """Resolve `$v.p`, reporting an unbound variable or an unknown property under the given code."""
    variable, name = access.variable, access.property
    found = scope.get(variable.text)
    if found is None:
        if variable.text in ctx.params:
            message = f"`${variable.text}` is a parameter and has no properties"
            ctx.report(code, variable.span, message, "use it without `.`")
        else:
            message = f"`${variable.text}` is not bound here"
            ctx.report(code, variable.span, message, _variable_hint(ctx, scope, variable.text))
        return None
    if found.kind is Kind.BROKEN:
        return None
    if found.kind is Kind.HOPS:
        ctx.report(code, name.span, f"`${variable.text}` is a number of hops and has no properties")
        return None
    properties = ctx.properties(found)
    property_ = properties.get(name.text)
    assert found.type_name is not None
    if property_ is None:
        hint: str | None = suggestion(name.text, properties, otherwise=_known_hint(found.type_name, list(properties)))
        if name.text == "id" and found.kind is Kind.NODE:
            hint = f"return `${variable.text}` to get the id"
        ctx.report(code, name.span, f"`{found.type_name}` has no property `{name.text}`", hint)
        return None
    type_ = with_null(property_.type, found.nullable)
    return ir.PropertyRef(variable.text, found.kind.value, found.type_name, name.text, type_)


def describe(expression: ir.Expr) -> str:
    """Name a typed expression in a message."""
    if isinstance(expression, ir.NodeRef):
        return f"`${expression.variable}` is a node"
    if isinstance(expression, ir.PropertyRef):
        return f"`${expression.variable}.{expression.property}` is {expression.type}"
    if isinstance(expression, ir.ParameterRef):
        return f"`${expression.name}` is {expression.type}"
    if isinstance(expression, ir.HopsRef):
        return f"`${expression.variable}` is {expression.type}"
    return f"the value is {expression.type}"


def _variable_hint(ctx: Context, scope: Scope, name: str) -> str:
    if name == "_":
        return "`$_` matches anything and binds nothing; give the variable a name"
    known = [*scope, *ctx.params]
    otherwise = f"bind it before it is used, as in `${name}: SomeType`"
    return suggestion(name, known, prefix="$") or otherwise


def _edge_hint(ctx: Context, edge: Variable) -> str | None:
    first = next(iter(ctx.properties(edge)), None)
    return f"use one of its properties, such as `${edge.name}.{first}`" if first else None


def _known_hint(owner: str, names: list[str]) -> str:
    if not names:
        return f"`{owner}` has no properties"
    shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    return f"`{owner}` has {shown}"
