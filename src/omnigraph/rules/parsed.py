"""Columns as a JSON reader gives them to columns as they are stored: the twin of `columns` for values in Arrow.

Pure kernels. None means that a value is unusual, or wrong; `columns` then says which one, and why.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.lang.schema.arrow import arrow_type
from omnigraph.lang.types import FLOATS, PropertyType, Scalar
from omnigraph.rules.base64 import decode_base64
from omnigraph.rules.columns import is_finite, list_column, vector_column
from omnigraph.rules.dates import date_column, datetime_column
from omnigraph.rules.fit import MANAGED
from omnigraph.rules.kernels import Column, pc

# A date may be spelled as a text or as the number that is stored; one column holds one kind.
Spelling: TypeAlias = Literal["string", "number"]
INSTANTS: Final = frozenset({Scalar.DATE, Scalar.DATETIME})
_NUMBERED: Final = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}
_NEGATIVE_ZERO: Final = np.array([-0.0]).view(np.int64)[0]


def reader_type(type_: PropertyType, dates: Spelling = "string") -> pa.DataType:
    """Return the type to read a property as: one whose conversion loses nothing and forgives nothing.

    >>> str(reader_type(PropertyType(Scalar.F32))), str(reader_type(PropertyType(Scalar.DATE, is_list=True)))
    ('double', 'list<item: string>')
    """
    if type_.scalar is Scalar.VECTOR or type_.is_list:
        item = PropertyType(Scalar.F64 if type_.scalar is Scalar.VECTOR else type_.scalar)
        return pa.list_(pa.field("item", reader_type(item, dates)))
    if type_.scalar in INSTANTS and dates == "number":
        return _NUMBERED[type_.scalar]
    if type_.scalar in FLOATS:
        # A number is rounded once to 64 bits, and from there to 32, as everywhere else.
        return pa.float64()
    return pa.string() if type_.scalar in INSTANTS or type_.scalar is Scalar.BLOB else arrow_type(type_)


def stored_column(column: Column, type_: PropertyType) -> Column | None:
    """Return a column that was read as `reader_type` in the layout of its type; None if a value does not fit."""
    if type_.scalar is Scalar.VECTOR:
        return _vectors(column, type_.dimension or 0)
    if type_.is_list:
        items = stored_column(column.values, PropertyType(type_.scalar))
        return None if items is None else list_column(column.offsets, items, column.is_null())
    if type_.scalar in FLOATS:
        numbers = column.cast(arrow_type(type_), safe=False)
        return numbers if is_finite(numbers) else None
    if type_.scalar in INSTANTS:
        if not pa.types.is_string(column.type):
            return column.view(arrow_type(type_))
        return (date_column if type_.scalar is Scalar.DATE else datetime_column)(column)
    return _blobs(column) if type_.scalar is Scalar.BLOB else column


def has_negative_zero(column: Column) -> bool:
    """Tell whether a column of 64-bit floats, or of lists of them, holds a negative zero."""
    numbers = column.values if pa.types.is_list(column.type) else column
    if not pa.types.is_float64(numbers.type) or not len(numbers):
        return False
    bits = np.frombuffer(numbers.buffers()[1], np.int64)[numbers.offset : numbers.offset + len(numbers)]
    return bool((bits == _NEGATIVE_ZERO).any())


def _vectors(column: Column, dimension: int) -> Column | None:
    elements = column.flatten()
    lengths = pc.min_max(pc.list_value_length(column)).as_py()
    if elements.null_count or not {lengths["min"], lengths["max"]} <= {dimension, None}:
        return None
    return vector_column(elements.to_numpy(), column.is_null().to_numpy(zero_copy_only=False), dimension)


def _blobs(column: Column) -> Column | None:
    if not pc.all(pc.starts_with(column, MANAGED), min_count=0).as_py():
        return None
    texts = pc.replace_substring(column.fill_null(MANAGED), MANAGED, "", max_replacements=1)
    decoded = decode_base64(texts)
    if decoded is None or not column.null_count:
        return decoded
    return pc.if_else(column.is_valid(), decoded, pa.scalar(None, pa.large_binary()))
