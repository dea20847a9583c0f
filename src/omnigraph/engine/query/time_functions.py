"""The functions of dates on vectors: Date as days since 1970, DateTime as milliseconds, both in UTC."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.query.vectors import (
    Constant,
    Numbers,
    Vector,
    combine_validity,
    divide_integers,
    integers,
    materialize,
    raise_overflow,
    vector_from_arrow,
)
from omnigraph.lang.catalog import PropertyType, Scalar
from omnigraph.lang.times import DATE_RANGE, DAY_MS
from omnigraph.rules.arrow_typing import pc

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


def is_date(vector: Vector) -> bool:
    if isinstance(vector, Constant):
        return vector.type.scalar is Scalar.DATE
    assert isinstance(vector, Numbers)
    return vector.data.dtype == np.int32


def _dates(vector: Vector, count: int) -> Numbers:
    values = materialize(vector, count)
    assert isinstance(values, Numbers)
    return values


def _field(kernel: Callable[[Any], Any]) -> Any:
    def apply(arguments: Sequence[Vector], type_: PropertyType, count: int) -> Vector:
        values = _dates(arguments[0], count)
        physical, logical = (pa.int32(), pa.date32()) if is_date(arguments[0]) else (pa.int64(), pa.timestamp("ms"))
        moments = pa.array(values.data, physical, mask=values.null_mask).view(logical)
        return vector_from_arrow(kernel(moments).cast(pa.int64()))

    return apply


def _month_start(days: npt.NDArray[np.int64], months: npt.NDArray[np.int64] | int) -> npt.NDArray[np.int64]:
    """Return the first day of the month `months` after that of the day."""
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
    unit, is_day = _unit(arguments[0]), type_.scalar is Scalar.DATE
    days, milliseconds, valid = _moments(arguments[1], count, is_day)
    if unit in _MILLISECONDS:
        size = _MILLISECONDS[unit]
        return _join_days(days, milliseconds // size * size, valid, is_day, "date_trunc")
    if unit == "week":
        # 1970-01-01 was a Thursday, and weeks begin on Monday.
        days = days - (days + 3) % 7
    elif unit in _MONTHS:
        size = _MONTHS[unit]
        days = _month_start(days, -(_month_number(days) % size))
    return _join_days(days, np.zeros(count, np.int64), valid, is_day, "date_trunc")


def _add(arguments: Sequence[Vector], type_: PropertyType, count: int) -> Vector:
    unit, is_day = _unit(arguments[2]), type_.scalar is Scalar.DATE
    days, milliseconds, valid = _moments(arguments[0], count, is_day)
    amounts, valid_amounts = integers(arguments[1], "date_add")
    amounts = np.broadcast_to(amounts, (count,))
    valid = combine_validity(valid, valid_amounts)
    # Larger steps leave every calendar; within them no step below can overflow.
    raise_overflow(np.abs(amounts.astype(np.float64)) > 2.0**40, valid, "date_add", type_.scalar.value)
    amounts = amounts if valid is None else np.where(valid, amounts, 0)
    if unit in _MILLISECONDS:
        total = milliseconds + amounts * _MILLISECONDS[unit]
        days = days + total // DAY_MS
        return _join_days(days, total - total // DAY_MS * DAY_MS, valid, is_day, "date_add")
    if unit in _DAYS:
        return _join_days(days + amounts * _DAYS[unit], milliseconds, valid, is_day, "date_add")
    steps = amounts * _MONTHS[unit]
    raise_overflow(np.abs(steps) > 2**35, valid, "date_add", type_.scalar.value)
    within = days - _month_start(days, 0)
    start, following = _month_start(days, steps), _month_start(days, steps + 1)
    return _join_days(start + np.minimum(within, following - start - 1), milliseconds, valid, is_day, "date_add")


def _difference(arguments: Sequence[Vector], type_: PropertyType, count: int) -> Vector:
    unit, is_day = _unit(arguments[0]), is_date(arguments[1])
    first_days, first_ms, valid_first = _moments(arguments[1], count, is_day)
    last_days, last_ms, valid_last = _moments(arguments[2], count, is_day)
    valid = combine_validity(valid_first, valid_last)
    if unit in _MONTHS:
        months = _month_number(last_days) - _month_number(first_days)
        first = (first_days - _month_start(first_days, 0)) * DAY_MS + first_ms
        last = (last_days - _month_start(last_days, 0)) * DAY_MS + last_ms
        # A month that is not complete does not count.
        months = months - ((months > 0) & (last < first)) + ((months < 0) & (last > first))
        return Numbers(divide_integers(months, _MONTHS[unit]), valid)
    elapsed = (last_days - first_days) * DAY_MS + last_ms - first_ms
    return Numbers(divide_integers(elapsed, _DAYS.get(unit, 0) * DAY_MS or _MILLISECONDS[unit]), valid)


def _month_number(days: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    months: npt.NDArray[np.int64] = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    return months


DATE_FUNCTIONS: Final[Mapping[str, Any]] = {
    "year": _field(pc.year),
    "month": _field(pc.month),
    "day": _field(pc.day),
    "weekday": _field(partial(pc.day_of_week, count_from_zero=False, week_start=1)),
    "hour": _field(pc.hour),
    "minute": _field(pc.minute),
    "second": _field(pc.second),
    "date_trunc": _truncate,
    "date_add": _add,
    "date_diff": _difference,
}
