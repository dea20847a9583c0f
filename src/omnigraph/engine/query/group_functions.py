"""Aggregates that look at all values of a group: distinct ones, lists of them, deviations and percentiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.query.aggregate import Codes, Groups, SingleGroup, aggregate, encode_values
from omnigraph.engine.query.compare import validity
from omnigraph.engine.query.ordering import sort_keys
from omnigraph.engine.query.search import Numbers, Vector
from omnigraph.engine.query.vectors import materialize, to_arrow
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
    if valid is None:
        return values, rows
    places = np.flatnonzero(valid)
    return values.take(places), ChosenRows(rows.of[places], rows.size, len(places))


def _distinct_values(vector: Vector, rows: ChosenRows) -> tuple[Vector, ChosenRows]:
    """Keep the first of equal values in each group."""
    codes, size = encode_values(vector, rows.count)
    if size > 2**62 // max(rows.size, 1):
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
        size = rows.count
    first = _first_places(rows.of * size + codes, rows.size * size)
    values = materialize(vector, rows.count)
    return values.take(first), ChosenRows(rows.of[first], rows.size, len(first))


# So many group codes fit 16 bits, which numpy sorts in linear time.
_COUNTED_MAX: Final = 2**16


def _first_places(pairs: Codes, size: int) -> npt.NDArray[np.int64]:
    """Return the place of the first of each distinct number, all of which are below `size`."""
    if size > 4 * len(pairs) + 1_024:
        return np.sort(np.unique(pairs, return_index=True)[1])
    # Written backwards, the first place of each number is the one that stays.
    first = np.full(size, -1, np.int64)
    first[pairs[::-1]] = np.arange(len(pairs) - 1, -1, -1)
    return np.sort(first[first >= 0])


def _ordered(vector: Vector, rows: ChosenRows) -> npt.NDArray[np.int64]:
    """Return the places of the rows by group, and by value within it."""
    keys = sort_keys(materialize(vector, rows.count), descending=False)
    return np.lexsort((*reversed(keys), rows.of))


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
    values = _floats(vector, rows)
    by_value = np.argsort(values)
    # Equal values need no order among themselves, and few groups are sorted by counting.
    codes = rows.of.astype(np.uint16) if rows.size <= _COUNTED_MAX else rows.of
    values = values[by_value[np.argsort(codes[by_value], kind="stable")]]
    counts = np.bincount(rows.of, minlength=rows.size)
    is_empty = counts == 0
    starts = np.cumsum(counts) - counts
    position = fraction * np.maximum(counts - 1, 0)
    below = np.floor(position).astype(np.int64)
    above = np.minimum(below + 1, np.maximum(counts - 1, 0))
    padded = np.append(values, 0.0)
    low = padded[np.where(is_empty, len(values), starts + below)]
    high = padded[np.where(is_empty, len(values), starts + above)]
    part = position - below
    with np.errstate(all="ignore"):
        result = np.where(part == 0, low, low + (high - low) * part)
    return pa.array(result, pa.float64(), mask=is_empty)
