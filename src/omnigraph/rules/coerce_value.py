"""Converts a single value to the form in which its type is stored, for parameters and assignments and to find what is
wrong with a column.

Pure. `coerce_column` does the same for whole columns and agrees value for value.
"""

from __future__ import annotations

import binascii
import datetime as dt
import struct
from collections.abc import Sequence
from math import isfinite
from typing import Any, Final

import numpy as np

from omnigraph.lang.catalog import FLOATS, INTEGERS, PropertyType, Scalar
from omnigraph.rules.datetimes import DAY_MS, parse_days, parse_milliseconds

RANGES: Final = {
    **dict.fromkeys((Scalar.I32, Scalar.DATE), (-(2**31), 2**31 - 1)),
    **dict.fromkeys((Scalar.I64, Scalar.DATETIME), (-(2**63), 2**63 - 1)),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}
BLOB_PREFIX: Final = "base64:"
_EPOCH: Final = dt.date(1970, 1, 1)
_EPOCH_UTC: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Misfit(Exception):
    """A value that its type cannot hold; `is_wrong_kind` is set if the kind of value is wrong rather than the value."""

    def __init__(self, reason: str, *, is_wrong_kind: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_wrong_kind = is_wrong_kind


def fit(value: object, type_: PropertyType) -> Any:
    """Convert a value to its stored form: dates to integers, blobs to bytes, vectors and lists to lists, null to None.

    >>> fit("2020-01-01", PropertyType(Scalar.DATE)), fit(7, PropertyType(Scalar.F64))
    (18262, 7.0)
    """
    if value is None:
        return None
    if type_.scalar is Scalar.VECTOR:
        return _vector(value, type_)
    if type_.is_list:
        items = as_sequence(value)
        if items is None:
            raise Misfit(f"{shown(value)} is not a list")
        item = PropertyType(type_.scalar)
        return [fit(element, item) for element in items]
    return _scalar(value, type_)


def as_sequence(value: object) -> Sequence[object] | None:
    """Return a list, tuple or array as a sequence; None for anything else."""
    if isinstance(value, np.ndarray):
        return value.tolist() if value.ndim == 1 else None
    return value if isinstance(value, list | tuple) else None


def _scalar(value: object, type_: PropertyType) -> Any:
    scalar = type_.scalar
    if isinstance(value, np.generic):
        value = value.item()
    if scalar is Scalar.STRING and isinstance(value, str):
        return _text(value)
    if scalar is Scalar.BOOL and isinstance(value, bool):
        return value
    if scalar in INTEGERS and isinstance(value, int) and not isinstance(value, bool):
        return _integer(value, scalar)
    if scalar in FLOATS and isinstance(value, int | float) and not isinstance(value, bool):
        return _float(value, scalar)
    if scalar is Scalar.BLOB and isinstance(value, str | bytes):
        return _blob(value)
    if scalar in (Scalar.DATE, Scalar.DATETIME) and not isinstance(value, bool):
        stored = _timestamp(value, scalar)
        if stored is not None:
            return stored
    raise Misfit(f"{shown(value)} is not a value of type `{type_}`", is_wrong_kind=True)


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Misfit(f"{shown(value)} is not valid Unicode text") from None
    return value


def _integer(value: int, scalar: Scalar) -> int:
    low, high = RANGES[scalar]
    if not low <= value <= high:
        raise Misfit(f"{value} is out of range for `{scalar}`, {low} to {high}")
    return value


def _float(value: float, scalar: Scalar) -> float:
    try:
        number = float(value)
        if scalar is Scalar.F32:
            struct.pack("<f", number)
    except OverflowError:
        raise Misfit(f"{shown(value)} is too large for `{scalar}`") from None
    if not isfinite(number):
        raise Misfit(f"{number} is not a finite number")
    return number


def _timestamp(value: object, scalar: Scalar) -> int | None:
    parse = parse_days if scalar is Scalar.DATE else parse_milliseconds
    if isinstance(value, str):
        parsed = parse(value)
        if parsed is None:
            raise Misfit(f"{shown(value)} is not a {scalar}; write it like {_EXAMPLES[scalar]}")
        return parsed
    if isinstance(value, dt.datetime):
        aware = value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value
        milliseconds = (aware - _EPOCH_UTC) // dt.timedelta(milliseconds=1)
        return milliseconds // DAY_MS if scalar is Scalar.DATE else milliseconds
    if isinstance(value, dt.date):
        days = (value - _EPOCH).days
        return days if scalar is Scalar.DATE else days * DAY_MS
    return _integer(value, scalar) if isinstance(value, int) else None


_EXAMPLES: Final = {Scalar.DATE: "2024-01-31", Scalar.DATETIME: "2024-01-31T12:30:00Z"}


def _blob(value: str | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    if not value.startswith(BLOB_PREFIX):
        raise Misfit(
            f"{shown(value)} is not a blob; blobs are stored by value, and addresses in the data are not read:"
            f" write the bytes as `{BLOB_PREFIX}…`"
        )
    try:
        return decode_blob(value)
    except ValueError:
        raise Misfit(f"{shown(value)} is not valid base64") from None


def decode_blob(text: str) -> bytes:
    """Decode `base64:…`; raises `ValueError` unless it is valid base64."""
    # Measured against a numpy kernel over the column: half the time at 3 kB and more, twice the time at 30 bytes.
    return binascii.a2b_base64(text[len(BLOB_PREFIX) :], strict_mode=True)


def _vector(value: object, type_: PropertyType) -> list[float]:
    items = as_sequence(value)
    if items is None:
        raise Misfit(f"{shown(value)} is not a list of {type_.dimension} numbers", is_wrong_kind=True)
    if len(items) != type_.dimension:
        raise Misfit(f"the vector has {len(items)} numbers, not {type_.dimension}")
    element = PropertyType(Scalar.F32)
    try:
        numbers = [_scalar(item, element) for item in items]
    except Misfit as misfit:
        raise Misfit(f"the vector must hold finite numbers only: {misfit.reason}") from None
    return numbers


def shown(value: object) -> str:
    """Format a value for a message: shortened, and as JSON where possible.

    >>> shown("a"), shown(True), shown(None)
    ('"a"', 'true', 'null')
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    # A message must be encodable even if the value is not, as with a lone surrogate.
    text = (f'"{value}"' if isinstance(value, str) else str(value)).encode(errors="backslashreplace").decode()
    return text if len(text) <= 80 else text[:77] + "…" + text[-1] * isinstance(value, str)
