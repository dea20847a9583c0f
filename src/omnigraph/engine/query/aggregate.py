"""Groups and aggregates: rows with equal keys, exact sums, extremes, distinct values, lists, deviations, percentiles.

Integer sums are split into limbs small enough that no partial sum overflows, then joined with carries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.query.compare import validity
from omnigraph.engine.query.ordering import Codes, encode_values, rank_strings, sort_keys, stable_order
from omnigraph.engine.query.vectors import (
    Lists,
    Numbers,
    Strings,
    Vector,
    distinct_below,
    group_offsets,
    materialize,
    run_starts,
    to_arrow,
)
from omnigraph.errors import ArithmeticOverflow
from omnigraph.lang.catalog import PropertyType, Scalar
from omnigraph.lang.query import ir

Integers = npt.NDArray[np.int64]
# Sums of limbs stay below this, which leaves room for the carries.
_SUM_BITS: Final = 61
_VALUE_BITS: Final = 64


@dataclass(frozen=True, slots=True)
class ExactSums:
    """One exact sum per group: `top * 2^shift + low`, with 0 <= low < 2^shift."""

    top: Integers
    low: npt.NDArray[np.uint64]
    shift: int
    is_unsigned: bool

    def integers(self, function: str) -> npt.NDArray[Any]:
        """Return the sums as I64 or U64; raises ArithmeticOverflow where one does not fit."""
        if not bool(self._fits().all()):
            raise overflow_error(function, Scalar.U64 if self.is_unsigned else Scalar.I64)
        return self._wrapped()

    def floats(self) -> npt.NDArray[np.float64]:
        """Return the sums as floats, for averages."""
        # The two parts of a small negative sum would cancel out; those of a sum beyond 64 bits add up.
        large = self.top.astype(np.float64) * 2.0**self.shift + self.low.astype(np.float64)
        return np.where(self._fits(), self._wrapped().astype(np.float64), large)

    def _fits(self) -> npt.NDArray[np.bool_]:
        bits = (64 if self.is_unsigned else 63) - self.shift
        lowest = 0 if self.is_unsigned else -(2**bits)
        fits: npt.NDArray[np.bool_] = (self.top >= lowest) & (self.top < 2**bits)
        return fits

    def _wrapped(self) -> npt.NDArray[Any]:
        """Return the sums modulo 2^64."""
        with np.errstate(over="ignore"):
            total = (self.top.astype(np.uint64) << np.uint64(self.shift)) + self.low
        return total if self.is_unsigned else total.view(np.int64)


def overflow_error(function: str, scalar: Scalar) -> ArithmeticOverflow:
    """Return the error of a sum that does not fit its type."""
    return ArithmeticOverflow(overflow_message(function, scalar), function=function, type=scalar.value)


def overflow_message(function: str, scalar: Scalar) -> str:
    return f"a result of `{function}` does not fit {scalar.value}; add up fewer values, or use `avg`"


def limb_bits(count: float) -> int:
    """Return how many bits a limb may have when so many values are added.

    >>> limb_bits(1), limb_bits(2.0**20), limb_bits(2.0**62)
    (61, 41, 1)
    """
    return max(1, _SUM_BITS - int(np.ceil(np.log2(max(count, 1.0)))))


def split_limbs(values: npt.NDArray[Any], bits: int) -> list[Integers]:
    """Return the limbs of integers, lowest first; of signed ones the last is negative where the value is."""
    wide = values if values.dtype == np.uint64 else values.astype(np.int64)
    mask = wide.dtype.type((1 << bits) - 1)
    shifts = range(0, _VALUE_BITS, bits)
    limbs = [((wide >> wide.dtype.type(shift)) & mask).astype(np.int64) for shift in shifts[:-1]]
    return [*limbs, (wide >> wide.dtype.type(shifts[-1])).astype(np.int64)]


def join_limbs(sums: Sequence[Integers], bits: int, is_unsigned: bool) -> ExactSums:
    """Put the sums of limbs together; `sums` are in the order of `split_limbs`."""
    low = np.zeros(len(sums[0]), np.uint64)
    carry: Integers = np.zeros(len(sums[0]), np.int64)
    mask = np.int64((1 << bits) - 1)
    for position, limb in enumerate(sums[:-1]):
        total = limb + carry
        low |= (total & mask).astype(np.uint64) << np.uint64(position * bits)
        carry = total >> np.int64(bits)
    return ExactSums(sums[-1] + carry, low, bits * (len(sums) - 1), is_unsigned)


# Integers below this are exact in 64-bit floats, in which numpy adds groups fastest.
FLOAT_EXACT_MAX: Final = 2**53


class Groups:
    """Rows in groups: `of` is the group of each row, `first` a row of each group."""

    def __init__(self, keys: list[tuple[Codes, int]], count: int) -> None:
        self.count = count
        combined, size = _combine_codes(keys, count)
        if size <= 4 * count + 1_024:
            first = np.full(size, -1, np.int64)
            first[combined[::-1]] = np.arange(count - 1, -1, -1)
            present = first >= 0
            self.of: Codes = (np.cumsum(present) - 1)[combined]
            self.first: Codes = first[present]
        else:
            self.of, self.first = _sorted_groups(combined, size)

    @property
    def size(self) -> int:
        return len(self.first)

    def sum(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.bincount(self.of, weights=values, minlength=self.size)

    def sum_integers(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return sum_integers(values, self.of, self.size)


def _sorted_groups(codes: Codes, size: int) -> tuple[Codes, Codes]:
    """Return the group of each row and the first row of each group, by sorting."""
    count = len(codes)
    if size >= 2**62 // max(count, 1):
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        return inverse.astype(np.int64), first
    # Sorting value and position packed into one integer is several times faster than argsort.
    numbers = np.sort(codes * count + np.arange(count))
    ordered = numbers // max(count, 1)
    positions = numbers - ordered * count
    is_first = run_starts(ordered)
    of = np.empty(count, np.int64)
    of[positions] = np.cumsum(is_first) - 1
    return of, positions[is_first]


def _combine_codes(keys: list[tuple[Codes, int]], count: int) -> tuple[Codes, int]:
    combined, total = np.zeros(count, np.int64), 1
    for codes, size in keys:
        if total > 2**62 // max(size, 1):
            values, inverse = np.unique(combined, return_inverse=True)
            combined, total = inverse.astype(np.int64), len(values)
        combined, total = combined * size + codes, total * size
    return combined, total


class SingleGroup:
    """All rows as one group, which exists even without rows."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.of: Codes = np.zeros(count, np.int64)
        self.first: Codes = np.zeros(1, np.int64)
        self.size = 1

    def sum(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        total: npt.NDArray[Any] = values.sum(keepdims=True)
        return total

    def sum_integers(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self.sum(values)


class SingletonGroups:
    """Every row is its own group."""

    def __init__(self, count: int) -> None:
        self.count = self.size = count
        self.of: Codes = np.arange(count, dtype=np.int64)
        self.first = self.of

    def sum(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return values

    def sum_integers(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return values


@dataclass(frozen=True, slots=True)
class ChosenRows:
    """Some rows of groups: the group of each, and how many groups there are."""

    of: Codes
    size: int
    count: int


AnyGroups: TypeAlias = Groups | SingleGroup | SingletonGroups
# What aggregates read of groups.
GroupedRows: TypeAlias = Groups | SingleGroup | ChosenRows


def sum_integers(values: npt.NDArray[np.int64], of: Codes, size: int) -> npt.NDArray[np.int64]:
    """Return the sums of integers by group, modulo 2^64."""
    largest = max(abs(int(values.min(initial=0))), int(values.max(initial=0)))
    if largest * len(values) < FLOAT_EXACT_MAX:
        return np.bincount(of, weights=values, minlength=size).astype(np.int64)
    sums = np.zeros(size, np.int64)
    np.add.at(sums, of, values)
    return sums


def aggregate(function: str, vector: Vector | None, groups: GroupedRows) -> Any:
    """Return one value per group as an Arrow array: a count, a sum, an average in 64-bit floats, or an extreme."""
    if vector is None:
        return pa.array(np.bincount(groups.of, minlength=groups.size), pa.int64())
    vector = materialize(vector, groups.count)
    valid = validity(vector)
    counts = np.bincount(groups.of if valid is None else groups.of[valid], minlength=groups.size)
    if function == "count":
        return pa.array(counts, pa.int64())
    if function in ("sum", "avg"):
        assert isinstance(vector, Numbers)
        return sums_to_arrow(function, _sum_groups(vector.data, valid, groups), counts)
    return _extremes(function, vector, valid, groups, counts == 0)


def sums_to_arrow(function: str, sums: ExactSums | npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> Any:
    """Return sums, or averages of so many values, as an Arrow array; null where there were no values."""
    if function == "sum" and isinstance(sums, ExactSums):
        return pa.array(sums.integers(function), mask=counts == 0)
    totals = sums.floats() if isinstance(sums, ExactSums) else sums
    with np.errstate(invalid="ignore", divide="ignore"):
        values = totals if function == "sum" else totals / counts
    return pa.array(values, pa.float64(), mask=counts == 0)


def _sum_groups(
    data: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None, groups: GroupedRows
) -> ExactSums | npt.NDArray[np.float64]:
    of = groups.of if valid is None else groups.of[valid]
    data = data if valid is None else data[valid]
    if data.dtype.kind not in "iu":
        return np.asarray(np.bincount(of, weights=data.astype(np.float64), minlength=groups.size), np.float64)
    bits = limb_bits(len(data))
    largest = max(abs(int(data.min(initial=0))), int(data.max(initial=0)))
    is_small = largest * len(data) < FLOAT_EXACT_MAX
    parts = [data.astype(np.int64)] if is_small else split_limbs(data, bits)
    limbs = [sum_integers(limb, of, groups.size) for limb in parts]
    return join_limbs(limbs, bits, data.dtype.kind == "u")


def _extremes(
    function: str,
    vector: Vector,
    valid: npt.NDArray[np.bool_] | None,
    groups: GroupedRows,
    empty: npt.NDArray[np.bool_],
) -> Any:
    of = groups.of if valid is None else groups.of[valid]
    if isinstance(vector, Strings):
        ranks, dictionary, order = rank_strings(vector.array)
        best = _reduce(function, ranks if valid is None else ranks[valid], of, groups.size)
        indices = np.zeros(groups.size, np.int64)
        indices[~empty] = order[best[~empty]]
        return dictionary.take(pa.array(indices, mask=empty))
    assert isinstance(vector, Numbers)
    is_bool = vector.data.dtype == np.bool_
    data = vector.data.astype(np.uint8) if is_bool else vector.data
    best = _reduce(function, data if valid is None else data[valid], of, groups.size)
    return pa.array(best.astype(np.bool_) if is_bool else best, mask=empty)


def _reduce(function: str, data: npt.NDArray[Any], of: Codes, size: int) -> npt.NDArray[Any]:
    # Not-a-number counts as the largest value: a minimum passes it over, a maximum takes it.
    ufunc = np.fmin if function == "min" else np.maximum
    if data.dtype.kind == "f":
        start = data.dtype.type(np.nan if function == "min" else -np.inf)
    else:
        limits = np.iinfo(data.dtype)
        start = data.dtype.type(limits.max if function == "min" else limits.min)
    best = np.full(size, start, data.dtype)
    ufunc.at(best, of, data)
    return best


Values: TypeAlias = Numbers | Strings | Lists


def aggregate_groups(call: ir.Aggregate, vector: Vector | None, groups: Groups | SingleGroup) -> Any:
    """Return one value per group as an Arrow array."""
    if vector is None:
        return aggregate(call.function, None, groups)
    if not call.is_distinct and call.function not in ("collect", "stddev", "percentile"):
        return aggregate(call.function, vector, groups)
    values, rows = _known_values(vector, groups)
    if call.is_distinct and call.function == "count":
        return _count_distinct(values, rows)
    if call.is_distinct:
        values, rows = _distinct_values(values, rows)
    match call.function:
        case "collect":
            return _collect(values, rows, call.type)
        case "stddev":
            return _deviation(values, rows)
        case "percentile":
            assert call.fraction is not None
            return _percentile(values, rows, call.fraction)
    return aggregate(call.function, values, rows)


def _known_values(vector: Vector, groups: Groups | SingleGroup) -> tuple[Values, ChosenRows]:
    values = materialize(vector, groups.count)
    valid = validity(values)
    if valid is None or bool(valid.all()):
        return values, ChosenRows(groups.of, groups.size, groups.count)
    valid_rows = np.flatnonzero(valid)
    return values.take(valid_rows), ChosenRows(groups.of[valid_rows], groups.size, len(valid_rows))


def _number_pairs(vector: Values, rows: ChosenRows) -> tuple[Codes, int]:
    """Return one number per row for its group and value, group by group, and how many numbers a group may have."""
    codes, size = encode_values(vector, rows.count)
    if size > 2**62 // max(rows.size, 1):
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
        size = rows.count
    return rows.of * size + codes, size


def _distinct_values(values: Values, rows: ChosenRows) -> tuple[Values, ChosenRows]:
    """Keep the first of equal values in each group."""
    pairs, size = _number_pairs(values, rows)
    first = _first_rows(pairs, rows.size * size)
    return values.take(first), ChosenRows(rows.of[first], rows.size, len(first))


def _count_distinct(vector: Values, rows: ChosenRows) -> Any:
    """Return how many different values each group has."""
    pairs, size = _number_pairs(vector, rows)
    distinct = distinct_below(pairs, rows.size * size)
    ends = np.searchsorted(distinct, np.arange(rows.size + 1) * size)
    return pa.array(np.diff(ends), pa.int64())


# So many group codes fit 16 bits, which numpy sorts in linear time.
_COUNTED_MAX: Final = 2**16


def _first_rows(pairs: Codes, size: int) -> npt.NDArray[np.int64]:
    """Return the place of the first of each distinct number, all of which are below `size`."""
    if size > 4 * len(pairs) + 1_024:
        return np.sort(np.unique(pairs, return_index=True)[1])
    # Written backwards, the first place of each number is the one that stays.
    first = np.full(size, -1, np.int64)
    first[pairs[::-1]] = np.arange(len(pairs) - 1, -1, -1)
    return np.sort(first[first >= 0])


def _collect(values: Values, rows: ChosenRows, type_: PropertyType) -> Any:
    order = stable_order([rows.of, *sort_keys(values, descending=False)], rows.count)
    items = to_arrow(values, PropertyType(type_.scalar), rows.count).take(pa.array(order))
    return pa.ListArray.from_arrays(pa.array(group_offsets(rows.of, rows.size), pa.int32()), items)


def _deviation(numbers: Values, rows: ChosenRows) -> Any:
    """Return the deviation of a sample, in two passes, so that large values do not cancel out."""
    assert isinstance(numbers, Numbers)
    values, counts = numbers.data.astype(np.float64), np.bincount(rows.of, minlength=rows.size)
    with np.errstate(all="ignore"):
        means = np.bincount(rows.of, weights=values, minlength=rows.size) / counts
        squares = np.bincount(rows.of, weights=(values - means[rows.of]) ** 2, minlength=rows.size)
        return pa.array(np.sqrt(squares / (counts - 1)), pa.float64(), mask=counts < 2)


def _percentile(values: Values, rows: ChosenRows, fraction: float) -> Any:
    """Return the value at a fraction of the way through a group, interpolated between its neighbours."""
    if rows.count == 0:
        return pa.nulls(rows.size, pa.float64())
    counts = np.bincount(rows.of, minlength=rows.size)
    is_empty = counts == 0
    starts = np.where(is_empty, 0, np.cumsum(counts) - counts)
    position = fraction * np.maximum(counts - 1, 0)
    below = np.floor(position).astype(np.int64)
    above = np.minimum(below + 1, np.maximum(counts - 1, 0))
    low, high = _values_at(values, rows, starts + below, starts + above)
    part = position - below
    with np.errstate(all="ignore"):
        result = np.where(part == 0, low, low + (high - low) * part)
    return pa.array(result, pa.float64(), mask=is_empty)


def _values_at(values: Values, rows: ChosenRows, *positions: Codes) -> list[npt.NDArray[np.float64]]:
    """Return the values at some positions, one for each group, of all rows by group and value."""
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
