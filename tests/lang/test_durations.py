"""Texts of durations: what they mean, and which are refused."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.lang.scalars import Scalar, readable
from omnigraph.lang.times import DURATION, DURATION_RANGE, parse_duration
from omnigraph.rules.time_columns import parse_times

HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT0S", 0),
        ("PT1H30M", HOUR + HOUR // 2),
        ("P1DT2H", DAY + 2 * HOUR),
        ("P2W", 14 * DAY),
        ("P1W1DT1S", 8 * DAY + 1_000),
        ("PT36H", 36 * HOUR),
        ("-PT0.5S", -500),
        ("PT0.001S", 1),
        ("PT1.500000S", 1_500),
        ("-P0D", 0),
        ("PT9007199254740.991S", DURATION_RANGE[1]),
        ("-PT9007199254740.991S", DURATION_RANGE[0]),
    ],
)
def test_text_of_a_duration_is_read(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds
    column = parse_times(pa.array([text, None]), Scalar.DURATION)
    assert column is not None
    assert column.cast(pa.int64()).to_pylist() == [milliseconds, None]


@pytest.mark.parametrize(
    "text",
    [
        "", "P", "PT", "-P", "P1DT", "1H", "PT1", "P1H", "PT1D", "P1M", "P1Y", "PT-1H", "+PT1H", "PT1H ", "pt1h",
        "PT1.S", "PT.5S", "PT1.5M", "PT0.0005S", "PT1M1H", "PT9007199254740.992S", "PT1S\n", "P٣D", "01:30:00", "90",
    ],
)  # fmt: skip
def test_other_texts_are_no_durations(text: str) -> None:
    assert parse_duration(text) is None
    assert parse_times(pa.array([text, "PT1S"]), Scalar.DURATION) is None
    column = parse_times(pa.array([text, "PT1S"]), Scalar.DURATION, others_are_null=True)
    assert column is not None
    assert column.to_pylist() == [None, dt.timedelta(seconds=1)]


@given(st.lists(st.integers(*DURATION_RANGE), max_size=4))
def test_written_durations_are_read_back(values: list[int]) -> None:
    texts = readable(values, Scalar.DURATION)
    assert isinstance(texts, list)
    assert list(map(parse_duration, texts)) == values


@given(st.timedeltas(dt.timedelta(days=-1_000), dt.timedelta(days=1_000)))
def test_timedelta_is_taken_if_it_has_whole_milliseconds(value: dt.timedelta) -> None:
    if value % dt.timedelta(milliseconds=1):
        with pytest.raises(ValueError, match="finer than a millisecond"):
            DURATION.convert(value)
    else:
        assert DURATION.convert(value) == value / dt.timedelta(milliseconds=1)


def test_other_objects_are_no_durations() -> None:
    assert [DURATION.convert(value) for value in (dt.date(2024, 1, 1), "PT1S", 1.5, None)] == [None] * 4
    with pytest.raises(ValueError, match="too long"):
        DURATION.convert(dt.timedelta(days=200_000_000))
