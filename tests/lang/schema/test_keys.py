"""Keys become ids: the vectorised form and its scalar twin agree, and both spell as promised."""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import DataError
from omnigraph.lang.catalog import NodeType, Property, PropertyType, Scalar
from omnigraph.lang.schema.arrow_schema import arrow_type, key_id, key_ids

VALUES: dict[Scalar, st.SearchStrategy[object]] = {
    Scalar.STRING: st.text(max_size=20),
    Scalar.BOOL: st.booleans(),
    Scalar.I32: st.integers(-(2**31), 2**31 - 1),
    Scalar.I64: st.integers(-(2**63), 2**63 - 1),
    Scalar.U32: st.integers(0, 2**32 - 1),
    Scalar.U64: st.integers(0, 2**64 - 1),
    Scalar.F32: st.floats(width=32, allow_nan=False, allow_infinity=False),
    Scalar.F64: st.floats(allow_nan=False, allow_infinity=False),
    Scalar.DATE: st.dates(),
    Scalar.DATETIME: st.datetimes(timezones=st.just(dt.UTC)),
    Scalar.DURATION: st.integers(-(10**12), 10**12).map(lambda count: dt.timedelta(milliseconds=count)),
}


def node(**types: Scalar) -> NodeType:
    properties = {
        name: Property(name, PropertyType(scalar), index) for index, (name, scalar) in enumerate(types.items())
    }
    return NodeType("N", 1, 2, properties, key=tuple(types))


def column(scalar: Scalar, values: list[object]) -> pa.Array[Any]:
    if scalar is Scalar.DATETIME:
        epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        values = [(value - epoch) // dt.timedelta(milliseconds=1) for value in values]  # type: ignore[operator]
    return pa.array(values, arrow_type(PropertyType(scalar)) if scalar is not Scalar.DATETIME else pa.int64())


def batch(type_: NodeType, rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    columns = {
        name: column(type_.properties[name].type.scalar, [row[index] for row in rows])
        for index, name in enumerate(type_.key)
    }
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.slow
@pytest.mark.parametrize("scalar", list(VALUES))
@given(data=st.data())
def test_key_ids_any_scalar_equals_scalar_twin(scalar: Scalar, data: st.DataObject) -> None:
    type_ = node(k=scalar)
    values = data.draw(st.lists(VALUES[scalar], max_size=8))
    ids = key_ids(type_, batch(type_, [(value,) for value in values]))
    assert ids.type == pa.string()
    assert ids.to_pylist() == [key_id(type_, {"k": value}) for value in values]


@pytest.mark.slow
@given(data=st.data())
def test_key_ids_composite_equals_scalar_twin_and_is_compact_json(data: st.DataObject) -> None:
    scalars = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=2, max_size=4))
    type_ = node(**{f"k{index}": scalar for index, scalar in enumerate(scalars)})
    rows = data.draw(st.lists(st.tuples(*(VALUES[scalar] for scalar in scalars)), max_size=5))
    ids = key_ids(type_, batch(type_, rows)).to_pylist()
    assert ids == [key_id(type_, dict(zip(type_.key, row, strict=True))) for row in rows]
    for text in ids:
        assert text is not None
        assert json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False) == text
        assert len(json.loads(text)) == len(scalars)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_key_id_f32_reads_back_at_its_width_with_no_shorter_spelling(value: float) -> None:
    text = key_id(node(k=Scalar.F32), {"k": value})
    assert struct.pack("<f", float(text)) == struct.pack("<f", value + 0.0)
    assert "e" not in text
    assert not text.endswith(".0")
    digits = len(Decimal(text).normalize().as_tuple().digits)
    shorter = f"{value:.{max(digits - 2, 0)}e}"
    assert digits == 1 or not math.isfinite(float(shorter)) or _f32(float(shorter)) != _f32(value)


def _f32(value: float) -> bytes | None:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return None


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_key_id_f64_has_the_digits_of_repr(value: float) -> None:
    text = key_id(node(k=Scalar.F64), {"k": value})
    assert Decimal(text) == Decimal(repr(value))
    assert not set(text) & set("eE+")
    assert text != "-0"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (0.0, "0"),
        (1e21, "1" + "0" * 21),
        (1.5e-7, "0.00000015"),
        (-2.5, "-2.5"),
        (1e15, "1" + "0" * 15),
    ],
)
def test_key_ids_f64_is_positional(value: float, expected: str) -> None:
    type_ = node(k=Scalar.F64)
    assert key_ids(type_, batch(type_, [(value,), (value,)])).to_pylist() == [expected, expected]


def test_key_ids_f32_spells_the_stored_width() -> None:
    type_ = node(k=Scalar.F32)
    assert key_ids(type_, batch(type_, [(0.1,), (16777216.0,)])).to_pylist() == ["0.1", "16777216"]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("scalar", [Scalar.F32, Scalar.F64])
def test_key_id_not_finite_is_e6_in_both_forms(scalar: Scalar, bad: float) -> None:
    type_ = node(k=scalar)
    with pytest.raises(DataError) as vectorised:
        key_ids(type_, batch(type_, [(1.0,), (bad,)]))
    with pytest.raises(DataError) as single:
        key_id(type_, {"k": bad})
    assert vectorised.value.context["rule"] == single.value.context["rule"] == "E6"


def test_key_id_null_is_e4_in_both_forms() -> None:
    type_ = node(k=Scalar.STRING)
    with pytest.raises(DataError) as vectorised:
        key_ids(type_, pa.RecordBatch.from_pydict({"k": pa.array(["a", None])}))
    with pytest.raises(DataError) as single:
        key_id(type_, {})
    assert vectorised.value.context["rule"] == single.value.context["rule"] == "E4"


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        (Scalar.I32, 2**31),
        (Scalar.U32, -1),
        (Scalar.U64, 2**64),
        (Scalar.I64, True),
        (Scalar.STRING, 7),
        (Scalar.F32, 1e300),
    ],
)
def test_key_id_value_of_another_type_is_e4(scalar: Scalar, value: object) -> None:
    with pytest.raises(DataError) as caught:
        key_id(node(k=scalar), {"k": value})
    assert caught.value.context["rule"] == "E4"


def test_key_ids_table_in_chunks_gives_one_array() -> None:
    table = pa.table({"k": pa.chunked_array([["a"], ["b", "c"]])})
    assert key_ids(node(k=Scalar.STRING), table).to_pylist() == ["a", "b", "c"]
