"""Answers in pieces: the same JSON as row by row, bounded at a time, and inside the budget of their query."""

from __future__ import annotations

import math

import numpy as np
import orjson
import pyarrow as pa
import pytest

from omnigraph import clock
from omnigraph.engine.query.budget import Budget, BudgetUsage, CancelToken
from omnigraph.engine.query.result import Result, encode_json_pieces, json_rows, split_table
from omnigraph.errors import BudgetExceeded, QueryCancelled
from omnigraph.limits import ANSWER_PIECE_BYTES, ANSWER_PIECE_CELLS
from omnigraph.lru import LruCache

FLOATS = (1.0, 0.1, -0.0, 1e300, 1e-7, math.nan, math.inf, -math.inf, None)


def mixed(rows: int) -> pa.Table:
    """Return a table with a column of every type that a query returns, nulls included."""
    count = range(rows)
    numbers = pa.array([None if n % 4 == 0 else n * 86_400_123 for n in count], pa.int64())
    days = pa.array([None if n % 4 == 0 else n * 3 for n in count], pa.int32())
    lists = pa.array([None if n % 4 == 0 else [n, None] for n in count], pa.list_(pa.int32()))
    columns = {
        "text": pa.array([None if n % 7 == 0 else f'é"\\\n\x01{n}' for n in count]),
        "small": pa.array([None if n % 5 == 0 else -n for n in count], pa.int32()),
        "large": pa.array([2**64 - 1 - n for n in count], pa.uint64()),
        "float": pa.array([FLOATS[n % len(FLOATS)] for n in count]),
        "narrow": pa.array([n / 3 for n in count], pa.float32()),
        "flag": pa.array([None if n % 3 == 0 else n % 2 == 0 for n in count]),
        "day": days.cast(pa.date32()),
        "instant": numbers.view(pa.date64()),
        "texts": pa.array([None if n % 4 == 0 else [str(n), None] for n in count]),
        "days": lists.cast(pa.list_(pa.date32())),
        "vector": pa.array([[n / 3, 1.0] for n in count], pa.list_(pa.float32(), 2)),
        'quo"ted': pa.array(list(count)),
    }
    return pa.table(list(columns.values()), names=list(columns))


@pytest.mark.parametrize("rows", [0, 1, 3, 1_023, 1_024, 5_000])
def test_pieces_of_json_say_what_rows_say(rows: int) -> None:
    table = mixed(rows)
    text = b"[" + b"".join(encode_json_pieces(table)) + b"]"
    assert orjson.loads(text) == orjson.loads(orjson.dumps(json_rows(table)))


@pytest.mark.slow
def test_pieces_are_bounded_by_values_and_by_bytes() -> None:
    narrow = pa.table({"n": np.arange(1_000_000)})
    assert max(part.num_rows for part in split_table(narrow)) == ANSWER_PIECE_CELLS
    wide = pa.table([pa.array(range(40))] * 10_000, names=[f"c{n}" for n in range(10_000)])
    assert max(part.num_rows for part in split_table(wide)) == ANSWER_PIECE_CELLS // 10_000
    long = pa.table({"t": ["x" * 100_000] * 400})
    assert max(len(piece) for piece in encode_json_pieces(long)) < 2 * ANSWER_PIECE_BYTES
    assert sum(part.num_rows for part in split_table(long)) == 400


def answer(budget: Budget) -> Result:
    return Result(pa.table({"n": np.arange(300_000)}), "q", "main", None, BudgetUsage(budget))


def test_answer_that_cannot_fit_is_refused_before_its_first_piece() -> None:
    with pytest.raises(BudgetExceeded) as caught:
        next(answer(Budget(bytes_max=1_000_000)).json_pieces())
    assert caught.value.context["limit"] == "bytes"


@pytest.mark.slow
def test_answer_that_grows_beyond_its_budget_breaks_off() -> None:
    table = pa.table({"n": ["\x01" * 8] * 300_000})
    made = Result(table, "q", "main", None, BudgetUsage(Budget(bytes_max=10_000_000))).json_pieces()
    with pytest.raises(BudgetExceeded):
        list(made)


@pytest.mark.parametrize("pieces_of", [Result.json_pieces, Result.arrow_pieces])
def test_answer_is_cancelled_and_timed_between_pieces(pieces_of: object) -> None:
    cancel = CancelToken()
    made = pieces_of(answer(Budget(cancel=cancel)))  # type: ignore[operator]
    assert next(made)
    cancel.cancel()
    with pytest.raises(QueryCancelled):
        next(made)
    now = [0.0]
    with clock.replaced(elapsed=lambda: now[0]):
        made = pieces_of(answer(Budget(seconds_max=5)))  # type: ignore[operator]
        assert next(made)
        now[0] = 6.0
        with pytest.raises(BudgetExceeded):
            next(made)


def test_cache_is_bounded_by_bytes_and_keeps_nothing_large() -> None:
    cache: LruCache[int, str] = LruCache(100, 1_000)
    made: list[int] = []

    def get(key: int, size: int) -> None:
        def make() -> str:
            made.append(key)
            return str(key)

        assert cache.get_or_create(key, make, size) == str(key)

    for key in range(10):
        get(key, 200)
        assert cache.nbytes <= 1_000
    get(9, 200)
    assert made == list(range(10))
    get(0, 200)
    assert made[-1] == 0, "what was not used for longest is forgotten"
    get(50, 251)
    get(50, 251)
    assert made[-2:] == [50, 50], "one that would drive out the others is not kept"
