"""The formatter: its layout, that it keeps comments and meaning, and that a second run changes nothing."""

from __future__ import annotations

from functools import cache, partial
from textwrap import dedent

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from omnigraph.lang.diagnostic import LanguageError, Source
from omnigraph.lang.format import LANGUAGES, LanguageName, format_source, formatter
from omnigraph.lang.format.formatter import Gap
from omnigraph.lang.format.syntax_tokens import keywords
from omnigraph.lang.query.compile import compile_query
from omnigraph.lang.schema import compile_schema
from tests.oracle.queries import Maker
from tests.oracle.worlds import SCHEMA as WORLD_SCHEMA
from tests.support.examples import IS_LONG, examples
from tests.support.scattered_sources import list_comments, list_tokens, read_meaning, read_programs, scatter

DOMAIN = "01JAZ5V9X0000000000000000A"
CATALOG = compile_schema(Source("worlds.pg", WORLD_SCHEMA), domain=DOMAIN).catalog
relaxed = partial(settings, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def parses(text: str, language: LanguageName) -> bool:
    try:
        read_meaning(text, language)
    except LanguageError:
        return False
    return True


@cache
def programs() -> list[tuple[str, LanguageName, str]]:
    return [program for program in read_programs() if parses(program[2], program[1])]


def format_text(text: str, language: LanguageName) -> str:
    return format_source(Source(f"program.{language}", text), language)


def check(text: str, language: LanguageName) -> str:
    formatted = format_text(text, language)
    assert read_meaning(formatted, language) == read_meaning(text, language), formatted
    assert list_tokens(formatted) == list_tokens(text), formatted
    assert list_comments(formatted) == list_comments(text), formatted
    assert format_text(formatted, language) == formatted
    assert not any(line != line.rstrip() for line in formatted.splitlines() if "/*" not in formatted)
    return formatted


@pytest.mark.slow
def test_format_every_program_keeps_its_meaning_and_comments() -> None:
    assert len(programs()) > 300
    for name, language, text in programs()[:: 1 if IS_LONG else 2]:
        try:
            check(text, language)
        except AssertionError as error:
            raise AssertionError(f"{name}\n{error}") from error


@pytest.mark.slow
@relaxed(max_examples=examples(500))
@given(st.deferred(lambda: st.sampled_from(programs())), st.data())
def test_format_scattered_program_keeps_its_meaning(
    program: tuple[str, LanguageName, str], data: st.DataObject
) -> None:
    _, language, text = program
    scattered = scatter(text, lambda count: data.draw(st.integers(0, count - 1)))
    # A comment may make a keyword of a column that is called like one.
    assume(parses(scattered, language) and read_meaning(scattered, language) == read_meaning(text, language))
    check(scattered, language)


@pytest.mark.slow
@relaxed(max_examples=examples(250))
@given(st.data())
def test_format_random_query_compiles_to_the_same_plan(data: st.DataObject) -> None:
    made = Maker(lambda count: data.draw(st.integers(0, count - 1)) if count > 1 else 0, CATALOG).make()
    before = compile_query(Source("query.gq", made.source), CATALOG)
    after = compile_query(Source("query.gq", check(made.source, "gq")), CATALOG)
    assert (after.ir, after.params, after.descriptor) == (before.ir, before.params, before.descriptor)


@pytest.mark.parametrize(("fault", "gap"), [("gap_between", Gap.NOTHING)])
def test_check_formatter_that_glues_words_is_caught(fault: str, gap: Gap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formatter, fault, lambda tokens, index: gap)
    with pytest.raises((AssertionError, LanguageError)):
        check('query q() { match { $p: Port $p.code = "a" } return { $p.code } }', "gq")


def test_check_formatter_that_drops_comments_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formatter, "_trailing", lambda token: iter(()))
    with pytest.raises(AssertionError):
        check("node A { a: I32 // why\n}", "pg")


SCHEMA = """
// Ports of the world.
interface Coded { code:String@key }


node Port @description("where ships call")  implements Coded{
  country : String   // ISO 3166
  berths:I32 ? @index @range(berths,0 .. 500)
  @check(country,"^[A-Z]{2}$")
  // the end
}
node Empty {}
edge CallsAt:Vessel->Port@card( 0 .. ){ day:Date? , }
"""


def test_format_schema_layout() -> None:
    text = SCHEMA.replace(" , }", " }")
    assert format_text(text, "pg") == dedent("""\
        // Ports of the world.
        interface Coded { code: String @key }

        node Port @description("where ships call") implements Coded {
          country: String // ISO 3166
          berths: I32? @index
          @range(berths, 0..500)
          @check(country, "^[A-Z]{2}$")
          // the end
        }
        node Empty {}
        edge CallsAt: Vessel -> Port @card(0..) { day: Date? }
        """)


QUERY = """
query busy($country:String,$size:I64)@description("busiest first"){match{$p:Port{country:$country}
  $v $call:callsAt{1,3} $p as $hops // walk
not{$v<towedBy>$_}
  $v.kind in ["tanker","bulk"] and($v.teu> -5 or $v.teu is not null)}

return distinct{$v.imo as vessel,count(*)as calls}order{calls desc,vessel}skip 1 limit $size}
query gone($c:String){delete Port where code=$c insert Port{code:$c country:"NL"}
 update Port set{berths:1}where code=$c}
"""


def test_format_query_layout() -> None:
    assert format_text(QUERY, "gq") == dedent("""\
        query busy($country: String, $size: I64) @description("busiest first") {
          match {
            $p: Port { country: $country }
            $v $call:callsAt{1,3} $p as $hops // walk
            not { $v <towedBy> $_ }
            $v.kind in ["tanker", "bulk"] and ($v.teu > -5 or $v.teu is not null)
          }

          return distinct { $v.imo as vessel, count(*) as calls }
          order { calls desc, vessel }
          skip 1
          limit $size
        }
        query gone($c: String) {
          delete Port where code = $c
          insert Port {
            code: $c
            country: "NL"
          }
          update Port set { berths: 1 } where code = $c
        }
        """)


def test_format_system_fields_and_edges_in_parentheses() -> None:
    query = """query q(){match{$a:Port $b(towedBy|callsAt){1,2}$a $v $e:( callsAt|towedBy )$x $e . @type="B"}
    return{$e.@id}}
    query m($s:String){delete CallsAt where @src=$s and not @dst="b"}"""
    assert format_text(query, "gq") == dedent("""\
        query q() {
          match {
            $a: Port
            $b (towedBy | callsAt){1,2} $a
            $v $e:(callsAt | towedBy) $x
            $e.@type = "B"
          }
          return { $e.@id }
        }
        query m($s: String) { delete CallsAt where @src = $s and not @dst = "b" }
        """)
    assert format_text("edge  E : A->A{@key( @src,@ dst ) at:Date?@index }", "pg") == dedent("""\
        edge E: A -> A {
          @key(@src, @dst)
          at: Date? @index
        }
        """)


def test_format_long_lines_break_at_lists_annotations_and_operators() -> None:
    name = "a_property_with_a_long_name"
    condition = " and ".join(f"$port.{name} = {number}" for number in range(4))
    columns = ", ".join(f"$port.{name} as {name}_{number}" for number in range(3))
    head = f'query q($first: String) @description("{"x" * 90}")'
    text = f"{head} {{ match {{ $port: Port {condition} }} return {{ {columns} }} }}"
    assert format_text(text, "gq") == dedent(f"""\
        query q($first: String)
          @description("{"x" * 90}") {{
          match {{
            $port: Port
            $port.{name} = 0
              and $port.{name} = 1
              and $port.{name} = 2
              and $port.{name} = 3
          }}
          return {{
            $port.{name} as {name}_0,
            $port.{name} as {name}_1,
            $port.{name} as {name}_2
          }}
        }}
        """)


@pytest.mark.parametrize("language", ["pg", "gq"])
@pytest.mark.parametrize(
    ("text", "formatted"), [("", ""), (" \n\n", ""), ("\n// a  \n\n\n/* b */", "// a\n\n/* b */\n")]
)
def test_format_source_without_declarations_keeps_comments(language: LanguageName, text: str, formatted: str) -> None:
    assert format_text(text, language) == formatted


def test_format_body_without_a_name_layout() -> None:
    text = "match{$v:Vessel $v.teu>1}return{$v.imo}order{$v.imo}skip 1 limit 2 // end"
    lines = [
        "match {",
        "  $v: Vessel",
        "  $v.teu > 1",
        "}",
        "return { $v.imo }",
        "order { $v.imo }",
        "skip 1",
        "limit 2 // end",
    ]
    assert check(text, "gq").splitlines() == lines
    statements = 'insert Port{code:"x",country:"NL"}update Port set{berths:1}where code="x"'
    assert check(statements, "gq").splitlines() == [
        'insert Port { code: "x", country: "NL" }',
        'update Port set { berths: 1 } where code = "x"',
    ]


def test_format_expressions_layout() -> None:
    branches = 'case when $v.teu>5 and $v.teu<9 then "big" else "small" end as size_name'
    columns = f"-$v.teu-1 as n,$v.tags[0],{branches},{branches.replace('big', 'b' * 60)}"
    text = f'query q(){{match{{$v:Vessel $v.kind not   in["a"]}}return{{{columns}}}}}'
    assert format_text(text, "gq") == dedent(f"""\
        query q() {{
          match {{
            $v: Vessel
            $v.kind not in ["a"]
          }}
          return {{
            -$v.teu - 1 as n,
            $v.tags[0],
            case when $v.teu > 5 and $v.teu < 9 then "big" else "small" end as size_name,
            case
              when $v.teu > 5 and $v.teu < 9 then "{"b" * 60}"
              else "small" end as size_name
          }}
        }}
        """)


def test_format_broken_source_is_refused_with_its_place() -> None:
    with pytest.raises(LanguageError) as caught:
        format_text("node A {", "pg")
    assert caught.value.diagnostics[0].code == "S1"


def test_keywords_are_read_from_the_grammars() -> None:
    assert {"node", "edge", "implements", "Vector", "DateTime", "true"} <= set(keywords(LANGUAGES["pg"]))
    assert {"query", "match", "starts_with", "false", "limit"} <= set(keywords(LANGUAGES["gq"]))
    assert not {"name", "Port"} & {*keywords(LANGUAGES["pg"]), *keywords(LANGUAGES["gq"])}
