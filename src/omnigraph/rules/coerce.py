"""Converts the values of a property to an Arrow column of its type, lists those that do not fit, and fills defaults.

Pure. Columns are converted as a whole; only a column with an invalid value is then checked value by value.

An explicit null is a value: it is kept, and refused where the property is required.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from math import isfinite
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.ids import new_uuids
from omnigraph.lang.catalog import Default, Property, PropertyType
from omnigraph.lang.scalars import RANGES, TIME_FORMS, Family, Scalar, narrow_float
from omnigraph.lang.schema.arrow_schema import PHYSICAL, arrow_type
from omnigraph.rules.arrow_typing import Column, Numbers, arrays, pc
from omnigraph.rules.time_columns import is_in_range, parse_times

BLOB_PREFIX: Final = "base64:"


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
    if type_.is_vector:
        return _vector(value, type_)
    if type_.is_list:
        items = as_sequence(value)
        if items is None:
            raise Misfit(f"{shown(value)} is not a list")
        return [fit(element, type_.item_type) for element in items]
    return _scalar(value, type_)


def as_sequence(value: object) -> Sequence[object] | None:
    """Return a list, tuple or array as a sequence; None for anything else."""
    if isinstance(value, np.ndarray):
        return value.tolist() if value.ndim == 1 else None
    return value if isinstance(value, list | tuple) else None


def _scalar(value: object, type_: PropertyType) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    kinds, store = _STORED_FROM[type_.scalar.facts.family]
    if isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)):
        stored = store(value, type_.scalar)
        if stored is not None:
            return stored
    raise Misfit(f"{shown(value)} is not a value of type `{type_}`", is_wrong_kind=True)


def _text(value: str, scalar: Scalar) -> str:
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


def _float(value: float | Decimal, scalar: Scalar) -> float:
    if isinstance(value, Decimal):
        # Decimals that a float keeps were converted as a column.
        raise Misfit(f"{shown(value)} has more digits than `{scalar}` keeps; round it")
    try:
        number = float(value)
        narrow_float(number, scalar)
    except OverflowError:
        raise Misfit(f"{shown(value)} is too large for `{scalar}`") from None
    if not isfinite(number):
        raise Misfit(f"{number} is not a finite number")
    return number


def _time(value: object, scalar: Scalar) -> int | None:
    form = TIME_FORMS[scalar]
    if not isinstance(value, str):
        try:
            return _integer(value, scalar) if isinstance(value, int) else form.convert(value)
        except ValueError as error:
            raise Misfit(f"{shown(value)} {error}") from None
    stored = form.read(value)
    if stored is None:
        raise Misfit(f"{shown(value)} is not a {scalar}; write it like {form.example}")
    return stored


def _blob(value: str | bytes, scalar: Scalar) -> bytes:
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


# By family of types: what a value may be in Python, and how it is stored; None for a value of another kind.
_STORED_FROM: Final[Mapping[Family, tuple[tuple[type, ...], Callable[[Any, Scalar], Any]]]] = {
    Family.TEXT: ((str,), _text),
    Family.BYTES: ((str, bytes), _blob),
    Family.TRUTH: ((bool,), lambda value, _: value),
    Family.INTEGER: ((int,), _integer),
    Family.FLOAT: ((int, float, Decimal), _float),
    Family.TIME: ((object,), _time),
}


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
    try:
        numbers = [_scalar(item, type_.item_type) for item in items]
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
        if type_.is_vector:
            return _vectors(values, type_.dimension or 0)
        if type_.is_list:
            return _lists(values, type_.item_type)
        return _CONVERTERS.get(type_.scalar.facts.family, _plain)(values, type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError, TypeError):
        return None


def _plain(values: Sequence[object], type_: PropertyType) -> Column | None:
    kinds, _ = _STORED_FROM[type_.scalar.facts.family]
    if not set(map(type, values)) <= {*kinds, _NULL}:
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


def _times(values: Sequence[object], type_: PropertyType) -> Column | None:
    kinds = set(map(type, values)) - {_NULL}
    if kinds <= {str}:
        return _stored_times(pa.array(values, pa.string()), type_)
    return _stored_times(pa.array(values, PHYSICAL[arrow_type(type_)]), type_) if kinds <= {int} else None


def _stored_times(column: Column, type_: PropertyType) -> Column | None:
    """Convert strings or stored integers to a column of dates or times."""
    if pa.types.is_string(column.type):
        return parse_times(column, type_.scalar)
    return column.view(arrow_type(type_)) if is_in_range(column, type_.scalar) else None


def _blobs(values: Sequence[object], type_: PropertyType) -> Column | None:
    kinds = set(map(type, values)) - {_NULL}
    if kinds <= {bytes}:
        return pa.array(values, pa.large_binary())
    texts = [value for value in values if isinstance(value, str)]
    if not kinds <= {str} or not all(text.startswith(BLOB_PREFIX) for text in texts):
        return None
    return pa.array([decode_blob(value) if isinstance(value, str) else None for value in values], pa.large_binary())


_CONVERTERS: Final[Mapping[Family, Callable[[Sequence[object], PropertyType], Column | None]]] = {
    Family.FLOAT: _floats,
    Family.TIME: _times,
    Family.BYTES: _blobs,
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
            fitted.append([_fit_or_report(row, value, type_.item_type, faults) for value in items])
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
    stored = arrow_type(type_)
    physical = PHYSICAL.get(stored)
    return pa.array(values, stored) if physical is None else pa.array(values, physical).view(stored)


# Input holds dates as strings or as the stored integers; a column holds one kind.
DateInput: TypeAlias = Literal["string", "number"]
_NEGATIVE_ZERO: Final = np.array([-0.0]).view(np.int64)[0]


def reader_type(type_: PropertyType, dates: DateInput = "string") -> pa.DataType:
    """Return the Arrow type to read a property as, such that the conversion to its own type is exact and strict.

    >>> str(reader_type(PropertyType(Scalar.F32))), str(reader_type(PropertyType(Scalar.DATE, is_list=True)))
    ('double', 'list<item: string>')
    """
    if type_.is_array:
        return pa.list_(pa.field("item", reader_type(type_.item_type, dates)))
    stored, family = arrow_type(type_), type_.scalar.facts.family
    if family is Family.FLOAT:
        # As everywhere else, a number is rounded to 64 bits first and from there to 32.
        return pa.float64()
    if family is Family.TIME and dates == "number":
        return PHYSICAL[stored]
    return pa.string() if family in (Family.TIME, Family.BYTES) else stored


def stored_column(column: Column, type_: PropertyType) -> Column | None:
    """Convert a column that was read as `reader_type` to the layout of its type; None if a value does not fit."""
    if type_.is_vector:
        return _stored_vectors(column, type_.dimension or 0)
    if type_.is_list:
        items = stored_column(column.values, type_.item_type)
        return None if items is None else list_column(column.offsets, items, column.is_null())
    match type_.scalar.facts.family:
        case Family.FLOAT:
            return _finite(column, type_)
        case Family.TIME:
            return _stored_times(column, type_)
        case Family.BYTES:
            return _convert_all(column.to_pylist(), type_)
    return column


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
        at = TIME_FORMS[property_.type.scalar].at
        assert at is not None
        return at(now_ms)
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
