"""Functions of the reference evaluator, one value at a time, written from their descriptions.

An integer that does not fit raises `OverflowError`; a test leaves such queries out, or expects the product's error.
"""

from __future__ import annotations

import calendar
import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from omnigraph.lang.catalog import FLOATS, INTEGERS, Scalar
from tests.oracle.truth import narrowed

I64 = range(-(2**63), 2**63)
WIDTHS = {Scalar.I32: range(-(2**31), 2**31), Scalar.I64: I64, Scalar.U32: range(2**32), Scalar.U64: range(2**64)}


def fitted(value: int, width: range = I64) -> int:
    if value not in width:
        raise OverflowError(value)
    return value


def _is_whole(*values: Any) -> bool:
    return all(isinstance(value, int) and not isinstance(value, bool) for value in values)


def _add(a: Any, b: Any) -> Any:
    if isinstance(a, str):
        return a + b
    if isinstance(a, dt.timedelta) or isinstance(b, dt.timedelta):
        return _instant(a) + _instant(b)
    return fitted(a + b) if _is_whole(a, b) else float(a) + float(b)


def _instant(value: Any) -> Any:
    """Return a date as its midnight, and anything else as it is."""
    is_day = isinstance(value, dt.date) and not isinstance(value, dt.datetime)
    return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC) if is_day else value


def _subtract(*values: Any) -> Any:
    if isinstance(values[-1], dt.timedelta | dt.date):
        return _instant(values[0]) - _instant(values[1]) if len(values) == 2 else -values[0]
    a, b = values if len(values) == 2 else (0, values[0])
    return fitted(fitted(a) - fitted(b)) if _is_whole(a, b) else float(a) - float(b)


def _multiply(a: Any, b: Any) -> Any:
    if isinstance(a, dt.timedelta) or isinstance(b, dt.timedelta):
        return a * b
    return fitted(fitted(a) * fitted(b)) if _is_whole(a, b) else float(a) * float(b)


def _divide(a: Any, b: Any) -> float | None:
    if isinstance(b, dt.timedelta):
        return a / b if b else None
    if b == 0:
        return None
    try:
        return float(a) / float(b)
    except OverflowError:
        return math.inf


def _truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _divide_whole(a: Any, b: int) -> Any:
    if b == 0:
        return None
    if isinstance(a, dt.timedelta):
        return _truncated(a // MILLISECOND, b) * MILLISECOND
    return fitted(_truncated(fitted(a), fitted(b)))


def _absolute(value: Any) -> Any:
    if isinstance(value, dt.timedelta):
        return abs(value)
    return fitted(abs(value)) if _is_whole(value) else abs(float(value))


def _remainder(a: Any, b: Any) -> Any:
    if b == 0:
        return None
    if _is_whole(a, b):
        return fitted(a) - _truncated(a, fitted(b)) * b
    return math.fmod(float(a), float(b))


def _round(value: Any, digits: int | None = None) -> Any:
    if _is_whole(value) and digits is None:
        return value
    if not math.isfinite(value):
        return float(value)
    # The language rounds the product with the power of ten, as a float.
    scale = 10.0 ** (digits or 0)
    scaled = float(value) * scale
    if not math.isfinite(scaled):
        return float(value)
    size = Fraction(abs(scaled))
    whole = math.floor(size)
    rounded = whole + (size - whole >= Fraction(1, 2))
    return math.copysign(float(rounded), scaled) / scale


def _floor(value: Any) -> Any:
    return value if _is_whole(value) else math.copysign(float(math.floor(value)), value)


def _ceil(value: Any) -> Any:
    return value if _is_whole(value) else math.copysign(float(math.ceil(value)), value)


def _power(a: Any, b: Any) -> float | None:
    try:
        value = math.pow(a, b)
    except OverflowError:
        return math.inf if a > 0 or b % 2 == 0 else -math.inf
    except ValueError:
        return None
    return value


def common(values: tuple[Any, ...]) -> list[Any]:
    """Return values as the type that they have in common."""
    if any(isinstance(value, float) for value in values):
        return [float(value) if isinstance(value, int) else value for value in values]
    return list(values)


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _substring(text: str, start: int, length: int | None = None) -> str:
    stop = None if length is None else max(start + max(length, 0), 0)
    return text[max(start, 0) : stop]


def _element(items: tuple[Any, ...], position: int) -> Any:
    return items[position] if -len(items) <= position < len(items) else None


# -- dates -----------------------------------------------------------------------------------------------------

MILLISECOND = dt.timedelta(milliseconds=1)
MONTHS = {"month": 1, "quarter": 3, "year": 12}
STEPS = {
    "week": dt.timedelta(weeks=1), "day": dt.timedelta(days=1), "hour": dt.timedelta(hours=1),
    "minute": dt.timedelta(minutes=1), "second": dt.timedelta(seconds=1),
}  # fmt: skip


def _truncate(unit: str, value: Any) -> Any:
    if isinstance(value, dt.datetime):
        if unit in ("hour", "minute", "second"):
            fields = {"hour": {"minute": 0, "second": 0}, "minute": {"second": 0}, "second": {}}[unit]
            return value.replace(**fields, microsecond=0)  # type: ignore[arg-type]
        value = value.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "week":
        return value - dt.timedelta(days=value.weekday())
    if unit == "day":
        return value
    month = {"month": value.month, "quarter": (value.month - 1) // 3 * 3 + 1, "year": 1}[unit]
    return value.replace(month=month, day=1)


def _later(value: Any, amount: int, unit: str) -> Any:
    if unit in STEPS:
        return value + amount * STEPS[unit]
    months = value.year * 12 + value.month - 1 + amount * MONTHS[unit]
    year, month = divmod(months, 12)
    return value.replace(year=year, month=month + 1, day=min(value.day, calendar.monthrange(year, month + 1)[1]))


def _between(unit: str, first: Any, last: Any) -> int:
    if unit in STEPS:
        return _truncated((last - first) // MILLISECOND, STEPS[unit] // MILLISECOND)
    if last < first:
        return -_between(unit, last, first)
    months: int = (last.year - first.year) * 12 + last.month - first.month
    # Dates have no time of day; `getattr` leaves it out for them.
    within = [(one.day, getattr(one, "hour", 0), getattr(one, "minute", 0), getattr(one, "second", 0),
               getattr(one, "microsecond", 0)) for one in (first, last)]  # fmt: skip
    months -= within[1] < within[0]
    return months // MONTHS[unit]


# -- conversions -----------------------------------------------------------------------------------------------


def convert(value: Any, scalar: Scalar) -> Any:
    """Return a value as another type."""
    if value is None:
        return None
    if isinstance(value, str):
        return _parsed(value, scalar)
    if scalar is Scalar.STRING:
        return _text(value)
    if scalar in FLOATS:
        return narrowed(float(value)) if scalar is Scalar.F32 else float(value)
    if scalar in INTEGERS:
        if isinstance(value, float) and math.isnan(value):
            return None
        return fitted(int(value), WIDTHS[scalar])
    if scalar is Scalar.DATE:
        return value.date() if isinstance(value, dt.datetime) else value
    if scalar is Scalar.DATETIME and not isinstance(value, dt.datetime):
        return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    return value


def _parsed(text: str, scalar: Scalar) -> Any:
    try:
        if scalar in INTEGERS:
            return int(text) if text.isascii() and text.strip("+-").isdigit() and int(text) in WIDTHS[scalar] else None
        if scalar in FLOATS:
            return convert(float(text), scalar) if text[-1:].isdigit() else None
        if scalar is Scalar.DATE:
            return dt.date.fromisoformat(text)
        if scalar is Scalar.DATETIME:
            return dt.datetime.fromisoformat(text) if text.endswith("Z") else None
        if scalar is Scalar.DURATION:
            return _duration(text)
    except ValueError:
        return None
    return {"true": True, "false": False}.get(text) if scalar is Scalar.BOOL else text


def _duration(text: str) -> dt.timedelta | None:
    """Read a sign, `P`, weeks and days, and behind a `T` hours, minutes and seconds."""
    sign, _, body = text.rpartition("P")
    days, has_time, time = body.partition("T")
    parts = [*re.findall(r"([0-9.]+)([WD])", days), *re.findall(r"([0-9.]+)([HMS])", time)]
    is_complete = bool(parts) and (not has_time or bool(time)) and sign in ("", "-")
    if not is_complete or "".join(map("".join, parts)) != days + time:
        return None
    names = {"W": "weeks", "D": "days", "H": "hours", "M": "minutes", "S": "seconds"}
    value = dt.timedelta(**{names[unit]: float(number) for number, unit in parts})
    return -value if sign else value


def _duration_text(value: dt.timedelta) -> str:
    length = abs(value)
    clock = dt.datetime.min + dt.timedelta(seconds=length.seconds, microseconds=length.microseconds)
    seconds = f"{clock.second}.{clock.microsecond // 1_000:03}".rstrip("0").removesuffix(".")
    parts = [(clock.hour, "H"), (clock.minute, "M"), (seconds if seconds != "0" else 0, "S")]
    time = "".join(f"{count}{unit}" for count, unit in parts if count)
    days = f"{length.days}D" if length.days else ""
    return f"{'-' if value < dt.timedelta() else ''}P{days}{'T' if time else ''}{time}" if value else "PT0S"


def _text(value: Any) -> str:
    if isinstance(value, dt.timedelta):
        return _duration_text(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, dt.date) else str(value)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
    "%": _remainder,
    "div": _divide_whole,
    "abs": _absolute,
    "round": _round,
    "floor": _floor,
    "ceil": _ceil,
    "sqrt": lambda value: None if value < 0 else math.sqrt(value),
    "pow": _power,
    "greatest": lambda *values: max(common(values)),
    "least": lambda *values: min(common(values)),
    "coalesce": _first,
    "nullif": lambda a, b: None if a == b else a,
    "lower": str.lower,
    "upper": str.upper,
    "trim": str.strip,
    "length": len,
    "concat": lambda *texts: "".join(texts),
    "replace": lambda text, old, new: text.replace(old, new) if old else text,
    "substring": _substring,
    "split": lambda text, separator: tuple(text.split(separator)) if separator else (text,),
    "year": lambda value: value.year,
    "month": lambda value: value.month,
    "day": lambda value: value.day,
    "weekday": lambda value: value.isoweekday(),
    "hour": lambda value: value.hour,
    "minute": lambda value: value.minute,
    "second": lambda value: value.second,
    "date_trunc": _truncate,
    "date_add": _later,
    "date_diff": _between,
    "today": lambda: None,
    "size": len,
    "element": _element,
}


def apply(name: str, arguments: list[Any]) -> Any:
    """Return a function of values: null if an argument is, unless it is about nulls."""
    if name in ("coalesce", "nullif"):
        if name == "nullif" and None in arguments:
            return arguments[0]
        return FUNCTIONS[name](*arguments)
    return None if None in arguments else FUNCTIONS[name](*arguments)
