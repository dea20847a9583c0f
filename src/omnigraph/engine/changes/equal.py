"""Equality of columns, value by value, as change detection needs it.

Pure: null equals null alone, lists are compared item by item, NaN equals NaN, and the two zeros differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

# The stubs know fewer argument types than the kernels take.
pc: Any = pyarrow.compute

Mask = NDArray[np.bool_]


def equal_values(one: pa.Array[Any], two: pa.Array[Any]) -> Mask:
    """Return for each position whether two arrays of one type hold the same there.

    >>> equal_values(pa.array([[1.0], [], None]), pa.array([[1.0], None, None])).tolist()
    [True, False, True]
    """
    if not _may_hold_floats(one.type) and one.equals(two):
        return np.ones(len(one), np.bool_)
    valid_one, valid_two = _bools(pc.is_valid(one)), _bools(pc.is_valid(two))
    equal = ~valid_one & ~valid_two
    both = np.flatnonzero(valid_one & valid_two)
    if len(both):
        equal[both] = _equal_valid(one.take(both), two.take(both))
    return equal


def _may_hold_floats(type_: Any) -> bool:
    """Return whether Arrow's own equality may differ from ours: its zeros are equal, and NaN is not."""
    if pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_):
        return _may_hold_floats(type_.value_type)
    is_opaque = pa.types.is_nested(type_) or isinstance(type_, pa.BaseExtensionType)
    return is_opaque or bool(pa.types.is_floating(type_))


def _equal_valid(one: Any, two: Any) -> Mask:
    if pa.types.is_floating(one.type):
        return _equal_floats(one.to_numpy(zero_copy_only=False), two.to_numpy(zero_copy_only=False))
    if pa.types.is_fixed_size_list(one.type) or pa.types.is_list(one.type):
        return _equal_lists(one, two)
    return _bools(pc.equal(one, two))


def _equal_floats(one: NDArray[Any], two: NDArray[Any]) -> Mask:
    same: Mask = ((one == two) & (np.signbit(one) == np.signbit(two))) | (np.isnan(one) & np.isnan(two))
    return same


def _equal_lists(one: Any, two: Any) -> Mask:
    lengths = pc.list_value_length(one)
    equal = _bools(pc.equal(lengths, pc.list_value_length(two)))
    comparable = np.flatnonzero(equal)
    counts = lengths.take(comparable).to_numpy(zero_copy_only=False)
    items = equal_values(one.take(comparable).flatten(), two.take(comparable).flatten())
    # A list is wrong as often as one of its items is; empty lists have none.
    wrong = np.repeat(np.arange(len(comparable)), counts)[~items]
    equal[comparable[wrong]] = False
    return equal


def _bools(values: Any) -> Mask:
    mask: Mask = np.array(values.to_numpy(zero_copy_only=False), np.bool_)
    return mask
