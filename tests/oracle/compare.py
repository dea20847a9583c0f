"""Holds what the product answered against what the reference evaluator allows."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

import pyarrow as pa

from tests.oracle.evaluate import Answer


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
    keys = [tuple(row[index] for index in answer.ordered_by) for row in found]
    wanted = [tuple(row[index] for index in answer.ordered_by) for row in expected]
    return None if keys == wanted else f"expected order keys {wanted}\nfound {keys}"


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return a result as plain values: dates as `date`, instants as aware `datetime`, lists as tuples."""
    columns = [[_plain(value, field.type) for value in table.column(index).to_pylist()]
               for index, field in enumerate(table.schema)]  # fmt: skip
    return list(zip(*columns, strict=True)) if columns else []


def _plain(value: Any, type_: pa.DataType) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dt.datetime) or (isinstance(value, dt.date) and pa.types.is_date64(type_)):
        moment = value if isinstance(value, dt.datetime) else dt.datetime(value.year, value.month, value.day)
        return moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment
    return value


def _canonical(row: tuple[Any, ...], rough: frozenset[int]) -> tuple[Any, ...]:
    # The type goes along, because Python holds 1, 1.0 and True for equal.
    return tuple(
        (type(value).__name__, float(f"{value:.9g}") if index in rough and isinstance(value, float) else value)
        for index, value in enumerate(row)
    )
