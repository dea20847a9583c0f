"""Any text ends in a schema or in a coded diagnostic, in time that grows with its length."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.lang.diagnostic import Diagnostic, LanguageError
from omnigraph.limits import DIAGNOSTICS_MAX, SOURCE_BYTES_MAX, SOURCE_NESTING_MAX
from tests.support.examples import examples
from tests.support.language_codes import SCHEMA_CODES
from tests.support.schema_compiling import FIXTURE, compiled, refused

pytestmark = pytest.mark.slow

TOKENS = [
    *("node", "edge", "interface", "implements", "enum", "Vector", "String", "Blob", "I32", "F64", "A", "B", "a", "id"),
    *(
        "@",
        "@key",
        "@index",
        "@card(",
        "@range(",
        "@check(",
        "@embed(",
        "@rename_from(",
        "@description",
        "(",
        ")",
        "{",
        "}",
    ),
    *(
        "[",
        "]",
        "?",
        ":",
        "->",
        ",",
        "..",
        "-",
        "=",
        "0",
        "1.5",
        "true",
        '"x"',
        '"',
        "/*",
        "*/",
        "//",
        "\n",
        "\\",
        "\0",
        "é",
    ),
]


def outcome(text: str) -> tuple[Diagnostic, ...]:
    try:
        return compiled(text).notes
    except LanguageError as error:
        return error.diagnostics


def check(text: str) -> None:
    found = outcome(text)
    assert len(found) <= DIAGNOSTICS_MAX
    for diagnostic in found:
        assert diagnostic.code in SCHEMA_CODES
        assert 0 <= diagnostic.span.start <= diagnostic.span.end <= len(text)
        assert diagnostic.code in diagnostic.render()


@given(st.text())
def test_compile_any_text_is_coded(text: str) -> None:
    check(text)


@given(st.lists(st.sampled_from(TOKENS), max_size=60))
@settings(max_examples=examples(300))
def test_compile_any_tokens_are_coded(tokens: list[str]) -> None:
    check(" ".join(tokens))


@given(st.integers(0, len(FIXTURE)), st.integers(0, 20), st.sampled_from(TOKENS))
@settings(max_examples=examples(300))
def test_compile_mutated_schema_is_coded(start: int, length: int, token: str) -> None:
    check(FIXTURE[:start] + token + FIXTURE[start + length :])


@pytest.mark.parametrize("opening", ["(", "[", "{", "node A { x: [", "@a("])
def test_compile_deep_nesting_is_refused_before_parsing(opening: str) -> None:
    [diagnostic] = refused(opening * 100_000)
    assert diagnostic.code == "S1"
    assert f"more than {SOURCE_NESTING_MAX}" in diagnostic.message


def test_compile_nesting_inside_strings_and_comments_does_not_count() -> None:
    deep = "(" * 1_000
    assert compiled(f'// {deep}\n/* {deep} */ node A @description("{deep}") {{}}').catalog.nodes.keys() == {"A"}


@pytest.mark.parametrize("unit", ["node A {}\n", "\0", '\\"', '"\\"', "/*", "é", "a", "@a "])
def test_compile_ten_megabytes_are_refused_by_size(unit: str) -> None:
    [diagnostic] = refused(unit * (10_000_000 // len(unit)))
    assert diagnostic.code == "S1"
    assert f"{SOURCE_BYTES_MAX:,}" in diagnostic.message


@pytest.mark.parametrize("unit", ['\\"', '"\\"', "/*", "//", "*/", "é", "\0", '"'])
def test_compile_a_megabyte_of_noise_ends_in_one_s1(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    if unit == "//":
        assert not compiled(text).catalog.nodes
    else:
        assert [diagnostic.code for diagnostic in refused(text)] == ["S1"]


def test_compile_lone_surrogate_is_refused_in_its_place() -> None:
    [diagnostic] = refused('node A @description("\ud800") {}')
    assert (diagnostic.code, diagnostic.span.start) == ("S1", 21)


def test_compile_many_errors_are_cut_at_the_limit() -> None:
    assert len(refused("node A {}\n" * 500)) == DIAGNOSTICS_MAX


@pytest.mark.parametrize("digits", ["9" * 5_000, "0" * 5_000])
def test_compile_numbers_of_any_length_are_coded(digits: str) -> None:
    check(f"node A {{ v: Vector({digits}) n: F64 @range(n, {digits}..{digits}.5) @shiny({digits}) }}")
    check(f"node A {{}} edge E: A -> A @card({digits}..{digits})")
