"""Habits from other languages are answered with what to write here, and that compiles."""

from __future__ import annotations

import pytest

from omnigraph import LanguageError
from omnigraph.lang.diagnostic import Source
from omnigraph.lang.query.parser import parse_queries


@pytest.mark.parametrize(
    ("habit", "hint", "instead"),
    [
        (
            'match { $a: Person $a.name =~ "x.*" } return { $a }',
            "matches",
            'match { $a: Person $a.name matches "x.*" } return { $a }',
        ),
        ("match { $a: P $a parent* $b } return { $b }", "{1,}", "match { $a: P $a parent{1,} $b } return { $b }"),
        (
            "match { $a: Person } set { $a.age: 1 }",
            "update $a set",
            "match { $a: Person } update $a set { age: 1 }",
        ),
        (
            "match { $a: Person } with { $a } where $a.age > 1 return { $a }",
            "`match { … }` behind the `with`",
            "match { $a: Person } with { $a } match { $a.age > 1 } return { $a }",
        ),
        (
            "match { $a: Person } with { $a } update $a set { age: 1 }",
            "the pattern of a mutation has no stages",
            "match { $a: Person } update $a set { age: 1 }",
        ),
        (
            "query q() { update Person set { age: 1 } }",
            "`where true` for all",
            "query q() { update Person set { age: 1 } where true }",
        ),
    ],
)
def test_habit_of_another_language_is_answered_with_ours(habit: str, hint: str, instead: str) -> None:
    with pytest.raises(LanguageError) as caught:
        parse_queries(Source("query.gq", habit))
    assert hint in (caught.value.diagnostics[0].hint or "")
    assert len(parse_queries(Source("query.gq", instead))) == 1
