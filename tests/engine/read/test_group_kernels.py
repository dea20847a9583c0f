"""Aggregates over whole groups, packed sort keys and quick functions against the plainest way to say the same."""

from __future__ import annotations

import statistics
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from omnigraph.engine.query import ordering
from omnigraph.engine.query.aggregate import Groups, aggregate_groups
from omnigraph.engine.query.functions import apply_function
from omnigraph.engine.query.ordering import SortKey, stable_order
from omnigraph.engine.query.vectors import Numbers, Strings
from omnigraph.errors import ArithmeticOverflow
from omnigraph.lang.catalog import PropertyType, Scalar
from omnigraph.lang.query import ir

COUNT = 600
VALUES: dict[str, npt.NDArray[Any]] = {
    "narrow I32": np.arange(18, 80, dtype=np.int32),
    "wide I64": np.arange(-(2**40), 2**40, 2**33 + 1),
    "the whole of I64": np.array([-(2**63), -1, 0, 2**63 - 1]),
    "the least of I64": np.array([-(2**63), 1 - 2**63]),
    "U64 beyond I64": np.array([0, 1, 2**63, 2**64 - 1], np.uint64),
    "F64": np.array([-1.5, -0.0, 0.0, 2.25, 1e300]),
}


def draw(name: str, groups: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return the group of each row, its value, and whether it has one; the last group has none."""
    chance = np.random.default_rng(groups)
    of = np.concatenate([np.arange(groups), chance.integers(0, groups, COUNT)])
    return of, chance.choice(VALUES[name], len(of)), (of < groups - 1) & (chance.random(len(of)) < 0.9)


def aggregate(call: ir.Aggregate, name: str, groups: int) -> tuple[list[Any], list[list[Any]]]:
    """Return the aggregate of each group, and the values of each group."""
    of, data, valid = draw(name, groups)
    made = Groups([(of, groups)], len(of))
    result = aggregate_groups(call, Numbers(data, valid), made)
    return result.to_pylist(), [data[valid & (of == of[first])].tolist() for first in made.first]


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("groups", [1, 5, 300])
def test_count_distinct_is_the_size_of_a_set(name: str, groups: int) -> None:
    call = ir.Aggregate("count", None, PropertyType(Scalar.I64), is_distinct=True)
    counts, values = aggregate(call, name, groups)
    assert counts == [len(set(one)) for one in values]


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("groups", [1, 5, 300])
@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.5, 1.0])
def test_percentile_lies_between_the_sorted_values_beside_it(name: str, groups: int, fraction: float) -> None:
    call = ir.Aggregate("percentile", None, PropertyType(Scalar.F64), fraction=fraction)
    results, values = aggregate(call, name, groups)
    for result, one in zip(results, values, strict=True):
        if not one:
            assert result is None
            continue
        ordered = sorted(map(float, one))
        place = fraction * (len(ordered) - 1)
        low, high = ordered[int(place)], ordered[min(int(place) + 1, len(ordered) - 1)]
        assert result == pytest.approx(low + (high - low) * (place - int(place)), rel=1e-12)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("groups", [1, 5, 300])
def test_mode_is_the_smallest_of_the_most_frequent_values(name: str, groups: int) -> None:
    scalar = {"F64": Scalar.F64, "U64 beyond I64": Scalar.U64, "narrow I32": Scalar.I32}.get(name, Scalar.I64)
    results, values = aggregate(ir.Aggregate("mode", None, PropertyType(scalar)), name, groups)
    assert results == [min(statistics.multimode(one), default=None) for one in values]


@pytest.mark.parametrize("groups", [1, 5, 300])
def test_mode_of_texts_is_the_first_of_the_most_frequent(groups: int) -> None:
    of, numbers, valid = draw("narrow I32", groups)
    texts = [f"{'é' * (number % 3)}{number}" if there else None for number, there in zip(numbers, valid, strict=True)]
    made = Groups([(of, groups)], len(of))
    call = ir.Aggregate("mode", None, PropertyType(Scalar.STRING))
    results = aggregate_groups(call, Strings(pa.array(texts, pa.string())), made).to_pylist()
    for result, first in zip(results, made.first, strict=True):
        known = [text for text, group in zip(texts, of, strict=True) if group == of[first] and text is not None]
        assert result == min(statistics.multimode(known), default=None)


@pytest.mark.parametrize("dtype", [np.int32, np.int64], ids=["Date", "DateTime"])
@pytest.mark.parametrize("groups", [1, 5, 300])
def test_median_of_dates_is_the_earlier_middle_one(dtype: type[Any], groups: int) -> None:
    of, data, valid = draw("narrow I32" if dtype is np.int32 else "wide I64", groups)
    made = Groups([(of, groups)], len(of))
    call = ir.Aggregate("median", None, PropertyType(Scalar.DATE if dtype is np.int32 else Scalar.DATETIME))
    results = aggregate_groups(call, Numbers(data.astype(dtype), valid), made).to_pylist()
    for result, first in zip(results, made.first, strict=True):
        known = data[valid & (of == of[first])].tolist()
        assert result == (statistics.median_low(known) if known else None)


@pytest.mark.parametrize("least", [0, 10**9], ids=["packed", "by places"])
@pytest.mark.parametrize(
    "keys",
    [
        [],
        [np.array([3, -1, 2])],
        [np.array([True, False]), np.array([2**63, 0, 2**64 - 1], np.uint64)],
        [np.array([1, 0], np.int32), np.array([-(2**40), 2**40])],
        [np.array([-(2**63), 2**63 - 1])],
        [np.array([2**63, 2**63 + 5], np.uint64), np.array([-(2**63), 1 - 2**63])],
    ],
    ids=str,
)
def test_stable_order_is_that_of_a_stable_sort(
    keys: list[SortKey], least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordering, "_PACKED_MIN", least)
    chance = np.random.default_rng(len(keys))
    columns = [chance.choice(key, COUNT) for key in keys]
    rows = list(zip(*(column.tolist() for column in columns), strict=True)) or [()] * COUNT
    assert stable_order(columns, COUNT).tolist() == sorted(range(COUNT), key=rows.__getitem__)


@pytest.mark.parametrize("texts", [["Ab", None, "É"], ["Ab", None], [None], []])
def test_case_of_letters_is_that_of_unicode(texts: list[str | None]) -> None:
    for function, change in (("lower", str.lower), ("upper", str.upper)):
        call = ir.Call(function, (), PropertyType(Scalar.STRING))
        result = apply_function(call, [Strings(pa.array(texts, pa.string()))], len(texts))
        assert isinstance(result, Strings)
        assert result.array.to_pylist() == [None if text is None else change(text) for text in texts]


@pytest.mark.parametrize("patterns", [[None, "a", "a", "b"], ["a", None, "a", "b"], ["a", "a", "b", None]])
def test_null_pattern_leaves_the_other_rows_alone(patterns: list[str | None]) -> None:
    call = ir.Call("replace", (), PropertyType(Scalar.STRING))
    columns: list[list[str | None]] = [["xaxb"] * 4, patterns, ["Z"] * 4]
    result = apply_function(call, [Strings(pa.array(column, pa.string())) for column in columns], 4)
    assert isinstance(result, Strings)
    assert result.array.to_pylist() == [None if item is None else "xaxb".replace(item, "Z") for item in patterns]


@pytest.mark.parametrize("function", ["+", "-", "*"])
@pytest.mark.parametrize("kinds", [("i4", "i4"), ("i4", "u4"), ("u4", "u4"), ("i8", "i2")])
def test_arithmetic_at_the_ends_of_types_is_exact_or_refused(function: str, kinds: tuple[str, str]) -> None:
    operation = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}[function]
    ends = [(np.iinfo(kind).min, np.iinfo(kind).max) for kind in kinds]
    for first, second in product(*ends):
        operands = [Numbers(np.array([end], kind), None) for end, kind in zip((first, second), kinds, strict=True)]
        exact = operation(int(first), int(second))
        call = ir.Call(function, (), PropertyType(Scalar.I64))
        if -(2**63) <= exact < 2**63:
            result = apply_function(call, operands, 1)
            assert isinstance(result, Numbers)
            assert result.data.tolist() == [exact]
        else:
            with pytest.raises(ArithmeticOverflow):
                apply_function(call, operands, 1)
