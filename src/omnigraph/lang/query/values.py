"""Constant values: literals with their types, and whether a value fits a property.

Pure. Shared by property matches, assignments and predicates, so that they agree.
"""

from __future__ import annotations

import re
from typing import Final

from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.context import Context, Scope
from omnigraph.lang.query.words import suggestion
from omnigraph.lang.types import NUMBERS, PropertyType, Scalar

# How a Date and a DateTime begin.
_DATE: Final = re.compile(r"-?\d{4,}-\d\d-\d\d")


def type_literal(ctx: Context, value: ast.Literal | ast.ListLiteral) -> ir.Literal | None:
    """Give a literal its type; a nested or mixed list is T28."""
    if isinstance(value, ast.Literal):
        return ir.Literal(value.value, PropertyType(value.scalar))
    values: list[ir.LiteralValue] = []
    scalar = Scalar.STRING
    is_unsigned = _is_unsigned(value)
    for position, item in enumerate(value.items):
        if isinstance(item, ast.ListLiteral):
            ctx.report("T28", item.span, "a list cannot hold lists")
            return None
        own = Scalar.U64 if is_unsigned and item.scalar is Scalar.I64 else item.scalar
        if position == 0:
            scalar = own
        elif own is not scalar:
            numbers = {own, scalar} <= NUMBERS
            hint = "write all of them with a decimal point" if numbers else "keep one type in a list"
            ctx.report("T28", item.span, f"a list of {scalar.value} cannot hold a {item.scalar.value}", hint)
            return None
        values.append(item.value)
    return ir.Literal(tuple(values), PropertyType(scalar, is_list=True))


def _is_unsigned(value: ast.ListLiteral) -> bool:
    """Tell whether integers of a list are all unsigned because some of them fit nothing else."""
    integers = [one for one in value.items if isinstance(one, ast.Literal) and one.scalar in (Scalar.I64, Scalar.U64)]
    is_positive = all(isinstance(one.value, int) and one.value >= 0 for one in integers)
    return is_positive and any(one.scalar is Scalar.U64 for one in integers)


def is_compatible(a: PropertyType, b: PropertyType) -> bool:
    """Tell whether values of two types may be compared or assigned; nullability does not matter.

    >>> is_compatible(PropertyType(Scalar.I32), PropertyType(Scalar.F64, nullable=True))
    True
    """
    if a.is_list is not b.is_list or a.dimension != b.dimension:
        return False
    return a.scalar is b.scalar or (a.scalar in NUMBERS and b.scalar in NUMBERS)


def element_type(type_: PropertyType) -> PropertyType:
    """Return the type of a list's items."""
    return PropertyType(type_.scalar, enum_values=type_.enum_values)


def misfit(literal: ir.Literal, type_: PropertyType) -> str | None:
    """Say why a literal does not fit a property's type, or None when it does."""
    if type_.scalar is Scalar.BLOB:
        return "a Blob has no literal"
    if type_.scalar is Scalar.VECTOR and not type_.is_list:
        if not (literal.type.is_list and literal.type.scalar in NUMBERS):
            return f"{literal.type} is not a {type_}"
        assert isinstance(literal.value, tuple)
        length = len(literal.value)
        return None if length == type_.dimension else f"it has {length} numbers, not {type_.dimension}"
    if not is_compatible(literal.type, type_):
        return f"{literal.type} is not {type_}"
    if type_.enum_values is not None:
        items = literal.value if isinstance(literal.value, tuple) else (literal.value,)
        unknown = next((str(item) for item in items if item not in type_.enum_values), None)
        if unknown is not None:
            return f'"{unknown}" is not one of {", ".join(type_.enum_values)}'
    return None


def match_value(ctx: Context, scope: Scope, value: ast.Value, name: str, type_: PropertyType) -> ir.Expr | None:
    """Check the value of a property match; a list property takes one item, meaning membership."""
    wanted = element_type(type_) if type_.is_list else type_
    if type_.scalar is Scalar.BLOB:
        ctx.report("T3", value.span, f"`{name}` is a Blob, which cannot be matched")
        return None
    if isinstance(value, ast.Variable) and value.name not in ctx.params:
        _report_not_parameter(ctx, scope, value)
        return None
    return fit_value(ctx, value, name, wanted, listed_in=type_ if type_.is_list else None)


def fit_value(
    ctx: Context, value: ast.Value, name: str, wanted: PropertyType, *, listed_in: PropertyType | None = None
) -> ir.Expr | None:
    """Check a literal (T3), parameter or `now()` (T7) against the type a property wants."""
    shown = listed_in or wanted
    if isinstance(value, ast.Literal | ast.ListLiteral):
        literal = type_literal(ctx, value)
        if literal is None:
            return None
        reason = misfit(literal, wanted)
        if reason is None:
            return literal
        hint = f"`{name}` is {shown}"
        if listed_in is not None and literal.type.is_list:
            hint += "; match one item of it, or filter with `contains`"
        ctx.report(
            "T3", value.span, f"this value does not fit `{name}`: {reason}", _value_hint(literal, wanted) or hint
        )
        return None
    if isinstance(value, ast.Call):
        if wanted.scalar is Scalar.DATETIME and not wanted.is_list:
            return ir.Now()
        ctx.report("T7", value.span, f"`now()` is a DateTime, but `{name}` is {shown}")
        return None
    return _fit_parameter(ctx, value, name, wanted, shown)


def _fit_parameter(
    ctx: Context, value: ast.Variable, name: str, wanted: PropertyType, shown: PropertyType
) -> ir.Expr | None:
    parameter = ctx.params[value.name]
    is_blob_text = wanted.scalar is Scalar.BLOB and parameter.type.is_text
    if is_blob_text or is_compatible(parameter.type, wanted):
        return ir.ParameterRef(parameter.name, parameter.type)
    message = f"parameter `${value.name}` is {parameter.type}, but `{name}` is {shown}"
    ctx.report("T7", value.span, message, "change the type of the parameter")
    return None


def _report_not_parameter(ctx: Context, scope: Scope, value: ast.Variable) -> None:
    if value.name in scope:
        message = f"`${value.name}` is a variable of the pattern, not a value to match on"
        ctx.report("T7", value.span, message, "compare properties with a filter: `$a.p = $b.q`")
        return
    hint = suggestion(value.name, ctx.params, prefix="$", otherwise=f"declare it: `query …(${value.name}: …)`")
    ctx.report("T26", value.span, f"`${value.name}` is not a parameter of this query", hint)


def _value_hint(literal: ir.Literal, wanted: PropertyType) -> str | None:
    if wanted.enum_values is not None and isinstance(literal.value, str):
        return suggestion(literal.value, wanted.enum_values)
    if wanted.scalar in (Scalar.DATE, Scalar.DATETIME) and literal.type.is_text:
        return date_hint(wanted.scalar, literal.value)
    return None


def date_hint(scalar: Scalar, text: object) -> str:
    """Return how a text is written as a date, or how dates are written if it is none.

    >>> date_hint(Scalar.DATE, "2026-01-31"), date_hint(Scalar.DATE, "yesterday")
    ('write date("2026-01-31")', 'a Date is written as date("2026-01-31")')
    """
    if _DATE.match(str(text)):
        return f'write {scalar.value.lower()}("{text}")'
    example = "2026-01-31" if scalar is Scalar.DATE else "2026-01-31T12:00:00Z"
    return f'a {scalar.value} is written as {scalar.value.lower()}("{example}")'
