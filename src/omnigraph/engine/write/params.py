"""Parameters and constants of a mutation, settled once before anything runs.

Pure; a retry sees the very same values, `now()` included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnigraph.errors import DataError
from omnigraph.lang.query import ir
from omnigraph.lang.types import FLOATS, INTEGERS, PropertyType, Scalar
from omnigraph.rules.fit import Misfit, fit, shown

_I64_MAX = 2**63 - 1


class Constants:
    """The values of a mutation's parameters, and its one instant."""

    def __init__(self, params: tuple[ir.Parameter, ...], given: Mapping[str, object], now_us: int) -> None:
        self._values = {one.name: _bind(one, given[one.name]) for one in params if one.name in given}
        self._nullable = {one.name for one in params if one.type.nullable}
        self._now = now_us // 1_000

    def value(self, expression: ir.Expr) -> Any:
        """Return the value of a literal, parameter or `now()`; E2 when a parameter was not given."""
        if isinstance(expression, ir.Now):
            return self._now
        if isinstance(expression, ir.Literal):
            value = expression.value
            return list(value) if isinstance(value, tuple) else value
        assert isinstance(expression, ir.ParameterRef), "a mutation holds constants only"
        if expression.name in self._values:
            return self._values[expression.name]
        if expression.name in self._nullable:
            return None
        raise DataError(
            f"parameter `${expression.name}` was not given, and it is not optional; pass a value of type"
            f" `{expression.type}`",
            rule="E2",
            parameter=expression.name,
        )

    def fitted(self, expression: ir.Expr, type_: PropertyType, what: str, *, is_key: bool = False) -> Any:
        """Return a value in the form that a column stores; E4 when it does not fit, E6 for a non-finite key."""
        value = self.value(expression)
        if isinstance(expression, ir.Now):
            return value
        try:
            if type_.scalar in FLOATS and not type_.is_list and isinstance(value, int):
                raise Misfit(f"{shown(value)} is an integer, not a `{type_}`; write it with a decimal point")
            return fit(value, type_)
        except Misfit as misfit:
            rule = "E6" if is_key and isinstance(value, float) and type_.scalar in FLOATS else "E4"
            raise DataError(
                f"`{what}` cannot hold this value: {misfit.reason}", rule=rule, property=what, value=shown(value)
            ) from None


def _bind(parameter: ir.Parameter, value: object) -> Any:
    """Return a parameter as it was declared: integers also from decimal text, dates as stored integers."""
    type_ = parameter.type
    if value is None:
        if type_.nullable:
            return None
        raise _refusal(parameter, value, "it is not optional")
    try:
        if type_.is_list:
            items = value if isinstance(value, list | tuple) else None
            if items is None:
                raise Misfit(f"{shown(value)} is not a list")
            return [_scalar(item, PropertyType(type_.scalar)) for item in items]
        return _scalar(value, type_)
    except Misfit as misfit:
        raise _refusal(parameter, value, misfit.reason) from None


def _scalar(value: object, type_: PropertyType) -> Any:
    if type_.scalar in INTEGERS and isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 40:
        value = int(value)
    if type_.scalar is Scalar.U64 and isinstance(value, int) and value > _I64_MAX:
        raise Misfit(f"{value} is larger than a parameter can carry, {_I64_MAX}")
    if type_.scalar in FLOATS and isinstance(value, float):
        # Whether a float is finite is judged where it is stored, so that the message can name the property.
        return value
    if type_.scalar is Scalar.BLOB:
        # A blob is decoded where it is stored; until then it is its text.
        if isinstance(value, str | bytes):
            return value
        raise Misfit(f"{shown(value)} is not a `{type_}`")
    return fit(value, type_)


def _refusal(parameter: ir.Parameter, value: object, reason: str) -> DataError:
    return DataError(
        f"parameter `${parameter.name}` of type `{parameter.type}` cannot be {shown(value)}: {reason}",
        rule="E4",
        parameter=parameter.name,
        value=shown(value),
    )
