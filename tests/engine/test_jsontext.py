"""JSON text of columns: what a JSON reader makes of it is what the column held."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.json_text import json_text

pytestmark = pytest.mark.slow

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def read_back(values: pa.Array[Any]) -> list[object]:
    return [json.loads(str(one)) for one in json_text(values).to_pylist()]


@given(st.lists(st.none() | TEXT))
def test_json_text_any_string_reads_back(values: list[str | None]) -> None:
    assert read_back(pa.array(values, pa.string())) == values


def test_json_text_every_control_character_reads_back() -> None:
    values = [f"<{chr(code)}>" for code in range(0x80)]
    assert read_back(pa.array(values)) == values


@given(st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False)))
def test_json_text_any_float_reads_back_as_float(values: list[float | None]) -> None:
    found = read_back(pa.array(values, pa.float64()))
    assert found == values
    assert all(one is None or isinstance(one, float) for one in found)
    assert [str(one) for one in found] == [str(one) for one in values]


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_json_text_narrow_float_is_widened(values: list[float]) -> None:
    assert read_back(pa.array(values, pa.float32())) == values


@given(st.lists(st.none() | st.lists(st.none() | TEXT)))
def test_json_text_lists_read_back(values: list[list[str | None] | None]) -> None:
    array = pa.array(values, pa.list_(pa.string()))
    assert read_back(array) == values
    assert read_back(array.slice(len(values) // 2)) == values[len(values) // 2 :]


@given(
    st.lists(st.none() | st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3))
)
def test_json_text_vectors_read_back(values: list[list[float] | None]) -> None:
    array = pa.array(values, pa.list_(pa.float32(), 3))
    assert read_back(array) == values
    assert read_back(array.slice(1)) == values[1:]


@pytest.mark.parametrize(
    ("values", "type_", "text"),
    [
        ([0, -1, None], pa.int64(), ["0", "-1", "null"]),
        ([2**64 - 1], pa.uint64(), ["18446744073709551615"]),
        ([True, False, None], pa.bool_(), ["true", "false", "null"]),
        ([18262], pa.date32(), ["18262"]),
        ([1704067200000], pa.date64(), ["1704067200000"]),
        ([1.0, -0.0, 1e21, 2.5], pa.float64(), ["1.0", "-0.0", "1e+21", "2.5"]),
        ([math.nan, math.inf, -math.inf, None], pa.float64(), ['"NaN"', '"Infinity"', '"-Infinity"', "null"]),
        ([], pa.string(), []),
    ],
)
def test_json_text_spelling(values: list[object], type_: pa.DataType, text: list[str]) -> None:
    assert json_text(pa.array(values, type_)).to_pylist() == text
