"""Values of `@default` for properties that new entities do not mention.

An explicit null is a value: it is kept, and refused where the property is required.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.ids import new_uuids
from omnigraph.lang.catalog import Default, Property, Scalar
from omnigraph.rules.arrow_typing import Column, Numbers, arrays
from omnigraph.rules.coerce import fit, from_fitted
from omnigraph.rules.datetimes import DAY_MS


def default_value(property_: Property, now_ms: int) -> Any:
    """Return a default in the form that a column stores; None without one."""
    default = property_.default
    if default is None:
        return None
    if default.kind == "uuid":
        return new_uuids(1)[0].decode()
    return _constant(default, property_, now_ms)


def _constant(default: Default, property_: Property, now_ms: int) -> Any:
    if default.kind == "now":
        return now_ms // DAY_MS if property_.type.scalar is Scalar.DATE else now_ms
    return fit(default.value, property_.type)


def default_column(property_: Property, count: int, now_ms: int) -> Column:
    """Return a column of defaults; of nulls if the property has none.

    `now()` is the same in all rows, `uuid()` another one in each.
    """
    if property_.default is not None and property_.default.kind == "uuid":
        return _texts(new_uuids(count))
    value = None if property_.default is None else _constant(property_.default, property_, now_ms)
    return from_fitted([value], property_.type).take(pa.array(np.zeros(count, np.int64)))


def _texts(words: Numbers) -> Column:
    """Return byte strings of one length as a column."""
    offsets = np.arange(len(words) + 1, dtype=np.int32) * words.itemsize
    buffers = [None, arrays.py_buffer(offsets), arrays.py_buffer(np.ascontiguousarray(words))]
    return arrays.Array.from_buffers(pa.string(), len(words), buffers)


def fill_absent(column: Column, is_absent: Numbers, property_: Property, now_ms: int) -> Column:
    """Return a column with the default where the property was not mentioned."""
    if property_.default is None or not is_absent.any():
        return column
    filling = default_column(property_, int(is_absent.sum()), now_ms)
    if is_absent.all():
        return filling
    # `replace_with_mask` does not take lists.
    both = pa.concat_arrays([column, filling])
    indices = np.arange(len(column))
    indices[is_absent] = len(column) + np.arange(len(filling))
    return both.take(pa.array(indices))
