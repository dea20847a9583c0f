"""Parameters: from what a caller hands over, JSON or Python, to typed values.

Dates become days, instants milliseconds, lists tuples; everything else is the plain Python value.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from omnigraph.engine.read.instants import MILLISECONDS_PER_DAY, days_of, milliseconds_of
from omnigraph.errors import DataError
from omnigraph.lang.query.ir import Parameter
from omnigraph.lang.types import FLOATS, INTEGERS, PropertyType, Scalar

Value: TypeAlias = str | int | float | bool | bytes | tuple[Any, ...] | None

I64_MAX: Final = 2**63 - 1
_RANGES: Final = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), I64_MAX),
    Scalar.U32: (0, 2**32 - 1),
    # An unsigned parameter travels as a signed one in every protocol.
    Scalar.U64: (0, I64_MAX),
}
_EPOCH: Final = dt.date(1970, 1, 1)
_EPOCH_UTC: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EXPECTED: Final = {
    Scalar.STRING: "a string",
    Scalar.BLOB: "a string",
    Scalar.BOOL: "true or false",
    Scalar.DATE: 'a date such as "2024-01-31"',
    Scalar.DATETIME: 'an instant such as "2024-01-31T10:00:00Z"',
    Scalar.F32: "a number",
    Scalar.F64: "a number",
}


def decode_params(declared: Sequence[Parameter], given: Mapping[str, object]) -> dict[str, Value]:
    """Return the values of declared parameters; one that was not given and is not nullable is left out."""
    decoded: dict[str, Value] = {}
    for parameter in declared:
        if given.get(parameter.name) is None:
            if parameter.type.nullable:
                decoded[parameter.name] = None
            elif parameter.name in given:
                raise _refuse(parameter, "is null, but it is not nullable", "E4")
            continue
        decoded[parameter.name] = decode_value(parameter, given[parameter.name])
    return decoded


def missing_parameter(name: str) -> DataError:
    """Return the error for a parameter that a query uses and nobody gave."""
    message = f"parameter `${name}` was not provided; pass it with the query, or declare it nullable with `?`"
    return DataError(message, rule="E2", parameter=name)


def decode_value(parameter: Parameter, value: object) -> Value:
    """Return one typed value, or refuse it with the parameter's name."""
    type_ = parameter.type
    if type_.scalar is Scalar.VECTOR:
        return _vector(parameter, value)
    if not type_.is_list:
        return _scalar(parameter, type_.scalar, value, "")
    if not _is_sequence(value):
        raise _refuse(parameter, f"must be a list of {type_.scalar.value}, not {_shown(value)}", "E4")
    items = list(value)  # type: ignore[call-overload]  # a sequence, as was just asked
    return tuple(
        None if item is None else _scalar(parameter, type_.scalar, item, f"item {position} of ")
        for position, item in enumerate(items)
    )


def _scalar(parameter: Parameter, scalar: Scalar, value: object, place: str) -> Value:
    decoded: Value = None
    if scalar in INTEGERS:
        return _integer(parameter, scalar, value, place)
    if scalar in FLOATS:
        decoded = _float(scalar, value)
    elif scalar is Scalar.BOOL:
        decoded = value if isinstance(value, bool) else None
    elif scalar is Scalar.DATE:
        decoded = _date(value)
    elif scalar is Scalar.DATETIME:
        decoded = _instant(value)
    elif isinstance(value, str):
        decoded = value
    if decoded is None:
        raise _refuse(parameter, f"must be {_EXPECTED[scalar]}, but {place}it is {_shown(value)}", "E4")
    return decoded


def _integer(parameter: Parameter, scalar: Scalar, value: object, place: str) -> int:
    number: int | None = None
    if isinstance(value, str):
        digits = value.removeprefix("-")
        number = int(value) if digits.isascii() and digits.isdigit() and len(digits) <= 20 else None
    elif not isinstance(value, bool | float) and hasattr(value, "__index__"):
        number = int(value)  # numpy integers count as integers
    if number is None:
        raise _refuse(parameter, f"must be a whole number, but {place}it is {_shown(value)}", "E4")
    low, high = _RANGES[scalar]
    if not low <= number <= high:
        raise _refuse(parameter, f"must lie between {low} and {high}, but {place}it is {number}", "E4")
    return number


def _float(scalar: Scalar, value: object) -> float | None:
    if isinstance(value, bool | str) or not hasattr(value, "__float__"):
        return None
    try:
        number = float(value)
        narrow: float = struct.unpack("<f", struct.pack("<f", number))[0] if scalar is Scalar.F32 else number
        return narrow
    except OverflowError:
        return None


def _date(value: object) -> int | None:
    if isinstance(value, dt.datetime):
        milliseconds = _instant(value)
        return None if milliseconds is None else milliseconds // MILLISECONDS_PER_DAY
    if isinstance(value, dt.date):
        return (value - _EPOCH).days
    return days_of(value) if isinstance(value, str) else None


def _instant(value: object) -> int | None:
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        return (aware - _EPOCH_UTC) // dt.timedelta(milliseconds=1)
    if isinstance(value, dt.date):
        return (value - _EPOCH).days * MILLISECONDS_PER_DAY
    return milliseconds_of(value) if isinstance(value, str) else None


def _vector(parameter: Parameter, value: object) -> tuple[float, ...]:
    items = list(value) if _is_sequence(value) else None  # type: ignore[call-overload]  # as was just asked
    if items is None or len(items) != parameter.type.dimension:
        found = _shown(value) if items is None else f"{len(items)} numbers"
        raise _refuse(parameter, f"must be a list of {parameter.type.dimension} numbers, not {found}", "E4")
    numbers = [_float(Scalar.F32, item) for item in items]
    if any(number is None for number in numbers):
        raise _refuse(parameter, "must hold numbers only", "E4")
    return tuple(number for number in numbers if number is not None)


def decode_literal(value: object, type_: PropertyType) -> Value:
    """Return the typed value of a literal; date texts are read here, since the compiler leaves them as they are."""
    if type_.is_list:
        assert isinstance(value, tuple)
        return tuple(_literal(item, type_.scalar) for item in value)
    return _literal(value, type_.scalar)


def _literal(value: object, scalar: Scalar) -> Value:
    decoded: Value
    if scalar is Scalar.DATE or scalar is Scalar.DATETIME:
        assert isinstance(value, str)
        decoded = days_of(value) if scalar is Scalar.DATE else milliseconds_of(value)
        if decoded is None:
            raise DataError(f"`{value}` is not {_EXPECTED[scalar]}", rule="E4", value=value)
        return decoded
    assert isinstance(value, str | int | float | bool)
    return value


def _is_sequence(value: object) -> bool:
    return not isinstance(value, str | bytes | Mapping) and hasattr(value, "__iter__") and hasattr(value, "__len__")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _refuse(parameter: Parameter, why: str, rule: str) -> DataError:
    return DataError(
        f"parameter `${parameter.name}: {parameter.type}` {why}",
        rule=rule,
        parameter=parameter.name,
        type=str(parameter.type),
    )
