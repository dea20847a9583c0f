"""An index is believed only about rows that it was built on: what writers, compaction and old damage leave behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.engine.query.embedders import MockEmbedder
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.store.index import index_build
from omnigraph.store.index.index_build import coverage
from omnigraph.store.write import compaction, fragments, transaction, upsert

pytestmark = pytest.mark.slow

SCHEMA = """
node Doc {
  name: String @key
  n: I32 @index
  text: String @index
  vec: Vector(3)? @embed(text) @index
}
"""
DOC = TypeKey("node:Doc")
SEARCH = "query q($w: String) { match { $d: Doc search($d.text, $w) } return { $d.name } }"
RANK = (
    "query q($w: String) { match { $d: Doc } return { $d.name bm25($d.text, $w) as s }"
    " order { bm25($d.text, $w) } limit 5 }"
)


def record(name: str, text: str, n: int = 0, **more: Any) -> dict[str, Any]:
    return {"type": "Doc", "data": {"name": name, "text": text, "n": n, **more}}


def found(graph: Graph, word: str, **where: Any) -> list[str]:
    return sorted(row["d.name"] for row in graph.query(SEARCH, params={"w": word}, **where).rows())


def indexed(path: Path, count: int = 20) -> Graph:
    graph = og.init(path / "g.omni", schema=SCHEMA)
    graph.ingest([record(f"d{number}", "calm sea" if number % 2 else "storm", number) for number in range(count)])
    graph.maintenance.ensure_indices()
    return graph


def load_merge(graph: Graph) -> None:
    path = Path(graph.uri).parent / "merged.ndjson"
    path.write_text(json.dumps(record("d1", "calm sea reef", 1)))
    pipeline.load(graph, [path], mode="merge", engine="local")


def embed(graph: Graph) -> None:
    graph.embed(embedder=MockEmbedder())


@pytest.mark.parametrize("write", [load_merge, embed], ids=["load", "embed"])
def test_replaced_entities_are_found_at_once_and_after_upkeep(tmp_path: Path, write: Callable[[Graph], None]) -> None:
    graph = indexed(tmp_path)
    odd = sorted(f"d{number}" for number in range(20) if number % 2)
    write(graph)
    assert found(graph, "sea") == odd
    assert not any(one.false for one in coverage(session_of(graph).view().dataset(DOC)).values())
    graph.maintenance.optimize()
    assert found(graph, "sea") == odd
    assert found(og.open(graph.uri), "sea") == odd


def lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let writers hand Lance no fields, as they once did: it then takes new fragments for covered."""
    honest = transaction.replacing

    def lying(dataset: Any, emptied: Any, updated: Any, added: Any) -> Any:
        return replace(honest(dataset, emptied, updated, added), fields_for_preserving_frag_bitmap=[])

    monkeypatch.setattr(fragments, "replacing", lying)
    monkeypatch.setattr(upsert, "replacing", lying)


@pytest.mark.parametrize("heal", ["optimize", "ensure_indices"])
def test_false_coverage_is_ignored_told_and_healed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heal: str) -> None:
    graph = indexed(tmp_path)
    odd = sorted(f"d{number}" for number in range(20) if number % 2)
    with monkeypatch.context() as patch:
        lie(patch)
        load_merge(graph)
    assert any(one.false for one in coverage(session_of(graph).view().dataset(DOC)).values())
    assert found(graph, "sea") == odd
    assert found(graph, "reef") == ["d1"]
    assert [one.message for one in graph.maintenance.verify().findings if "not built on" in one.message]
    getattr(graph.maintenance, heal)()
    assert not any(one.false for one in coverage(session_of(graph).view().dataset(DOC)).values())
    assert found(graph, "reef") == ["d1"]
    assert not [one.message for one in graph.maintenance.verify().findings if "not built on" in one.message]


def test_false_coverage_that_was_compacted_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = indexed(tmp_path)
    with monkeypatch.context() as patch:
        lie(patch)
        # Once upkeep believed it too.
        patch.setattr(
            index_build._Honesty, "coverage", lambda self, one: frozenset(one.fragment_ids) & self._fragments.keys()
        )
        for _ in range(3):
            load_merge(graph)
        graph.maintenance.optimize()
    assert any(one.false for one in coverage(session_of(graph).view().dataset(DOC)).values())
    assert found(graph, "reef") == ["d1"]
    graph.maintenance.optimize()
    assert not any(one.false for one in coverage(session_of(graph).view().dataset(DOC)).values())
    assert found(graph, "reef") == ["d1"]


@pytest.mark.parametrize("is_rebuilt", [True, False], ids=["rebuilt", "as once"])
@pytest.mark.parametrize("is_last_gone", [True, False])
def test_rows_that_are_gone_are_never_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_rebuilt: bool, is_last_gone: bool
) -> None:
    graph = indexed(tmp_path, 60)
    if not is_rebuilt:
        monkeypatch.setattr(compaction, "shrunk_fragments", lambda rewrite: frozenset())
    gone = [number for number in range(60) if number % 4 == 1 or (is_last_gone and number == 59)]
    for number in gone:
        graph.mutate(f'query q() {{ delete Doc where name = "d{number}" }}')
    # Nothing was added, so no index has anything to learn; but the fragments are rewritten without what is gone.
    graph.maintenance.optimize()
    sea = sorted(f"d{number}" for number in range(60) if number % 2 and number not in gone)
    assert found(graph, "sea") == sea
    graph.branches.create("later")
    assert found(graph, "sea", branch="later") == sea
    assert [row["d.name"] for row in graph.query(RANK, params={"w": "sea"}).rows()] == sea[:5]
    assert len(graph.query(RANK.replace("limit 5", "limit 100"), params={"w": "sea"}).rows()) == len(sea)


def test_vectors_that_are_gone_are_never_answered(tmp_path: Path) -> None:
    """More entities than are read whole, so that an index of the usual size is asked."""
    graph = og.init(tmp_path / "v.omni", schema="node Place { name: String @key  n: I32  vec: Vector(2)? @index }")
    numbers = np.random.default_rng(5).standard_normal((24_000, 2)).astype(np.float32)
    places = [{"name": f"p{one:05}", "n": one % 8, "vec": row.tolist()} for one, row in enumerate(numbers)]
    for start in range(0, len(places), 8_000):
        graph.ingest([{"type": "Place", "data": one} for one in places[start : start + 8_000]])
    graph.maintenance.optimize()
    graph.mutate("query q() { delete Place where n = 3 }")
    graph.maintenance.optimize()
    near = "query q() { match { $p: Place } return { $p.name as name } order { nearest($p.vec, [0.1, 0.2]) } limit 9 }"
    distances = np.linalg.norm(numbers.astype(np.float64) - np.array([0.1, 0.2], np.float32), axis=1)
    distances[3::8] = np.inf
    expected = [f"p{one:05}" for one in np.argsort(distances)[:9]]
    assert [row["name"] for row in graph.query(near).rows()] == expected


def test_relevance_is_that_of_one_corpus_while_the_index_lags(tmp_path: Path) -> None:
    """Several segments, rows that the index does not know, and rows that are gone: scores are as without an index."""
    answers = []
    for is_indexed in (False, True):
        graph = og.init(tmp_path / f"{is_indexed}.omni", schema=SCHEMA)
        graph.ingest([record(f"d{number:02}", "sea " * (number % 5) + "wind rock") for number in range(60)])
        if is_indexed:
            graph.maintenance.ensure_indices()
        graph.ingest([record(f"d{number}", "sea reef palm moon star sand") for number in range(60, 70)])
        if is_indexed:
            graph.maintenance.optimize()
        graph.ingest([record(f"d{number}", "sea moon sand palm rock wind") for number in range(70, 72)])
        graph.mutate('query q() { delete Doc where name = "d03" }')
        answers.append(graph.query(RANK.replace("limit 5", "limit 100"), params={"w": "sea reef"}).rows())
    assert answers[0] == answers[1]
    assert len(answers[0]) == 59
