"""Check searches: the text predicates `search`, `match_text` and `fuzzy`, and the rankings `nearest`, `bm25` and `rrf`.

Pure.
"""

from __future__ import annotations

from omnigraph.lang.catalog import INTEGERS, NUMBERS, PropertyType, Scalar
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check_context import Context, Kind, Scope
from omnigraph.lang.query.check_values import describe, resolve, resolve_property
from omnigraph.lang.query.functions import TEXT_PREDICATES

_DEFAULT_K = ir.Literal(60, ir.I64)
_DEFAULT_EDITS = ir.Literal(2, ir.I64)


def text_match(ctx: Context, scope: Scope, call: ast.Call) -> ir.TextMatch | None:
    """Check `search`, `match_text` or `fuzzy`."""
    assert call.function in TEXT_PREDICATES
    code = "T20" if call.function == "match_text" else "T19"
    parts = _field_and_query(ctx, scope, call, code)
    edits: ir.Expr | None = _DEFAULT_EDITS if call.function == "fuzzy" else None
    if len(call.arguments) == 3:
        edits = _integer(ctx, scope, call.arguments[2], code, "the number of edits")
        if edits is None:
            return None
    return None if parts is None else ir.TextMatch(call.function, *parts, edits)


def rank(ctx: Context, scope: Scope, call: ast.Call) -> ir.Rank | None:
    """Check `nearest`, `bm25` or `rrf`."""
    if call.function == "rrf":
        return _rrf(ctx, scope, call)
    if call.function == "nearest":
        return _nearest(ctx, scope, call)
    parts = _field_and_query(ctx, scope, call, "T20")
    return None if parts is None else ir.Bm25(*parts)


def _field_and_query(ctx: Context, scope: Scope, call: ast.Call, code: str) -> tuple[ir.PropertyRef, ir.Expr] | None:
    target, text = call.arguments[0], call.arguments[1]
    field = _field(ctx, scope, target, call.function, code)
    if field is not None and not field.type.is_text:
        ctx.report(code, target.span, f"`{call.function}` reads a String, but {describe(field)}")
        field = None
    query = _operand(ctx, scope, text, call.function, code)
    if query is not None and not (query.type is not None and query.type.is_text and _is_constant(query)):
        hint = "search for a string or a String parameter"
        ctx.report(code, text.span, f"`{call.function}` searches for a String, but {describe(query)}", hint)
        query = None
    return None if field is None or query is None else (field, query)


def _field(ctx: Context, scope: Scope, target: ast.Expression, function: str, code: str) -> ir.PropertyRef | None:
    if not isinstance(target, ast.PropertyAccess):
        ctx.report(code, target.span, f"`{function}` needs a property of a node here", "write it as `$v.property`")
        return None
    variable = scope.get(target.variable.text)
    if variable is not None and variable.kind is Kind.EDGE:
        message = f"`{function}` searches nodes, but `${variable.name}` is an edge"
        ctx.report("T23", target.variable.span, message)
        return None
    if variable is not None and variable.type_name is not None and ir.is_union(variable.type_name):
        message = f"`{function}` searches one type, but `${variable.name}` is a `{variable.type_name}`"
        ctx.report(code, target.variable.span, message, "bind one of the types")
        return None
    if target.property.text in ast.SYSTEM_FIELDS:
        message = f"`{function}` needs a property, but `{target.property.text}` is a system field"
        ctx.report(code, target.property.span, message, "compare it, as in `$v.@id = …`")
        return None
    return resolve_property(ctx, scope, target, code="T15" if function == "nearest" else "T6")


def _operand(ctx: Context, scope: Scope, value: ast.Expression, function: str, code: str) -> ir.Expr | None:
    is_plain = isinstance(value, ast.Literal | ast.ListLiteral | ast.Variable | ast.PropertyAccess)
    if not is_plain and not (isinstance(value, ast.Call) and value.function == "now"):
        ctx.report(code, value.span, f"`{function}` takes a literal or a parameter here")
        return None
    return resolve(ctx, scope, value)


def _is_constant(expression: ir.Expr) -> bool:
    return isinstance(expression, ir.Literal | ir.ParameterRef)


def _integer(ctx: Context, scope: Scope, value: ast.Expression, code: str, noun: str) -> ir.Expr | None:
    expression = _operand(ctx, scope, value, noun, code)
    if expression is None:
        return None
    type_ = expression.type
    if not _is_constant(expression) or type_ is None or type_.scalar not in INTEGERS or type_.is_list:
        ctx.report(code, value.span, f"{noun} must be an integer, but {describe(expression)}")
        return None
    return expression


def _nearest(ctx: Context, scope: Scope, call: ast.Call) -> ir.Nearest | None:
    target, value = call.arguments[0], call.arguments[1]
    field = _field(ctx, scope, target, "nearest", "T15")
    if field is not None and field.type.scalar is not Scalar.VECTOR:
        ctx.report("T15", target.span, f"`nearest` reads a Vector, but {describe(field)}")
        field = None
    query = _operand(ctx, scope, value, "nearest", "T15")
    if field is None or query is None:
        return None
    if not _is_vector_query(query, field.type):
        message = f"`nearest` compares with a {field.type} or a String, but {_describe_vector(query)}"
        ctx.report("T15", value.span, message)
        return None
    embed = ctx.catalog.nodes[field.owner].properties[field.property].embed
    return ir.Nearest(field, query, embed.model if embed else None)


def _is_vector_query(query: ir.Expr, field: PropertyType) -> bool:
    type_ = query.type
    if type_ is None or not _is_constant(query):
        return False
    if isinstance(query, ir.Literal) and type_.is_list and type_.scalar in NUMBERS:
        assert isinstance(query.value, tuple)
        return len(query.value) == field.dimension
    return type_.is_text or (type_.scalar is Scalar.VECTOR and type_.dimension == field.dimension)


def _describe_vector(query: ir.Expr) -> str:
    if isinstance(query, ir.Literal) and isinstance(query.value, tuple):
        return f"this list has {len(query.value)} items of {query.type.scalar.value}"
    return describe(query)


def _rrf(ctx: Context, scope: Scope, call: ast.Call) -> ir.Rrf | None:
    arms: list[ir.Nearest | ir.Bm25] = []
    for argument in call.arguments[:2]:
        if not isinstance(argument, ast.Call) or argument.function not in ("nearest", "bm25"):
            ctx.report("T21", argument.span, "`rrf` fuses two calls of `nearest` or `bm25`")
            continue
        arm = rank(ctx, scope, argument)
        if isinstance(arm, ir.Nearest | ir.Bm25):
            arms.append(arm)
    k: ir.Expr | None = _DEFAULT_K
    if len(call.arguments) == 3:
        k = _integer(ctx, scope, call.arguments[2], "T21", "`k` of `rrf`")
        if isinstance(k, ir.Literal) and isinstance(k.value, int) and k.value <= 0:
            ctx.report("T21", call.arguments[2].span, "`k` of `rrf` must be greater than zero", "leave it out for 60")
            return None
    if len(arms) < 2 or k is None:
        return None
    first, second = arms
    if first.field.variable != second.field.variable:
        message = (
            f"`rrf` ranks one variable, but its calls rank `${first.field.variable}` and `${second.field.variable}`"
        )
        ctx.report("T21", call.arguments[1].span, message, "rank both by properties of one variable")
        return None
    return ir.Rrf(first, second, k)
