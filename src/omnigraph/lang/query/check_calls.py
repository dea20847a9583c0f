"""Check calls against the table of functions: operators, `case`, `cast`, aggregates, and text and vector searches.

Pure. Arguments come in typed; a problem is reported once and gives None.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from omnigraph.lang.catalog import TEXT, PropertyType
from omnigraph.lang.diagnostic import Span, did_you_mean, join_words
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check_context import Context, Kind, Scope
from omnigraph.lang.query.check_values import describe, resolve, resolve_property
from omnigraph.lang.query.functions import (
    AGGREGATES,
    DATE_UNITS,
    FUNCTIONS,
    TEXT_PREDICATES,
    TIME_UNITS,
    Signature,
    common_scalar,
    fits_word,
    retype,
)
from omnigraph.lang.scalars import FLOATS, INTEGERS, NUMBERS, PLAIN, TIMES, Scalar, cast_targets
from omnigraph.limits import RANK_WINDOW_DEFAULT

_GROUP_HINT = "return `$v.property` or `$v`, or aggregate it"


def type_aggregate(ctx: Context, call: ast.Call, argument: ir.Expr) -> ir.Expr | None:
    """Return an aggregate of a typed argument, or report a type that it does not take (T8)."""
    function, written = AGGREGATES[call.function], call.arguments[0]
    if argument.type is None or reject_blob(ctx, written, argument, "aggregated"):
        return None
    result = function.resolve(argument.type)
    if result is None:
        return ctx.report("T8", written.span, f"`{function.name}` {function.takes}, but {describe(argument)}")
    fraction = None
    if len(call.arguments) > 1 and (fraction := _check_fraction(ctx, call)) is None:
        return None
    return ir.Aggregate(function.name, argument, result, call.is_distinct, fraction)


def _check_fraction(ctx: Context, call: ast.Call) -> float | None:
    """Return the fraction that is the second argument of an aggregate, or report what it is instead (T8)."""
    written = call.arguments[1]
    value = written.value if isinstance(written, ast.Literal) else None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    message = f"`{call.function}` takes a number between 0 and 1 here"
    return ctx.report("T8", written.span, message, "write 0.5 for the median")


def reject_blob(ctx: Context, expression: ast.Expression, typed: ir.Expr, usage: str) -> bool:
    """Report a Blob where values are shown or compared (T24)."""
    if typed.type is None or not typed.type.is_blob:
        return False
    ctx.report(
        "T24", expression.span, f"{describe(typed)}, which cannot be {usage}", "read Blobs one by one through the API"
    )
    return True


REFERENCES: Final = ir.PropertyRef | ir.NodeRef | ir.HopsRef | ir.TypeRef | ir.PathRef | ir.ValueRef | ir.VariableRef


def is_group_key(expression: ir.Expr) -> bool:
    """Return True if a column can be a group key: it reads a variable, and is no score."""
    if isinstance(expression, ir.Nearest | ir.Bm25 | ir.Rrf):
        return False
    is_reference = isinstance(expression, REFERENCES | ir.ColumnRef)
    return is_reference or any(is_group_key(part) for part in ir.children_of(expression))


def check_groups(ctx: Context, written: ast.Expression, typed: ir.Expr, keys: Collection[ir.Expr]) -> bool:
    """Return True if a column can stand in a grouped result, or report T9."""
    if not ir.has_aggregate(typed):
        if is_group_key(typed):
            return True
        message = "beside an aggregate, a column must be a variable or a property of one"
        ctx.report("T9", written.span, message, _GROUP_HINT)
        return False
    loose = find_ungrouped(typed, keys)
    if loose is None:
        return True
    message = f"{describe(loose)}; beside an aggregate, only group keys have one value"
    ctx.report("T9", written.span, message, "return it as a column of its own, or aggregate it")
    return False


def find_ungrouped(expression: ir.Expr, keys: Collection[ir.Expr]) -> ir.Expr | None:
    """Return what a column reads of single rows, outside aggregates and group keys."""
    if isinstance(expression, ir.Aggregate) or expression in keys:
        return None
    if isinstance(expression, REFERENCES):
        return expression
    return next(
        (loose for part in ir.children_of(expression) if (loose := find_ungrouped(part, keys)) is not None), None
    )


_DEFAULT_K = ir.Literal(60, ir.I64)
_DEFAULT_WINDOW = ir.Literal(RANK_WINDOW_DEFAULT, ir.I64)
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
    text = call.arguments[1]
    field = _field(ctx, scope, call, code)
    query = _operand(ctx, scope, text, call.function, code)
    if query is not None and not (query.type is not None and query.type.is_text and _is_constant(query)):
        hint = "search for a string or a String parameter"
        ctx.report(code, text.span, f"`{call.function}` searches for a String, but {describe(query)}", hint)
        query = None
    return None if field is None or query is None else (field, query)


def _field(ctx: Context, scope: Scope, call: ast.Call, code: str) -> ir.PropertyRef | None:
    """Check the property that a search reads: a Vector for `nearest`, a String for the others."""
    target, function = call.arguments[0], call.function
    if not isinstance(target, ast.PropertyAccess):
        message = f"`{function}` needs a property of a node here"
        return ctx.report(code, target.span, message, "write it as `$v.property`")
    variable = scope.get(target.variable.text)
    if variable is not None and variable.kind is Kind.EDGE:
        message = f"`{function}` searches nodes, but `${variable.name}` is an edge"
        return ctx.report("T23", target.variable.span, message)
    if variable is not None and variable.type_name is not None and ir.is_union(variable.type_name):
        message = f"`{function}` searches one type, but `${variable.name}` is a `{variable.type_name}`"
        return ctx.report(code, target.variable.span, message, "bind one of the types")
    if target.property.text in ast.SYSTEM_FIELDS:
        message = f"`{function}` needs a property, but `{target.property.text}` is a system field"
        return ctx.report(code, target.property.span, message, "compare it, as in `$v.@id = …`")
    is_nearest = function == "nearest"
    field = resolve_property(ctx, scope, target, code="T15" if is_nearest else "T6")
    if field is None or (field.type.is_vector if is_nearest else field.type.is_text):
        return field
    noun = "Vector" if is_nearest else "String"
    return ctx.report(code, target.span, f"`{function}` reads a {noun}, but {describe(field)}")


def _operand(ctx: Context, scope: Scope, value: ast.Expression, function: str, code: str) -> ir.Expr | None:
    is_plain = isinstance(value, ast.Literal | ast.ListLiteral | ast.Variable | ast.PropertyAccess)
    if not is_plain and not (isinstance(value, ast.Call) and value.function == "now"):
        return ctx.report(code, value.span, f"`{function}` takes a literal or a parameter here")
    return resolve(ctx, scope, value)


def _is_constant(expression: ir.Expr) -> bool:
    return isinstance(expression, ir.Literal | ir.ParameterRef)


def _integer(ctx: Context, scope: Scope, value: ast.Expression, code: str, noun: str) -> ir.Expr | None:
    expression = _operand(ctx, scope, value, noun, code)
    if expression is None:
        return None
    type_ = expression.type
    if not _is_constant(expression) or type_ is None or type_.scalar not in INTEGERS or type_.is_list:
        return ctx.report(code, value.span, f"{noun} must be an integer, but {describe(expression)}")
    return expression


def _nearest(ctx: Context, scope: Scope, call: ast.Call) -> ir.Nearest | None:
    value = call.arguments[1]
    field = _field(ctx, scope, call, "T15")
    query = _operand(ctx, scope, value, "nearest", "T15")
    if field is None or query is None:
        return None
    if not _is_vector_query(query, field.type):
        message = f"`nearest` compares with a {field.type} or a String, but {_describe_vector(query)}"
        return ctx.report("T15", value.span, message)
    embed = ctx.catalog.nodes[field.owner].properties[field.property].embed
    return ir.Nearest(field, query, embed.model if embed else None)


def _is_vector_query(query: ir.Expr, field: PropertyType) -> bool:
    type_ = query.type
    if type_ is None or not _is_constant(query):
        return False
    if isinstance(query, ir.Literal) and type_.is_list and type_.scalar in NUMBERS:
        assert isinstance(query.value, tuple)
        return len(query.value) == field.dimension
    return type_.is_text or (type_.is_vector and type_.dimension == field.dimension)


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
    k = _positive(ctx, scope, call, 2, "k", _DEFAULT_K)
    window = _positive(ctx, scope, call, 3, "window", _DEFAULT_WINDOW)
    if len(arms) < 2 or k is None or window is None:
        return None
    first, second = arms
    if first.field.variable != second.field.variable:
        message = (
            f"`rrf` ranks one variable, but its calls rank `${first.field.variable}` and `${second.field.variable}`"
        )
        return ctx.report("T21", call.arguments[1].span, message, "rank both by properties of one variable")
    return ir.Rrf(first, second, k, window)


def _positive(
    ctx: Context, scope: Scope, call: ast.Call, position: int, name: str, default: ir.Literal
) -> ir.Expr | None:
    """Check an argument of `rrf` that is a number; without one it has a default."""
    if len(call.arguments) <= position:
        return default
    argument = call.arguments[position]
    number = _integer(ctx, scope, argument, "T21", f"`{name}` of `rrf`")
    if isinstance(number, ir.Literal) and isinstance(number.value, int) and number.value <= 0:
        message = f"`{name}` of `rrf` must be greater than zero"
        return ctx.report("T21", argument.span, message, f"leave it out for {default.value}")
    return number


# `null` where the context gives it no other type.
NULL: Final = ir.Literal(None, replace(TEXT, nullable=True))
_NULL_SCALARS: Final = {"Integer": Scalar.I64, "Number": Scalar.F64, "T": Scalar.STRING}


def is_null_literal(expression: ir.Expr) -> bool:
    return isinstance(expression, ir.Literal) and expression.value is None


def type_call(
    ctx: Context, name: str, arguments: Sequence[ir.Expr], written: Sequence[ast.Expression], span: Span
) -> ir.Expr | None:
    """Return a call of a function or operator with the type of its result, or report T40."""
    for argument, expression in zip(arguments, written, strict=True):
        if isinstance(argument, ir.NodeRef):
            hint = f"use a property of it, as in `${argument.variable}.property`"
            return ctx.report("T40", expression.span, f"{describe(argument)}, not a value for `{name}`", hint)
    for form in FUNCTIONS[name].signatures:
        typed = _apply_form(form, name, arguments)
        if typed is not None:
            return typed if _check_unit(ctx, name, arguments, written) else None
    return _report_misfit(ctx, name, arguments, written, span)


def _apply_form(form: Signature, name: str, arguments: Sequence[ir.Expr]) -> ir.Expr | None:
    if not form.accepts_count(len(arguments)):
        return None
    words = form.expected(len(arguments))
    known = [item.type.scalar for item, word in zip(arguments, words, strict=True)
             if item.type is not None and word in ("T", "[T]") and not is_null_literal(item)]  # fmt: skip
    shared = common_scalar(known) if known else None
    fitted = [_fit_null(item, word, shared) for item, word in zip(arguments, words, strict=True)]
    result = form.resolve([item.type for item in fitted if item.type is not None])
    if result is None:
        return None
    if "T" in words:
        fitted = [
            convert(item, result.scalar if form.result == "T" else shared or result.scalar) if word == "T" else item
            for item, word in zip(fitted, words, strict=True)
        ]
    if name == "coalesce":
        result = replace(result, nullable=all(item.type is None or item.type.nullable for item in fitted))
    return ir.Call(name, tuple(fitted), result)


def _fit_null(expression: ir.Expr, word: str, shared: Scalar | None) -> ir.Expr:
    """Give a null literal the type that a word of a signature asks for."""
    if not is_null_literal(expression):
        return expression
    base = word.strip("[]")
    scalar = shared if base == "T" and shared is not None else _NULL_SCALARS.get(base) or Scalar(base)
    return ir.Literal(None, PropertyType(scalar, is_list=word.startswith("["), nullable=True))


def convert(expression: ir.Expr, scalar: Scalar) -> ir.Expr:
    """Return an expression as another type of number, or as a plain String instead of an enum."""
    type_ = expression.type
    assert type_ is not None
    if type_.scalar is scalar and type_.enum_values is None:
        return expression
    if isinstance(expression, ir.Literal) and isinstance(expression.value, int | float | None):
        value = float(expression.value) if scalar in FLOATS and expression.value is not None else expression.value
        return ir.Literal(value, retype(type_, scalar))
    if type_.scalar is scalar:
        return expression
    return ir.Call("cast", (expression,), retype(type_, scalar))


def _check_unit(ctx: Context, name: str, arguments: Sequence[ir.Expr], written: Sequence[ast.Expression]) -> bool:
    """Check the unit of a date function, which is a literal (T40)."""
    if name not in ("date_trunc", "date_add", "date_diff"):
        return True
    position = 2 if name == "date_add" else 0
    moment = arguments[0 if name == "date_add" else 1].type
    is_date = moment is not None and moment.scalar is Scalar.DATE
    units = DATE_UNITS if is_date else (*DATE_UNITS, *TIME_UNITS)
    unit, expression = arguments[position], written[position]
    if not isinstance(unit, ir.Literal):
        ctx.report("T40", expression.span, f"the unit of `{name}` is a literal", f"write one of {_quoted(units)}")
        return False
    if unit.value in units:
        return True
    if unit.value in TIME_UNITS:
        ctx.report("T40", expression.span, f'a Date has no "{unit.value}"', f"its units are {_quoted(units)}")
        return False
    hint = did_you_mean(str(unit.value), units, otherwise=f"the units are {_quoted(units)}")
    ctx.report("T40", expression.span, f'there is no unit "{unit.value}"', hint)
    return False


def _quoted(words: Sequence[str]) -> str:
    return join_words([f'"{word}"' for word in words])


def _report_misfit(
    ctx: Context, name: str, arguments: Sequence[ir.Expr], written: Sequence[ast.Expression], span: Span
) -> ir.Expr | None:
    forms = [form for form in FUNCTIONS[name].signatures if form.accepts_count(len(arguments))]
    hint = _operator_hint(name, arguments)
    for position, argument in enumerate(arguments):
        words = list(dict.fromkeys(form.expected(len(arguments))[position] for form in forms))
        words = [word for word in words if word != "Integer" or "Number" not in words]
        type_ = argument.type
        if type_ is not None and not is_null_literal(argument) and not any(fits_word(type_, word) for word in words):
            message = f"`{name}` takes {join_words(words)} here, but {describe(argument)}"
            return ctx.report("T40", written[position].span, message, hint)
    argument_types = join_words([str(item.type) for item in arguments], conjunction="and")
    shapes = join_words([f"({', '.join(form.expected(len(arguments)))})" for form in forms])
    return ctx.report("T40", span, f"`{name}` cannot take {argument_types} together", hint or f"it takes {shapes}")


def _operator_hint(name: str, arguments: Sequence[ir.Expr]) -> str | None:
    scalars = [item.type.scalar for item in arguments if item.type is not None]
    if name in ("+", "-") and any(scalar in TIMES for scalar in scalars):
        if name == "-" and {*scalars} == {Scalar.DATE, Scalar.DATETIME}:
            return "convert one of them with `cast(… as DateTime)`"
        return 'move a date with `date_add(…, 1, "day")`, or by a Duration: `duration("P1D")`'
    if name == "+" and Scalar.STRING in scalars:
        return "convert the other side with `cast(… as String)`"
    return None


def type_case(
    ctx: Context, branches: Sequence[tuple[ir.Expr, ir.Expr]], otherwise: ir.Expr, written: ast.Case
) -> ir.Expr | None:
    """Return a `case` with the common type of its values, or report T40."""
    values = [*(value for _, value in branches), otherwise]
    spans = [*(value.span for _, value in written.branches), (written.otherwise or written).span]
    fitted = unify(ctx, values, spans)
    if fitted is None:
        return None
    type_ = fitted[0].type
    assert type_ is not None
    type_ = replace(type_, nullable=any(item.type is None or item.type.nullable for item in fitted))
    conditions = [condition for condition, _ in branches]
    return ir.Case(tuple(zip(conditions, fitted[:-1], strict=True)), fitted[-1], type_)


def unify(ctx: Context, values: Sequence[ir.Expr], spans: Sequence[Span]) -> list[ir.Expr] | None:
    """Return values converted to their common type, or report the first that does not fit (T40)."""
    known = [(value, span) for value, span in zip(values, spans, strict=True) if not is_null_literal(value)]
    if not known:
        return list(values)
    first = known[0][0].type
    assert first is not None
    for index, (value, span) in enumerate(known):
        assert value.type is not None
        scalars = [item.type.scalar for item, _ in known[: index + 1] if item.type is not None]
        is_alike = value.type.is_list is first.is_list and value.type.dimension == first.dimension
        if not is_alike or common_scalar(scalars) is None or isinstance(value, ir.NodeRef):
            message = f"the values of a `case` have one type: the first is {first}, but {describe(value)}"
            return ctx.report("T40", span, message, "convert one of them with `cast(… as …)`")
    scalar = common_scalar([item.type.scalar for item, _ in known if item.type is not None])
    assert scalar is not None
    null = ir.Literal(None, replace(first, scalar=scalar, enum_values=None, nullable=True))
    if first.is_list:
        return [null if is_null_literal(value) else value for value in values]
    return [null if is_null_literal(value) else convert(value, scalar) for value in values]


def type_cast(ctx: Context, operand: ir.Expr, written: ast.Conversion) -> ir.Expr | None:
    """Return a `cast`, or report a conversion that does not exist (T40)."""
    target, source = written.type, operand.type
    if source is None:
        return None
    if is_null_literal(operand):
        return ir.Literal(None, replace(target, nullable=True))
    is_plain = not (source.is_list or target.is_list) and not isinstance(operand, ir.NodeRef)
    if is_plain and source.scalar is target.scalar and source.scalar in PLAIN:
        return operand
    if not is_plain or target.scalar not in cast_targets(source.scalar):
        allowed = sorted(scalar.value for scalar in cast_targets(source.scalar))
        hint = f"a {source.scalar.value} can become {join_words(allowed)}" if is_plain and allowed else None
        return ctx.report("T40", written.operand.span, f"{describe(operand)}, which cannot be cast to {target}", hint)
    # A text may hold anything, and a float may be no number.
    may_fail = source.is_text or source.scalar in FLOATS
    return ir.Call("cast", (operand,), replace(target, nullable=source.nullable or may_fail))
