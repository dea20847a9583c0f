"""Stages and unions in process: rankings between patterns, the budget, and the explained plan."""

from __future__ import annotations

import pytest

import omnigraph as og
from omnigraph.engine.query import Budget
from omnigraph.errors import BudgetExceeded
from omnigraph.graph import Graph

SCHEMA = "node P { name: String @key  v: Vector(2)?  about: String? @index }\nedge K: P -> P"
PEOPLE = (("a", [0.0, 0.0], "red fox"), ("b", [1.0, 0.0], "red"), ("c", [5.0, 5.0], "blue fox fox"))
EDGES = (("a", "c"), ("b", "c"), ("b", "a"), ("c", "a"))


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = og.init(tmp_path_factory.mktemp("stages") / "g.omni", schema=SCHEMA)
    nodes = [{"type": "P", "data": {"name": name, "v": v, "about": about}} for name, v, about in PEOPLE]
    graph.ingest([*nodes, *({"edge": "K", "from": a, "to": b} for a, b in EDGES)], mode="append")
    return graph


def test_a_ranking_cuts_before_the_next_pattern(graph: Graph) -> None:
    rows = graph.query("""query q() {
      match { $p: P }
      with { $p, nearest($p.v, [0.9, 0.0]) as $far } order { $far } limit 2
      match { $p k $q }
      return { $p.name as p, $q.name as q, round($far, 2) as far } order { p, q }
    }""").rows()
    assert [tuple(row.values()) for row in rows] == [("a", "c", 0.9), ("b", "a", 0.1), ("b", "c", 0.1)]


def test_a_ranking_follows_a_stage_and_keeps_its_values(graph: Graph) -> None:
    rows = graph.query("""query q() {
      match { $p: P  search($p.about, "fox") }
      with { $p, bm25($p.about, "fox") as $score }
      match { $p k $q }
      with { $q, max($score) as $best }
      return { $q.name as q, nearest($q.v, [0.0, 0.0]) as d, $best > 0.0 as ok } order { d } limit 3
    }""").rows()
    assert [(row["q"], row["ok"]) for row in rows] == [("a", True), ("c", True)]


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ("match { $p: P  $q: P } with { $p, $q } return { count(*) as n }", "scan"),
        ("match { $p: P } return { $p } union all match { $p: P } return { $p }", "the rows of a union"),
        ("match { $p k $q  path $w = $p k{1,} $z } with { $w } match { $x in nodes($w) } return { $x }", ""),
    ],
)
def test_stages_and_unions_respect_the_budget(graph: Graph, body: str, where: str) -> None:
    source = f"query q() {{ {body} }}"
    assert len(graph.query(source, budget=Budget(rows_max=100)))
    with pytest.raises(BudgetExceeded) as caught:
        graph.query(source, budget=Budget(rows_max=4))
    assert where in str(caught.value)


def test_explain_shows_stages_blocks_and_what_they_did(graph: Graph) -> None:
    source = """query q() {
      match { $p k $q } with distinct on ($p) { $p, $q } order { $q.name } match { $q k $r } return { $r.name as name }
      union
      match { $p: P } with { count(*) as $n } return { "all" as name }
    }"""
    shown = graph.explain(source, profile=True).render()
    titles = [line.strip().partition("  (")[0] for line in shown.splitlines()]
    assert titles[:9] == [
        "read q",
        "block of the union",
        "scan $p: P",
        "expand $p out K $q: P",
        "with distinct on keys: p, q in order",
        "expand $q out K $r: P",
        "return distinct name",
        "block of the union",
        "count by weights on nodes, without making these rows",
    ]
    assert "rows 3" in shown


def test_a_condition_of_both_stages_joins_by_value(graph: Graph) -> None:
    source = """query q() {
      match { $p k $q } with { $q.name as $name, count(*) as $n }
      match { $r: P  $r.name = $name  $n > 1 } return { $r.name as name, $n as n } order { name }
    }"""
    assert [tuple(row.values()) for row in graph.query(source).rows()] == [("a", 2), ("c", 2)]
    assert "joined on" in graph.explain(source).render()
