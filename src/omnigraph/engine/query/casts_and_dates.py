"""`cast` and the date functions on vectors: Date as days since 1970, DateTime as milliseconds, both in UTC.

A text that does not hold a value of the type gives null; a number that does not fit raises ArithmeticOverflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.query.vectors import (
    Constant,
    Mask,
    Numbers,
    Strings,
    Vector,
    combine_validity,
    integers,
    materialize,
    raise_overflow,
    vector_from_arrow,
)
from omnigraph.lang.catalog import FLOATS, INTEGERS, PropertyType, Scalar
from omnigraph.lang.schema.arrow_schema import arrow_type
from omnigraph.rules.arrow_typing import pc
from omnigraph.rules.datetimes import DATE_RANGE, DAY_MS

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
        raise_overflow(outside, valid, "cast", scalar.value)
        known = is_number & ~outside
        return Numbers(np.where(known, truncated, 0.0).astype(dtype), valid)
    if data.dtype.kind == "b":
        return Numbers(data.astype(dtype), valid)
    raise_overflow(_outside(data, int(limits.min), int(limits.max)), valid, "cast", scalar.value)
    return Numbers(data.astype(dtype), valid)


def _outside(data: npt.NDArray[Any], low: int, high: int) -> Mask:
    dtype_limits = np.iinfo(data.dtype)
    below: Mask = data < low if low > dtype_limits.min else np.zeros(len(data), np.bool_)
    above: Mask = data > high if high < dtype_limits.max else np.zeros(len(data), np.bool_)
    return below | above


# -- texts -----------------------------------------------------------------------------------------------------


def _format(values: Numbers, source: Scalar) -> Any:
    if source is Scalar.DATE:
        return _arrow_moments(values, is_date=True).cast(pa.string())
    if source is Scalar.DATETIME:
        return pc.strftime(_arrow_moments(values, is_date=False), "%Y-%m-%dT%H:%M:%SZ")
    texts = pa.array(values.data, mask=values.null_mask).cast(pa.string())
    if source not in FLOATS:
        return texts
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


_MILLISECONDS: Final = {"hour": 3_600_000, "minute": 60_000, "second": 1_000}
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
_DAYS: Final = {"day": 1, "week": 7}


def _moments(vector: Vector, count: int, is_date: bool) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Any]:
    """Return the days and the milliseconds within them, and which are valid."""
    values = _dates(vector, count)
    data = values.data.astype(np.int64)
    if is_date:
        return data, np.zeros(count, np.int64), values.valid
    days = data // DAY_MS
    return days, data - days * DAY_MS, values.valid


def _is_date(vector: Vector) -> bool:
    if isinstance(vector, Constant):
        return vector.type.scalar is Scalar.DATE
    assert isinstance(vector, Numbers)
    return vector.data.dtype == np.int32


def _dates(vector: Vector, count: int) -> Numbers:
    values = materialize(vector, count)
    assert isinstance(values, Numbers)
    return values


def _arrow_moments(values: Numbers, is_date: bool) -> Any:
    physical, type_ = (pa.int32(), pa.date32()) if is_date else (pa.int64(), pa.timestamp("ms"))
    return pa.array(values.data, physical, mask=values.null_mask).view(type_)


def _field(kernel: Callable[[Any], Any]) -> Any:
    def apply(arguments: Sequence[Vector], type_: PropertyType, count: int) -> Vector:
        [vector] = arguments
        moments = _arrow_moments(_dates(vector, count), _is_date(vector))
        return vector_from_arrow(kernel(moments).cast(pa.int64()))

    return apply


def _weekday(moments: Any) -> Any:
    return pc.day_of_week(moments, count_from_zero=False, week_start=1)


def _month_start(days: npt.NDArray[np.int64], months: npt.NDArray[np.int64] | int) -> npt.NDArray[np.int64]:
    """Return the first day of the month that is so many months after that of the day."""
    start = days.astype("datetime64[D]").astype("datetime64[M]") + np.asarray(months).astype("timedelta64[M]")
    first_days: npt.NDArray[np.int64] = start.astype("datetime64[D]").astype(np.int64)
    return first_days


def _join_days(days: npt.NDArray[Any], milliseconds: npt.NDArray[Any], valid: Any, is_date: bool, name: str) -> Numbers:
    first, last = DATE_RANGE
    raise_overflow((days < first) | (days > last), valid, name, "Date" if is_date else "DateTime")
    if is_date:
        return Numbers(days.astype(np.int32), valid)
    return Numbers(days * DAY_MS + milliseconds, valid)


def _unit(vector: Vector) -> str:
    assert isinstance(vector, Constant)
    return str(vector.value)


def _truncate(arguments: Sequence[Vector], type_: PropertyType, count: int) -> Vector:
    unit, is_date = _unit(arguments[0]), type_.scalar is Scalar.DATE
    days, milliseconds, valid = _moments(arguments[1], count, is_date)
    if unit in _MILLISECONDS:
        size = _MILLISECONDS[unit]
        return _join_days(days, milliseconds // size * size, valid, is_date, "date_trunc")
    if unit == "week":
        # 1970-01-01 was a Thursday, and weeks begin on Monday.
        days = days - (days + 3) % 7
    elif unit in _MONTHS:
        size = _MONTHS[unit]
        days = _month_start(days, -(_month_number(days) % size))
    return _join_days(days, np.zeros(count, np.int64), valid, is_date, "date_trunc")


def _add(arguments: Sequence[Vector], type_: PropertyType, count: int) -> Vector:
    unit, is_date = _unit(arguments[2]), type_.scalar is Scalar.DATE
    days, milliseconds, valid = _moments(arguments[0], count, is_date)
    amounts, valid_amounts = integers(arguments[1], "date_add")
    amounts = np.broadcast_to(amounts, (count,))
    valid = combine_validity(valid, valid_amounts)
    # Larger steps leave every calendar; within them no step below can overflow.
    raise_overflow(np.abs(amounts.astype(np.float64)) > 2.0**40, valid, "date_add", type_.scalar.value)
    amounts = amounts if valid is None else np.where(valid, amounts, 0)
    if unit in _MILLISECONDS:
        total = milliseconds + amounts * _MILLISECONDS[unit]
        days = days + total // DAY_MS
        return _join_days(days, total - total // DAY_MS * DAY_MS, valid, is_date, "date_add")
    if unit in _DAYS:
        return _join_days(days + amounts * _DAYS[unit], milliseconds, valid, is_date, "date_add")
    steps = amounts * _MONTHS[unit]
    raise_overflow(np.abs(steps) > 2**35, valid, "date_add", type_.scalar.value)
    within = days - _month_start(days, 0)
    start, following = _month_start(days, steps), _month_start(days, steps + 1)
    return _join_days(start + np.minimum(within, following - start - 1), milliseconds, valid, is_date, "date_add")


def _difference(arguments: Sequence[Vector], type_: PropertyType, count: int) -> Vector:
    unit, is_date = _unit(arguments[0]), _is_date(arguments[1])
    first_days, first_ms, valid_first = _moments(arguments[1], count, is_date)
    last_days, last_ms, valid_last = _moments(arguments[2], count, is_date)
    valid = combine_validity(valid_first, valid_last)
    if unit in _MONTHS:
        months = _month_number(last_days) - _month_number(first_days)
        first = (first_days - _month_start(first_days, 0)) * DAY_MS + first_ms
        last = (last_days - _month_start(last_days, 0)) * DAY_MS + last_ms
        # A month that is not complete does not count.
        months = months - ((months > 0) & (last < first)) + ((months < 0) & (last > first))
        return Numbers(_quotient(months, _MONTHS[unit]), valid)
    elapsed = (last_days - first_days) * DAY_MS + last_ms - first_ms
    return Numbers(_quotient(elapsed, _DAYS.get(unit, 0) * DAY_MS or _MILLISECONDS[unit]), valid)


def _month_number(days: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    months: npt.NDArray[np.int64] = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    return months


def _quotient(values: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """Divide towards zero."""
    quotient: npt.NDArray[np.int64] = np.sign(values) * (np.abs(values) // size)
    return quotient


DATE_FUNCTIONS: Final[Mapping[str, Any]] = {
    "year": _field(pc.year),
    "month": _field(pc.month),
    "day": _field(pc.day),
    "weekday": _field(_weekday),
    "hour": _field(pc.hour),
    "minute": _field(pc.minute),
    "second": _field(pc.second),
    "date_trunc": _truncate,
    "date_add": _add,
    "date_diff": _difference,
}
