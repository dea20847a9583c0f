"""Check expressions: operators, calls and conditions, by what they are and by the clause that they stand in.

Pure. A condition becomes a typed three-valued expression; a row passes only when it is true.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from omnigraph.lang.catalog import PropertyType
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check_calls import (
    NULL,
    is_null_literal,
    text_match,
    type_aggregate,
    type_call,
    type_case,
    type_cast,
)
from omnigraph.lang.query.check_context import Context, Kind, Scope, Variable
from omnigraph.lang.query.check_values import (
    check_enum_words,
    describe,
    element_type,
    has_property,
    is_compatible,
    is_path_call,
    literal_hint,
    resolve,
    resolve_entity_call,
)
from omnigraph.lang.query.functions import AGGREGATES, ENTITY_FUNCTIONS, RANKS, TEXT_PREDICATES
from omnigraph.lang.query.other_languages import hint_for_word

_TEXT_TESTS: Final = ("starts_with", "ends_with", "matches")


class Role(StrEnum):
    """What a query uses an expression for, which decides the calls that it may hold."""

    MATCH = "match"
    # Inside an expression of `match`, where a search cannot stand: it selects rows and has no value.
    VALUE = "value"
    RETURN = "return"
    ORDER = "order"
    HAVING = "having"
    ARGUMENT = "argument"


# Where a column can be read by its name.
_OF_COLUMNS: Final = (Role.ORDER, Role.HAVING)


def _inside(role: Role) -> Role:
    return Role.VALUE if role is Role.MATCH else role


def check_condition(ctx: Context, scope: Scope, condition: ast.Expression, role: Role = Role.MATCH) -> ir.Expr | None:
    """Return the typed condition, or report its errors and return None."""
    if isinstance(condition, ast.Call) and condition.function in TEXT_PREDICATES and role is Role.MATCH:
        return text_match(ctx, scope, condition)
    typed = check_expression(ctx, scope, condition, role)
    if typed is None or typed.type is None:
        return None
    if is_compatible(typed.type, ir.BOOL):
        return typed
    if is_null_literal(typed):
        return ir.Literal(None, ir.TRUTH)
    hint = "compare it with something, as in `… = …`"
    if isinstance(condition, ast.Call) and condition.function.isidentifier():
        ctx.report("Q000", condition.span, "this is a value, not a condition", hint)
    else:
        ctx.report("T7", condition.span, f"{describe(typed)}, not a condition", hint)
    return None


def check_expression(ctx: Context, scope: Scope, expression: ast.Expression, role: Role) -> ir.Expr | None:
    """Return an expression with its type, or report its errors and return None."""
    match expression:
        case ast.Comparison():
            return _comparison(ctx, scope, expression, role)
        case ast.NullTest():
            return _null_test(ctx, scope, expression, role)
        case ast.Membership():
            return _membership(ctx, scope, expression, role)
        case ast.AnyOf(conditions=conditions) | ast.AllOf(conditions=conditions):
            parts = [check_condition(ctx, scope, part, role) for part in conditions]
            typed = tuple(part for part in parts if part is not None)
            if len(typed) != len(parts):
                return None
            return ir.Or(typed) if isinstance(expression, ast.AnyOf) else ir.And(typed)
        case ast.Inverse(condition=condition):
            inner = check_condition(ctx, scope, condition, role)
            return None if inner is None else ir.negate(inner)
        case ast.Alias():
            return _alias(ctx, scope, expression, role)
        case ast.Variable(name=name, span=span) if ctx.is_stage and role in _OF_COLUMNS and name in ctx.columns:
            return _alias(ctx, scope, ast.Alias(name, span), role)
        case ast.Case():
            return _case(ctx, scope, expression, role)
        case ast.Quantifier():
            return _quantifier(ctx, scope, expression, _inside(role))
        case ast.Subquery():
            # Patterns hold expressions, and expressions patterns.
            from omnigraph.lang.query.check_subqueries import check_subquery

            return check_subquery(ctx, scope, expression, is_having=role is Role.HAVING)
        case ast.Conversion(operand=operand):
            value = check_expression(ctx, scope, operand, role)
            return None if value is None else type_cast(ctx, value, expression)
        case ast.Call() if expression.function != "now":
            return _call(ctx, scope, expression, role)
        case ast.Element(collection=collection, position=position):
            return _apply(ctx, scope, "element", (collection, position), expression, role)
    return resolve(ctx, scope, expression)


def _call(ctx: Context, scope: Scope, call: ast.Call, role: Role) -> ir.Expr | None:
    if call.function in AGGREGATES and role in (Role.RETURN, Role.HAVING):
        if not call.arguments:
            return ir.Aggregate(call.function, None, ir.I64)
        argument = check_expression(ctx, scope, call.arguments[0], Role.ARGUMENT)
        return None if argument is None else type_aggregate(ctx, call, argument)
    if call.function in AGGREGATES.keys() | RANKS | TEXT_PREDICATES:
        _report_call(ctx, call, role)
        return None
    if call.function in ENTITY_FUNCTIONS or is_path_call(scope, call):
        return resolve_entity_call(ctx, scope, call)
    return _apply(ctx, scope, call.function, call.arguments, call, role)


def _apply(
    ctx: Context,
    scope: Scope,
    name: str,
    arguments: tuple[ast.Expression, ...],
    expression: ast.Expression,
    role: Role,
) -> ir.Expr | None:
    typed = [check_expression(ctx, scope, argument, _inside(role)) for argument in arguments]
    known = [item for item in typed if item is not None and item.type is not None]
    return type_call(ctx, name, known, arguments, expression.span) if len(known) == len(typed) else None


def _case(ctx: Context, scope: Scope, case: ast.Case, role: Role) -> ir.Expr | None:
    branches: list[tuple[ir.Expr, ir.Expr]] = []
    role = _inside(role)
    for when, then in case.branches:
        condition = check_condition(ctx, scope, when, role)
        value = check_expression(ctx, scope, then, role)
        if condition is not None and value is not None:
            branches.append((condition, value))
    otherwise = NULL if case.otherwise is None else check_expression(ctx, scope, case.otherwise, role)
    if otherwise is None or len(branches) < len(case.branches):
        return None
    return type_case(ctx, branches, otherwise, case)


def _quantifier(ctx: Context, scope: Scope, quantifier: ast.Quantifier, role: Role) -> ir.Expr | None:
    name = quantifier.item.text
    if name in scope or name in ctx.params:
        return ctx.report(
            "T37", quantifier.item.span, f"`${name}` is already taken and cannot name an item", "use an unused name"
        )
    collection = _collection(ctx, scope, quantifier.collection, role)
    if collection is None or collection.type is None:
        return None
    inner = Scope(scope)
    inner[name] = Variable(name, Kind.ITEM, value_type=element_type(collection.type))
    condition = check_condition(ctx, inner, quantifier.condition, role)
    return None if condition is None else ir.Quantifier(quantifier.function, f"${name}", collection, condition)


def _alias(ctx: Context, scope: Scope, alias: ast.Alias, role: Role) -> ir.Expr | None:
    if alias.name == "null":
        return NULL
    if alias.name in ast.SYSTEM_FIELDS:
        message = f"`{alias.name}` is a field of a node or an edge, and does not stand alone here"
        return ctx.report("T6", alias.span, message, f"write it behind a variable: `$v.{alias.name}`")
    column = ctx.columns.get(alias.name) if role in _OF_COLUMNS else None
    if column is not None:
        return column.expression if role is Role.HAVING else ir.ColumnRef(column.name, column.type)
    if role in _OF_COLUMNS:
        hint = did_you_mean(alias.name, ctx.columns, otherwise="return it under that name")
        ctx.report("T33", alias.span, f"no column is called `{alias.name}`", hint)
    elif role in (Role.MATCH, Role.VALUE):
        owner = next((item.name for item in scope.values() if has_property(ctx, item, alias.name)), None)
        hint = hint_for_word(alias.name) or f'write `"{alias.name}"` for a string or `${alias.name}` for a variable'
        if owner is not None:
            hint = f'write `${owner}.{alias.name}` for the property, or `"{alias.name}"` for a string'
        ctx.report("T7", alias.span, f"`{alias.name}` is not a value to compare with", hint)
    elif role is Role.ARGUMENT:
        ctx.report("T8", alias.span, f"an aggregate takes values of the pattern, not `{alias.name}`")
    else:
        message = f"`{alias.name}` is not a value: a column cannot refer to another column"
        ctx.report("T33", alias.span, message, f'write `$v.{alias.name}`, or `"{alias.name}"`')
    return None


def _report_call(ctx: Context, call: ast.Call, role: Role) -> None:
    name = call.function
    if role is Role.ARGUMENT:
        ctx.report("T8", call.span, f"an aggregate takes values of the pattern, not `{name}(…)`")
    elif role is Role.ORDER:
        hint = "return it with an alias and order by that" if name in AGGREGATES else "put it in `match`"
        ctx.report("T33", call.span, f"`{name}` cannot be used in `order`", hint)
    elif name in AGGREGATES:
        ctx.report(
            "T7", call.span, f"`{name}` aggregates results and cannot be used in `match`", "return it with an alias"
        )
    elif name in TEXT_PREDICATES:
        if role is Role.RETURN:
            message = f"`{name}` is a condition and cannot be returned"
            ctx.report("T33", call.span, message, "put it in `match`; to return a score, use `bm25`")
        else:
            ctx.report("T33", call.span, f"`{name}` is a condition, not a value", f"write `{name}(…)` alone")
    elif role is Role.RETURN:
        ctx.report("T33", call.span, f"`{name}` ranks results and is a column of its own", "return it with an alias")
    else:
        message = f"`{name}` ranks results and cannot be used in `match`"
        ctx.report("T33", call.span, message, "put it in `order`, or return it with an alias")


def variables_of(expression: ast.Expression) -> Iterator[str]:
    """Yield the names of the variables and parameters that an expression mentions."""
    for part in ast.walk_expression(expression):
        if isinstance(part, ast.PropertyAccess):
            yield part.variable.text
        elif isinstance(part, ast.Variable):
            yield part.name
        elif isinstance(part, ast.Subquery):
            yield from ast.names_bound_in(part.clauses)


# -- comparisons -----------------------------------------------------------------------------------------------


def _comparison(ctx: Context, scope: Scope, comparison: ast.Comparison, role: Role) -> ir.Expr | None:
    left = comparison.left
    if isinstance(left, ast.Call) and left.function in TEXT_PREDICATES and role is Role.MATCH:
        return _text_comparison(ctx, scope, left, comparison)
    a = _operand(ctx, scope, left, _inside(role))
    b = _operand(ctx, scope, comparison.right, _inside(role))
    if a is None or b is None or a.type is None or b.type is None:
        return None
    operator = comparison.operator.text
    if isinstance(a, ir.NodeRef) or isinstance(b, ir.NodeRef):
        return _compare_nodes(ctx, comparison, a, b)
    if operator == "contains":
        return _contains(ctx, comparison, a, b, a.type, b.type)
    if operator in _TEXT_TESTS:
        return _test_text(ctx, comparison, a, b, a.type, b.type)
    for operand, side in ((a, left), (b, comparison.right)):
        assert operand.type is not None
        if operand.type.is_array:
            hint = "test for an item with `contains`" if operand.type.is_list else "rank with `nearest`"
            return ctx.report("T7", side.span, f"`{operator}` compares single values, but {describe(operand)}", hint)
    if not is_compatible(a.type, b.type):
        message = f"{describe(a)} and {describe(b)}: they cannot be compared"
        return ctx.report("T7", comparison.right.span, message, literal_hint(a.type, b) or literal_hint(b.type, a))
    is_known = check_enum_words(ctx, a, b, comparison.right) and check_enum_words(ctx, b, a, left)
    return ir.Compare(ir.CompareOp(operator), a, b) if is_known else None


def _compare_nodes(ctx: Context, comparison: ast.Comparison, a: ir.Expr, b: ir.Expr) -> ir.Expr | None:
    """Check `=` or `!=` of two nodes of one type; any other comparison with a node is T7."""
    is_pair = isinstance(a, ir.NodeRef) and isinstance(b, ir.NodeRef) and a.node_type == b.node_type
    if is_pair and comparison.operator.text in ("=", "!="):
        return ir.Compare(ir.CompareOp(comparison.operator.text), a, b)
    node, side = (a, comparison.left) if isinstance(a, ir.NodeRef) else (b, comparison.right)
    assert isinstance(node, ir.NodeRef)
    return _reject_node(ctx, node, side)


def _reject_node(ctx: Context, node: ir.NodeRef, written: ast.Expression) -> ir.Expr | None:
    hint = f"compare a property of it, as in `${node.variable}.property`"
    return ctx.report("T7", written.span, f"{describe(node)}, not a value to compare with", hint)


def _text_comparison(ctx: Context, scope: Scope, call: ast.Call, comparison: ast.Comparison) -> ir.Expr | None:
    typed = text_match(ctx, scope, call)
    right = comparison.right
    if comparison.operator.text != "=" or not (isinstance(right, ast.Literal) and right.value is True):
        hint = f"write `{call.function}(…)` alone; for the opposite, `not {{ {call.function}(…) }}`"
        return ctx.report("T7", comparison.operator.span, f"`{call.function}` can only be compared as `= true`", hint)
    return typed


def _operand(ctx: Context, scope: Scope, expression: ast.Expression, role: Role) -> ir.Expr | None:
    """Return a side of a comparison: a value other than null and Blobs."""
    if isinstance(expression, ast.Alias) and expression.name == "null":
        hint = "write `is null` or `is not null`"
        return ctx.report("T7", expression.span, "`null` is not a value to compare with", hint)
    operand = check_expression(ctx, scope, expression, role)
    if operand is not None and operand.type is not None and operand.type.is_blob:
        return ctx.report("T7", expression.span, f"{describe(operand)}, which cannot be compared")
    return operand


def _contains(
    ctx: Context, comparison: ast.Comparison, a: ir.Expr, b: ir.Expr, left: PropertyType, right: PropertyType
) -> ir.Expr | None:
    if not left.is_list and not left.is_text:
        return ctx.report("T7", comparison.left.span, f"`contains` looks into a list or a String, but {describe(a)}")
    if right.is_list or not is_compatible(element_type(left), right):
        expected = element_type(left) if left.is_list else "String"
        return ctx.report("T7", comparison.right.span, f"`contains` looks for a {expected} here, but {describe(b)}")
    if left.is_list and not check_enum_words(ctx, a, b, comparison.right):
        return None
    return ir.Compare(ir.CompareOp.CONTAINS if left.is_list else ir.CompareOp.STRING_CONTAINS, a, b)


def _test_text(
    ctx: Context, comparison: ast.Comparison, a: ir.Expr, b: ir.Expr, left: PropertyType, right: PropertyType
) -> ir.Expr | None:
    operator = comparison.operator.text
    for operand, type_, side in ((a, left, comparison.left), (b, right, comparison.right)):
        if not type_.is_text:
            return ctx.report("T7", side.span, f"`{operator}` compares Strings, but {describe(operand)}")
    if operator == "matches" and not isinstance(b, ir.Literal | ir.ParameterRef):
        message = "`matches` takes its pattern as a string or a parameter"
        return ctx.report("T7", comparison.right.span, message, 'write `$v.name matches "^a.*z$"`')
    return ir.Compare(ir.CompareOp(operator), a, b)


# -- null tests and membership ---------------------------------------------------------------------------------


def _null_test(ctx: Context, scope: Scope, test: ast.NullTest, role: Role) -> ir.Expr | None:
    operand = test.operand
    if isinstance(operand, ast.Literal | ast.ListLiteral) or (
        isinstance(operand, ast.Call) and operand.function == "now"
    ):
        return ctx.report("T35", operand.span, "`is null` asks about a property, a variable or a parameter")
    typed = check_expression(ctx, scope, operand, _inside(role))
    return None if typed is None else ir.IsNull(typed, test.negated)


def _membership(ctx: Context, scope: Scope, membership: ast.Membership, role: Role) -> ir.Expr | None:
    operand = _operand(ctx, scope, membership.operand, _inside(role))
    collection = _collection(ctx, scope, membership.collection, role)
    if operand is None or collection is None or operand.type is None or collection.type is None:
        return None
    if isinstance(operand, ir.NodeRef):
        return _reject_node(ctx, operand, membership.operand)
    if operand.type.is_array:
        message = f"`in` looks for one value, but {describe(operand)}"
        return ctx.report("T34", membership.operand.span, message, "test a list for one item with `contains`")
    # The empty list holds no value of any type, so it fits every operand.
    is_empty = isinstance(collection, ir.Literal) and collection.value == ()
    if not is_empty and not is_compatible(operand.type, element_type(collection.type)):
        message = f"{describe(operand)}, which a list of {element_type(collection.type)} cannot hold"
        return ctx.report("T34", membership.collection.span, message)
    if not check_enum_words(ctx, operand, collection, membership.collection):
        return None
    if isinstance(collection, ir.Literal | ir.ParameterRef):
        test: ir.Expr = ir.In(operand, collection)
    else:
        test = ir.Compare(ir.CompareOp.CONTAINS, collection, operand)
    return ir.negate(test) if membership.negated else test


def _collection(ctx: Context, scope: Scope, collection: ast.Expression, role: Role) -> ir.Expr | None:
    typed = check_expression(ctx, scope, collection, role)
    if typed is None or typed.type is None:
        return None
    if not typed.type.is_list:
        message = f"`in` needs a list, but {describe(typed)}"
        return ctx.report("T34", collection.span, message, "declare a list parameter, such as `$names: [String]`")
    return typed
