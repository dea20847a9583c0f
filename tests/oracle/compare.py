"""Holds what the product answered against what the reference evaluator allows."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

import pyarrow as pa

from tests.oracle.answers import Answer
from tests.oracle.worlds import EPOCH


def difference(answer: Answer, rows: list[tuple[Any, ...]]) -> str | None:
    """Return how an answer differs from what is right, or None."""
    allowed = [_canonical(row, answer.rough) for row in answer.rows]
    found = [_canonical(row, answer.rough) for row in rows]
    expected = allowed[answer.page]
    if answer.is_total:
        return None if found == expected else f"expected in this order: {expected}\nfound: {found}"
    if len(found) != len(expected):
        return f"expected {len(expected)} rows of {allowed}\nfound {len(found)}: {found}"
    surplus = Counter(found) - Counter(allowed)
    if surplus:
        return f"expected rows of {allowed}\nfound also {list(surplus.elements())}"
    if answer.keys:
        ordered_by = [tuple((known, _rounded(key, answer.rough)) for known, key in keys) for keys in answer.keys]
        of_row = dict(zip(allowed, ordered_by, strict=True))
        found_keys, wanted_keys = [of_row[row] for row in found], ordered_by[answer.page]
        return None if found_keys == wanted_keys else f"expected order keys {wanted_keys}\nfound {found_keys}"
    keys = [tuple(row[index] for index in answer.ordered_by) for row in found]
    wanted = [tuple(row[index] for index in answer.ordered_by) for row in expected]
    return None if keys == wanted else f"expected order keys {wanted}\nfound {keys}"


def _rounded(key: Any, rough: frozenset[int]) -> Any:
    return float(f"{key:.9g}") if rough and isinstance(key, float) else key


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return a result as plain values: dates as `date`, instants as aware `datetime`, lists as tuples."""
    columns = [_values(table.column(index)) for index in range(table.num_columns)]
    return list(zip(*columns, strict=True)) if columns else []


def _values(column: pa.ChunkedArray[Any]) -> list[Any]:
    if pa.types.is_date64(column.type):
        moments = column.cast(pa.int64()).to_pylist()
        return [None if one is None else EPOCH + dt.timedelta(milliseconds=one) for one in moments]
    return [tuple(value) if isinstance(value, list) else value for value in column.to_pylist()]


def _canonical(row: tuple[Any, ...], rough: frozenset[int]) -> tuple[Any, ...]:
    # The type goes along, because Python holds 1, 1.0 and True for equal.
    return tuple(
        (type(value).__name__, float(f"{value:.9g}") if index in rough and isinstance(value, float) else value)
        for index, value in enumerate(row)
    )
