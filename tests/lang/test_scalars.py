"""The table of scalar types is whole: what is derived from an entry exists for every type."""

from __future__ import annotations

from typing import get_args

import pyarrow as pa
import pytest

from omnigraph.lang.catalog import PropertyType
from omnigraph.lang.diagnostic import LanguageError, Source
from omnigraph.lang.scalars import (
    FACTS,
    ORDERED,
    PLAIN,
    RANGES,
    TIME_FORMS,
    TIMES,
    Family,
    ParameterKind,
    Scalar,
    cast_targets,
    readable,
)
from omnigraph.lang.schema.arrow_schema import ARROW_TYPES, PHYSICAL, SCALARS, arrow_type
from omnigraph.lang.schema.parser import parse_schema
from omnigraph.rules.time_columns import is_in_range, parse_times, time_texts

SINGLE = [scalar for scalar in Scalar if scalar.facts.family is not Family.VECTOR]
WITH_TEXTS = pytest.mark.parametrize("scalar", list(TIME_FORMS))


def test_every_type_has_an_entry_and_every_word_for_parameters_is_used() -> None:
    assert list(FACTS) == list(Scalar)
    assert {facts.kind for facts in FACTS.values()} | {"list"} == {*get_args(ParameterKind)}


@pytest.mark.parametrize("scalar", SINGLE)
def test_type_is_written_in_a_schema_and_stored_in_a_column_of_its_own(scalar: Scalar) -> None:
    [node] = parse_schema(Source("a.pg", f"node A {{ p: {scalar}?  q: [{scalar}] }}"))
    assert [item.type.type for item in node.properties] == [
        PropertyType(scalar, nullable=True),
        PropertyType(scalar, is_list=True),
    ]
    assert SCALARS[arrow_type(PropertyType(scalar))] is scalar


def test_unknown_type_is_explained_with_all_types() -> None:
    with pytest.raises(LanguageError) as caught:
        parse_schema(Source("a.pg", "node A { p: Xyz }"))
    assert caught.value.diagnostics[0].hint == f"the types are {', '.join([*Scalar, 'enum'])}"


@pytest.mark.parametrize("scalar", list(Scalar))
def test_casts_go_to_plain_types_and_everything_plain_is_written_as_text(scalar: Scalar) -> None:
    targets = cast_targets(scalar)
    assert targets <= PLAIN
    assert bool(targets) is (scalar in PLAIN)
    assert (Scalar.STRING in targets) is (scalar in PLAIN - {Scalar.STRING})


@pytest.mark.parametrize("scalar", list(Scalar))
def test_wider_types_hold_the_same_kind_of_value_in_a_wider_range(scalar: Scalar) -> None:
    for wider in scalar.facts.wider:
        assert {scalar, wider} <= ORDERED
        if wider in RANGES:
            (low, high), (wider_low, wider_high) = RANGES[scalar], RANGES[wider]
            assert wider_low <= low
            assert high <= wider_high


@WITH_TEXTS
def test_range_of_a_type_with_texts_fits_its_column(scalar: Scalar) -> None:
    low, high = RANGES[scalar]
    stored = PHYSICAL[ARROW_TYPES[scalar]]
    column = pa.array([low, None, high], stored)
    assert is_in_range(column, scalar)
    if stored == pa.int64():
        assert not is_in_range(pa.array([high + 1], stored), scalar)
        assert not is_in_range(pa.array([low - 1], stored), scalar)


@WITH_TEXTS
def test_texts_of_values_and_columns_agree_and_are_read_back(scalar: Scalar) -> None:
    form, (low, high) = TIME_FORMS[scalar], RANGES[scalar]
    values = [low, low + 1, -1, 0, 1, 59_999, 86_400_000 % (high + 1), high - 1, high] * 5
    stored = ARROW_TYPES[scalar]
    column = pa.array([*values, None], PHYSICAL[stored]).view(stored)
    texts = [form.write(value) for value in values]
    assert time_texts(column).to_pylist() == [*texts, None]
    assert [readable(value, scalar) for value in values] == texts
    assert [form.read(text) for text in texts if text is not None] == values
    parsed = parse_times(pa.array([*texts, None]), scalar)
    assert parsed is not None
    assert parsed.equals(column)


@WITH_TEXTS
def test_text_of_another_kind_is_no_value(scalar: Scalar) -> None:
    form = TIME_FORMS[scalar]
    assert form.is_literal(form.example)
    assert not form.is_literal("soon")
    texts = pa.array([form.example, "soon"] * 40)
    assert parse_times(texts, scalar) is None
    valid = parse_times(texts, scalar, others_are_null=True)
    assert valid is not None
    assert valid.is_valid().to_pylist() == [True, False] * 40


def test_types_with_texts_are_the_times() -> None:
    assert {scalar for scalar in Scalar if scalar.facts.family is Family.TIME} == TIMES
    assert TIMES <= ORDERED <= PLAIN
