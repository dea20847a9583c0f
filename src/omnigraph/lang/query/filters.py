"""Filters: comparisons, null tests, membership, text predicates, and their combinations.

Pure. A condition becomes a typed three-valued expression; a row passes only when it is true.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.context import Context, Scope
from omnigraph.lang.query.enums import check_enum_words
from omnigraph.lang.query.expressions import describe, resolve, resolve_variable
from omnigraph.lang.query.search import text_match
from omnigraph.lang.query.values import date_hint, element_type, is_compatible, type_literal
from omnigraph.lang.query.words import AGGREGATES, TEXT_PREDICATES
from omnigraph.lang.types import PropertyType, Scalar


def check_condition(ctx: Context, scope: Scope, condition: ast.Condition) -> ir.Expr | None:
    """Type a condition, or report what is wrong with it and return None."""
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
    if isinstance(left, ast.Call) and left.function in TEXT_PREDICATES:
        return _text_comparison(ctx, scope, left, comparison)
    a = _scalar(ctx, scope, left)
    b = _scalar(ctx, scope, comparison.right)
    if a is None or b is None or a.type is None or b.type is None:
        return None
    if comparison.operator.text == "contains":
        return _contains(ctx, comparison, a, b, a.type, b.type)
    if comparison.operator.text == "starts_with":
        return _starts_with(ctx, comparison, a, b, a.type, b.type)
    for operand, place in ((a, left), (b, comparison.right)):
        assert operand.type is not None
        if operand.type.is_list or operand.type.scalar is Scalar.VECTOR:
            hint = "test for an item with `contains`" if operand.type.is_list else "rank with `nearest`"
            message = f"`{comparison.operator.text}` compares single values, but {describe(operand)}"
            ctx.report("T7", place.span, message, hint)
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
    if call.function in AGGREGATES:
        message = f"`{call.function}` aggregates whole results and cannot stand in `match`"
        ctx.report("T7", call.span, message, "return it with an alias")
    elif call.function in TEXT_PREDICATES:
        message = f"`{call.function}` is a condition of its own, not a value"
        ctx.report("T33", call.span, message, f"write `{call.function}(…)` alone")
    else:
        message = f"`{call.function}` ranks results and cannot stand in `match`"
        ctx.report("T33", call.span, message, "put it in `order`, or return it with an alias")


def _contains(
    ctx: Context, at: ast.Comparison, a: ir.Expr, b: ir.Expr, left: PropertyType, right: PropertyType
) -> ir.Expr | None:
    if not left.is_list and not left.is_text:
        ctx.report("T7", at.left.span, f"`contains` looks into a list or a String, but {describe(a)}")
        return None
    if right.is_list or not is_compatible(element_type(left), right):
        wanted = element_type(left) if left.is_list else "String"
        ctx.report("T7", at.right.span, f"`contains` looks for a {wanted} here, but {describe(b)}")
        return None
    if left.is_list and not check_enum_words(ctx, a, b, at.right):
        return None
    return ir.Compare(ir.CompareOp.CONTAINS if left.is_list else ir.CompareOp.STRING_CONTAINS, a, b)


def _starts_with(
    ctx: Context, at: ast.Comparison, a: ir.Expr, b: ir.Expr, left: PropertyType, right: PropertyType
) -> ir.Expr | None:
    for operand, type_, place in ((a, left, at.left), (b, right, at.right)):
        if not type_.is_text:
            ctx.report("T7", place.span, f"`starts_with` compares Strings, but {describe(operand)}")
            return None
    return ir.Compare(ir.CompareOp.STARTS_WITH, a, b)


def _report_mismatch(
    ctx: Context, at: ast.Comparison, a: ir.Expr, b: ir.Expr, left: PropertyType, right: PropertyType
) -> None:
    hint = None
    for type_, other in ((left, b), (right, a)):
        if type_.scalar in (Scalar.DATE, Scalar.DATETIME) and isinstance(other, ir.Literal) and other.type.is_text:
            hint = date_hint(type_.scalar, other.value)
    message = f"{describe(a)} and {describe(b)}: they cannot be compared"
    ctx.report("T7", at.right.span, message, hint)


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
