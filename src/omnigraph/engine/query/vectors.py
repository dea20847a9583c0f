"""Vectors: the values of an expression for all rows at once, as numpy numbers, Arrow texts or Arrow lists.

Knows nothing of graphs; `columns` makes vectors from storage and `compare` compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.params import Value
from omnigraph.lang.catalog import PropertyType

Ids: TypeAlias = npt.NDArray[Any]
Mask: TypeAlias = npt.NDArray[np.bool_]

# Dates are compared as their numbers, and Arrow hands them to numpy only as those.
_PHYSICAL: Final[Mapping[pa.DataType, pa.DataType]] = {pa.date32(): pa.int32(), pa.date64(): pa.int64()}


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers, booleans, dates or instants; without `valid` none is null."""

    data: npt.NDArray[Any]
    valid: Mask | None

    def take(self, ids: Ids) -> Numbers:
        return Numbers(self.data[ids], None if self.valid is None else self.valid[ids])


@dataclass(frozen=True, slots=True)
class Texts:
    """Strings, nulls included."""

    array: Any

    def take(self, ids: Ids) -> Texts:
        return Texts(self.array.take(pa.array(ids)))


@dataclass(frozen=True, slots=True)
class Lists:
    """Lists or vectors, nulls included."""

    array: Any

    def take(self, ids: Ids) -> Lists:
        return Lists(self.array.take(pa.array(ids)))


@dataclass(frozen=True, slots=True)
class Constant:
    """One value for every row; None is null."""

    value: Value
    type: PropertyType


Vector: TypeAlias = Numbers | Texts | Lists | Constant


def vector_of(array: Any) -> Numbers | Texts | Lists:
    """Wrap an Arrow array.

    >>> vector_of(pa.array([1, None], pa.int32()))
    Numbers(data=array([1, 0], dtype=int32), valid=array([ True, False]))
    """
    type_ = array.type
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return Texts(array)
    if pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_) or pa.types.is_large_list(type_):
        return Lists(array)
    valid = None
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        array = array.fill_null(
            False if pa.types.is_boolean(type_) else pa.scalar(0, _PHYSICAL.get(type_, type_)).cast(type_)
        )
    if type_ in _PHYSICAL:
        array = array.view(_PHYSICAL[type_])
    return Numbers(array.to_numpy(zero_copy_only=False), valid)


def arrow_of(vector: Vector, wanted: Any, count: int) -> Any:
    """Return a vector as an Arrow array of a type."""
    if isinstance(vector, Constant):
        return constant_array(vector.value, wanted, count)
    if isinstance(vector, Texts | Lists):
        return vector.array if vector.array.type == wanted else vector.array.cast(wanted)
    mask = None if vector.valid is None else ~vector.valid
    physical = _PHYSICAL.get(wanted)
    if physical is not None:
        return pa.array(vector.data, physical, mask=mask).view(wanted)
    return pa.array(vector.data, wanted, mask=mask)


def constant_array(value: Value, wanted: Any, count: int) -> Any:
    """Return one value repeated."""
    firsts: Any = pa.array(np.zeros(count, np.int64))
    if value is None:
        return pa.nulls(count, wanted)
    physical = _PHYSICAL.get(wanted)
    if physical is not None:
        return pa.array(np.full(count, value), physical).view(wanted)
    if isinstance(value, tuple):
        item = wanted.value_type
        if item in _PHYSICAL:
            items = pa.array(value, _PHYSICAL[item]).view(item)
            one = pa.ListArray.from_arrays(pa.array([0, len(value)], pa.int32()), items)
            return one.take(firsts)
        return pa.array([list(value)], wanted).take(firsts)
    scalar: Any = pa.scalar(value, wanted)
    return pa.repeat(scalar, count)


@dataclass(frozen=True, slots=True)
class Rows:
    """Bindings of a pattern so far; without variables it is only a number of rows."""

    count: int
    columns: Mapping[str, Ids] = field(default_factory=dict)

    def take(self, places: Ids) -> Rows:
        """Return the rows at some places, in that order."""
        return Rows(len(places), {name: array[places] for name, array in self.columns.items()})

    def where(self, mask: Mask) -> Rows:
        """Return the rows that a mask keeps; itself when it keeps all."""
        # Gathering at places is several times faster than numpy's selection by a mask.
        places = np.flatnonzero(mask)
        return self if len(places) == self.count else self.take(places)

    def with_columns(self, columns: Mapping[str, Ids]) -> Rows:
        return Rows(self.count, {**self.columns, **columns})

    def only(self, names: Iterable[str]) -> Rows:
        """Return the rows with these variables alone; equal rows stay apart."""
        wanted = set(names)
        if wanted >= self.columns.keys():
            return self
        return Rows(self.count, {name: array for name, array in self.columns.items() if name in wanted})

    @property
    def row_bytes(self) -> int:
        return sum(array.dtype.itemsize for array in self.columns.values())


UNIT = Rows(1)


def concatenate(first: Rows, second: Rows) -> Rows:
    """Return all rows of two tables over the same variables."""
    if second.count == 0:
        return first
    names = first.columns.keys()
    return Rows(
        first.count + second.count,
        {name: np.concatenate([first.columns[name], second.columns[name]]) for name in names},
    )


def distinct(rows: Rows) -> Rows:
    """Return equal rows once; the order may change."""
    if rows.count < 2:
        return rows
    if not rows.columns:
        return UNIT
    if len(rows.columns) == 1:
        [(name, ids)] = rows.columns.items()
        if bool((ids[1:] > ids[:-1]).all()):
            return rows
        size = int(ids.max()) + 2
        if size <= 64 * rows.count:
            # A flag per entity is faster than sorting as long as the flags are not many more than the rows.
            flags = np.zeros(size, np.bool_)
            flags[ids] = True
            found = np.flatnonzero(flags).astype(ids.dtype)
            if flags[-1]:
                found[-1] = -1
            return Rows(len(found), {name: found})
    sizes = [int(ids.max()) + 2 for ids in rows.columns.values()]
    return _distinct_by_numbers(rows, sizes) if prod(sizes) < 2**62 else _distinct_by_sorting(rows)


def _distinct_by_numbers(rows: Rows, sizes: list[int]) -> Rows:
    """Return equal rows once: as numbers they are sorted far faster than their places are, and read back from those."""
    numbers = packed(rows)
    if bool((numbers[1:] > numbers[:-1]).all()):
        return rows
    numbers.sort()
    fresh = np.empty(len(numbers), np.bool_)
    fresh[0] = True
    np.not_equal(numbers[1:], numbers[:-1], out=fresh[1:])
    rest = numbers[np.flatnonzero(fresh)]
    columns: dict[str, Ids] = {}
    for (name, ids), size in reversed(list(zip(rows.columns.items(), sizes, strict=True))):
        above = rest // size
        columns[name] = (rest - (above * size + 1)).astype(ids.dtype)
        rest = above
    return Rows(len(rest), {name: columns[name] for name in rows.columns})


def _distinct_by_sorting(rows: Rows) -> Rows:
    _, places = np.unique(packed(rows), return_index=True)
    return rows if len(places) == rows.count else rows.take(places)


def packed(rows: Rows) -> Ids:
    """Return one number per row, equal for equal rows."""
    numbers = np.zeros(rows.count, np.int64)
    room = 2**62
    for ids in rows.columns.values():
        size = int(ids.max(initial=-1)) + 2
        if size > room:
            numbers = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
            room = 2**62 // max(rows.count, 1)
        numbers = numbers * size + (ids.astype(np.int64) + 1)
        room //= size
    return numbers
