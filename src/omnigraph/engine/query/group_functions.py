"""Aggregates that look at all values of a group: distinct ones, lists of them, deviations and percentiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.query.aggregate import Codes, Groups, SingleGroup, aggregate, encode_values
from omnigraph.engine.query.compare import validity
from omnigraph.engine.query.ordering import sort_keys, stable_order
from omnigraph.engine.query.vectors import Numbers, Vector, materialize, sort_distinct, to_arrow
from omnigraph.lang.catalog import PropertyType
from omnigraph.lang.query import ir


@dataclass(frozen=True, slots=True)
class ChosenRows:
    """Some rows of groups: the group of each, and how many groups there are."""

    of: Codes
    size: int
    count: int


def aggregate_groups(call: ir.Aggregate, vector: Vector | None, groups: Groups | SingleGroup) -> Any:
    """Return one value per group as an Arrow array."""
    if vector is None:
        return aggregate(call.function, None, groups)
    rows = ChosenRows(groups.of, groups.size, groups.count)
    if call.is_distinct or call.function in ("collect", "stddev", "percentile"):
        vector, rows = _known_values(vector, rows)
    if call.is_distinct and call.function == "count":
        return _count_distinct(vector, rows)
    if call.is_distinct:
        vector, rows = _distinct_values(vector, rows)
    match call.function:
        case "collect":
            return _collect(vector, rows, call.type)
        case "stddev":
            return _deviation(vector, rows)
        case "percentile":
            assert call.fraction is not None
            return _percentile(vector, rows, call.fraction)
    return aggregate(call.function, vector, rows if call.is_distinct else groups)  # type: ignore[arg-type]


def _known_values(vector: Vector, rows: ChosenRows) -> tuple[Vector, ChosenRows]:
    values = materialize(vector, rows.count)
    valid = validity(values)
    if valid is None or bool(valid.all()):
        return values, rows
    valid_rows = np.flatnonzero(valid)
    return values.take(valid_rows), ChosenRows(rows.of[valid_rows], rows.size, len(valid_rows))


def _number_pairs(vector: Vector, rows: ChosenRows) -> tuple[Codes, int]:
    """Return one number per row for its group and value, group by group, and how many numbers a group may have."""
    codes, size = encode_values(vector, rows.count)
    if size > 2**62 // max(rows.size, 1):
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
        size = rows.count
    return rows.of * size + codes, size


def _distinct_values(vector: Vector, rows: ChosenRows) -> tuple[Vector, ChosenRows]:
    """Keep the first of equal values in each group."""
    pairs, size = _number_pairs(vector, rows)
    first = _first_rows(pairs, rows.size * size)
    values = materialize(vector, rows.count)
    return values.take(first), ChosenRows(rows.of[first], rows.size, len(first))


def _count_distinct(vector: Vector, rows: ChosenRows) -> Any:
    """Return how many different values each group has."""
    pairs, size = _number_pairs(vector, rows)
    distinct = _distinct_numbers(pairs, rows.size * size)
    ends = np.searchsorted(distinct, np.arange(rows.size + 1) * size)
    return pa.array(np.diff(ends), pa.int64())


# So many group codes fit 16 bits, which numpy sorts in linear time.
_COUNTED_MAX: Final = 2**16
# Flags for so many possible numbers per row are faster than sorting, and no larger than a place for every fourth.
_FLAGS_PER_ROW: Final = 32


def _distinct_numbers(numbers: Codes, size: int) -> Codes:
    """Return the distinct numbers, all of which are below `size`, in order."""
    if size <= _FLAGS_PER_ROW * len(numbers) + 1_024:
        flags = np.zeros(size, np.bool_)
        flags[numbers] = True
        return np.flatnonzero(flags)
    return sort_distinct(numbers)


def _first_rows(pairs: Codes, size: int) -> npt.NDArray[np.int64]:
    """Return the place of the first of each distinct number, all of which are below `size`."""
    if size > 4 * len(pairs) + 1_024:
        return np.sort(np.unique(pairs, return_index=True)[1])
    # Written backwards, the first place of each number is the one that stays.
    first = np.full(size, -1, np.int64)
    first[pairs[::-1]] = np.arange(len(pairs) - 1, -1, -1)
    return np.sort(first[first >= 0])


def _ordered(vector: Vector, rows: ChosenRows) -> npt.NDArray[np.int64]:
    """Return the places of the rows by group, and by value within it."""
    return stable_order([rows.of, *sort_keys(materialize(vector, rows.count), descending=False)], rows.count)


def _collect(vector: Vector, rows: ChosenRows, type_: PropertyType) -> Any:
    items = to_arrow(vector, PropertyType(type_.scalar), rows.count).take(pa.array(_ordered(vector, rows)))
    ends = np.cumsum(np.bincount(rows.of, minlength=rows.size))
    return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], ends]), pa.int32()), items)


def _floats(vector: Vector, rows: ChosenRows) -> npt.NDArray[np.float64]:
    values = materialize(vector, rows.count)
    assert isinstance(values, Numbers)
    return values.data.astype(np.float64)


def _deviation(vector: Vector, rows: ChosenRows) -> Any:
    """Return the deviation of a sample, in two passes, so that large values do not cancel out."""
    values, counts = _floats(vector, rows), np.bincount(rows.of, minlength=rows.size)
    with np.errstate(all="ignore"):
        means = np.bincount(rows.of, weights=values, minlength=rows.size) / counts
        squares = np.bincount(rows.of, weights=(values - means[rows.of]) ** 2, minlength=rows.size)
        return pa.array(np.sqrt(squares / (counts - 1)), pa.float64(), mask=counts < 2)


def _percentile(vector: Vector, rows: ChosenRows, fraction: float) -> Any:
    """Return the value at a fraction of the way through a group, interpolated between its neighbours."""
    if rows.count == 0:
        return pa.nulls(rows.size, pa.float64())
    counts = np.bincount(rows.of, minlength=rows.size)
    is_empty = counts == 0
    starts = np.where(is_empty, 0, np.cumsum(counts) - counts)
    position = fraction * np.maximum(counts - 1, 0)
    below = np.floor(position).astype(np.int64)
    above = np.minimum(below + 1, np.maximum(counts - 1, 0))
    low, high = _values_at(vector, rows, starts + below, starts + above)
    part = position - below
    with np.errstate(all="ignore"):
        result = np.where(part == 0, low, low + (high - low) * part)
    return pa.array(result, pa.float64(), mask=is_empty)


def _values_at(vector: Vector, rows: ChosenRows, *positions: Codes) -> list[npt.NDArray[np.float64]]:
    """Return the values at some positions, one for each group, of all rows by group and value."""
    values = materialize(vector, rows.count)
    assert isinstance(values, Numbers)
    low, high = (0, -1) if values.data.dtype.kind == "f" else (int(values.data.min()), int(values.data.max()))
    span = high - low + 1
    if span and high < 2**63 and span <= 2**62 // rows.size:
        # Group and value make one number, and numbers of a narrow range are counted instead of sorted.
        numbers = rows.of * span + (values.data.astype(np.int64) - low)
        bases = np.arange(rows.size) * span - low
        if rows.size * span <= 4 * rows.count + 1_024:
            ends = np.cumsum(np.bincount(numbers, minlength=rows.size * span))
            return [(np.searchsorted(ends, indices, "right") - bases).astype(np.float64) for indices in positions]
        numbers.sort()
        return [(numbers[indices] - bases).astype(np.float64) for indices in positions]
    floats = values.data.astype(np.float64)
    by_value = np.argsort(floats)
    # Equal values need no order among themselves, and few groups are sorted by counting.
    codes = rows.of.astype(np.uint16) if rows.size <= _COUNTED_MAX else rows.of
    floats = floats[by_value[np.argsort(codes[by_value], kind="stable")]]
    return [floats[indices] for indices in positions]
