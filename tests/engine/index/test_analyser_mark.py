"""A text index that another analyser built answers nothing until it is built again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine.maintain.maintenance import Maintenance
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.store.index import index_build
from omnigraph.store.index.index_build import IndexKind, coverage, segments_of
from omnigraph.store.index.text_analysis import ANALYSER
from tests.support.staged_fixtures import earlier_analyser

pytestmark = pytest.mark.slow

SCHEMA = "node Doc { name: String @key  text: String? @index }"
TEXTS = {"a": "e\u0301lan vital", "b": "東京都に行く", "c": "vital " + "x" * 50, "d": None}
RANK = (
    "query q($w: String) { match { $d: Doc } return { $d.name as name, bm25($d.text, $w) as s } order { s } limit 9 }"
)
SEARCH = "query q($w: String) { match { $d: Doc search($d.text, $w) } return { $d.name as name } }"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "g.omni", schema=SCHEMA)
    graph.ingest([{"type": "Doc", "data": {"name": name, "text": text}} for name, text in TEXTS.items()])
    with earlier_analyser():
        graph.maintenance.ensure_indices()
    return graph


def ranked(graph: Graph) -> list[list[tuple[Any, ...]]]:
    words = ("élan", "東京", "vital", "x" * 50, "lan")
    return [[tuple(row.values()) for row in graph.query(RANK, params={"w": word}).rows()] for word in words]


def notes(graph: Graph) -> list[str]:
    return [one.message for one in graph.maintenance.verify().findings if "analyser" in one.message]


def test_index_of_another_analyser_answers_nothing(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = session_of(graph).view().dataset(TypeKey("node:Doc"))
    assert segments_of(dataset, "text", IndexKind.FULLTEXT) == []
    assert {name for name, one in coverage(dataset).items() if one.is_outdated} == {"p2_fulltext", "p3_fulltext"}
    answers = ranked(graph)
    assert [[name for name, _ in rows] for rows in answers] == [["a"], ["b"], ["a", "c"], ["c"], []]
    graph.maintenance.ensure_indices()
    assert ranked(graph) == answers, "to the last bit"
    # Without the mark the old index would be asked, and it knows other terms.
    with earlier_analyser():
        graph.maintenance.optimize()
    monkeypatch.setattr(index_build, "analyser_of", lambda _: ANALYSER)
    assert ranked(og.open(graph.uri)) != answers


@pytest.mark.parametrize("upkeep", [Maintenance.ensure_indices, Maintenance.optimize])
def test_upkeep_builds_it_again_and_verify_says_so(graph: Graph, upkeep: Callable[[Maintenance], object]) -> None:
    assert len(notes(graph)) == 1
    assert "`omnigraph optimize`" in notes(graph)[0]
    assert graph.maintenance.verify().is_sound
    upkeep(graph.maintenance)
    assert notes(graph) == []
    dataset = session_of(graph).view().dataset(TypeKey("node:Doc"))
    [(_, covered)] = segments_of(dataset, "text", IndexKind.FULLTEXT)
    assert covered == {fragment.id for fragment in dataset.fragments}
    head = graph.commits()[0].commit_id
    upkeep(graph.maintenance)
    assert graph.commits()[0].commit_id == head, "nothing is left to do"


def test_explain_says_how_texts_are_searched(graph: Graph) -> None:
    def told(source: str) -> list[object]:
        plan = graph.explain(source, params={"w": "sea"}).to_json()["plan"]
        return [one["texts"] for one in plan if "texts" in one]  # type: ignore[attr-defined]

    for source in (RANK, SEARCH):
        assert told(source) == ["in memory, since another analyser built the index; run `omnigraph optimize`"]
    graph.maintenance.optimize()
    for source in (RANK, SEARCH):
        assert told(source) == ["by the index"]
    graph.mutate('query q() { insert Doc { name: "e" text: "sea" } }')
    for source in (RANK, SEARCH):
        assert told(source) == ["by the index, 1 entities that it does not know in memory"]


def test_type_without_entities_keeps_it_until_there_are_some(graph: Graph) -> None:
    graph.mutate('query q() { delete Doc where name < "z" }')
    assert graph.maintenance.ensure_indices().built == ()
    assert notes(graph) == []
    graph.mutate('query q() { insert Doc { name: "e" text: "E\u0301LAN" } }')
    assert [name for name, _ in ranked(graph)[0]] == ["e"]
    assert {spec.kind for _, spec in graph.maintenance.ensure_indices().built} == {IndexKind.FULLTEXT}
    assert [name for name, _ in ranked(graph)[0]] == ["e"]
