"""The aggregates of the language, each written from its definition; part of the reference evaluator."""

from __future__ import annotations

import datetime as dt
import math
import statistics
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

# Of values that are not null, and of the fraction if the aggregate takes one.
Reference = Callable[..., Any]


def _total(values: list[Any]) -> Any:
    # Sums of integers are exact; those of floats are correct to the last digit here, and compared less strictly.
    if not values:
        return None
    if isinstance(values[0], dt.timedelta):
        return sum(values, dt.timedelta())
    return sum(values) if all(isinstance(value, int) for value in values) else math.fsum(values)


def _mean(values: list[Any]) -> Any:
    """Return the mean; of durations cut off to the millisecond."""
    if not values or not isinstance(values[0], dt.timedelta):
        return _total(values) / len(values) if values else None
    millisecond = dt.timedelta(milliseconds=1)
    return math.trunc(Fraction(_total(values) // millisecond, len(values))) * millisecond


def _percentile(values: list[Any], fraction: Any) -> float | None:
    if not values:
        return None
    ordered = sorted(map(float, values))
    place = float(fraction) * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))


def _median(values: list[Any]) -> Any:
    """Return the middle of numbers, and of dates and durations the smaller of the two in the middle."""
    if not values:
        return None
    is_number = isinstance(values[0], int | float)
    return statistics.median(map(float, values)) if is_number else statistics.median_low(values)


AGGREGATES: Mapping[str, Reference] = {
    "count": len,
    "sum": _total,
    "avg": _mean,
    "min": lambda values: min(values, default=None),
    "max": lambda values: max(values, default=None),
    "collect": lambda values: tuple(sorted(values)),
    "stddev": lambda values: statistics.stdev(map(float, values)) if len(values) > 1 else None,
    "percentile": _percentile,
    "median": _median,
    "mode": lambda values: min(statistics.multimode(values), default=None),
}
# Those that are computed in floating point, whose last digits depend on the order of the work.
ROUGH = frozenset({"sum", "avg", "stddev", "percentile", "median"})
