"""What people are told about mistakes in mutations: the code, and the words that help."""

from __future__ import annotations

import pytest

from omnigraph.lang.diagnostic import LanguageError, Source
from omnigraph.lang.query import compile_query, lint_queries
from tests.support.query_fixtures import catalog_from

SCHEMA = """
node A { k: String @key  n: I32?  s: String?  e: enum(red, green)?  b: Blob?  d: I32? @default(3) }
node B { t: String? }
edge E: A -> A { w: I32  note: String?  @key(src, dst, w) }
edge F: A -> B { w: I32? }
"""
MISTAKES = [
    ('insert A { key: "a" }', "T11", "has no property `key`"),
    ('insert A { k: "q", n: five }', "T7", '`"five"` for a string, or `$five` for a parameter'),
    ('insert A { k = "a" }', "Q000", "a property is set with a colon: `k: …`"),
    ('insert into A { k: "a" }', "Q000", "write the type right after `insert`"),
    ('insert E { src: "a", dst: "b", w: 1 }', "T11", "the ends of an edge are `from` and `to`"),
    ('merge A { k: "a" }', "Q000", "write `upsert Person"),
    ('replace A { k: "a" }', "Q000", "a statement is `insert`, `create`, `upsert`, `update`, `rename` or `delete`"),
    ("delete A", "Q000", "`where true` for all"),
    ("update A set { n: 1 } where n", "T7", "`n` is I32?, not a condition"),
    ("update A set { n: 1 } where $a.n = 1 or n = 2", "T6", "write the property alone, `n`"),
    ('update A set { n: $a.n + 1 } where k = "a"', "T6", "write the property alone, `n`"),
    ('update A set { n: s } where k = "a"', "T3", "`s` is String?, which does not fit `A.n`"),
    ('update A set { e: "pink" } where k = "a" and n = 1', "T3", '"pink" is not one of green, red'),
    ("delete A where $a.n = 1", "T6", "write the property alone, `n`"),
    ("match { $a: A } update $a set { n: n + 1 }", "T7", "write `$a.n` for a property"),
    ("match { $a: A } update $a.n = 1", "Q000", "write `update … set { property: value }`"),
    ('match { $a: A } update $a set { n: 1 } where $a.k = "a"', "Q000", "put the condition into the `match`"),
    ('match { $a: A } update A set { n: 1 } where k = "a"', "Q000", "cannot be done for each row"),
    ("match { $a: A|B } delete $a", "T23", "several types, `A` or `B`"),
    ("match { $a _ $b } delete $b", "T23", "write a `match` for each type"),
    ("match { $a $x:_ $b } delete $x", "T23", "several types, `E` or `F`"),
    ("match { $a e{1,2} $b as $hops } delete $hops", "T23", "neither a node nor an edge"),
    ("match { $a: A } insert A { k: $a.k, b: $a.b }", "T3", "is a Blob, which cannot be set for each row"),
    ('insert A { k: "z" } match { $a: A } update $a set { n: 1 }', "E1", "the pattern reads what is committed"),
    ('insert A { k: "z" } update A set { n: n + 1 } where k = "z"', "E1", "this update reads what is committed"),
]


@pytest.mark.parametrize(("body", "code", "words"), MISTAKES, ids=[one[0] for one in MISTAKES])
def test_mistake_in_a_mutation_is_told_with_a_way_out(body: str, code: str, words: str) -> None:
    with pytest.raises(LanguageError) as caught:
        compile_query(Source("q.gq", f"query q() {{ {body} }}"), catalog_from(SCHEMA))
    assert caught.value.diagnostics[0].code == code
    assert words in str(caught.value)
    assert "~" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("insert A { k: $k, n: 1 }", "`b`, `d`, `e` and `s`"),
        ("match { $a: A } insert E { from: $a, to: $k, w: 1 }", "`note`"),
        ("upsert A { k: $k }", ""),
        ("create A { k: $k }", ""),
        ("insert B { t: $k }", ""),
        ('insert E { from: $k, to: $k, w: 1, note: "all" }', ""),
    ],
)
def test_lint_warns_of_an_insert_that_resets_properties(body: str, names: str) -> None:
    report = lint_queries([Source("q.gq", f"query q($k: String) {{ {body} }}")], catalog_from(SCHEMA))
    found = [one.message for one in report.findings if one.code == "L205"]
    assert len(found) == bool(names)
    assert all(names in message for message in found)


@pytest.mark.parametrize(
    "body",
    [
        "match { $a: A } update $a set { n: 1, s: $k, e: $a.e, d: 1 }",
        "update A set { n: n + 1, s: $k, e: e, d: 1 } where k = $k",
        'upsert A { k: $k, n: 1, s: $k, e: "red", d: 1 }',
    ],
)
def test_lint_counts_every_kind_of_update(body: str) -> None:
    report = lint_queries([Source("q.gq", f"query q($k: String) {{ {body} }}")], catalog_from(SCHEMA))
    assert [one.name for one in report.findings if one.code == "L201"] == ["A.b"]
