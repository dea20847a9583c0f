"""Merges of schemas that ask more of stored entities than other columns: types, rules, required values and keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import MergeConflict
from omnigraph.graph import Graph
from tests.support.merge_fixtures import PERSON, SCHEMA, change, people, put
from tests.support.write_fixtures import rows

pytestmark = pytest.mark.slow

WIDE = SCHEMA.replace("age: I32?", "age: I64?")
UNIQUE = SCHEMA.replace("city: String?", "city: String? @unique")
KEYED = SCHEMA.replace("Person -> Person {", "Person -> Person {\n  @key(src, dst)\n ")
NAMED = SCHEMA.replace("name: String @key", "name: String @key\n  born: I32")


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = people(tmp_path)
    graph.branches.create("review")
    return graph


def refused(graph: Graph, source: str = "review", into: str = "main") -> list[Any]:
    with pytest.raises(MergeConflict) as caught:
        graph.branches.merge(source, into)
    conflicts: Any = caught.value.context["conflicts"]
    return [(one["kind"], one["message"]) for one in conflicts]


def test_merge_of_values_into_a_wider_type(graph: Graph) -> None:
    graph.schema.apply(WIDE)
    change(graph, f'update Person set {{ age: {2**40} }} where name = "Alice"')
    change(graph, 'update Person set { age: 26 } where name = "Bob"', "review")
    change(graph, 'insert Person { name: "Dan", age: 1 }', "review")
    graph.branches.merge("review")
    merged = {name: row["age"] for name, row in rows(graph, PERSON).items()}
    assert merged == {"Alice": 2**40, "Bob": 26, "Carol": 20, "Dan": 1}


def test_merge_of_a_wider_type_takes_over_what_the_target_left_alone(graph: Graph) -> None:
    graph.schema.apply(WIDE, branch="review")
    change(graph, f'update Person set {{ age: {2**40} }} where name = "Alice"', "review")
    change(graph, 'delete Knows where from = "Bob"')
    graph.branches.merge("review")
    assert rows(graph, PERSON)["Alice"]["age"] == 2**40
    change(graph, f'update Person set {{ age: {2**41} }} where name = "Bob"')
    assert rows(graph, PERSON)["Bob"]["age"] == 2**41
    assert rows(graph, "edge:Knows") == {}


@pytest.mark.parametrize("is_optimized", [True, False])
def test_merge_of_a_wider_type_takes_over_what_the_target_has_as_the_base(graph: Graph, is_optimized: bool) -> None:
    graph.schema.apply(WIDE, branch="review")
    change(graph, f'update Person set {{ age: {2**40} }} where name = "Alice"', "review")
    change(graph, 'update Person set { age: 26 } where name = "Bob"')
    change(graph, 'update Person set { age: 25 } where name = "Bob"')
    if is_optimized:
        assert graph.maintenance.optimize().commit
    before = rows(graph, PERSON)
    graph.branches.merge("review")
    merged = rows(graph, PERSON)
    assert merged == {name: {**row, "age": 2**40 if name == "Alice" else row["age"]} for name, row in before.items()}


def test_merge_of_a_wider_type_needs_it_on_a_target_that_changed(graph: Graph) -> None:
    graph.schema.apply(WIDE, branch="review")
    change(graph, f'update Person set {{ age: {2**40} }} where name = "Alice"', "review")
    change(graph, 'update Person set { age: 26 } where name = "Bob"')
    [(kind, message)] = refused(graph)
    assert (kind, message) == (
        "DivergentSchema",
        "`Person.age`: they changed its type to `I64?`; apply the change to the target first",
    )
    graph.schema.apply(WIDE)
    graph.branches.merge("review")
    assert {name: row["age"] for name, row in rows(graph, PERSON).items()} == {"Alice": 2**40, "Bob": 26, "Carol": 20}


@pytest.mark.parametrize("branch", ["review", "main"])
def test_merge_holds_all_entities_against_rules_that_it_brings(graph: Graph, branch: str) -> None:
    other = "main" if branch == "review" else "review"
    graph.schema.apply(UNIQUE, branch=branch)
    for name in ("Alice", "Bob"):
        change(graph, f'update Person set {{ city: "Rome" }} where name = "{name}"', other)
    [(kind, _), *_] = refused(graph, "review", "main")
    assert kind == "UniqueViolation"
    change(graph, 'update Person set { city: "Bern" } where name = "Bob"', other)
    graph.branches.merge("review")
    assert graph.schema.nodes["Person"].unique == (("city",),)


def test_merge_of_a_property_that_became_optional(tmp_path: Path) -> None:
    required = SCHEMA.replace("name: String @key", "name: String @key\n  nick: String")
    data = b'{"type":"Person","data":{"name":"Alice","nick":"Al"}}\n{"type":"Person","data":{"name":"Bob","nick":"B"}}'
    graph = people(tmp_path, required, data)
    graph.branches.create("review")
    graph.schema.apply(required.replace("nick: String", "nick: String?"), branch="review")
    put(graph, '{"type":"Person","data":{"name":"Bob"}}', branch="review")
    change(graph, 'update Person set { age: 5 } where name = "Alice"')
    graph.branches.merge("review")
    assert {name: (row["nick"], row["age"]) for name, row in rows(graph, PERSON).items()} == {
        "Alice": ("Al", 5),
        "Bob": (None, None),
    }


def test_merge_of_a_required_property(graph: Graph) -> None:
    graph.schema.apply(NAMED.replace("born: I32", "born: I32 @default(1900)"), branch="review")
    change(graph, 'update Person set { born: 1990 } where name = "Bob"', "review")
    graph.branches.create("other")
    graph.branches.merge("review")
    assert {name: row["born"] for name, row in rows(graph, PERSON).items()} == {
        "Alice": 1900,
        "Bob": 1990,
        "Carol": 1900,
    }
    change(graph, 'update Person set { age: 26 } where name = "Bob"', "other")
    [(kind, message)] = refused(graph, "main", "other")
    assert kind == "DivergentSchema"
    assert "`Person.born`: they added it as a required property" in message


def test_merge_of_a_key_into_a_branch_that_left_the_edges_alone(graph: Graph) -> None:
    graph.schema.apply(KEYED)
    change(graph, 'update Person set { age: 26 } where name = "Bob"', "review")
    graph.branches.merge("main", into="review")
    assert rows(graph, "edge:Knows", "review") == rows(graph, "edge:Knows")
    assert rows(graph, PERSON, "review")["Bob"]["age"] == 26


@pytest.mark.parametrize(("source", "into"), [("review", "main"), ("main", "review")])
def test_merge_of_another_key_is_refused_where_edges_changed(graph: Graph, source: str, into: str) -> None:
    graph.schema.apply(KEYED)
    change(graph, 'insert Knows { from: "Alice", to: "Bob" }', "review")
    [(kind, message), *_] = refused(graph, source, into)
    assert kind == "DivergentSchema"
    assert "changed its key; apply the change to the" in message
    graph.schema.apply(KEYED, branch="review")
    graph.branches.merge(source, into)
    ends = {(row["src"], row["dst"]) for row in rows(graph, "edge:Knows", into).values()}
    assert ends == {("Bob", "Carol"), ("Alice", "Bob")}
