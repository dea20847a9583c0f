"""Writes by pattern, conditions and verbs: what the statements of a mutation do to a small graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from tests.support.graph_template import copy_built

SCHEMA = """
node Person { name: String @key  age: I32?  team: String?  tags: [String]? }
node Note { text: String }
edge Knows: Person -> Person { since: I32?  weight: F64? }
edge Likes: Person -> Person { stars: I32?  @key(src, dst) }
"""
PEOPLE = [
    {"type": "Person", "data": {"name": name, "age": age, "team": team}}
    for name, age, team in [("ann", 30, "sea"), ("bob", 40, "sea"), ("cid", 50, "air"), ("dan", None, None)]
]
KNOWS = [
    {"edge": "Knows", "from": source, "to": target, "data": {"since": since}}
    for source, target, since in [("ann", "bob", 2001), ("ann", "cid", 2002), ("bob", "cid", 2003)]
]


def build(path: Path) -> og.Graph:
    graph = og.init(path, schema=SCHEMA)
    graph.ingest([*PEOPLE, *KNOWS], mode="append")
    return graph


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[og.Graph]:
    with copy_built(build, tmp_path / "g.omni") as graph:
        yield graph


def people(graph: og.Graph, *columns: str) -> dict[str, tuple[object, ...]]:
    shown = ", ".join(f"$p.{name} as {name}" for name in ("name", *columns))
    rows = graph.query(f"query q() {{ match {{ $p: Person }} return {{ {shown} }} }}").rows()
    return {str(row["name"]): tuple(row[name] for name in columns) for row in rows}


def edges(graph: og.Graph, word: str, column: str) -> set[tuple[object, ...]]:
    source = (
        f"query q() {{ match {{ $a $e: {word} $b }} return {{ $a.name as a, $b.name as b, $e.{column} as value }} }}"
    )
    return {(row["a"], row["b"], row["value"]) for row in graph.query(source).rows()}


def test_update_by_pattern_computes_from_old_values(graph: og.Graph) -> None:
    receipt = graph.mutate(
        'query q() { match { $a: Person { name: "ann" } $a knows $b } update $b set { age: $b.age + $a.age } }'
    )
    assert receipt.affected_nodes == 2
    assert people(graph, "age") == {"ann": (30,), "bob": (70,), "cid": (80,), "dan": (None,)}


def test_update_with_full_condition_and_expression(graph: og.Graph) -> None:
    receipt = graph.mutate(
        "query q($teams: [String]) {"
        " update Person set { age: age + 1, team: upper(team) } where team in $teams and age < 45 }",
        {"teams": ["sea", "air"]},
    )
    assert receipt.affected_nodes == 2
    assert people(graph, "age", "team") == {
        "ann": (31, "SEA"),
        "bob": (41, "SEA"),
        "cid": (50, "air"),
        "dan": (None, None),
    }


def test_update_can_set_null_and_keeps_what_is_not_named(graph: og.Graph) -> None:
    graph.mutate("query q() { update Person set { team: null } where age >= 40 or age is null }")
    assert people(graph, "age", "team")["bob"] == (40, None)
    assert people(graph, "age", "team")["ann"] == (30, "sea")


def test_edges_are_updated_by_their_ends_and_by_pattern(graph: og.Graph) -> None:
    assert (
        graph.mutate('query q() { update Knows set { weight: 0.5 } where from = "ann" and to = "bob" }').affected_edges
        == 1
    )
    assert edges(graph, "knows", "weight") == {("ann", "bob", 0.5), ("ann", "cid", None), ("bob", "cid", None)}
    graph.mutate("query q() { match { $a $e: knows $b  $b.age > 45 } update $e set { since: $e.since + 10 } }")
    assert edges(graph, "knows", "since") == {("ann", "bob", 2001), ("ann", "cid", 2012), ("bob", "cid", 2013)}


def test_edges_are_deleted_by_both_ends_and_by_pattern(graph: og.Graph) -> None:
    assert graph.mutate('query q() { delete Knows where from = "ann" and to = "cid" }').affected_edges == 1
    assert graph.mutate('query q() { match { $a $e: knows $b  $a.name = "bob" } delete $e }').affected_edges == 1
    assert edges(graph, "knows", "since") == {("ann", "bob", 2001)}


def test_deleting_matched_nodes_deletes_their_edges(graph: og.Graph) -> None:
    receipt = graph.mutate("query q() { match { $a knows $b  $b.age > 45 } delete $b }")
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 2)
    assert set(people(graph)) == {"ann", "bob", "dan"}
    assert edges(graph, "knows", "since") == {("ann", "bob", 2001)}


def test_insert_by_pattern_adds_an_edge_for_each_row(graph: og.Graph) -> None:
    receipt = graph.mutate(
        "query q() { match { $a: Person  $b: Person  $a.team = $b.team  $a != $b }"
        " insert Likes { from: $a, to: $b, stars: $a.age + $b.age } }"
    )
    assert receipt.affected_edges == 2
    assert edges(graph, "likes", "stars") == {("ann", "bob", 70), ("bob", "ann", 70)}
    again = (
        "query q() { match { $a: Person  $b: Person  $a.team = $b.team  $a != $b } upsert Likes { from: $a, to: $b } }"
    )
    graph.mutate(again)
    assert edges(graph, "likes", "stars") == {("ann", "bob", 70), ("bob", "ann", 70)}


def test_insert_by_pattern_adds_nodes_with_computed_keys(graph: og.Graph) -> None:
    graph.mutate(
        'query q() { match { $p: Person  $p.team is not null } insert Person { name: "team " + $p.team, age: 1 } }'
    )
    assert people(graph, "age")["team sea"] == (1,)
    assert len(people(graph)) == 6


def test_create_refuses_what_exists_and_upsert_keeps_what_is_not_named(graph: og.Graph) -> None:
    with pytest.raises(og.DataError, match="exists already"):
        graph.mutate('query q() { create Person { name: "ann" } }')
    graph.mutate('query q() { create Person { name: "eve", age: 20 } }')
    graph.mutate('query q() { upsert Person { name: "ann", team: "new" } }')
    graph.mutate('query q() { upsert Person { name: "fay", team: "new" } }')
    graph.mutate('query q() { insert Person { name: "bob", team: "new" } }')
    assert people(graph, "age", "team") == {
        "ann": (30, "new"),
        "bob": (None, "new"),
        "cid": (50, "air"),
        "dan": (None, None),
        "eve": (20, None),
        "fay": (None, "new"),
    }


def test_create_by_pattern_refuses_as_a_whole(graph: og.Graph) -> None:
    head = graph.snapshot().head
    with pytest.raises(og.DataError, match="exists already"):
        graph.mutate("query q() { match { $p: Person } create Person { name: $p.name } }")
    assert graph.snapshot().head == head


def test_pattern_that_gives_several_values_is_refused(graph: og.Graph) -> None:
    with pytest.raises(og.DataError, match="several values for `age`"):
        graph.mutate("query q() { match { $a knows $b } update $b set { age: $a.age } }")
    graph.mutate("query q() { match { $a knows $b } update $b set { age: 7 } }")
    assert people(graph, "age") == {"ann": (30,), "bob": (7,), "cid": (7,), "dan": (None,)}


def test_value_that_does_not_fit_is_refused(graph: og.Graph) -> None:
    with pytest.raises(og.DataError, match=r"does not fit `Person\.age`"):
        graph.mutate('query q() { update Person set { age: age * 100000000 } where name = "ann" }')


def test_dry_run_counts_and_writes_nothing(graph: og.Graph) -> None:
    head = graph.snapshot().head
    receipt = graph.mutate("query q() { match { $a knows $b } delete $b }", dry_run=True)
    assert (receipt.affected_nodes, receipt.commit) == (2, None)
    assert graph.snapshot().head == head


def test_pattern_over_what_an_earlier_statement_writes_is_refused(graph: og.Graph) -> None:
    with pytest.raises(og.LanguageError, match="an earlier statement writes `Person`"):
        graph.mutate('query q() { insert Person { name: "eve" } update Person set { age: age + 1 } where age > 1 }')


def test_deletes_and_updates_do_not_mix(graph: og.Graph) -> None:
    with pytest.raises(og.LanguageError, match="either inserts and updates, or deletes"):
        graph.mutate("query q() { match { $a knows $b } update $a set { age: 1 } delete $b }")


def test_keys_and_ends_cannot_be_updated(graph: og.Graph) -> None:
    with pytest.raises(og.LanguageError, match="part of the key"):
        graph.mutate('query q() { match { $p: Person } update $p set { name: "x" } }')
    with pytest.raises(og.LanguageError, match="an end of `Knows`"):
        graph.mutate('query q() { update Knows set { to: "x" } where from = "ann" }')


def test_property_of_another_type_is_refused(graph: og.Graph) -> None:
    with pytest.raises(og.LanguageError, match=r"does not fit `Person\.age`"):
        graph.mutate("query q() { match { $p: Person } update $p set { age: $p.name } }")
