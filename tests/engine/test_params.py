"""Parameters: every type from JSON and Python values, and every refusal with the parameter's name."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import pytest

from omnigraph.engine.arguments import decode_params
from omnigraph.errors import DataError, UsageError
from omnigraph.lang.catalog import PropertyType, Scalar
from omnigraph.lang.query.ir import Parameter
from omnigraph.lang.times import parse_days, parse_milliseconds


def declared(scalar: Scalar, **more: Any) -> Parameter:
    return Parameter("p", PropertyType(scalar, **more), "x")


@pytest.mark.parametrize(
    ("scalar", "given", "expected"),
    [
        (Scalar.STRING, "", ""),
        (Scalar.I32, -(2**31), -(2**31)),
        (Scalar.I32, "12", 12),
        (Scalar.I64, "-9223372036854775808", -(2**63)),
        (Scalar.U32, 2**32 - 1, 2**32 - 1),
        (Scalar.U64, 2**64 - 1, 2**64 - 1),
        (Scalar.U64, "18446744073709551615", 2**64 - 1),
        (Scalar.I64, np.int32(7), 7),
        (Scalar.F64, 3, 3.0),
        (Scalar.F32, 0.1, 0.10000000149011612),
        (Scalar.BOOL, False, False),
        (Scalar.DATE, "2024-01-31", 19753),
        (Scalar.DATE, dt.date(2024, 1, 31), 19753),
        (Scalar.DATE, "2024-01-31T23:59:59-00:01", 19754),
        (Scalar.DATETIME, "1970-01-01T00:00:00.0019Z", 1),
        (Scalar.DURATION, "-PT1.5S", -1_500),
        (Scalar.DURATION, dt.timedelta(days=1, milliseconds=1), 86_400_001),
        (Scalar.DATETIME, dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), -62_135_600_400_000),
        (Scalar.DATETIME, dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), 0),
    ],
)
def test_parameter_fitting_value_is_decoded(scalar: Scalar, given: object, expected: object) -> None:
    assert decode_params([declared(scalar)], {"p": given}) == {"p": expected}


@pytest.mark.parametrize(
    ("scalar", "given"),
    [
        (Scalar.STRING, 1),
        (Scalar.I32, 2**31),
        (Scalar.I32, 1.0),
        (Scalar.I32, "1.0"),
        (Scalar.I32, "+1"),
        (Scalar.I32, "٣"),
        (Scalar.I64, True),
        (Scalar.U32, -1),
        (Scalar.U64, 2**64),
        (Scalar.F64, "1.5"),
        (Scalar.F64, True),
        (Scalar.F32, 1e39),
        (Scalar.BOOL, 1),
        (Scalar.BOOL, "true"),
        (Scalar.DATE, 19753),
        (Scalar.DATE, "31/01/2024"),
        (Scalar.DATE, "2024-02-30"),
        (Scalar.DATETIME, "10:30"),
        (Scalar.DURATION, 90),
        (Scalar.DURATION, "P1M"),
        (Scalar.DURATION, dt.timedelta(microseconds=1)),
        (Scalar.DURATION, dt.timedelta(days=200_000_000)),
        (Scalar.DATETIME, "2024-01-31T24:00:00"),
        (Scalar.STRING, ["a"]),
        (Scalar.STRING, "\ud800"),
        (Scalar.BLOB, 7),
    ],
)
def test_parameter_misfit_is_refused_by_name(scalar: Scalar, given: object) -> None:
    with pytest.raises(DataError, match=r"\$p") as error:
        decode_params([declared(scalar)], {"p": given})
    assert error.value.context["rule"] == "E4"
    assert error.value.context["parameter"] == "p"


def test_parameter_unknown_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match=r"no parameter `\$q`; it takes `\$p`$"):
        decode_params([declared(Scalar.I32)], {"p": 1, "q": object()})
    with pytest.raises(UsageError, match=r"no parameter `\$pp`; did you mean `\$p`\?"):
        decode_params([declared(Scalar.I32)], {"pp": 1})
    with pytest.raises(UsageError, match="it takes none"):
        decode_params([], {"limit": 1})


def test_parameter_null_needs_a_nullable_type() -> None:
    assert decode_params([declared(Scalar.I32, nullable=True)], {"p": None}) == {"p": None}
    assert decode_params([declared(Scalar.I32, nullable=True)], {}) == {"p": None}
    with pytest.raises(DataError, match="not nullable"):
        decode_params([declared(Scalar.I32)], {"p": None})


def test_parameter_missing_is_left_out_until_it_is_used() -> None:
    assert decode_params([declared(Scalar.I32)], {}) == {}


def test_parameter_list_decodes_each_item() -> None:
    assert decode_params([declared(Scalar.DATE, is_list=True)], {"p": ["1970-01-02", None]}) == {"p": (1, None)}
    with pytest.raises(DataError, match="item 1"):
        decode_params([declared(Scalar.I32, is_list=True)], {"p": [1, "x"]})
    with pytest.raises(DataError, match="list"):
        decode_params([declared(Scalar.I32, is_list=True)], {"p": "12"})


def test_parameter_vector_has_its_dimension() -> None:
    vector = declared(Scalar.VECTOR, dimension=2)
    assert decode_params([vector], {"p": np.array([1, 2])}) == {"p": (1.0, 2.0)}
    for wrong in ([1.0], [1.0, "2"], [1.0, True], [1.0, None], [1.0, math.nan], [1.0, 1e39], [1.0, 10**400], 7, "ab"):
        with pytest.raises(DataError):
            decode_params([vector], {"p": wrong})


@pytest.mark.parametrize(
    ("text", "days", "milliseconds"),
    [
        ("1970-1-2", 1, 86_400_000),
        ("19700102", 1, 86_400_000),
        ("1969-12-31T23:59:59.999Z", -1, -1),
        ("1970-01-01 12:00:00+14:00", -1, -7_200_000),
        ("2024-01-31T10:00", None, None),
        ("2024", None, None),
        ("2024-13-01", None, None),
        ("2024-01-31T10:00:00+25:00", None, None),
        ("2024-01-31T10:00:00+01:75", None, None),
        ("", None, None),
    ],
)
def test_instants_are_read_as_written(text: str, days: int | None, milliseconds: int | None) -> None:
    assert (parse_days(text), parse_milliseconds(text)) == (days, milliseconds)
