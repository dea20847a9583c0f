"""The property types that values fit: of typed columns, and of text by how it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from omnigraph.lang.catalog import FLOATS, INTEGERS, Scalar
from omnigraph.rules.arrow_typing import Column, pc
from omnigraph.rules.datetimes import date_column, datetime_column

# As JSON writes numbers; a leading zero, as in `007`, or more than 18 digits, as in account numbers, make a text.
_INTEGER: Final = r"^-?(0|[1-9][0-9]{0,17})$"
_NUMBER: Final = r"^-?(0|[1-9][0-9]{0,17})(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_TRUTH: Final = r"^(true|false)$"
_SIGNED: Final = frozenset({Scalar.I32, Scalar.I64})


@dataclass(frozen=True, slots=True)
class ValueType:
    """The type of some values; `scalar` is None if no property can hold them, for the `reason`."""

    scalar: Scalar | None
    is_list: bool = False
    reason: str = ""

    def join(self, other: ValueType) -> ValueType:
        """Return the narrowest type that holds the values of both.

        >>> integers = ValueType(Scalar.I64)
        >>> integers.join(ValueType(Scalar.F64)).scalar, integers.join(ValueType(Scalar.DATE)).scalar
        (<Scalar.F64: 'F64'>, None)
        """
        if self == other or self.scalar is None or (other == EMPTY_LISTS and self.is_list):
            return self
        if other.scalar is None or (self == EMPTY_LISTS and other.is_list):
            return other
        joined = _join_scalars(self.scalar, other.scalar) if self.is_list == other.is_list else None
        return (
            ValueType(joined, self.is_list) if joined is not None else ValueType(None, reason="values of several types")
        )


# Lists without any item, which fit any list.
EMPTY_LISTS: Final = ValueType(Scalar.STRING, True, "no items")


def _join_scalars(first: Scalar, second: Scalar) -> Scalar | None:
    pair = {first, second}
    if len(pair) == 1:
        return first
    if pair <= INTEGERS:
        return Scalar.I64 if Scalar.U64 not in pair else Scalar.U64 if not pair & _SIGNED else None
    if pair <= INTEGERS | FLOATS:
        return Scalar.F64
    return None


def join_texts(first: ValueType, second: ValueType) -> ValueType:
    """Join the types of two parts of a column of text, which can always stay text."""
    joined = first.join(second)
    return joined if joined.scalar is not None else ValueType(Scalar.STRING)


def type_of_column(column: Column) -> ValueType:
    """Return the type of a typed column that holds a value."""
    type_: Any = column.type
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        if pa.types.is_null(type_.value_type):
            return EMPTY_LISTS
        item = type_of_column(pa.nulls(0, type_.value_type))
        return (
            ValueType(item.scalar, True, item.reason) if not item.is_list else ValueType(None, reason="lists of lists")
        )
    scalar = next((scalar for is_type, scalar in _ARROW_TYPES if is_type(type_)), None)
    if scalar is None and pa.types.is_decimal(type_) and type_.scale == 0 and type_.precision <= 18:
        scalar = Scalar.I64
    return ValueType(scalar) if scalar is not None else ValueType(None, reason=f"values of the type `{type_}`")


_ARROW_TYPES: Final[tuple[tuple[Any, Scalar], ...]] = (
    (pa.types.is_boolean, Scalar.BOOL),
    (pa.types.is_int64, Scalar.I64),
    (pa.types.is_uint64, Scalar.U64),
    (pa.types.is_signed_integer, Scalar.I32),
    (pa.types.is_unsigned_integer, Scalar.U32),
    (pa.types.is_float64, Scalar.F64),
    (pa.types.is_floating, Scalar.F32),
    (pa.types.is_string, Scalar.STRING),
    (pa.types.is_large_string, Scalar.STRING),
    (pa.types.is_date, Scalar.DATE),
    (pa.types.is_timestamp, Scalar.DATETIME),
    (pa.types.is_binary, Scalar.BLOB),
    (pa.types.is_large_binary, Scalar.BLOB),
)


def type_of_text(values: Column, *, has_numbers: bool) -> ValueType:
    """Return the narrowest type as which all texts read; CSV has numbers, JSON writes its own."""
    if has_numbers:
        if _all_match(values, _INTEGER) and _casts(values, pa.int64()):
            return ValueType(Scalar.I64)
        if _all_match(values, _NUMBER) and _casts(values, pa.float64()):
            return ValueType(Scalar.F64)
        if _all_match(values, _TRUTH):
            return ValueType(Scalar.BOOL)
    if _all_match(values, "^base64:"):
        return ValueType(Scalar.BLOB)
    if _all_match(values, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$") and date_column(values) is not None:
        return ValueType(Scalar.DATE)
    if _all_match(values, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]") and datetime_column(values) is not None:
        return ValueType(Scalar.DATETIME)
    return ValueType(Scalar.STRING)


def _all_match(values: Column, pattern: str) -> bool:
    # Most columns fail at their first value, which is cheaper to look at alone.
    first = values.slice(0, 1)
    return all(pc.all(pc.match_substring_regex(part, pattern)).as_py() is True for part in (first, values))


def _casts(values: Column, type_: pa.DataType) -> bool:
    try:
        numbers = values.cast(type_)
    except pa.ArrowInvalid:
        return False
    return not pa.types.is_floating(type_) or pc.all(pc.is_finite(numbers)).as_py() is True
