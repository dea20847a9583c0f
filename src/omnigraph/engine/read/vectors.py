"""Vectors: the values of an expression for all rows at once, as numpy numbers, Arrow texts or Arrow lists.

Knows nothing of graphs; `columns` makes vectors from storage and `compare` compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.params import Value
from omnigraph.lang.types import PropertyType

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
