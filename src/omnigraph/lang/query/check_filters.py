"""Filters: comparisons, null tests, membership, text predicates, and their combinations.

Pure. A condition becomes a typed three-valued expression; a row passes only when it is true.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.lang.catalog import INTEGERS, NUMBERS, PropertyType, Scalar
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check_context import Context, Kind, Scope
from omnigraph.lang.query.check_expressions import (
    check_enum_words,
    date_hint,
    describe,
    element_type,
    is_compatible,
    resolve,
    resolve_property,
    resolve_variable,
    type_literal,
)

_DEFAULT_K = ir.Literal(60, ir.I64)
_DEFAULT_EDITS = ir.Literal(2, ir.I64)


def text_match(ctx: Context, scope: Scope, call: ast.Call) -> ir.TextMatch | None:
    """Check `search`, `match_text` or `fuzzy`."""
    assert call.function in ast.TEXT_PREDICATES
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
    return resolve_property(ctx, scope, target, code="T15" if function == "nearest" else "T6")


def _operand(ctx: Context, scope: Scope, value: ast.Expression, function: str, code: str) -> ir.Expr | None:
    if isinstance(value, ast.Alias) or (isinstance(value, ast.Call) and value.function != "now"):
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


def check_condition(ctx: Context, scope: Scope, condition: ast.Condition) -> ir.Expr | None:
    """Return the typed condition, or report its errors and return None."""
    if isinstance(condition, ast.Comparison):
        return _comparison(ctx, scope, condition)
    if isinstance(condition, ast.TextPredicate):
        return text_match(ctx, scope, condition.call)
    if isinstance(condition, ast.NullTest):
        return _null_test(ctx, scope, condition)
    if isinstance(condition, ast.Membership):
        return _membership(ctx, scope, condition)
    parts = [check_condition(ctx, scope, part) for part in condition.conditions]
    typed = tuple(part for part in parts if part is not None)
    if len(typed) != len(parts):
        return None
    return ir.Or(typed) if isinstance(condition, ast.AnyOf) else ir.And(typed)


def variables_of(condition: ast.Condition) -> Iterator[str]:
    """Yield the names of the variables and parameters that a condition mentions."""
    if isinstance(condition, ast.AnyOf | ast.AllOf):
        for part in condition.conditions:
            yield from variables_of(part)
    elif isinstance(condition, ast.Comparison):
        yield from _mentions(condition.left)
        yield from _mentions(condition.right)
    elif isinstance(condition, ast.TextPredicate):
        yield from _mentions(condition.call)
    else:
        yield from _mentions(condition.operand)


def _mentions(expression: ast.Expression) -> Iterator[str]:
    if isinstance(expression, ast.PropertyAccess):
        yield expression.variable.text
    elif isinstance(expression, ast.Variable):
        yield expression.name
    elif isinstance(expression, ast.Call):
        for argument in expression.arguments:
            yield from _mentions(argument)


def _comparison(ctx: Context, scope: Scope, comparison: ast.Comparison) -> ir.Expr | None:
    left = comparison.left
    if isinstance(left, ast.Call) and left.function in ast.TEXT_PREDICATES:
        return _text_comparison(ctx, scope, left, comparison)
    a = _scalar(ctx, scope, left)
    b = _scalar(ctx, scope, comparison.right)
    if a is None or b is None or a.type is None or b.type is None:
        return None
    if comparison.operator.text == "contains":
        return _contains(ctx, comparison, a, b, a.type, b.type)
    if comparison.operator.text == "starts_with":
        return _starts_with(ctx, comparison, a, b, a.type, b.type)
    for operand, side in ((a, left), (b, comparison.right)):
        assert operand.type is not None
        if operand.type.is_list or operand.type.scalar is Scalar.VECTOR:
            hint = "test for an item with `contains`" if operand.type.is_list else "rank with `nearest`"
            message = f"`{comparison.operator.text}` compares single values, but {describe(operand)}"
            ctx.report("T7", side.span, message, hint)
            return None
    if not is_compatible(a.type, b.type):
        _report_mismatch(ctx, comparison, a, b, a.type, b.type)
        return None
    is_known = check_enum_words(ctx, a, b, comparison.right) and check_enum_words(ctx, b, a, left)
    return ir.Compare(ir.CompareOp(comparison.operator.text), a, b) if is_known else None


def _text_comparison(ctx: Context, scope: Scope, call: ast.Call, comparison: ast.Comparison) -> ir.Expr | None:
    typed = text_match(ctx, scope, call)
    right = comparison.right
    if comparison.operator.text != "=" or not (isinstance(right, ast.Literal) and right.value is True):
        hint = f"write `{call.function}(…)` alone; for the opposite, `not {{ {call.function}(…) }}`"
        ctx.report("T7", comparison.operator.span, f"`{call.function}` can only be compared as `= true`", hint)
        return None
    return typed


def _scalar(ctx: Context, scope: Scope, expression: ast.Expression) -> ir.Expr | None:
    if isinstance(expression, ast.Alias):
        hint = f'write `"{expression.name}"` for a string or `${expression.name}` for a variable'
        if expression.name == "null":
            hint = "write `is null` or `is not null`"
        ctx.report("T7", expression.span, f"`{expression.name}` is not a value to compare with", hint)
        return None
    if isinstance(expression, ast.Call) and expression.function != "now":
        _report_call(ctx, expression)
        return None
    operand = resolve(ctx, scope, expression)
    if operand is None:
        return None
    if isinstance(operand, ir.NodeRef):
        hint = f"compare a property of it, as in `${operand.variable}.property`"
        ctx.report("T7", expression.span, f"{describe(operand)}, not a value to compare with", hint)
        return None
    if operand.type is not None and operand.type.scalar is Scalar.BLOB:
        ctx.report("T7", expression.span, f"{describe(operand)}, which cannot be compared")
        return None
    return operand


def _report_call(ctx: Context, call: ast.Call) -> None:
    if call.function in ast.AGGREGATES:
        message = f"`{call.function}` aggregates results and cannot be used in `match`"
        ctx.report("T7", call.span, message, "return it with an alias")
    elif call.function in ast.TEXT_PREDICATES:
        message = f"`{call.function}` is a condition, not a value"
        ctx.report("T33", call.span, message, f"write `{call.function}(…)` alone")
    else:
        message = f"`{call.function}` ranks results and cannot be used in `match`"
        ctx.report("T33", call.span, message, "put it in `order`, or return it with an alias")


def _contains(
    ctx: Context, comparison: ast.Comparison, a: ir.Expr, b: ir.Expr, left: PropertyType, right: PropertyType
) -> ir.Expr | None:
    if not left.is_list and not left.is_text:
        ctx.report("T7", comparison.left.span, f"`contains` looks into a list or a String, but {describe(a)}")
        return None
    if right.is_list or not is_compatible(element_type(left), right):
        expected = element_type(left) if left.is_list else "String"
        ctx.report("T7", comparison.right.span, f"`contains` looks for a {expected} here, but {describe(b)}")
        return None
    if left.is_list and not check_enum_words(ctx, a, b, comparison.right):
        return None
    return ir.Compare(ir.CompareOp.CONTAINS if left.is_list else ir.CompareOp.STRING_CONTAINS, a, b)


def _starts_with(
    ctx: Context, comparison: ast.Comparison, a: ir.Expr, b: ir.Expr, left: PropertyType, right: PropertyType
) -> ir.Expr | None:
    for operand, type_, side in ((a, left, comparison.left), (b, right, comparison.right)):
        if not type_.is_text:
            ctx.report("T7", side.span, f"`starts_with` compares Strings, but {describe(operand)}")
            return None
    return ir.Compare(ir.CompareOp.STARTS_WITH, a, b)


def _report_mismatch(
    ctx: Context, comparison: ast.Comparison, a: ir.Expr, b: ir.Expr, left: PropertyType, right: PropertyType
) -> None:
    hint = None
    for type_, other in ((left, b), (right, a)):
        if type_.scalar in (Scalar.DATE, Scalar.DATETIME) and isinstance(other, ir.Literal) and other.type.is_text:
            hint = date_hint(type_.scalar, other.value)
    message = f"{describe(a)} and {describe(b)}: they cannot be compared"
    ctx.report("T7", comparison.right.span, message, hint)


def _null_test(ctx: Context, scope: Scope, test: ast.NullTest) -> ir.Expr | None:
    operand = test.operand
    if isinstance(operand, ast.PropertyAccess | ast.Variable):
        typed = resolve(ctx, scope, operand)
        return None if typed is None else ir.IsNull(typed, test.negated)
    ctx.report("T35", operand.span, "`is null` asks about a property, a variable or a parameter")
    return None


def _membership(ctx: Context, scope: Scope, membership: ast.Membership) -> ir.Expr | None:
    operand = _scalar(ctx, scope, membership.operand)
    collection = _collection(ctx, scope, membership.collection)
    if operand is None or collection is None or operand.type is None:
        return None
    if operand.type.is_list or operand.type.scalar is Scalar.VECTOR:
        message = f"`in` looks for one value, but {describe(operand)}"
        ctx.report("T34", membership.operand.span, message, "test a list for one item with `contains`")
        return None
    # The empty list holds no value of any type, so it fits every operand.
    is_empty = isinstance(collection, ir.Literal) and collection.value == ()
    if not is_empty and not is_compatible(operand.type, element_type(collection.type)):
        message = f"{describe(operand)}, which a list of {element_type(collection.type)} cannot hold"
        ctx.report("T34", membership.collection.span, message)
        return None
    if not check_enum_words(ctx, operand, collection, membership.collection):
        return None
    return ir.In(operand, collection)


def _collection(
    ctx: Context, scope: Scope, collection: ast.ListLiteral | ast.Variable
) -> ir.Literal | ir.ParameterRef | None:
    if isinstance(collection, ast.ListLiteral):
        return type_literal(ctx, collection)
    typed = resolve_variable(ctx, scope, collection)
    if typed is None:
        return None
    if not isinstance(typed, ir.ParameterRef) or not typed.type.is_list:
        message = f"`in` needs a list, but {describe(typed)}"
        ctx.report("T34", collection.span, message, "declare a list parameter, such as `$names: [String]`")
        return None
    return typed
