"""Text as values: what a field of CSV, or the name of a partition directory, means in each type.

Numbers and truths are written as in JSON, also as `007`, `True` or `1`; dates and times as in ISO 8601, and without a
zone they are in UTC. Spaces belong to a text, so that ` 7` is no number.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from omnigraph.lang.scalars import Scalar
from omnigraph.rules.arrow_typing import Column, pc
from omnigraph.rules.time_columns import parse_times

_BELOW_MILLISECONDS: Final = r"\.[0-9]{3}(?P<digits>[0-9]{1,3})"


def read_texts(texts: Column, type_: pa.DataType) -> Column:
    """Return the values that texts write.

    Raises:
        ArrowInvalid: One of them writes no value of the type, or one that it would have to round.

    >>> read_texts(pa.array(["0.35", None]), pa.decimal128(5, 2)).to_pylist()
    [Decimal('0.35'), None]
    """
    if pa.types.is_date32(type_):
        return _require(parse_times(texts, Scalar.DATE))
    if pa.types.is_timestamp(type_):
        return _timestamps(texts).cast(type_)
    if pa.types.is_float32(type_):
        # As everywhere else, a number is rounded to 64 bits first and from there to 32.
        return texts.cast(pa.float64()).cast(type_)
    return texts.cast(type_)


def _timestamps(texts: Column) -> Column:
    """Return texts as timestamps in microseconds; the rules parse milliseconds, which is what a graph keeps."""
    milliseconds = _require(parse_times(texts, Scalar.DATETIME)).view(pa.int64())
    below = pc.struct_field(pc.extract_regex(texts, pattern=_BELOW_MILLISECONDS), "digits")
    micros = pc.fill_null(pc.utf8_rpad(below, 3, "0").cast(pa.int64()), 0)
    return pc.add(pc.multiply(milliseconds, 1_000), micros).view(pa.timestamp("us", "UTC"))


def _require(column: Column | None) -> Column:
    if column is None:
        raise pa.ArrowInvalid("a text is no date or time")
    return column
