"""Vectors as operands: constants repeated, numbers in the width of a computation, and validity combined."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.query.search import (
    Constant,
    Lists,
    Mask,
    Numbers,
    Strings,
    Vector,
    vector_from_arrow,
    vector_to_arrow,
)
from omnigraph.errors import ArithmeticOverflow
from omnigraph.lang.catalog import PropertyType, Scalar
from omnigraph.lang.schema.arrow_schema import arrow_type


def materialize(vector: Vector, count: int) -> Numbers | Strings | Lists:
    """Return a vector with a value per row."""
    if not isinstance(vector, Constant):
        return vector
    return vector_from_arrow(vector_to_arrow(vector, arrow_type(vector.type), count))


def to_arrow(vector: Vector, type_: PropertyType, count: int) -> Any:
    """Return a vector as an Arrow array of a type of the language."""
    return vector_to_arrow(vector, arrow_type(type_), count)


def to_arrow_plain(vector: Vector, count: int) -> Any:
    """Return a vector as an Arrow array of whatever type it has in memory."""
    values = materialize(vector, count)
    if isinstance(values, Numbers):
        return pa.array(values.data, mask=None if values.valid is None else ~values.valid)
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
        raise_overflow(np.array(vector.value >= 2**63), function)
        return np.array(vector.value, np.int64), None
    assert isinstance(vector, Numbers)
    data, valid = vector.data, vector.valid
    if data.dtype == np.uint64:
        large = data >= np.uint64(2**63)
        raise_overflow(large if valid is None else large & valid, function)
    return data.astype(np.int64), valid


def raise_overflow(overflow: npt.NDArray[Any], function: str, type_name: str = "I64") -> None:
    """Raise ArithmeticOverflow if any value overflowed."""
    if bool(np.any(overflow)):
        raise ArithmeticOverflow(function_overflow_message(function, type_name), function=function, type=type_name)


def function_overflow_message(function: str, type_name: str) -> str:
    if type_name in (Scalar.DATE.value, Scalar.DATETIME.value):
        remedy = "dates lie between 0001-01-01 and 9999-12-31"
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
