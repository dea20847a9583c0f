"""Exact conversion between the types of stored columns: no value is rounded, cut or turned into infinity.

Pure. States of different schemas store a property in different types; whatever moves values between them asks here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.changes.row_diff import Mask, equal_values
from omnigraph.errors import DataError
from omnigraph.rules.coerce import shown
from omnigraph.rules.delta import one_array


def find_inexact(column: Any, type_: Any) -> Mask:
    """Return a mask of the values that a type cannot hold exactly; nulls fit every type.

    >>> find_inexact(pa.array([0.5, 0.1, 1e39, None]), pa.float32()).tolist()
    [False, True, True, False]
    """
    values = one_array(column)
    if values.type == type_ or not _is_number(values.type):
        return np.zeros(len(values), np.bool_)
    try:
        # There and back: neither an overflow nor a rounded value returns as what it was.
        returned = values.cast(type_, safe=False).cast(values.type, safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    return ~equal_values(values, returned)


def convert_exactly(column: Any, type_: Any, subject: str) -> Any:
    """Return a column in another type; raise `DataError` with both values if the type cannot hold one exactly."""
    if column.type == type_:
        return column
    inexact = np.flatnonzero(find_inexact(column, type_))
    if len(inexact):
        value = one_array(column)[int(inexact[0])]
        raise DataError(
            f"{shown(value.as_py())} of {subject} does not fit `{type_}`, which {_nearest(value, type_)}",
            rule="E4",
            property=subject,
        )
    return column.cast(type_, safe=False)


def convert_rows(rows: pa.Table, schema: pa.Schema, subject: str) -> pa.Table:
    """Return rows with the columns of a schema, in its order, each value converted exactly."""
    columns = [convert_exactly(rows.column(field.name), field.type, f"`{subject}.{field.name}`") for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def widest_type(types: Iterable[Any]) -> Any:
    """Return the type that holds the values of most others: floats before integers, then the larger one.

    >>> widest_type([pa.int32(), pa.float64(), pa.int64()])
    DataType(double)
    """
    return max(types, key=_width)


def _is_number(type_: Any) -> bool:
    return _width(type_)[1] > 0


def _width(type_: Any) -> tuple[bool, int, bool]:
    if pa.types.is_list(type_):
        return _width(type_.value_type)
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        return bool(pa.types.is_floating(type_)), type_.bit_width, bool(pa.types.is_signed_integer(type_))
    return False, 0, False


def _nearest(value: Any, type_: Any) -> str:
    try:
        return f"would store {shown(value.cast(type_, safe=False).as_py())}"
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return "cannot store it at all"
