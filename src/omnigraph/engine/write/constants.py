"""The constants of a mutation, settled once before anything runs.

Pure; a retry sees the very same values, `now()` included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnigraph.engine.params import decode_params, missing_parameter
from omnigraph.errors import DataError
from omnigraph.lang.query import ir
from omnigraph.lang.types import FLOATS, PropertyType
from omnigraph.rules.fit import Misfit, fit, shown


class Constants:
    """The values of a mutation's parameters, and its one instant."""

    def __init__(self, params: tuple[ir.Parameter, ...], given: Mapping[str, object], now_us: int) -> None:
        self._values = decode_params(params, given)
        self._now = now_us // 1_000

    def value(self, expression: ir.Expr) -> Any:
        """Return the value of a literal, parameter or `now()`; E2 when a parameter was not given."""
        if isinstance(expression, ir.Now):
            return self._now
        if isinstance(expression, ir.Literal):
            return expression.value
        assert isinstance(expression, ir.ParameterRef), "a mutation holds constants only"
        if expression.name not in self._values:
            raise missing_parameter(expression.name)
        return self._values[expression.name]

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
