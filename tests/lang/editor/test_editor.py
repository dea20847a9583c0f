"""What an editor asks about a source; `|` marks the cursor."""

from __future__ import annotations

import pytest

from omnigraph.lang.diagnostic import Source
from omnigraph.lang.editor import (
    Completion,
    SchemaView,
    check_source,
    complete,
    describe,
    find_definition,
    lookup,
    read_schema,
)
from omnigraph.lang.format import LANGUAGES, LanguageName
from omnigraph.lang.format.syntax_tokens import keywords
from omnigraph.lang.query.ast import SYSTEM_FIELDS
from omnigraph.lang.query.functions import FUNCTION_NAMES
from tests.support.case_file import CASES

SCHEMA = Source("F.pg", (CASES / "fixtures" / "F.pg").read_text())
FIXTURE = read_schema(SCHEMA)
assert FIXTURE is not None
VIEW: SchemaView = FIXTURE


def cut(marked: str, language: LanguageName) -> tuple[Source, int]:
    text, offset = marked.replace("|", ""), marked.index("|")
    return Source(f"program.{language}", text), offset


def labels(marked: str, language: LanguageName = "gq", view: SchemaView | None = VIEW) -> dict[str, Completion]:
    source, offset = cut(marked, language)
    if language == "pg":
        view = read_schema(source)
    return {item.label: item for item in complete(source, language, offset, view)}


def hover(marked: str, language: LanguageName = "gq") -> str | None:
    source, offset = cut(marked, language)
    described = describe(source, language, offset, VIEW if language == "gq" else read_schema(source))
    return described.text if described is not None else None


def definition(marked: str, language: LanguageName = "gq") -> tuple[str, str] | None:
    """Return the name of the source that defines the word at the cursor, and the rest of the line from there."""
    source, offset = cut(marked, language)
    found = find_definition(source, language, offset, VIEW if language == "gq" else read_schema(source))
    if found is None:
        return None
    target, span = found
    return target.name, target.text[span.start :].split("\n")[0]


HEAD = "query q($country: String, $most: I64) {\n  match {\n    $p: Port { country: $country }\n    $v $c:callsAt $p\n"


@pytest.mark.parametrize(
    ("marked", "expected", "absent"),
    [
        ("|", {"query", "match"}, {"limit"}),
        ("match { $v: Vessel } return { $v.|", {"imo"}, {"code"}),
        ("query q(|", set(), {"query"}),
        ("query q($a: |", {"String", "I64", "Vector"}, {"Port"}),
        ("query q() |{", {"@description"}, {"match"}),
        ("query q() { |", {"match", "insert", "update", "delete"}, {"return", "query"}),
        ("query q() { match { $p: |", {"Port", "Vessel"}, {"CallsAt", "String"}),
        ("query q() { match { $p: Po| } return { $p } }", {"Port"}, {"match"}),
        ("query q() { insert |", {"Port", "CallsAt"}, {"String"}),
        ("query q() { insert CallsAt { |", {"day", "fee", "from", "to"}, {"imo"}),
        ("query q() { match { $p: Port { |", {"code", "country", "berths"}, {"imo"}),
        ("query q() { update Vessel set { |", {"label", "teu"}, {"country"}),
        (HEAD + "    $p.|", {"code", "country", "berths"}, {"imo", "match"}),
        (HEAD + "    $v.|", {"imo", "teu", "tags"}, {"berths"}),
        (HEAD + "    $c.|", {"day", "fee", "@id", "@type", "@src", "@dst"}, {"berths"}),
        (HEAD + "    $c.@|", {"@id", "@src"}, {"berths"}),
        (HEAD + "    $p.@|", {"@id", "@type"}, {"@src", "@dst"}),
        (HEAD + "    $country.|", set(), {"@id"}),
        ("query q() { delete CallsAt where |", {"fee", "@id", "@src", "@dst"}, {"imo"}),
        ("query q() { delete Port where @|", {"code", "@id"}, {"@src"}),
        ("match { $v: Vessel $v (|", {"callsAt", "towedBy"}, {"count"}),
        ("match { $v: Vessel $v $e:(|", {"callsAt", "towedBy"}, {"count"}),
        ("match { $v: Vessel $v $e:(towedBy) $w $w.|", {"imo", "@id"}, {"@src"}),
        ("match { $v: Vessel $v $e:(towedBy) $w $e.|", {"@src"}, {"imo"}),
        (HEAD + "    $v |", {"callsAt", "towedBy"}, {"limit"}),
        (HEAD + "    $p |", {"callsAt"}, {"towedBy"}),
        (HEAD + "    |", {"$p", "$v", "$c", "$country", "optional", "not", "search"}, {"limit"}),
        (HEAD + "  }\n  return { cast($v.teu as |", {"String", "F64"}, {"Port"}),
        (HEAD + "  }\n  return { |", {"$p", "count", "nearest"}, {"optional"}),
        (HEAD + "  }\n  return { $p.code }\n  |", {"order", "skip", "limit"}, {"match", "optional"}),
        (HEAD + "  }\n  return { $p.code }\n  limit |", {"$most"}, {"order"}),
        (HEAD + '    $v.imo = "|', set(), {"$p"}),
        (HEAD + "    // $|", set(), {"$p"}),
        ("query broken( { } query q() { match { $v: Vessel $v.|", {"imo"}, {"country"}),
    ],
)
def test_complete_query_offers_what_fits(marked: str, expected: set[str], absent: set[str]) -> None:
    offered = labels(marked)
    assert expected <= offered.keys(), offered.keys()
    assert not absent & offered.keys()
    assert all(item.span.end == marked.index("|") for item in offered.values())


@pytest.mark.parametrize(
    ("marked", "expected", "absent"),
    [
        ("|", {"node", "edge", "interface"}, {"String"}),
        ("node A { a: |", {"String", "I64", "enum", "Vector"}, {"node"}),
        ("node A { a: String @|", {"@key", "@description"}, {"String"}),
        ("node A { a: String |", {"@key", "@unique"}, {"String"}),
        ("node A {} node B {} edge E: |", {"A", "B"}, {"node"}),
        ("node A {} node B {} edge E: A -> |", {"A", "B"}, {"node"}),
        ("interface I { a: I32 } node A implements |", {"I"}, {"A"}),
        ("node A { a: String b: I32 @key(|", {"a", "b"}, {"node", "@key", "@src"}),
        ("node A {} edge E: A -> A { a: Date @key(|", {"a", "@src", "@dst"}, {"@key"}),
        ("node A {} edge E: A -> A { a: Date @key(@src, @|", {"a", "@dst"}, {"@unique"}),
    ],
)
def test_complete_schema_offers_what_fits(marked: str, expected: set[str], absent: set[str]) -> None:
    offered = labels(marked, "pg")
    assert expected <= offered.keys(), offered.keys()
    assert not absent & offered.keys()


def test_alternatives_complete_and_describe_each_edge() -> None:
    """`|` is no mark of the cursor here."""
    text = "match { $v: Vessel $v $e:(callsAt | towedBy) $x $x.imo = $e.fee } return { $v }"
    source = Source("program.gq", text)
    offered = {item.label for item in complete(source, "gq", text.index("towedBy"), VIEW)}
    assert {"callsAt", "towedBy"} <= offered
    described = describe(source, "gq", text.index("towedBy") + 1, VIEW)
    assert described is not None
    assert "edge TowedBy: Vessel -> Vessel" in described.text
    # The edges lead to different types, so nothing is said about what they have in common.
    reached = describe(source, "gq", text.index("$x.") + 1, VIEW)
    assert reached is not None
    assert "Port" not in reached.text


def test_complete_without_a_schema_still_offers_words_and_variables() -> None:
    offered = labels("query q($a: I64) { match { $p: Port } return { |", view=None)
    assert {"$a", "$p", "count"} <= offered.keys()


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        (HEAD + "$p|.code = 1", "(node) $p: Port"),
        (HEAD + "$v|", "(node) $v: Vessel"),
        (HEAD + "$c|.fee", "(edge) $c: callsAt"),
        (HEAD + "$c|.fee", "edge CallsAt: Vessel -> Port"),
        ("query q($a: [String]?) { match { $p: Port $p.code in $|a } }", "(parameter) $a: [String]?"),
        ("query q() { match { $a: Vessel $a towedBy{1,3} $b as $hop|s } }", "(hops) $hops: I64"),
        ("query q() { match { $a: Vessel $a towedBy{1,3} $|b } }", "(node) $b: Vessel"),
        ("query q() { match { $x: Vessel $x <towedBy> $|y } }", "(node) $y: Vessel"),
        (HEAD + "$v.te|u", "Vessel.teu: I32?"),
        ("query q() { match { $p: Port { cou|ntry: 1 } } }", "Port.country: String"),
        ("query q() { match { $p: Po|rt } }", "node Port implements Coded"),
        ("query q() { match { $p: Vessel $p tow|edBy $_ } }", "edge TowedBy: Vessel -> Vessel"),
        ("query q() { match { $p: Port } return { cou|nt(*) } }", "how many rows"),
        ("query q() { mat|ch { $p: Port } }", "every combination"),
        ("query q($a: I|64) {", "64-bit integer"),
        ("query q() @desc|ription", "explains"),
        ("query q() { delete Port where co|de = 1 }", "Port.code: String"),
        ("query q() { delete CallsAt where @s|rc = 1 }", "starts from"),
        (HEAD + "$c.@ty|pe", "the name of the type".capitalize()),
        ("query q() { match { $p: Vessel $p (tow|edBy) $_ } }", "edge TowedBy: Vessel -> Vessel"),
        ("query q() { match { $p: Vessel $p $e:(tow|edBy) $_ } }", "edge TowedBy: Vessel -> Vessel"),
    ],
)
def test_hover_in_a_query_tells_types_and_words(marked: str, expected: str) -> None:
    assert expected in (hover(marked) or "")


@pytest.mark.parametrize(
    "marked", ["query q|() {", "query q() { match { $p: Port $p.code = 1|2 } }", 'query q() "tex|t"']
)
def test_hover_elsewhere_says_nothing(marked: str) -> None:
    assert hover(marked) is None


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("node A { a: Str|ing }", "A text"),
        ("no|de A { a: String }", "Declares a node type"),
        ("node A { a: String @k|ey }", "identity of a node"),
        ("node A { a: String } edge E: |A -> A", "node A {"),
        ("node A { b: I32? a: String @key(a, |b) }", ""),
        ("node A { a: String } edge E: A -> A { @key(@s|rc, @dst) }", "starts from"),
        ('node A { |b: I32? @description("why") }', 'A.b: I32? @description("why")'),
    ],
)
def test_hover_in_a_schema_tells_declarations(marked: str, expected: str) -> None:
    assert expected in (hover(marked, "pg") or "")


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        (HEAD + "$p|.code", ("program.gq", "$p: Port { country: $country }")),
        (HEAD + "$v|.imo", ("program.gq", "$v $c:callsAt $p")),
        (HEAD + "$p.code = $count|ry", ("program.gq", "$country: String, $most: I64) {")),
        ("query a($x: I64) {}\nquery b($x: Date) {\nmatch { $p: Port $p.code = $|x", ("program.gq", "$x: Date) {")),
        ("query q() { match { $p: Po|rt } }", ("F.pg", "Port implements Coded {")),
        ("query q() { match { $p: Vessel $p call|sat $x } }", ("F.pg", "CallsAt: Vessel -> Port {")),
        (HEAD + "$p.co|de", ("F.pg", "code: String @key")),
        (HEAD + "$p.berth|s", ("F.pg", "berths: I32?")),
        (HEAD + "$p.nothin|g", None),
        ("query q() { mat|ch { $p: Port } }", None),
    ],
)  # fmt: skip
def test_definition_from_a_query(marked: str, expected: tuple[str, str] | None) -> None:
    assert definition(marked) == expected


def test_definition_in_a_schema_leads_to_the_declaration() -> None:
    assert definition("edge E: |A -> A\nnode A {\n}", "pg") == ("program.pg", "A {")
    assert definition("node A implements I|s {}\ninterface Is { a: I32 }", "pg") == ("program.pg", "Is { a: I32 }")
    assert definition("node A { a: |", "pg") is None


@pytest.mark.parametrize(
    ("text", "language", "codes"),
    [
        ("node A {", "pg", ["S1"]),
        ("node A {}\nnode A {}", "pg", ["S25"]),
        ("node A {}", "pg", []),
        ("query q() {", "gq", ["Q000"]),
        ("query q() { match { $p: Prot } return { $p.code } }", "gq", ["T1"]),
        ("query q($c: String) { match { $p: Port { code: $c } } return { $p.code } }", "gq", []),
        ('query q() { insert Port { code: "x" country: "NL" } }', "gq", ["L202", "L205"]),
    ],
)
def test_check_source_gives_the_findings_of_the_compiler(text: str, language: LanguageName, codes: list[str]) -> None:
    findings = check_source(Source("x", text), language, VIEW.catalog)
    assert [finding.code for finding in findings] == codes


def test_check_source_without_a_schema_checks_the_syntax_of_queries() -> None:
    assert check_source(Source("x", "query q() { match { $p: Prot } return { $p.x } }"), "gq", None) == ()
    assert [finding.code for finding in check_source(Source("x", "query"), "gq", None)] == ["Q000"]


@pytest.mark.parametrize("language", [pytest.param("pg", marks=pytest.mark.slow), "gq"])
def test_any_cursor_position_is_answered(language: LanguageName) -> None:
    text = (
        SCHEMA.text
        if language == "pg"
        else HEAD + '    $v.imo = "x" // y\n  }\n  return { $p.code, count($v) as n }\n}\n'
    )
    source = Source("x", text)
    for stop in range(0, len(text), 7):
        for offset in range(0, stop + 1, 11):
            typed = Source("x", text[:stop])
            complete(typed, language, offset, VIEW)
            describe(typed, language, offset, VIEW)
            find_definition(typed, language, offset, VIEW)
    assert describe(source, language, 1, VIEW) is not None


def test_vocabulary_describes_words_that_exist() -> None:
    assert set(lookup.SCHEMA_WORDS) <= set(keywords(LANGUAGES["pg"]))
    assert set(lookup.QUERY_WORDS) <= set(keywords(LANGUAGES["gq"]))
    assert [name for name in FUNCTION_NAMES if lookup.describe_function(name) is None] == []
    assert lookup.describe_function("nothing") is None
    assert set(lookup.SYSTEM_FIELDS) == set(SYSTEM_FIELDS)
