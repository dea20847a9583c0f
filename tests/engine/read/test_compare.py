"""Comparisons by exact value: every pair of number types against Python, which compares exactly."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.query.compare import compare, is_member
from omnigraph.engine.query.vectors import Constant, Lists, Numbers, Strings, Vector
from omnigraph.lang.catalog import PropertyType, Scalar
from omnigraph.lang.query.ir import CompareOp

OPS = {
    CompareOp.EQ: operator.eq,
    CompareOp.NE: operator.ne,
    CompareOp.LT: operator.lt,
    CompareOp.LE: operator.le,
    CompareOp.GT: operator.gt,
    CompareOp.GE: operator.ge,
}
EDGES = [0, 1, -1, 2**31 - 1, -(2**31), 2**32 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**64 - 1]
FLOATS = [0.0, -0.0, 0.5, -0.5, 1.0, 2.0**53, 2.0**63, -(2.0**63), 2.0**64, 1e300, -1e300, float("inf"), float("-inf")]
CONSTANTS = st.one_of(st.sampled_from(EDGES + FLOATS), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))
DTYPES = [np.int32, np.int64, np.uint32, np.uint64, np.float64]


def values(dtype: type) -> list[Any]:
    if dtype is np.float64:
        return FLOATS
    limits = np.iinfo(dtype)
    return [number for number in EDGES if limits.min <= number <= limits.max]


def array(numbers: list[Any], dtype: type) -> npt.NDArray[Any]:
    return np.array(numbers, np.dtype(dtype))


def python(value: Any) -> Any:
    return value.item()


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("left", DTYPES)
@pytest.mark.parametrize("right", DTYPES)
def test_compare_columns_of_any_widths_is_exact(op: CompareOp, left: type, right: type) -> None:
    pairs = [(a, b) for a in values(left) for b in values(right)]
    first, second = array([a for a, _ in pairs], left), array([b for _, b in pairs], right)
    found = compare(op, Numbers(first, None), Numbers(second, None), len(pairs))
    assert found.tolist() == [OPS[op](python(a), python(b)) for a, b in zip(first, second, strict=True)]


@given(st.sampled_from(list(OPS)), st.sampled_from(DTYPES), CONSTANTS)
def test_compare_column_with_constant_is_exact(op: CompareOp, dtype: type, constant: Any) -> None:
    data = array(values(dtype), dtype)
    found = compare(op, Numbers(data, None), Constant(constant, PropertyType(Scalar.F64)), len(data))
    mirrored = compare(op, Constant(constant, PropertyType(Scalar.F64)), Numbers(data, None), len(data))
    assert found.tolist() == [OPS[op](python(value), constant) for value in data]
    assert mirrored.tolist() == [OPS[op](constant, python(value)) for value in data]


@pytest.mark.slow
@given(
    st.lists(st.one_of(st.sampled_from(EDGES + FLOATS), st.floats(allow_nan=False)), max_size=5),
    st.sampled_from(DTYPES),
)
def test_member_of_mixed_numbers_is_exact(items: list[Any], dtype: type) -> None:
    data = array(values(dtype), dtype)
    found = is_member(Numbers(data, None), tuple(items), len(data))
    assert found.tolist() == [python(value) in items for value in data]


def test_compare_narrow_column_takes_decimals_as_it_stores_them() -> None:
    ratios = Numbers(np.array([0.1, 0.25], np.float32), None)
    assert compare(CompareOp.EQ, ratios, Constant(0.1, PropertyType(Scalar.F64)), 2).tolist() == [True, False]
    assert compare(CompareOp.LT, ratios, Constant(1e300, PropertyType(Scalar.F64)), 2).tolist() == [True, True]
    assert compare(CompareOp.EQ, ratios, Constant(16777217, PropertyType(Scalar.I64)), 2).tolist() == [False, False]


def test_compare_not_a_number_equals_nothing() -> None:
    column = Numbers(np.array([np.nan, 1.0]), None)
    nan = Constant(float("nan"), PropertyType(Scalar.F64))
    assert compare(CompareOp.NE, column, nan, 2).tolist() == [True, True]
    assert compare(CompareOp.EQ, column, nan, 2).tolist() == [False, False]
    assert compare(CompareOp.GE, Numbers(np.array([1, 2]), None), nan, 2).tolist() == [False, False]


@pytest.mark.parametrize("op", OPS)
def test_compare_null_is_never_true(op: CompareOp) -> None:
    missing = Constant(None, PropertyType(Scalar.I64, nullable=True))
    half = Numbers(np.array([1, 1]), np.array([True, False]))
    sides: list[tuple[Vector, Vector]] = [(half, missing), (missing, half), (missing, missing)]
    assert [compare(op, a, b, 2).any() for a, b in sides] == [False, False, False]
    assert not compare(op, half, half, 2)[1]


TEXTS = ["", "a", "ab", "b", "é", "z", "😀", "a\x00b", "a\x00"]


@given(st.sampled_from([*OPS, CompareOp.STARTS_WITH, CompareOp.STRING_CONTAINS]), st.sampled_from(TEXTS))
def test_compare_texts_like_python(op: CompareOp, constant: str) -> None:
    def expected(a: str, b: str) -> bool:
        if op is CompareOp.STARTS_WITH:
            return a.startswith(b)
        return b in a if op is CompareOp.STRING_CONTAINS else OPS[op](a, b)

    column, scalar = Strings(pa.array(TEXTS)), Constant(constant, PropertyType(Scalar.STRING))
    turned = Strings(pa.array(TEXTS[::-1]))
    size = len(TEXTS)
    assert compare(op, column, scalar, size).tolist() == [expected(text, constant) for text in TEXTS]
    assert compare(op, scalar, column, size).tolist() == [expected(constant, text) for text in TEXTS]
    assert compare(op, column, turned, size).tolist() == [
        expected(a, b) for a, b in zip(TEXTS, TEXTS[::-1], strict=True)
    ]


def test_compare_list_contains_column_item() -> None:
    lists = Lists(pa.array([[1, 2], [], None, [None], [3]], pa.list_(pa.int64())))
    sought = Numbers(np.array([2.0, 1.0, 1.0, 0.0, 3.5]), None)
    assert compare(CompareOp.CONTAINS, lists, sought, 5).tolist() == [True, False, False, False, False]
