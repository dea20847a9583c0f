"""Defaults as they are written: read the argument of `@default` as a value of the property's type.

Pure.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from math import isfinite
from typing import Final

from omnigraph.lang.catalog import FLOATS, INTEGER_RANGES, INTEGERS, Constant, Default, PropertyType, Scalar
from omnigraph.lang.schema.ast import Argument

_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_DATETIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|[+-]\d{2}:\d{2})?")
_NOW: Final = frozenset({Scalar.DATE, Scalar.DATETIME})
_DIGITS_MAX: Final = 20


class DefaultFault(Exception):
    """A default that its property cannot hold; `hint` says what it can."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


def read_default(argument: Argument, type_: PropertyType) -> Default:
    """Return the default of a property; raises `DefaultFault` if the property cannot hold it."""
    if type_.scalar in (Scalar.BLOB, Scalar.VECTOR):
        raise DefaultFault(f"a `{type_}` has no default", "leave it out, and write the value with each entity")
    if argument.kind == "call":
        return _read_call(argument.text, type_)
    if type_.is_list:
        if argument.kind != "list":
            raise DefaultFault(f"the default of a `{type_}` is a list", "write `@default([])`")
        item = PropertyType(type_.scalar)
        return Default("value", tuple(_read_scalar(value, item) for value in argument.items))
    return Default("value", _read_scalar(argument, type_))


def _read_call(word: str, type_: PropertyType) -> Default:
    if word == "now" and type_.scalar in _NOW and not type_.is_list:
        return Default("now")
    if word == "uuid" and type_.is_text and type_.enum_values is None:
        return Default("uuid")
    if word not in ("now", "uuid"):
        raise DefaultFault(f"there is no function `{word}()` for a default", "the functions are `now()` and `uuid()`")
    needs = "a `Date` or a `DateTime`" if word == "now" else "a `String`"
    raise DefaultFault(f"`{word}()` is the default of {needs}, not of `{type_}`", f"declare the property as {needs}")


def _read_scalar(argument: Argument, type_: PropertyType) -> Constant:
    scalar, kind, text = type_.scalar, argument.kind, argument.text
    if type_.enum_values is not None:
        if kind in ("name", "string") and text in type_.enum_values:
            return text
        words = ", ".join(type_.enum_values)
        raise DefaultFault(f"the enum has no value `{text}`", f"its values are {words}")
    if scalar is Scalar.STRING and kind == "string":
        return text
    if scalar is Scalar.BOOL and kind == "bool":
        return text == "true"
    if scalar in INTEGERS and kind == "number" and "." not in text:
        return _read_integer(text, type_)
    if scalar in FLOATS and kind == "number":
        return _read_float(text, type_)
    if scalar in _NOW and kind == "string" and _is_instant(text, scalar):
        return text
    raise DefaultFault(f"{_shown(argument)} is not a value of type `{type_}`", _EXAMPLES.get(scalar, "check the type"))


_EXAMPLES: Final = {
    Scalar.STRING: 'write it as `"…"`, or use `uuid()`',
    Scalar.BOOL: "write `true` or `false`",
    Scalar.DATE: 'write it as `"2024-01-31"`, or use `now()`',
    Scalar.DATETIME: 'write it as `"2024-01-31T12:30:00Z"`, or use `now()`',
    **dict.fromkeys(INTEGERS, "write an integer, such as `0`"),
    **dict.fromkeys(FLOATS, "write a number, such as `0.5`"),
}


def _read_integer(text: str, type_: PropertyType) -> int:
    low, high = INTEGER_RANGES[type_.scalar]
    # Python refuses to read very long numbers.
    value = int(text) if len(text.lstrip("-0")) <= _DIGITS_MAX else high + 1
    if not low <= value <= high:
        raise DefaultFault(f"`{text[:30]}` is out of range for `{type_}`", f"it holds {low} to {high}")
    return value


def _read_float(text: str, type_: PropertyType) -> float:
    value = float(text)
    try:
        if type_.scalar is Scalar.F32:
            struct.pack("<f", value)
    except OverflowError:
        value = float("inf")
    if not isfinite(value):
        raise DefaultFault(f"`{text[:30]}` is out of range for `{type_}`", "use a smaller number, or `F64`")
    return value


def _is_instant(text: str, scalar: Scalar) -> bool:
    pattern = _DATE if scalar is Scalar.DATE else _DATETIME
    if not pattern.fullmatch(text):
        return False
    try:
        moment = dt.datetime.fromisoformat(text)
        # The offset of an instant may lead out of the first or the last year.
        moment.replace(tzinfo=moment.tzinfo or dt.UTC).astimezone(dt.UTC)
    except (ValueError, OverflowError):
        return False
    return True


def _shown(argument: Argument) -> str:
    return f'`"{argument.text}"`' if argument.kind == "string" else f"`{argument.text}`"
