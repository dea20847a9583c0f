"""Converts the values of a property to an Arrow column of its type, lists those that do not fit, and fills defaults.

Pure. Columns are converted as a whole; only a column with an invalid value is then checked value by value.

An explicit null is a value: it is kept, and refused where the property is required.
"""

from __future__ import annotations

import binascii
import datetime as dt
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from math import isfinite
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.ids import new_uuids
from omnigraph.lang.catalog import FLOATS, INTEGER_RANGES, INTEGERS, Default, Property, PropertyType, Scalar
from omnigraph.lang.schema.arrow_schema import arrow_type
from omnigraph.rules.arrow_typing import Column, Numbers, arrays, pc
from omnigraph.rules.datetimes import (
    DATE_RANGE,
    DATETIME_RANGE,
    DAY_MS,
    are_in_calendar,
    date_column,
    datetime_column,
    parse_days,
    parse_milliseconds,
)

RANGES: Final = {
    **INTEGER_RANGES,
    Scalar.DATE: DATE_RANGE,
    Scalar.DATETIME: DATETIME_RANGE,
}
# Dates and times, and the integers that they are stored as.
INSTANTS: Final = frozenset({Scalar.DATE, Scalar.DATETIME})
_NUMBERED: Final = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}
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
    if scalar in FLOATS and isinstance(value, Decimal):
        # Decimals that a float keeps were converted as a column.
        raise Misfit(f"{shown(value)} has more digits than `{scalar}` keeps; round it")
    if scalar is Scalar.BLOB and isinstance(value, str | bytes):
        return _blob(value)
    if scalar in INSTANTS and not isinstance(value, bool):
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
            f"{shown(value)} is not a blob: write its bytes as `{BLOB_PREFIX}…`, or an address below a base that"
            " `external_blobs` of the graph's cluster allows"
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


_NULL: Final = type(None)


@dataclass(frozen=True, slots=True)
class Fault:
    """A value that does not fit its type; the column holds a null in its row."""

    row: int
    reason: str
    is_wrong_kind: bool
    value: object


def decode_column(values: Sequence[object], type_: PropertyType) -> tuple[Column, list[Fault]]:
    """Return a column in the type's Arrow layout, and every value that does not fit it.

    >>> column, faults = decode_column([1, "x", None], PropertyType(Scalar.I32))
    >>> column.to_pylist(), [fault.row for fault in faults]
    ([1, None, None], [1])
    """
    column = _convert_all(values, type_)
    return (column, []) if column is not None else _convert_each(values, type_)


def _convert_all(values: Sequence[object], type_: PropertyType) -> Column | None:
    """Convert all values at once; None unless all of them have the usual Python type and fit."""
    try:
        if type_.scalar is Scalar.VECTOR:
            return _vectors(values, type_.dimension or 0)
        if type_.is_list:
            return _lists(values, PropertyType(type_.scalar))
        return _CONVERTERS.get(type_.scalar, _plain)(values, type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError, TypeError):
        return None


def _plain(values: Sequence[object], type_: PropertyType) -> Column | None:
    expected = {Scalar.STRING: str, Scalar.BOOL: bool}.get(type_.scalar, int)
    if not set(map(type, values)) <= {expected, _NULL}:
        return None
    return pa.array(values, arrow_type(type_))


def _floats(values: Sequence[object], type_: PropertyType) -> Column | None:
    if not set(map(type, values)) <= {int, float, _NULL}:
        return None
    return _finite(pa.array(values, pa.float64()), type_)


def _finite(wide: Column, type_: PropertyType) -> Column | None:
    column = wide.cast(arrow_type(type_), safe=False)
    return column if is_finite(column) else None


def is_finite(numbers: Column) -> bool:
    """Return True if all numbers of a column that are not null are finite."""
    if not numbers.null_count:
        return bool(np.isfinite(numbers.to_numpy()).all())
    return bool(pc.all(pc.is_finite(numbers), min_count=0).as_py())


def floats_of_decimals(decimals: Column) -> Column:
    """Return the float nearest to each decimal, of any precision and scale.

    >>> from decimal import Decimal
    >>> floats_of_decimals(pa.array([Decimal("0.35"), None])).to_pylist()
    [0.35, None]
    """
    # By way of text: Arrow's own conversion divides by a power of ten, which rounds a second time.
    return decimals.cast(pa.string()).cast(pa.float64())


def loses_digits(decimals: Column, floats: Column) -> Numbers:
    """Return a mask of the decimals that differ from their float as it is written, with as few digits as possible."""
    written = floats.cast(pa.string()).cast(decimals.type)
    return np.asarray(pc.fill_null(pc.not_equal(written, decimals), False).to_numpy(zero_copy_only=False), bool)


def _dates(values: Sequence[object], type_: PropertyType) -> Column | None:
    kinds = set(map(type, values)) - {_NULL}
    if kinds <= {str}:
        return _instants(pa.array(values, pa.string()), type_)
    return _instants(pa.array(values, _NUMBERED[type_.scalar]), type_) if kinds <= {int} else None


def _instants(column: Column, type_: PropertyType) -> Column | None:
    """Convert strings or stored integers to a column of Date or DateTime."""
    if pa.types.is_string(column.type):
        return (date_column if type_.scalar is Scalar.DATE else datetime_column)(column)
    return column.view(arrow_type(type_)) if are_in_calendar(column) else None


def _blobs(values: Sequence[object], type_: PropertyType) -> Column | None:
    kinds = set(map(type, values)) - {_NULL}
    if kinds <= {bytes}:
        return pa.array(values, pa.large_binary())
    texts = [value for value in values if isinstance(value, str)]
    if not kinds <= {str} or not all(text.startswith(BLOB_PREFIX) for text in texts):
        return None
    return pa.array([decode_blob(value) if isinstance(value, str) else None for value in values], pa.large_binary())


_CONVERTERS: Final[dict[Scalar, Callable[[Sequence[object], PropertyType], Column | None]]] = {
    Scalar.F32: _floats,
    Scalar.F64: _floats,
    Scalar.DATE: _dates,
    Scalar.DATETIME: _dates,
    Scalar.BLOB: _blobs,
}


def _vectors(values: Sequence[object], dimension: int) -> Column | None:
    if not set(map(type, values)) <= {list, _NULL}:
        return None
    present: list[list[object]] = [value for value in values if isinstance(value, list)]
    if not set(map(len, present)) <= {dimension} or not set(map(type, chain.from_iterable(present))) <= {int, float}:
        return None
    numbers = np.fromiter(chain.from_iterable(present), np.float64, len(present) * dimension)
    return vector_column(numbers, np.array([value is None for value in values], bool), dimension)


def vector_column(numbers: Numbers, is_null: Numbers, dimension: int) -> Column | None:
    """Return a column of vectors from the numbers of those that are not null; None if one exceeds a 32-bit float."""
    with np.errstate(over="ignore"):
        narrow = numbers.astype(np.float32)
    if not np.isfinite(narrow).all():
        return None
    vectors = arrays.FixedSizeListArray.from_arrays(pa.array(narrow), type=pa.list_(pa.float32(), dimension))
    if not is_null.any():
        return vectors
    return vectors.take(pa.array(np.cumsum(~is_null) - 1, mask=is_null))


def _lists(values: Sequence[object], item: PropertyType) -> Column | None:
    if not set(map(type, values)) <= {list, _NULL}:
        return None
    present: list[list[object]] = [value for value in values if isinstance(value, list)]
    items = _convert_all(list(chain.from_iterable(present)), item)
    if items is None:
        return None
    lengths = np.fromiter((len(value) if isinstance(value, list) else 0 for value in values), np.int32, len(values))
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return list_column(pa.array(offsets), items, pa.array([value is None for value in values], pa.bool_()))


def list_column(offsets: Column, items: Column, is_null: Column) -> Column:
    """Return a column of lists from its offsets, its items and its null mask."""
    return arrays.ListArray.from_arrays(
        offsets,
        items,
        type=pa.list_(pa.field("item", items.type)),
        mask=is_null if is_null.true_count else None,
    )


def _convert_each(values: Sequence[object], type_: PropertyType) -> tuple[Column, list[Fault]]:
    faults: list[Fault] = []
    fitted: list[Any] = []
    for row, value in enumerate(values):
        items = as_sequence(value) if type_.is_list else None
        if items is not None:
            item = PropertyType(type_.scalar)
            fitted.append([_fit_or_report(row, value, item, faults) for value in items])
        else:
            fitted.append(_fit_or_report(row, value, type_, faults))
    return from_fitted(fitted, type_), faults


def _fit_or_report(row: int, value: object, type_: PropertyType, faults: list[Fault]) -> Any:
    try:
        return fit(value, type_)
    except Misfit as misfit:
        faults.append(Fault(row, misfit.reason, misfit.is_wrong_kind, value))
        return None


def from_fitted(values: Sequence[Any], type_: PropertyType) -> Column:
    """Return a column of values that `fit` returned."""
    if type_.is_list or type_.scalar not in INSTANTS:
        return pa.array(values, arrow_type(type_))
    return pa.array(values, _NUMBERED[type_.scalar]).view(arrow_type(type_))


# Input holds dates as strings or as the stored integers; a column holds one kind.
DateInput: TypeAlias = Literal["string", "number"]
_NEGATIVE_ZERO: Final = np.array([-0.0]).view(np.int64)[0]


def reader_type(type_: PropertyType, dates: DateInput = "string") -> pa.DataType:
    """Return the Arrow type to read a property as, such that the conversion to its own type is exact and strict.

    >>> str(reader_type(PropertyType(Scalar.F32))), str(reader_type(PropertyType(Scalar.DATE, is_list=True)))
    ('double', 'list<item: string>')
    """
    if type_.scalar is Scalar.VECTOR or type_.is_list:
        item = PropertyType(Scalar.F64 if type_.scalar is Scalar.VECTOR else type_.scalar)
        return pa.list_(pa.field("item", reader_type(item, dates)))
    if type_.scalar in INSTANTS and dates == "number":
        return _NUMBERED[type_.scalar]
    if type_.scalar in FLOATS:
        # As everywhere else, a number is rounded to 64 bits first and from there to 32.
        return pa.float64()
    return pa.string() if type_.scalar in INSTANTS or type_.scalar is Scalar.BLOB else arrow_type(type_)


def stored_column(column: Column, type_: PropertyType) -> Column | None:
    """Convert a column that was read as `reader_type` to the layout of its type; None if a value does not fit."""
    if type_.scalar is Scalar.VECTOR:
        return _stored_vectors(column, type_.dimension or 0)
    if type_.is_list:
        items = stored_column(column.values, PropertyType(type_.scalar))
        return None if items is None else list_column(column.offsets, items, column.is_null())
    if type_.scalar in FLOATS:
        return _finite(column, type_)
    if type_.scalar in INSTANTS:
        return _instants(column, type_)
    return _convert_all(column.to_pylist(), type_) if type_.scalar is Scalar.BLOB else column


def has_negative_zero(column: Column) -> bool:
    """Return True if a column of 64-bit floats, or of lists of them, holds a negative zero."""
    numbers = column.values if pa.types.is_list(column.type) else column
    if not pa.types.is_float64(numbers.type) or not len(numbers):
        return False
    bits = np.frombuffer(numbers.buffers()[1], np.int64)[numbers.offset : numbers.offset + len(numbers)]
    return bool((bits == _NEGATIVE_ZERO).any())


def _stored_vectors(column: Column, dimension: int) -> Column | None:
    elements = column.flatten()
    lengths = pc.min_max(pc.list_value_length(column)).as_py()
    if elements.null_count or not {lengths["min"], lengths["max"]} <= {dimension, None}:
        return None
    return vector_column(elements.to_numpy(), column.is_null().to_numpy(zero_copy_only=False), dimension)


def default_value(property_: Property, now_ms: int) -> Any:
    """Return a default in the form that a column stores; None without one."""
    default = property_.default
    if default is None:
        return None
    if default.kind == "uuid":
        return new_uuids(1)[0].decode()
    return _constant(default, property_, now_ms)


def _constant(default: Default, property_: Property, now_ms: int) -> Any:
    if default.kind == "now":
        return now_ms // DAY_MS if property_.type.scalar is Scalar.DATE else now_ms
    return fit(default.value, property_.type)


def default_column(property_: Property, count: int, now_ms: int) -> Column:
    """Return a column of defaults; of nulls if the property has none.

    `now()` is the same in all rows, `uuid()` another one in each.
    """
    if property_.default is not None and property_.default.kind == "uuid":
        return _texts(new_uuids(count))
    value = None if property_.default is None else _constant(property_.default, property_, now_ms)
    return from_fitted([value], property_.type).take(pa.array(np.zeros(count, np.int64)))


def _texts(words: Numbers) -> Column:
    """Return byte strings of one length as a column."""
    offsets = np.arange(len(words) + 1, dtype=np.int32) * words.itemsize
    buffers = [None, arrays.py_buffer(offsets), arrays.py_buffer(np.ascontiguousarray(words))]
    return arrays.Array.from_buffers(pa.string(), len(words), buffers)


def fill_absent(column: Column, is_absent: Numbers, property_: Property, now_ms: int) -> Column:
    """Return a column with the default where the property was not mentioned."""
    if property_.default is None or not is_absent.any():
        return column
    filling = default_column(property_, int(is_absent.sum()), now_ms)
    if is_absent.all():
        return filling
    # `replace_with_mask` does not take lists.
    both = pa.concat_arrays([column, filling])
    indices = np.arange(len(column))
    indices[is_absent] = len(column) + np.arange(len(filling))
    return both.take(pa.array(indices))
