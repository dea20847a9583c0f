"""Whole columns against single values: both forms of `fit` agree, and dates mean what Python says they mean."""

from __future__ import annotations

import base64
import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.lang.catalog import PropertyType, Scalar
from omnigraph.lang.schema.arrow_schema import arrow_type
from omnigraph.lang.times import DATETIME_RANGE, parse_days, parse_milliseconds
from omnigraph.rules.coerce import Misfit, decode_column, fit, from_fitted
from omnigraph.rules.time_columns import parse_times
from tests.support.examples import examples

TYPES = [
    *(PropertyType(scalar, nullable=True) for scalar in Scalar if scalar is not Scalar.VECTOR),
    PropertyType(Scalar.VECTOR, dimension=2),
    *(
        PropertyType(scalar, is_list=True)
        for scalar in (Scalar.STRING, Scalar.I32, Scalar.F32, Scalar.DATE, Scalar.BOOL)
    ),
]
VALUES: Any = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.integers(-5, 5),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(["2020-01-31", "2020-1-3", "20200131", "2020-01-31T01:02:03.004567Z", "1969-12-31 23:59:59.9999"]),
    st.sampled_from(["base64:aGk=", "base64:", "base64:?", "s3://bucket/x", "\ud800", "2020-02-30"]),
    st.lists(st.one_of(st.none(), st.integers(-5, 5), st.floats(width=32), st.text(max_size=2)), max_size=3),
)


def one_by_one(values: list[object], type_: PropertyType) -> tuple[list[object], set[int]]:
    """Return each value as stored and the rows that do not fit, by `fit` alone."""
    stored: list[object] = []
    bad: set[int] = set()
    for row, value in enumerate(values):
        try:
            stored.append(fit(value, type_))
        except Misfit:
            bad.add(row)
            stored.append(None)
    return stored, bad


@pytest.mark.slow
@given(st.sampled_from(TYPES), st.data())
def test_decode_column_agrees_with_fit(type_: PropertyType, data: st.DataObject) -> None:
    values = data.draw(st.lists(VALUES, max_size=6))
    column, faults = decode_column(values, type_)
    stored, bad = one_by_one(values, type_)
    assert column.type == arrow_type(type_)
    assert {fault.row for fault in faults} == bad
    fine = [row for row in range(len(values)) if row not in bad]
    expected = from_fitted([stored[row] for row in fine], type_)
    assert column.take(pa.array(fine, pa.int64())).equals(expected)


@pytest.mark.slow
@given(st.sampled_from(TYPES), st.data())
def test_decode_column_of_fitting_values_keeps_them(type_: PropertyType, data: st.DataObject) -> None:
    values = [value for value in data.draw(st.lists(VALUES, max_size=12)) if not one_by_one([value], type_)[1]]
    column, faults = decode_column(values, type_)
    assert faults == []
    assert column.equals(from_fitted(one_by_one(values, type_)[0], type_))


@pytest.mark.parametrize(
    ("value", "type_", "is_wrong_kind"),
    [
        ("7", PropertyType(Scalar.I32), True),
        (1.0, PropertyType(Scalar.I32), True),
        (True, PropertyType(Scalar.I32), True),
        (1, PropertyType(Scalar.BOOL), True),
        (3_000_000_000, PropertyType(Scalar.I32), False),
        (-1, PropertyType(Scalar.U64), False),
        (1e39, PropertyType(Scalar.F32), False),
        (float("nan"), PropertyType(Scalar.F64), False),
        ("nope", PropertyType(Scalar.DATE), False),
        (1.5, PropertyType(Scalar.DATE), True),
        ([1.0], PropertyType(Scalar.VECTOR, dimension=2), False),
        ([1.0, "x"], PropertyType(Scalar.VECTOR, dimension=2), False),
        ([1.0, 1e39], PropertyType(Scalar.VECTOR, dimension=2), False),
        ("x", PropertyType(Scalar.STRING, is_list=True), False),
        ([1], PropertyType(Scalar.STRING, is_list=True), True),
        ("base64:***", PropertyType(Scalar.BLOB), False),
        ("s3://bucket/key", PropertyType(Scalar.BLOB), False),
    ],
)
def test_decode_column_misfit_is_told_with_its_kind(value: object, type_: PropertyType, is_wrong_kind: bool) -> None:
    _, [fault] = decode_column([None, value], type_)
    assert (fault.row, fault.is_wrong_kind) == (1, is_wrong_kind)
    assert fault.reason


def test_decode_column_blob_null_differs_from_empty() -> None:
    text = "base64:" + base64.b64encode(b"bytes").decode()
    column, faults = decode_column([None, "base64:", text], PropertyType(Scalar.BLOB))
    assert faults == []
    assert column.to_pylist() == [None, b"", b"bytes"]


@given(st.dates())
def test_parse_days_reads_every_date(date: dt.date) -> None:
    days = (date - dt.date(1970, 1, 1)).days
    assert parse_days(date.isoformat()) == days
    column = parse_times(pa.array([date.isoformat()]), Scalar.DATE)
    assert column is not None
    assert column.cast(pa.int32()).to_pylist() == [days]


@given(st.datetimes(), st.integers(-14 * 60, 14 * 60))
def test_parse_milliseconds_reads_every_instant(moment: dt.datetime, offset: int) -> None:
    epoch = dt.datetime(1970, 1, 1)
    expected = (moment - epoch) // dt.timedelta(milliseconds=1)
    assert parse_milliseconds(moment.isoformat() + "Z") == expected
    column = parse_times(pa.array([moment.isoformat() + "Z", None]), Scalar.DATETIME)
    assert column is not None
    assert column.cast(pa.int64()).to_pylist() == [expected, None]
    sign = "-" if offset < 0 else "+"
    zone = f"{sign}{abs(offset) // 60:02d}:{abs(offset) % 60:02d}"
    shifted = expected - offset * 60_000
    # An offset may lead out of the calendar.
    is_inside = DATETIME_RANGE[0] <= shifted <= DATETIME_RANGE[1]
    assert parse_milliseconds(moment.isoformat() + zone) == (shifted if is_inside else None)
    assert parse_days(moment.isoformat() + zone) == (shifted // 86_400_000 if is_inside else None)


DATES = st.tuples(
    st.sampled_from([0, 1, 1969, 1970, 2000, 2023, 2024, 9999]), st.integers(0, 13), st.integers(0, 32)
).map(lambda parts: "{:04d}-{:02d}-{:02d}".format(*parts))
TIMES = st.tuples(
    st.sampled_from("T x"), st.sampled_from([0, 23, 24]), st.sampled_from([0, 59, 60]), st.sampled_from([0, 59, 60])
).map(lambda parts: "{}{:02d}:{:02d}:{:02d}".format(*parts))
FRACTIONS = st.one_of(st.just(""), st.integers(1, 8).map(lambda count: "." + "1998877665"[:count]), st.just("."))
ZONES = st.sampled_from(["", "Z", "+00:00", "-01:30", "+23:59", "+24:00", "+01:60", "*01:00", "+0100"])
SPELLINGS = st.one_of(DATES, st.tuples(DATES, TIMES, FRACTIONS, ZONES).map("".join))


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(st.lists(st.one_of(st.none(), SPELLINGS), max_size=3))
def test_date_columns_agree_with_single_texts(few: list[str | None]) -> None:
    texts = few * 40
    column: Any = pa.array(texts, pa.string())
    for scalar, parse, stored in (
        (Scalar.DATE, parse_days, pa.int32()),
        (Scalar.DATETIME, parse_milliseconds, pa.int64()),
    ):
        expected = [None if text is None else parse(text) for text in texts]
        found = parse_times(column, scalar)
        if expected.count(None) > texts.count(None):
            assert found is None
        else:
            assert found is not None
            assert found.view(stored).to_pylist() == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "12:00",
        "2024",
        "01/02/2024",
        "2024-13-01",
        "2024-02-30",
        "2024-01-01T25:00:00Z",
        "2024-01-01T00:00",
        " 2024-01-01",
    ]
    + ["2024-01-01T00:00:00+25:00", "2024-01-01T00:00:60Z", "2024-01-01Z", "٢٠٢٤-01-01"],
)
def test_parse_other_texts_are_no_dates(text: str) -> None:
    assert parse_days(text) is None
    assert parse_milliseconds(text) is None
    assert parse_times(pa.array([text]), Scalar.DATE) is None
    assert parse_times(pa.array([text]), Scalar.DATETIME) is None
