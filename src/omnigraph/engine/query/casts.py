"""`cast` on vectors. A text that does not hold a value of the type gives null; a number that does not fit raises
ArithmeticOverflow."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.query.vectors import (
    Mask,
    Numbers,
    Strings,
    Vector,
    combine_validity,
    materialize,
    raise_overflow,
    to_arrow,
    vector_from_arrow,
)
from omnigraph.lang.catalog import PropertyType
from omnigraph.lang.scalars import FLOATS, INTEGERS, RANGES, TIME_FORMS, TIMES, Family, Scalar
from omnigraph.lang.schema.arrow_schema import arrow_type
from omnigraph.lang.times import DAY_MS
from omnigraph.rules.arrow_typing import pc
from omnigraph.rules.time_columns import parse_times, time_texts

_INTEGER: Final = r"^[+-]?[0-9]{1,20}$"
_FLOAT: Final = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def cast_vector(vector: Vector, source: PropertyType, type_: PropertyType, count: int) -> Vector:
    values, target = materialize(vector, count), type_.scalar
    if isinstance(values, Strings):
        return vector_from_arrow(_parse(values.array, type_))
    assert isinstance(values, Numbers)
    if target.facts.family is Family.TEXT:
        return Strings(_format(values, source, count))
    if target in FLOATS:
        with np.errstate(over="ignore"):
            return Numbers(values.data.astype(arrow_type(type_).to_pandas_dtype()), values.valid)
    if target in INTEGERS:
        return _to_integers(values, type_)
    if target is Scalar.DATE:
        return Numbers((values.data // DAY_MS).astype(np.int32), values.valid)
    return Numbers(values.data.astype(np.int64) * DAY_MS, values.valid)


def _to_integers(values: Numbers, type_: PropertyType) -> Numbers:
    """Return integers of a width; floats are cut off towards zero, and not-a-number is null."""
    data, valid, dtype = values.data, values.valid, arrow_type(type_).to_pandas_dtype()
    low, high = RANGES[type_.scalar]
    if data.dtype.kind == "f":
        truncated = np.trunc(data.astype(np.float64))
        is_number = ~np.isnan(truncated)
        valid = valid if bool(is_number.all()) else combine_validity(valid, is_number)
        # The bound above is a power of two, and so exact as a float.
        outside: Mask = is_number & ((truncated < float(low)) | (truncated >= float(high + 1)))
        raise_overflow(outside, valid, "cast", type_.scalar)
        known = is_number & ~outside
        return Numbers(np.where(known, truncated, 0.0).astype(dtype), valid)
    if data.dtype.kind == "b":
        return Numbers(data.astype(dtype), valid)
    raise_overflow((data < low) | (data > high), valid, "cast", type_.scalar)
    return Numbers(data.astype(dtype), valid)


def _format(values: Numbers, source: PropertyType, count: int) -> Any:
    column = to_arrow(values, source, count)
    if source.scalar in TIMES:
        return time_texts(column)
    texts = column.cast(pa.string())
    if source.scalar not in FLOATS:
        return texts
    for spelling, shown in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        texts = pc.if_else(pc.equal(texts, spelling), shown, texts)
    # A float keeps its point, so that its text is one of a float.
    is_bare = pc.match_substring_regex(texts, r"^-?[0-9]+$")
    return pc.if_else(is_bare, pc.binary_join_element_wise(texts, ".0", ""), texts)


def _parse(texts: Any, type_: PropertyType) -> Any:
    """Return the values that texts spell; null for a text that spells none."""
    scalar = type_.scalar
    if scalar in TIMES:
        return parse_times(_keep(texts, TIME_FORMS[scalar].canonical), scalar, others_are_null=True)
    if scalar in INTEGERS:
        wide = _keep(texts, _INTEGER).cast(pa.decimal128(38, 0))
        low, high = (pa.scalar(Decimal(bound), pa.decimal128(38, 0)) for bound in RANGES[scalar])
        fits = pc.and_(pc.greater_equal(wide, low), pc.less_equal(wide, high))
        return _null_unless(fits, wide).cast(arrow_type(type_))
    if scalar in FLOATS:
        return _keep(texts, _FLOAT).cast(pa.float64()).cast(arrow_type(type_), safe=False)
    return _keep(texts, "^(true|false)$").cast(pa.bool_())


def _keep(array: Any, pattern: str) -> Any:
    """Return the texts that a pattern matches, null for the others."""
    return _null_unless(pc.match_substring_regex(array, pattern=pattern), array)


def _null_unless(condition: Any, array: Any) -> Any:
    return pc.if_else(pc.fill_null(condition, False), array, pa.nulls(len(array), array.type))
