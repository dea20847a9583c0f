"""Groups and aggregates: rows with equal keys, exact sums, extremes, distinct values, lists, statistics.

`KERNELS` has every name of the table of aggregates in `lang.query.functions`. Integer sums are split into limbs small
enough that no partial sum overflows, then joined with carries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.query.compare import validity
from omnigraph.engine.query.ordering import encode_values, rank_strings, sort_keys, stable_order
from omnigraph.engine.query.vectors import (
    Codes,
    Lists,
    Numbers,
    Strings,
    Vector,
    distinct_below,
    divide_integers,
    group_offsets,
    materialize,
    pack_codes,
    run_starts,
    to_arrow,
)
from omnigraph.errors import ArithmeticOverflow
from omnigraph.lang.catalog import PropertyType, Scalar
from omnigraph.lang.query import ir
from omnigraph.lang.scalars import FLOATS, RANGES, TIMES

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

    def integers(self, call: ir.Aggregate) -> npt.NDArray[Any]:
        """Return the sums as the type of a call; raises ArithmeticOverflow where one does not fit."""
        sums, (low, high) = self._wrapped(), RANGES[call.type.scalar]
        if not bool((self._fits() & (sums >= low) & (sums <= high)).all()):
            raise overflow_error(call.function, call.type.scalar)
        return sums

    def quotients(self, counts: Counts) -> npt.NDArray[Any]:
        """Return the sums divided by counts, cut off towards zero; 0 where there is nothing."""
        counts = np.maximum(counts, 1)
        if not bool(self._fits().all()):
            totals = [(top << self.shift) + low for top, low in zip(self.top.tolist(), self.low.tolist(), strict=True)]
            pairs = zip(totals, counts.tolist(), strict=True)
            return np.array([abs(total) // count * (1 if total > 0 else -1) for total, count in pairs], np.int64)
        return divide_integers(self._wrapped(), counts)

    def floats(self) -> npt.NDArray[np.float64]:
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
    return ArithmeticOverflow(overflow_message(function, scalar), function=function, type=scalar.value)


def overflow_message(function: str, scalar: Scalar) -> str:
    return f"a result of `{function}` does not fit {scalar.value}; add up fewer values, or use `avg`"


def limb_bits(count: float) -> int:
    """Return how many bits a limb may have when `count` values are added.

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
        combined, size = pack_codes(keys, count)
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


class SingleGroup(Groups):
    """All rows as one group, which exists even without rows."""

    def __init__(self, count: int) -> None:
        self.count, self.of, self.first = count, np.zeros(count, np.int64), np.zeros(1, np.int64)

    def sum_integers(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        total: npt.NDArray[Any] = values.sum(keepdims=True)
        return total

    sum = sum_integers


class SingletonGroups(Groups):
    """Every row is its own group."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.of = self.first = np.arange(count, dtype=np.int64)

    def sum_integers(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return values

    sum = sum_integers


@dataclass(frozen=True, slots=True)
class ChosenRows:
    """Some rows of groups: the group of each, and how many groups there are."""

    of: Codes
    size: int
    count: int


# What aggregates read of groups.
GroupedRows: TypeAlias = Groups | ChosenRows


def sum_integers(values: npt.NDArray[np.int64], of: Codes, size: int) -> npt.NDArray[np.int64]:
    """Return the sums of integers by group, modulo 2^64."""
    largest = max(abs(int(values.min(initial=0))), int(values.max(initial=0)))
    if largest * len(values) < FLOAT_EXACT_MAX:
        return np.bincount(of, weights=values, minlength=size).astype(np.int64)
    sums = np.zeros(size, np.int64)
    np.add.at(sums, of, values)
    return sums


Values: TypeAlias = Numbers | Strings | Lists
Sums: TypeAlias = ExactSums | npt.NDArray[Any]
Counts: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Kernel:
    """How an aggregate is computed: one value per group as an Arrow array."""

    run: Callable[[ir.Aggregate, Vector | None, GroupedRows], Any]
    # The same from the sum and the number of the values of each group, if that is all it takes.
    from_sums: Callable[[ir.Aggregate, Sums, Counts], Any] | None = None
    # Whether the values are sorted, for which known ranks of texts help.
    sorts_values: bool = False


def aggregate_groups(call: ir.Aggregate, vector: Vector | None, groups: GroupedRows) -> Any:
    """Return one value per group as an Arrow array; without a vector rows are counted."""
    return KERNELS[call.function].run(call, vector, groups)


def _over_values(compute: Callable[[ir.Aggregate, Values, ChosenRows], Any], sorts_values: bool = False) -> Kernel:
    """Return a kernel over the values that are not null, with `distinct` the first of equal ones in each group."""

    def run(call: ir.Aggregate, vector: Vector | None, groups: GroupedRows) -> Any:
        assert vector is not None
        values, rows = _known_values(vector, groups)
        return compute(call, *(_distinct_values(values, rows) if call.is_distinct else (values, rows)))

    return Kernel(run, sorts_values=sorts_values)


def _additive(from_sums: Callable[[ir.Aggregate, Sums, Counts], Any]) -> Kernel:
    def compute(call: ir.Aggregate, numbers: Values, rows: ChosenRows) -> Any:
        assert isinstance(numbers, Numbers)
        return from_sums(call, _sum_groups(numbers.data, rows), np.bincount(rows.of, minlength=rows.size))

    return replace(_over_values(compute), from_sums=from_sums)


def _count(call: ir.Aggregate, vector: Vector | None, groups: GroupedRows) -> Any:
    if vector is not None and call.is_distinct:
        return _count_distinct(*_known_values(vector, groups))
    valid = None if vector is None else validity(materialize(vector, groups.count))
    return pa.array(np.bincount(groups.of if valid is None else groups.of[valid], minlength=groups.size), pa.int64())


def _totals(call: ir.Aggregate, sums: Sums, counts: Counts) -> Any:
    return pa.array(sums.integers(call) if isinstance(sums, ExactSums) else sums, mask=counts == 0)


def _means(call: ir.Aggregate, sums: Sums, counts: Counts) -> Any:
    if isinstance(sums, ExactSums) and call.type.scalar in TIMES:
        return pa.array(sums.quotients(counts), mask=counts == 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = (sums.floats() if isinstance(sums, ExactSums) else sums) / counts
    return pa.array(means, pa.float64(), mask=counts == 0)


def _sum_groups(data: npt.NDArray[Any], rows: ChosenRows) -> Sums:
    if data.dtype.kind not in "iu":
        return np.asarray(np.bincount(rows.of, weights=data.astype(np.float64), minlength=rows.size), np.float64)
    bits = limb_bits(len(data))
    largest = max(abs(int(data.min(initial=0))), int(data.max(initial=0)))
    is_small = largest * len(data) < FLOAT_EXACT_MAX
    parts = [data.astype(np.int64)] if is_small else split_limbs(data, bits)
    limbs = [sum_integers(limb, rows.of, rows.size) for limb in parts]
    return join_limbs(limbs, bits, data.dtype.kind == "u")


def _extremes(ufunc: np.ufunc, call: ir.Aggregate, vector: Vector | None, groups: GroupedRows) -> Any:
    assert vector is not None
    vector = materialize(vector, groups.count)
    valid = validity(vector)
    of = groups.of if valid is None else groups.of[valid]
    empty = np.bincount(of, minlength=groups.size) == 0
    if isinstance(vector, Strings):
        ranks, dictionary, order = rank_strings(vector.array)
        best = _reduce(ufunc, ranks if valid is None else ranks[valid], of, groups.size)
        indices = np.zeros(groups.size, np.int64)
        indices[~empty] = order[best[~empty]]
        return dictionary.take(pa.array(indices, mask=empty))
    assert isinstance(vector, Numbers)
    is_bool = vector.data.dtype == np.bool_
    data = vector.data.astype(np.uint8) if is_bool else vector.data
    best = _reduce(ufunc, data if valid is None else data[valid], of, groups.size)
    return pa.array(best.astype(np.bool_) if is_bool else best, mask=empty)


def _reduce(ufunc: np.ufunc, data: npt.NDArray[Any], of: Codes, size: int) -> npt.NDArray[Any]:
    is_minimum = ufunc is np.fmin
    if data.dtype.kind == "f":
        start = data.dtype.type(np.nan if is_minimum else -np.inf)
    else:
        limits = np.iinfo(data.dtype)
        start = data.dtype.type(limits.max if is_minimum else limits.min)
    best = np.full(size, start, data.dtype)
    ufunc.at(best, of, data)
    return best


def _known_values(vector: Vector, groups: GroupedRows) -> tuple[Values, ChosenRows]:
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
    pairs, size = _number_pairs(values, rows)
    first = _first_rows(pairs, rows.size * size)
    return values.take(first), ChosenRows(rows.of[first], rows.size, len(first))


def _count_distinct(vector: Values, rows: ChosenRows) -> Any:
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


def _collect(call: ir.Aggregate, values: Values, rows: ChosenRows) -> Any:
    order = stable_order([rows.of, *sort_keys(values, descending=False)], rows.count)
    items = to_arrow(values, PropertyType(call.type.scalar), rows.count).take(pa.array(order))
    return pa.ListArray.from_arrays(pa.array(group_offsets(rows.of, rows.size), pa.int32()), items)


def _deviation(call: ir.Aggregate, numbers: Values, rows: ChosenRows) -> Any:
    """Return the deviation of a sample, in two passes, so that large values do not cancel out."""
    assert isinstance(numbers, Numbers)
    values, counts = numbers.data.astype(np.float64), np.bincount(rows.of, minlength=rows.size)
    with np.errstate(all="ignore"):
        means = np.bincount(rows.of, weights=values, minlength=rows.size) / counts
        squares = np.bincount(rows.of, weights=(values - means[rows.of]) ** 2, minlength=rows.size)
        return pa.array(np.sqrt(squares / (counts - 1)), pa.float64(), mask=counts < 2)


def _percentile(call: ir.Aggregate, values: Values, rows: ChosenRows) -> Any:
    """Return the value at a fraction of the way through a group, interpolated between its neighbours.

    Without a fraction it is the middle; dates are not interpolated, the earlier neighbour is taken.
    """
    if rows.count == 0:
        return pa.nulls(rows.size, pa.float64())
    counts = np.bincount(rows.of, minlength=rows.size)
    is_empty = counts == 0
    starts = np.where(is_empty, 0, np.cumsum(counts) - counts)
    position = (0.5 if call.fraction is None else call.fraction) * np.maximum(counts - 1, 0)
    below = np.floor(position).astype(np.int64)
    above = np.minimum(below + 1, np.maximum(counts - 1, 0))
    low, high = _values_at(values, rows, starts + below, starts + above)
    if call.type.scalar not in FLOATS:
        return pa.array(low.astype(np.int64), mask=is_empty)
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


def _mode(call: ir.Aggregate, values: Values, rows: ChosenRows) -> Any:
    """Return the most frequent value of each group, of equally frequent ones the smallest."""
    keys = [rows.of, *sort_keys(values, descending=False)]
    order = stable_order(keys, rows.count)
    starts = np.flatnonzero(np.logical_or.reduce([run_starts(key[order]) for key in keys]))
    lengths, of = np.diff(starts, append=rows.count), rows.of[order[starts]]
    longest = np.zeros(rows.size, np.int64)
    np.maximum.at(longest, of, lengths)
    # Written backwards, the smallest value of each group is the one that stays.
    best = order[starts[lengths == longest[of]]][::-1]
    indices = np.full(rows.size, -1, np.int64)
    indices[rows.of[best]] = best
    return to_arrow(values, PropertyType(call.type.scalar), rows.count).take(pa.array(indices, mask=indices < 0))


# Not-a-number counts as the largest value: a minimum passes it over, a maximum takes it.
KERNELS: Final[Mapping[str, Kernel]] = {
    "count": Kernel(_count, from_sums=lambda call, _, counts: pa.array(counts, pa.int64())),
    "sum": _additive(_totals),
    "avg": _additive(_means),
    "min": Kernel(partial(_extremes, np.fmin)),
    "max": Kernel(partial(_extremes, np.maximum)),
    "collect": _over_values(_collect, sorts_values=True),
    "stddev": _over_values(_deviation),
    "percentile": _over_values(_percentile),
    "median": _over_values(_percentile),
    "mode": _over_values(_mode, sorts_values=True),
}
