"""The parser: names, bounds and robustness."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.lang.diagnostic import LanguageError, Source
from omnigraph.lang.query import compile_query, ir, lint_queries
from omnigraph.lang.query.parser import parse_queries
from omnigraph.limits import DIAGNOSTICS_MAX, SOURCE_BYTES_MAX, SOURCE_NESTING_MAX
from tests.support.examples import examples
from tests.support.query_fixtures import catalog_f, catalog_from, codes_of, compiled, read_text
from tests.support.typical_queries import TYPICAL_QUERY

KEYWORDS = [
    "query", "match", "return", "distinct", "order", "skip", "limit", "as", "asc", "desc", "and", "or", "is", "in",
    "not", "null", "optional", "contains", "starts_with", "insert", "update", "delete", "set", "where", "true", "false",
    "now", "date", "datetime", "count", "sum", "avg", "min", "max", "nearest", "bm25", "rrf", "search", "fuzzy",
    "match_text", "node", "edge", "case", "when", "then", "else", "end", "having", "on", "ends_with", "matches", "any",
    "all", "cast", "coalesce", "collect",
]  # fmt: skip
PIECES = [
    "$v", "$_", ":", "Vessel", "{", "}", "(", ")", "[", "]", "match", "return", "not", "optional", "order", "limit",
    "skip", "callsAt", "<", ">", "=", "!=", "or", "and", "is", "null", "in", "as", "1", "-2.5", "+", "-", "*",
    "case", "when", "then", "else", "end", "having", "matches", "any", "where", "$v.x", '"s"', ",", ".",
    "imo", "query", "q", "count", "*", "search", "insert", "update", "delete", "where", "set", "@description", "//",
    "/*", '"', "\\", "\0", "é", "\ud800", "$", "'", "&",
]  # fmt: skip


def refused(text: str) -> LanguageError:
    with pytest.raises(LanguageError) as caught:
        parse_queries(Source("q.gq", text))
    return caught.value


def survives(text: str) -> None:
    """Compile a text; any end but a result or coded diagnostics fails the test."""
    try:
        compile_query(Source("q.gq", text), catalog_f())
        return
    except LanguageError as error:
        diagnostics = error.diagnostics
    assert diagnostics
    for diagnostic in diagnostics:
        assert 0 <= diagnostic.span.start <= diagnostic.span.end <= len(text)
        assert diagnostic.message
        assert diagnostic.render()


@pytest.mark.parametrize("word", KEYWORDS)
def test_parse_keyword_as_any_name_compiles(word: str) -> None:
    schema = f"node A {{ k: String @key  {word}: String? }}\nedge {word.capitalize()}X: A -> A {{ {word}: String? }}"
    catalog = catalog_from(schema)
    # Where a value may stand, `true` and `false` are values.
    key = word if word not in ("true", "false") else "$a.k"
    read = (
        f"query {word}(${word}: String) {{ match {{ $a: A {{ {word}: ${word}, k: ${word} }} $a $w:{word}X $b "
        f"$a.{word} = $w.{word} $b.{word} is null }} return {{ $a.{word} as {word} }} order {{ {key} asc }} }}"
    )
    assert compile_query(Source("q.gq", read), catalog).descriptor[0].name == word
    write = f'query w() {{ insert A {{ k: "x" {word}: "y" }} update A set {{ {word}: "z" }} where {word} = "y" }}'
    assert compile_query(Source("q.gq", write), catalog).kind == "mutation"


@pytest.mark.parametrize("word", [word for word in KEYWORDS if word not in ("not", "match", "true", "false")])
def test_parse_keyword_as_edge_compiles(word: str) -> None:
    catalog = catalog_from(f"node A {{ k: String @key }}\nedge {word[0].upper()}{word[1:]}: A -> A")
    text = f"query q() {{ match {{ $a: A $a {word} $b $a <{word}>{{1,2}} $c $a $w:{word} $d }} return {{ $a.k }} }}"
    assert compile_query(Source("q.gq", text), catalog).reads[0].type_name == f"{word[0].upper()}{word[1:]}"


def test_parse_keyword_needs_a_word_boundary() -> None:
    assert codes_of(read_text("$v: Vessel", "$v.imo asset")) == ["T33"]
    assert codes_of("queryq() { match { $v: Vessel } return { $v.imo } }") == ["Q000"]


def test_parse_comments_stand_between_any_tokens() -> None:
    text = "query/**/q/**/(/**/)/* a */{// b\nmatch{$v/**/:/**/Vessel $v/**/./**/teu/**/=/**/1}return{$v.imo}}"
    assert compiled(text).name == "q"


def test_parse_string_escapes_are_read() -> None:
    plan = compiled(read_text("$v: Vessel", '"a\\"b\\\\c\\n\\t\\r"')).ir
    assert isinstance(plan, ir.ReadIR)
    assert plan.columns[0].expression == ir.Literal('a"b\\c\n\t\r', ir.ID)


def test_parse_source_over_the_size_limit_is_refused() -> None:
    error = refused("x" * (SOURCE_BYTES_MAX + 1))
    assert error.diagnostics[0].code == "Q000"
    assert f"{SOURCE_BYTES_MAX:,}" in error.message


@pytest.mark.parametrize("opening", ["(", "[", "{", "not {", "optional {", "($v.teu = 1 or "])
def test_parse_deep_nesting_is_refused(opening: str) -> None:
    error = refused(f"query q() {{ match {{ $v: Vessel {opening * 100_000}")
    assert f"{SOURCE_NESTING_MAX} deep" in error.message


def test_parse_brackets_in_strings_and_comments_do_not_nest() -> None:
    deep = "(" * (SOURCE_NESTING_MAX + 1)
    assert compiled(read_text(f'$v: Vessel {{imo: "{deep}"}} /* {deep} */')).name == "q"


@pytest.mark.parametrize(
    ("opening", "closing"), [("not { $v.teu = 1", "}"), ("optional { $v.teu = 1", "}"), ("($v.teu = 1 or", ")")]
)
def test_parse_nesting_at_the_limit_is_read(opening: str, closing: str) -> None:
    depth = SOURCE_NESTING_MAX - 2
    body = f"{opening} " * depth + "$v.teu = 1" + closing * depth
    assert codes_of(read_text(f"$v: Vessel {body}")) == []


def test_parse_ten_megabytes_end_in_one_diagnostic() -> None:
    assert len(refused("query q() { match { $v: Vessel } " * 330_000).diagnostics) == 1


@pytest.mark.parametrize(
    "text", ["\0", "query \0", 'query q() { match { $v: Vessel {imo: "\0"} } return { $v } }', "\ud800"]
)
def test_parse_odd_characters_never_escape(text: str) -> None:
    survives(text)


@pytest.mark.slow
def test_parse_long_inputs_stay_linear() -> None:
    clauses = " ".join(f"$v.teu != {number}" for number in range(20_000))
    plan = compiled(read_text(f"$v: Vessel {clauses}")).ir
    assert isinstance(plan, ir.ReadIR)
    assert len(plan.pipeline) == 20_001


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["/* ", '\\"', '"', "//", "(", "- ", "$v ", "1", "\n", "\\"])
def test_parse_long_repetition_is_refused_quickly(piece: str) -> None:
    text = '"' + piece * (1_000_000 // len(piece))
    start = time.perf_counter()
    survives(text)
    survives(text[1:])
    assert time.perf_counter() - start < 20


@pytest.mark.slow
def test_parse_many_variables_and_blocks_are_refused_early() -> None:
    bindings = " ".join(f"$v{number}: Vessel" for number in range(5_000))
    blocks = " ".join(f"not {{ $v{number} towedBy $_ }}" for number in range(5_000))
    assert codes_of(read_text(f"{bindings} {blocks}", "$v4999.imo")) == ["Q000"]


@pytest.mark.slow
def test_parse_many_unknown_names_stop_at_the_cap() -> None:
    clauses = " ".join(f"$v.unknown_property_{number} = 1" for number in range(5_000))
    assert len(codes_of(read_text(f"$v: Vessel {clauses}"))) == DIAGNOSTICS_MAX


@pytest.mark.slow
@given(st.text(max_size=200))
@settings(max_examples=examples(300), deadline=None)
def test_parse_arbitrary_text_never_escapes(text: str) -> None:
    survives(text)


@pytest.mark.slow
@given(st.lists(st.sampled_from(PIECES), max_size=40), st.booleans())
@settings(max_examples=examples(500), deadline=None)
def test_parse_token_soup_never_escapes(pieces: list[str], inside: bool) -> None:
    soup = " ".join(pieces)
    survives(read_text(f"$v: Vessel {soup}") if inside else soup)


def corpus_sources() -> list[str]:
    cases = Path(__file__).parents[2] / "cases"
    texts = [TYPICAL_QUERY]
    for name in ("query", "types", "extension"):
        for part in (cases / f"{name}.case").read_text("utf-8").split("\n-- ")[1:]:
            if part.startswith(("query", "mutate")):
                texts.append(part.partition("\n")[2].partition("\n== ")[0])
    return texts


@pytest.mark.slow
@given(st.integers(min_value=0, max_value=2**32))
@settings(max_examples=examples(400), deadline=None)
def test_parse_mutated_sources_never_escape(seed: int) -> None:
    rng = random.Random(seed)
    text = rng.choice(corpus_sources())
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.choice([0, 0, 1, 3, 10]))
        text = text[:start] + rng.choice([*PIECES, ""]) + text[end:]
    survives(text)
    lint_queries([Source("q.gq", text)], catalog_f())


@pytest.mark.parametrize(
    "body",
    [
        'match { $v: Vessel  $v.imo = "1" } return { $v.imo } order { $v.imo } limit 3',
        'insert Port { code: "x" country: "y" }\nupdate Port set { country: "z" } where code = "x"',
        '// a comment\n\ndelete Port where code = "x"',
    ],
)
def test_parse_body_without_a_name_means_the_named_query(body: str) -> None:
    [unnamed] = parse_queries(Source("q.gq", body))
    [named] = parse_queries(Source("q.gq", f"query unnamed() {{ {body}\n}}"))
    assert unnamed.name.text == "unnamed"
    assert type(unnamed.body) is type(named.body)
    bare, wrapped = (
        compile_query(Source("q.gq", text), catalog_f()) for text in (body, f"query unnamed() {{ {body}\n}}")
    )
    assert bare.ir == wrapped.ir
    assert bare.descriptor == wrapped.descriptor


@pytest.mark.parametrize("text", ["match { $v: Vessel }", "match { $v: Vessel } return { $v } query q() {}", "query"])
def test_parse_body_without_a_name_is_a_whole_body_and_alone(text: str) -> None:
    assert [found.code for found in refused(text).diagnostics] == ["Q000"]
