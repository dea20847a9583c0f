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
        *(
            (habit, hint, "match { $p: Person $p.age >= 3 } return { $p.name } order { $p.name desc } limit 3")
            for habit, hint in (
                ("match { $p: Person } where $p.age > 3 return { $p.name }", "match { $p: Person $p.age > 3 }"),
                ("match { $p: Person } return { $p.name } where $p.age > 3", "match { $p: Person $p.age > 3 }"),
                ("match { $p: Person } return { $p.name } order by $p.name", "order { $p.name desc }"),
                ("match { $p: Person } return { $p.name } order $p.name", "order { $p.name desc }"),
                ("match { $p: Person } return { $p.name } ORDER BY p.name", "order { $p.name desc }"),
                ("match { $p: Person $p.age <> 3 } return { $p.name }", "!="),
                ("match { $p: Person $p.age BETWEEN 3 AND 5 } return { $p.name }", "$p.age >= 3 and $p.age <= 5"),
                ('match { $p: Person $p.name LIKE "a%" } return { $p.name }', "starts_with"),
                ('match { $p: Person $p.name starts with "a" } return { $p.name }', "starts_with"),
                ("match { $p: Person p.age > 3 } return { $p.name }", "`$p.age`"),
                ("match { $p: Person } return { p.name }", "`$p.name`"),
                ("match { $p: Person } return $p.name", "return { $p.name"),
                ("match { $p: Person } RETURN { $p.name }", "return { $p.name"),
                ("match { $p: Person } return { $p.name } LIMIT 3", "limit 10"),
                ("match { $p: Person } return { $p.name } offset 3", "skip 20"),
                ("match { $p: Person } return { $p.name } group by $p.name", "count(*) as n"),
                ("match { $p: Person } return { COUNT(*) }", "`count(…)`"),
                ("match { $p: Person $p.age in (1, 2) } return { $p.name }", "in [1, 2]"),
                ("MATCH (a:Person)-[:KNOWS]->(b) RETURN b.name", "$a knows $b"),
                ("match (a)-[:KNOWS]->(b) return b.name", "$a knows $b"),
                ("query q() { MATCH (a)-[:KNOWS]->(b) RETURN b }", "$a knows $b"),
                ("match { ($a)-[:KNOWS]->($b) } return { $a }", "$a knows $b"),
                ("match { $a --> $b } return { $a }", "$a knows $b"),
                ("SELECT name, age FROM Person WHERE age > 3", "match { $x: Person } return { $x.name, $x.age }"),
                ("select * from person", "match { $x: Person } return { $x.* }"),
                ("match { $p: Person } optional match { $p knows $q } return { $q }", "optional { $p knows $q }"),
            )
        ),
        *(
            (habit, hint, 'update Person set { age: 1 } where name = "ada" delete Person where name = "ada"')
            for habit, hint in (
                ('update Person set age = 1 where name = "ada"', "set { age: 37"),
                ('UPDATE Person SET age = 1 WHERE name = "ada"', "update Person set { age: 37 } where"),
                ('delete from Person where name = "ada"', "delete Person where"),
                ("match { $p: Person } detach delete $p", "delete $a"),
                ('MERGE (p:Person {name: "ada"})', "insert Person {"),
                ('CREATE (p:Person {name: "ada"})', "insert Person {"),
            )
        ),
    ],
)
def test_habit_of_another_language_is_answered_with_ours(habit: str, hint: str, instead: str) -> None:
    with pytest.raises(LanguageError) as caught:
        parse_queries(Source("query.gq", habit))
    assert hint in (caught.value.diagnostics[0].hint or "")
    assert len(parse_queries(Source("query.gq", instead))) == 1
