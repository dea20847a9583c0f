"""Vectors of values and rows of bindings: what operators pass on, converted to and from Arrow, and used as operands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.arguments import Value
from omnigraph.errors import ArithmeticOverflow
from omnigraph.lang.catalog import PropertyType
from omnigraph.lang.scalars import TIME_FORMS, Scalar
from omnigraph.lang.schema.arrow_schema import PHYSICAL, arrow_type

Ids: TypeAlias = npt.NDArray[Any]
Mask: TypeAlias = npt.NDArray[np.bool_]
Codes: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers, booleans, dates or timestamps; without `valid` none is null."""

    data: npt.NDArray[Any]
    valid: Mask | None

    @property
    def valid_mask(self) -> Mask:
        """Which values are not null, also if none is."""
        return np.ones(len(self.data), np.bool_) if self.valid is None else self.valid

    @property
    def null_mask(self) -> Mask | None:
        return None if self.valid is None else ~self.valid

    def take(self, ids: Ids) -> Numbers:
        return Numbers(self.data[ids], None if self.valid is None else self.valid[ids])


@dataclass(frozen=True, slots=True)
class Strings:
    """Strings, nulls included; with `ranks` if their places in the order of all strings are known, -1 for null."""

    array: Any
    ranks: npt.NDArray[np.int64] | None = None

    def take(self, ids: Ids) -> Strings:
        return Strings(self.array.take(pa.array(ids)), None if self.ranks is None else self.ranks[ids])


@dataclass(frozen=True, slots=True)
class Lists:
    """Lists or vectors, nulls included."""

    array: Any

    def take(self, ids: Ids) -> Lists:
        return Lists(self.array.take(pa.array(ids)))

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """How many items each list has; none if it is null."""
        lengths = pc.fill_null(pc.list_value_length(self.array), 0)
        return lengths.to_numpy(zero_copy_only=False).astype(np.int64)  # type: ignore[no-any-return]

    @property
    def items(self) -> Numbers | Strings | Lists:
        """The items of all lists, one list after the other."""
        return vector_from_arrow(pc.list_flatten(self.array))


@dataclass(frozen=True, slots=True)
class Constant:
    """One value for every row; None is null."""

    value: Value
    type: PropertyType


Vector: TypeAlias = Numbers | Strings | Lists | Constant


def is_null_constant(vector: Vector) -> bool:
    return isinstance(vector, Constant) and vector.value is None


def vector_from_arrow(array: Any) -> Numbers | Strings | Lists:
    """Wrap an Arrow array.

    >>> vector_from_arrow(pa.array([1, None], pa.int32()))
    Numbers(data=array([1, 0], dtype=int32), valid=array([ True, False]))
    """
    type_ = array.type
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return Strings(array)
    if pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_) or pa.types.is_large_list(type_):
        return Lists(array)
    valid = None
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        array = array.fill_null(
            False if pa.types.is_boolean(type_) else pa.scalar(0, PHYSICAL.get(type_, type_)).cast(type_)
        )
    if type_ in PHYSICAL:
        array = array.view(PHYSICAL[type_])
    return Numbers(array.to_numpy(zero_copy_only=False), valid)


def vector_to_arrow(vector: Vector, type_: Any, count: int) -> Any:
    if isinstance(vector, Constant):
        return repeat_value(vector.value, type_, count)
    if isinstance(vector, Strings | Lists):
        return vector.array if vector.array.type == type_ else vector.array.cast(type_)
    physical = PHYSICAL.get(type_)
    if physical is not None:
        return pa.array(vector.data, physical, mask=vector.null_mask).view(type_)
    return pa.array(vector.data, type_, mask=vector.null_mask)


def repeat_value(value: Value, type_: Any, count: int) -> Any:
    firsts: Any = pa.array(np.zeros(count, np.int64))
    if value is None:
        return pa.nulls(count, type_)
    physical = PHYSICAL.get(type_)
    if physical is not None:
        return pa.array(np.full(count, value), physical).view(type_)
    if isinstance(value, tuple):
        item = type_.value_type
        if item in PHYSICAL:
            items = pa.array(value, PHYSICAL[item]).view(item)
            single = pa.ListArray.from_arrays(pa.array([0, len(value)], pa.int32()), items)
            return single.take(firsts)
        return pa.array([list(value)], type_).take(firsts)
    scalar: Any = pa.scalar(value, type_)
    return pa.repeat(scalar, count)


# -- operands --------------------------------------------------------------------------------------------------


def materialize(vector: Vector, count: int) -> Numbers | Strings | Lists:
    if not isinstance(vector, Constant):
        return vector
    return vector_from_arrow(vector_to_arrow(vector, arrow_type(vector.type), count))


def to_arrow(vector: Vector, type_: PropertyType, count: int) -> Any:
    return vector_to_arrow(vector, arrow_type(type_), count)


def to_arrow_plain(vector: Vector, count: int) -> Any:
    """Return a vector as an Arrow array of whatever type it has in memory."""
    values = materialize(vector, count)
    if isinstance(values, Numbers):
        return pa.array(values.data, mask=values.null_mask)
    return values.array


def numbers(vector: Vector) -> tuple[npt.NDArray[Any], Mask | None]:
    """Return 64-bit floats, and which are valid; of a constant, a single one."""
    if isinstance(vector, Constant):
        assert isinstance(vector.value, int | float)
        return np.array(vector.value, np.float64), None
    assert isinstance(vector, Numbers)
    return vector.data.astype(np.float64), vector.valid


def integers(vector: Vector, function: str) -> tuple[npt.NDArray[Any], Mask | None]:
    """Return 64-bit signed integers, and which are valid; raises ArithmeticOverflow if a value does not fit."""
    if isinstance(vector, Constant):
        assert isinstance(vector.value, int)
        raise_overflow(np.array(vector.value >= 2**63), None, function)
        return np.array(vector.value, np.int64), None
    assert isinstance(vector, Numbers)
    data, valid = vector.data, vector.valid
    if data.dtype == np.uint64:
        raise_overflow(data >= np.uint64(2**63), valid, function)
    return data.astype(np.int64), valid


def raise_overflow(overflow: npt.NDArray[Any], valid: Mask | None, function: str, type_name: str = "I64") -> None:
    """Raise ArithmeticOverflow if any value that is not null overflowed."""
    if bool(np.any(overflow if valid is None else overflow & valid)):
        raise ArithmeticOverflow(function_overflow_message(function, type_name), function=function, type=type_name)


def function_overflow_message(function: str, type_name: str) -> str:
    form = TIME_FORMS.get(Scalar(type_name))
    if form is not None:
        remedy = form.extent
    else:
        remedy = "choose a wider type" if function == "cast" else "convert an operand with `cast(… as F64)`"
    return f"a result of `{function}` does not fit {type_name}; {remedy}"


def combine_validity(*masks: Mask | None) -> Mask | None:
    """Return where all are valid; None if everywhere."""
    combined: Mask | None = None
    for mask in masks:
        if mask is not None:
            combined = mask if combined is None else combined & mask
    return combined


def divide_integers(values: npt.NDArray[Any], divisor: npt.NDArray[Any] | int) -> npt.NDArray[Any]:
    """Return the quotients of integers, cut off towards zero."""
    # The remainder has the sign of the dividend, so what is left divides evenly.
    quotients: npt.NDArray[Any] = (values - np.fmod(values, divisor)) // divisor
    return quotients


# -- rows ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rows:
    """Bindings of a pattern so far; without variables it is only a number of rows.

    `values` are computed columns by name, which expressions over a result read.
    """

    count: int
    columns: Mapping[str, Ids] = field(default_factory=dict)
    values: Mapping[str, Vector] = field(default_factory=dict)

    def take(self, indices: Ids) -> Rows:
        """Return the rows at some places, in that order."""
        columns = {name: array[indices] for name, array in self.columns.items()}
        if not self.values:
            return Rows(len(indices), columns)
        values = {
            name: item if isinstance(item, Constant) else item.take(indices) for name, item in self.values.items()
        }
        return Rows(len(indices), columns, values)

    def where(self, mask: Mask) -> Rows:
        """Return the rows that a mask keeps; itself when it keeps all."""
        # Gathering at places is several times faster than numpy's selection by a mask.
        indices = np.flatnonzero(mask)
        return self if len(indices) == self.count else self.take(indices)

    def with_columns(self, columns: Mapping[str, Ids]) -> Rows:
        return Rows(self.count, {**self.columns, **columns})

    def only(self, names: Iterable[str]) -> Rows:
        """Return the rows with these variables alone; equal rows stay apart."""
        kept_names = set(names)
        if kept_names >= self.columns.keys():
            return self
        return Rows(self.count, {name: array for name, array in self.columns.items() if name in kept_names})

    @property
    def row_bytes(self) -> int:
        return sum(array.dtype.itemsize for array in self.columns.values())


UNIT_ROW = Rows(1)


def concatenate_rows(first: Rows, second: Rows) -> Rows:
    if second.count == 0:
        return first
    names = first.columns.keys()
    return Rows(
        first.count + second.count,
        {name: np.concatenate([first.columns[name], second.columns[name]]) for name in names},
    )


def distinct_rows(rows: Rows) -> Rows:
    """Return equal rows once; the order may change."""
    if rows.count < 2:
        return rows
    if not rows.columns:
        return UNIT_ROW
    if len(rows.columns) == 1:
        [(name, ids)] = rows.columns.items()
        if bool((ids[1:] > ids[:-1]).all()):
            return rows
        size = int(ids.max()) + 2
        if size <= 64 * rows.count:
            # A flag per entity is faster than sorting as long as the flags are not many more than the rows.
            flags = flag_positions(ids, size)
            unique_ids = np.flatnonzero(flags).astype(ids.dtype)
            if flags[-1]:
                unique_ids[-1] = -1
            return Rows(len(unique_ids), {name: unique_ids})
    codes = [(ids.astype(np.int64) + 1, int(ids.max()) + 2) for ids in rows.columns.values()]
    numbers, _ = pack_codes(codes, rows.count)
    sizes = [size for _, size in codes]
    if prod(sizes) >= 2**62:
        _, first_rows = np.unique(numbers, return_index=True)
        return rows if len(first_rows) == rows.count else rows.take(first_rows)
    if bool((numbers[1:] > numbers[:-1]).all()):
        return rows
    unique = sort_distinct(numbers)
    columns: dict[str, Ids] = {}
    for (name, ids), size in reversed(list(zip(rows.columns.items(), sizes, strict=True))):
        above = unique // size
        columns[name] = (unique - (above * size + 1)).astype(ids.dtype)
        unique = above
    return Rows(len(unique), {name: columns[name] for name in rows.columns})


def pack_codes(keys: Iterable[tuple[Codes, int]], count: int) -> tuple[Codes, int]:
    """Return a number per row, equal for equal codes, and what all are below; each key is codes below a size."""
    numbers, total = np.zeros(count, np.int64), 1
    for codes, size in keys:
        if total > 2**62 // max(size, 1):
            values, inverse = np.unique(numbers, return_inverse=True)
            numbers, total = inverse.astype(np.int64), len(values)
        numbers, total = numbers * size + codes, total * size
    return numbers, total


# -- arrays ----------------------------------------------------------------------------------------------------


def flag_positions(positions: npt.NDArray[Any], size: int) -> Mask:
    """Return `size` flags, set at some positions."""
    flags = np.zeros(size, np.bool_)
    flags[positions] = True
    return flags


def distinct_below(numbers: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Return the distinct numbers, all of which are below `size`, in order."""
    # Where the numbers are dense, flags are faster than sorting.
    if size <= 32 * len(numbers) + 1_024:
        return np.flatnonzero(flag_positions(numbers, size))
    return sort_distinct(numbers)


def group_offsets(groups: npt.NDArray[Any], count: int) -> npt.NDArray[np.int64]:
    """Return where each of `count` groups begins among rows in the order of their groups, and where the last ends."""
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(groups, minlength=count), out=offsets[1:])
    return offsets


def run_starts(values: npt.NDArray[Any]) -> Mask:
    """Return which values begin a run of equal ones."""
    is_start = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=is_start[1:])
    return is_start


def places_in_runs(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the place of each value in its run of equal ones.

    >>> places_in_runs(np.array([7, 7, 8, 7])).tolist()
    [0, 1, 0, 0]
    """
    positions = np.arange(len(values))
    places: npt.NDArray[np.int64] = positions - np.maximum.accumulate(np.where(run_starts(values), positions, 0))
    return places


def sort_distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    ordered = np.sort(values)
    distinct: npt.NDArray[Any] = ordered[np.flatnonzero(run_starts(ordered))]
    return distinct


def range_indices(starts: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the indices of ranges, one range after the other.

    >>> range_indices(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    indices: npt.NDArray[np.int64] = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return indices
