"""`cast` on vectors: between numbers, to and from texts, and between Date and DateTime.

A text that does not hold a value of the type gives null; a number that does not fit raises ArithmeticOverflow.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.query.vectors import (
    Mask,
    Numbers,
    Strings,
    Vector,
    combine_validity,
    materialize,
    raise_overflow,
    vector_from_arrow,
)
from omnigraph.lang.catalog import FLOATS, INTEGERS, PropertyType, Scalar
from omnigraph.lang.schema.arrow_schema import arrow_type
from omnigraph.rules.arrow_typing import pc
from omnigraph.rules.datetimes import DAY_MS

_DTYPES: Final[dict[Scalar, Any]] = {
    Scalar.I32: np.int32, Scalar.I64: np.int64, Scalar.U32: np.uint32, Scalar.U64: np.uint64, Scalar.F32: np.float32,
    Scalar.F64: np.float64,
}  # fmt: skip
_INTEGER: Final = r"^[+-]?[0-9]{1,20}$"
_FLOAT: Final = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
# Years begin with 0001.
_YEAR: Final = "(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_DATE: Final = rf"^{_YEAR}-[0-9]{{2}}-[0-9]{{2}}$"
_DATETIME: Final = rf"^{_YEAR}-[0-9]{{2}}-[0-9]{{2}}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,3}})?Z$"


def cast_vector(vector: Vector, source: Scalar, type_: PropertyType, count: int) -> Vector:
    """Return a vector of one type as another."""
    values = materialize(vector, count)
    if isinstance(values, Strings):
        return _parse(values.array, type_)
    assert isinstance(values, Numbers)
    if type_.scalar is Scalar.STRING:
        return Strings(_format(values, source))
    if type_.scalar in FLOATS:
        with np.errstate(over="ignore"):
            return Numbers(values.data.astype(_DTYPES[type_.scalar]), values.valid)
    if type_.scalar in INTEGERS:
        return _to_integers(values, type_.scalar)
    if type_.scalar is Scalar.DATE:
        return Numbers((values.data // DAY_MS).astype(np.int32), values.valid)
    return Numbers(values.data.astype(np.int64) * DAY_MS, values.valid)


def _to_integers(values: Numbers, scalar: Scalar) -> Numbers:
    """Return integers of a width; floats are cut off towards zero, and not-a-number is null."""
    data, valid, dtype = values.data, values.valid, _DTYPES[scalar]
    limits = np.iinfo(dtype)
    if data.dtype.kind == "f":
        truncated = np.trunc(data.astype(np.float64))
        is_number = ~np.isnan(truncated)
        valid = valid if bool(is_number.all()) else combine_validity(valid, is_number)
        # The bound above is a power of two, and so exact as a float.
        outside: Mask = is_number & ((truncated < float(limits.min)) | (truncated >= float(int(limits.max) + 1)))
        raise_overflow(outside if valid is None else outside & valid, "cast", scalar.value)
        known = is_number & ~outside
        return Numbers(np.where(known, truncated, 0.0).astype(dtype), valid)
    if data.dtype.kind == "b":
        return Numbers(data.astype(dtype), valid)
    outside = _outside(data, int(limits.min), int(limits.max))
    raise_overflow(outside if valid is None else outside & valid, "cast", scalar.value)
    return Numbers(data.astype(dtype), valid)


def _outside(data: npt.NDArray[Any], low: int, high: int) -> Mask:
    dtype_limits = np.iinfo(data.dtype)
    below: Mask = data < low if low > dtype_limits.min else np.zeros(len(data), np.bool_)
    above: Mask = data > high if high < dtype_limits.max else np.zeros(len(data), np.bool_)
    return below | above


# -- texts -----------------------------------------------------------------------------------------------------


def _format(values: Numbers, source: Scalar) -> Any:
    mask = None if values.valid is None else ~values.valid
    if source in (Scalar.DATE, Scalar.DATETIME):
        if source is Scalar.DATE:
            return pa.array(values.data, pa.int32(), mask=mask).view(pa.date32()).cast(pa.string())
        moments = pa.array(values.data, pa.int64(), mask=mask).view(pa.timestamp("ms"))
        return pc.strftime(moments, "%Y-%m-%dT%H:%M:%SZ")
    if source not in FLOATS:
        return pa.array(values.data, mask=mask).cast(pa.string())
    texts = pa.array(values.data, mask=mask).cast(pa.string())
    for spelling, shown in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        texts = pc.if_else(pc.equal(texts, spelling), shown, texts)
    # A float keeps its point, so that its text is one of a float.
    is_bare = pc.match_substring_regex(texts, r"^-?[0-9]+$")
    return pc.if_else(is_bare, pc.binary_join_element_wise(texts, ".0", ""), texts)


def _parse(array: Any, type_: PropertyType) -> Vector:
    """Return the values that texts spell; null for a text that spells none."""
    scalar = type_.scalar
    if scalar in INTEGERS:
        limits = np.iinfo(_DTYPES[scalar])
        wide = _keep(array, _INTEGER).cast(pa.decimal128(38, 0))
        low, high = (pa.scalar(Decimal(int(bound)), pa.decimal128(38, 0)) for bound in (limits.min, limits.max))
        fits = pc.and_(pc.greater_equal(wide, low), pc.less_equal(wide, high))
        return vector_from_arrow(_null_unless(fits, wide).cast(arrow_type(type_)))
    if scalar in FLOATS:
        return vector_from_arrow(_keep(array, _FLOAT).cast(pa.float64()).cast(arrow_type(type_), safe=False))
    if scalar is Scalar.BOOL:
        return vector_from_arrow(_keep(array, "^(true|false)$").cast(pa.bool_()))
    return _parse_dates(array) if scalar is Scalar.DATE else _parse_datetimes(array)


def _parse_dates(array: Any) -> Vector:
    texts = _keep(array, _DATE)
    days = pc.strptime(texts, format="%Y-%m-%d", unit="s", error_is_null=True).cast(pa.date32())
    # A day that the month lacks would become one of the next month.
    return vector_from_arrow(_null_unless(pc.equal(days.cast(pa.string()), texts), days))


def _parse_datetimes(array: Any) -> Vector:
    texts = _keep(array, _DATETIME)
    second_texts = pc.utf8_slice_codeunits(texts, start=0, stop=19)
    seconds = pc.strptime(second_texts, format="%Y-%m-%dT%H:%M:%S", unit="s", error_is_null=True)
    seconds = _null_unless(pc.equal(pc.strftime(seconds, "%Y-%m-%dT%H:%M:%S"), second_texts), seconds)
    digits = pc.utf8_rpad(pc.utf8_slice_codeunits(pc.replace_substring(texts, "Z", ""), start=20, stop=23), 3, "0")
    milliseconds = pc.add(pc.multiply(seconds.cast(pa.int64()), 1_000), digits.cast(pa.int64()))
    return vector_from_arrow(milliseconds)


def _keep(array: Any, pattern: str) -> Any:
    """Return the texts that a pattern matches, null for the others."""
    return _null_unless(pc.match_substring_regex(array, pattern=pattern), array)


def _null_unless(condition: Any, array: Any) -> Any:
    return pc.if_else(pc.fill_null(condition, False), array, pa.nulls(len(array), array.type))
