"""Fast paths answer like the plain one: weights, roots, ways of walking, cached and taken columns."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine.query import entities, expand, planning
from omnigraph.engine.query.budget import Budget
from omnigraph.engine.query.physical_plan import ReadPlan
from tests.support.read_fixtures import city, create, knows, lives_in, person

COUNTS = [
    ("$p: Person $p knows $q $q knows $r", "count(*) as n"),
    ("$p: Person $p $w:knows $q $q knows $r $r.age > 5", "count(*) as n, sum($q.age) as s, avg($p.age) as a"),
    ("$p: Person $p.age < 5 $p knows $q $q livesIn $c $q <knows> $r", "$q.city, count(*) as n, count($r.age) as m"),
    ("$c: City $p livesIn $c $p knows $q", "$c, count($q) as n, sum($q.age) as s"),
    ("$p: Person not { $p knows $_ } $c: City", "count(*) as n, count($p.age) as a"),
    ('$p: Person $c: City $p knows $q not { $q livesIn $c2 $c2.country = "NL" }', "$p.city, count(*) as n"),
    ("$p: Person $p.age = 3 $p knows $q $q.age = 4", "count(*) as n, sum($p.age) as s"),
    ("$p: Person $p.age > 1000 $p knows $q", "count(*) as n, sum($q.age) as s"),
    ("$p: Person $p.age > 1000 $p knows $q", "$q.city, count(*) as n"),
]
PATTERNS = [
    ('$p: Person $p knows $q $q.name = "p3"', "$p, $q"),
    ('$p: Person $p livesIn $c $c.country = "NL" $p knows $q', "$p, $c, $q"),
    ('$p: Person $p $w:knows $q $q <knows> $r $r.name = "p5" $q.age > 2', "$p, $q, $r, $w.weight"),
    ('$p: Person $p knows{1,2} $q $q.name = "p3"', "$p, $q"),
    ("$p knows $q $q knows $r $r knows $p", "$p, $q, $r"),
    ("$p: Person $p knows{1,3} $q as $h", "$p, $q, $h"),
    ("$p: Person $p <knows>{2,3} $q as $h", "$p, $q, $h"),
    ("$p: Person not { $p knows{2,2} $q $q.age > 3 }", "$p"),
    ("$p: Person optional { $p knows $q $q knows $p }", "$p, $q"),
]


def random_graph(path: Path, seed: int) -> og.Graph:
    """Return a graph with cycles, loops, parallel edges, ids that two types share, and holes from deletions."""
    chance = random.Random(seed)
    people = [f"p{n}" for n in range(24)]
    ages: list[int | None] = [None, *range(8)]
    lines: list[dict[str, Any]] = [
        person(name, age=chance.choice(ages), city=chance.choice(["x", "y", None])) for name in people
    ]
    lines += [city(f"p{n}", country=chance.choice(["NL", "BE", None])) for n in range(4)]
    lines += [knows(chance.choice(people), chance.choice(people), weight=float(n)) for n in range(60)]
    lines += [lives_in(chance.choice(people), f"p{chance.randrange(4)}") for _ in range(30)]
    graph = create(path, lines)
    graph.mutate('query d() { delete Person where name = "p7" delete Person where name = "p0" }')
    graph.mutate("query d() { delete Knows where weight < 8.0 }")
    return graph


@pytest.fixture(scope="module", params=[1, 2, 3])
def graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    return random_graph(tmp_path_factory.mktemp("paths"), request.param)


def answer(graph: og.Graph, match: str, returns: str) -> list[str]:
    graph._caches.plans._entries.clear()
    found = graph.query(f"query q() {{ match {{ {match} }} return {{ {returns} }} }}").rows()
    return sorted(repr(row) for row in found)


@pytest.mark.parametrize(("match", "returns"), COUNTS)
def test_weights_answer_like_rows(graph: og.Graph, match: str, returns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weighed = answer(graph, match, returns)
    source = f"query q() {{ match {{ {match} }} return {{ {returns} }} }}"
    assert graph.explain(source).operators[0].title.startswith("count by weights")
    monkeypatch.setattr(ReadPlan, "uses_weights", lambda plan, run: False)
    assert answer(graph, match, returns) == weighed


@pytest.mark.parametrize(("match", "returns"), PATTERNS)
def test_roots_answer_like_written_order(
    graph: og.Graph, match: str, returns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = answer(graph, match, returns)
    monkeypatch.setattr(planning, "choose_start", lambda catalog, operators: operators)
    assert answer(graph, match, returns) == moved


@pytest.mark.parametrize(("match", "returns"), PATTERNS + COUNTS)
def test_lookups_answer_like_adjacency(
    graph: og.Graph, match: str, returns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
    in_memory = answer(graph, match, returns)
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "indexed")
    graph._caches.clear()
    assert answer(graph, match, returns) == in_memory


@pytest.mark.parametrize(("match", "returns"), PATTERNS + COUNTS)
def test_taken_values_answer_like_columns(
    graph: og.Graph, match: str, returns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = answer(graph, match, returns)
    monkeypatch.setattr(entities, "_SMALL_ROWS", 0)
    monkeypatch.setattr(entities, "_SELECTIVE", 0)
    monkeypatch.setattr(entities, "_TAKES_MAX", 10**9)
    monkeypatch.setattr(expand, "_SMALL_EDGES", 0)
    graph._caches.clear()
    assert answer(graph, match, returns) == whole


@pytest.mark.parametrize(("match", "returns"), PATTERNS)
def test_sets_answer_like_bags(graph: og.Graph, match: str, returns: str) -> None:
    every = answer(graph, match, returns)
    graph._caches.plans._entries.clear()
    found = graph.query(f"query q() {{ match {{ {match} }} return distinct {{ {returns} }} }}").rows()
    assert sorted(repr(row) for row in found) == sorted(set(every))


def test_top_rows_are_the_first_of_all(graph: og.Graph) -> None:
    source = "query q($n: I64) {{ match {{ $p: Person $q: Person }} return {{ $p, $q }} order {{ {} }} limit $n }}"
    for order in ("$p.age desc, $q.city", "$q.city", "$p.age, $q.age desc", "$p.city desc"):
        every = graph.query(source.format(order), params={"n": 10_000}).rows()
        for count in (0, 1, 5, 17):
            assert graph.query(source.format(order), params={"n": count}).rows() == every[:count]


def test_repetitive_texts_are_coded_and_read_the_same(tmp_path: Path) -> None:
    count = 6_000
    cities = [None if n % 7 == 0 else f"c{n % 5}" for n in range(count)]
    graph = create(tmp_path, [person(f"n{n}", city=cities[n], age=n % 11) for n in range(count)])
    graph.query("query q() { match { $p: Person } return { $p.city, count(*) as n } }")
    found = graph.query("query q() { match { $p: Person $p.age < 10 } return { $p, $p.city } }").rows()
    assert len(found) == sum(n % 11 < 10 for n in range(count))
    assert all(row["p.city"] == cities[int(row["p"][1:])] for row in found)


@pytest.mark.parametrize(
    "condition", ["$a.city = $b.city", "$a.age = $b.age", "$a.age = $b.big", "$a.name = $b.name and $a.age = $b.age"]
)
def test_joins_by_value_answer_like_every_combination(
    graph: og.Graph, condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    match = f"$a: Person $b: Person {condition} $a.age != 3"
    joined = answer(graph, match, "$a, $b")
    monkeypatch.setattr(planning, "compile_join", lambda *args: None)
    assert answer(graph, match, "$a, $b") == joined


def test_join_by_value_makes_no_combination_that_it_drops(graph: og.Graph) -> None:
    source = "query q() { match { $a: Person $b: Person $a.name = $b.name } return { $a, $b } }"
    assert len(graph.query(source, budget=Budget(rows_max=25))) == 22
