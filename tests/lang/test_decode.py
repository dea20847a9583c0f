"""Bytes become sources, or coded diagnostics at the right place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.lang.diagnostic import LanguageError, Position, decode_source
from omnigraph.limits import SOURCE_BYTES_MAX


def refuse(data: bytes, code: str = "S1") -> LanguageError:
    with pytest.raises(LanguageError) as caught:
        decode_source("a.pg", data, code)
    return caught.value


def test_decode_source_broken_utf8_points_at_the_byte() -> None:
    [diagnostic] = refuse("nodé A {\n  é: ".encode() + b"\xff }\n", "Q000").diagnostics
    assert diagnostic.code == "Q000"
    assert diagnostic.source.position(diagnostic.span.start) == Position(2, 6)
    assert "0xff" in diagnostic.message
    assert diagnostic.render().splitlines()[-2].endswith("|      ^")


def test_decode_source_broken_utf8_after_mark_counts_from_the_text() -> None:
    [diagnostic] = refuse(b"\xef\xbb\xbfab\xc3").diagnostics
    assert diagnostic.source.position(diagnostic.span.start) == Position(1, 3)


def test_decode_source_at_the_limit_is_accepted() -> None:
    assert len(decode_source("a.pg", b" " * SOURCE_BYTES_MAX, "S1").text) == SOURCE_BYTES_MAX


def test_decode_source_over_the_limit_is_refused_without_its_text() -> None:
    error = refuse(b"x" * (SOURCE_BYTES_MAX + 1))
    assert [d.code for d in error.diagnostics] == ["S1"]
    assert len(error.render()) < 500


@given(st.binary(max_size=200))
def test_decode_source_any_bytes_give_text_or_a_diagnostic(data: bytes) -> None:
    try:
        expected = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        assert "[S1]" in refuse(data).render()
    else:
        assert decode_source("a.pg", data, "S1").text == expected
