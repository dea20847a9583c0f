"""Check calls, operators, `case` and `cast` against the table of functions.

Pure. Arguments come in typed; a problem is reported once and gives None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from omnigraph.lang.catalog import INTEGERS, NUMBERS, PropertyType, Scalar
from omnigraph.lang.diagnostic import Span, did_you_mean, join_words
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check_context import Context
from omnigraph.lang.query.check_values import describe
from omnigraph.lang.query.functions import (
    DATE_UNITS,
    FUNCTIONS,
    TIME_UNITS,
    Signature,
    common_scalar,
    fits_word,
    retype,
)

# `null` where the context gives it no other type.
NULL: Final = ir.Literal(None, PropertyType(Scalar.STRING, nullable=True))
_NULL_SCALARS: Final = {"Integer": Scalar.I64, "Number": Scalar.F64, "T": Scalar.STRING}
_DATES: Final = (Scalar.DATE, Scalar.DATETIME)
# Which types each type can be cast to, besides itself.
_CASTS: Final = {
    **dict.fromkeys(NUMBERS, NUMBERS | {Scalar.STRING}),
    Scalar.BOOL: INTEGERS | {Scalar.STRING},
    Scalar.STRING: NUMBERS | {Scalar.BOOL, Scalar.DATE, Scalar.DATETIME},
    Scalar.DATE: frozenset({Scalar.STRING, Scalar.DATETIME}),
    Scalar.DATETIME: frozenset({Scalar.STRING, Scalar.DATE}),
}


def is_null_literal(expression: ir.Expr) -> bool:
    return isinstance(expression, ir.Literal) and expression.value is None


def type_call(
    ctx: Context, name: str, arguments: Sequence[ir.Expr], written: Sequence[ast.Expression], span: Span
) -> ir.Expr | None:
    """Return a call of a function or operator with the type of its result, or report T40."""
    if not _check_arguments(ctx, name, arguments, written):
        return None
    for form in FUNCTIONS[name].signatures:
        typed = _apply_form(form, name, arguments)
        if typed is not None:
            return typed if _check_unit(ctx, name, arguments, written) else None
    _report_misfit(ctx, name, arguments, written, span)
    return None


def _check_arguments(ctx: Context, name: str, arguments: Sequence[ir.Expr], written: Sequence[ast.Expression]) -> bool:
    for argument, expression in zip(arguments, written, strict=True):
        if isinstance(argument, ir.NodeRef):
            hint = f"use a property of it, as in `${argument.variable}.property`"
            ctx.report("T40", expression.span, f"{describe(argument)}, not a value for `{name}`", hint)
            return False
    return True


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
        is_float = scalar in (Scalar.F32, Scalar.F64)
        value = float(expression.value) if is_float and expression.value is not None else expression.value
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
) -> None:
    forms = [form for form in FUNCTIONS[name].signatures if form.accepts_count(len(arguments))]
    hint = _operator_hint(name, arguments)
    for position, argument in enumerate(arguments):
        words = list(dict.fromkeys(form.expected(len(arguments))[position] for form in forms))
        words = [word for word in words if word != "Integer" or "Number" not in words]
        type_ = argument.type
        if type_ is not None and not is_null_literal(argument) and not any(fits_word(type_, word) for word in words):
            ctx.report(
                "T40",
                written[position].span,
                f"`{name}` takes {join_words(words)} here, but {describe(argument)}",
                hint,
            )
            return
    argument_types = join_words([str(item.type) for item in arguments], conjunction="and")
    shapes = join_words([f"({', '.join(form.expected(len(arguments)))})" for form in forms])
    ctx.report("T40", span, f"`{name}` cannot take {argument_types} together", hint or f"it takes {shapes}")


def _operator_hint(name: str, arguments: Sequence[ir.Expr]) -> str | None:
    scalars = [item.type.scalar for item in arguments if item.type is not None]
    if name in ("+", "-") and any(scalar in _DATES for scalar in scalars):
        if name == "-" and len(scalars) == 2 and all(scalar in _DATES for scalar in scalars):
            return 'count the time between them with `date_diff("day", …, …)`'
        return 'move a date with `date_add(…, 1, "day")`'
    if name == "+" and Scalar.STRING in scalars:
        return "convert the other side with `cast(… as String)`"
    return None


def type_case(
    ctx: Context, branches: Sequence[tuple[ir.Expr, ir.Expr]], otherwise: ir.Expr, written: ast.Case
) -> ir.Expr | None:
    """Return a `case` with the common type of its values, or report T40."""
    values = [*(value for _, value in branches), otherwise]
    spans = [*(branch.value.span for branch in written.branches), (written.otherwise or written).span]
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
            ctx.report("T40", span, message, "convert one of them with `cast(… as …)`")
            return None
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
    if is_plain and source.scalar is target.scalar and source.scalar not in (Scalar.BLOB, Scalar.VECTOR):
        return operand
    if not is_plain or target.scalar not in _CASTS.get(source.scalar, frozenset()):
        allowed = sorted(scalar.value for scalar in _CASTS.get(source.scalar, ()))
        hint = f"a {source.scalar.value} can become {join_words(allowed)}" if is_plain and allowed else None
        ctx.report("T40", written.operand.span, f"{describe(operand)}, which cannot be cast to {target}", hint)
        return None
    # A text may hold anything, and a float may be no number.
    may_fail = source.scalar is Scalar.STRING or source.scalar in (Scalar.F32, Scalar.F64)
    return ir.Call("cast", (operand,), replace(target, nullable=source.nullable or may_fail))
