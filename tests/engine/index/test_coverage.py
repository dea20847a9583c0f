"""An index is believed only about rows that it was built on: what writers, compaction and old damage leave behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.engine.read.search.embed import MockEmbedder
from omnigraph.graph import Graph
from omnigraph.store import change, compact, fragments, index, upsert
from omnigraph.store.index import coverage

pytestmark = pytest.mark.slow

SCHEMA = """
node Doc {
  name: String @key
  n: I32 @index
  text: String @index
  vec: Vector(3)? @embed(text) @index
}
"""
DOC = "node:Doc"
SEARCH = "query q($w: String) { match { $d: Doc search($d.text, $w) } return { $d.name } }"
RANK = (
    "query q($w: String) { match { $d: Doc } return { $d.name bm25($d.text, $w) as s }"
    " order { bm25($d.text, $w) } limit 5 }"
)


@pytest.fixture(autouse=True)
def _no_syncing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "process")


def record(name: str, text: str, n: int = 0, **more: Any) -> dict[str, Any]:
    return {"type": "Doc", "data": {"name": name, "text": text, "n": n, **more}}


def found(graph: Graph, word: str, **where: Any) -> list[str]:
    return sorted(row["d.name"] for row in graph.query(SEARCH, params={"w": word}, **where).rows())


def indexed(path: Path, count: int = 20) -> Graph:
    graph = og.init(path / "g.omni", schema=SCHEMA)
    graph.ingest([record(f"d{number}", "calm sea" if number % 2 else "storm", number) for number in range(count)])
    graph.ensure_indices()
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
    assert not any(one.false for one in coverage(graph.core.view().dataset(DOC)).values())
    graph.optimize()
    assert found(graph, "sea") == odd
    assert found(og.open(graph.uri), "sea") == odd


def lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let writers hand Lance no fields, as they once did: it then takes new fragments for covered."""
    honest = change.replacing

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
    assert any(one.false for one in coverage(graph.core.view().dataset(DOC)).values())
    assert found(graph, "sea") == odd
    assert found(graph, "reef") == ["d1"]
    assert [one.message for one in graph.verify().findings if "not built on" in one.message]
    getattr(graph, heal)()
    assert not any(one.false for one in coverage(graph.core.view().dataset(DOC)).values())
    assert found(graph, "reef") == ["d1"]
    assert not [one.message for one in graph.verify().findings if "not built on" in one.message]


def test_false_coverage_that_was_compacted_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = indexed(tmp_path)
    with monkeypatch.context() as patch:
        lie(patch)
        # Once upkeep believed it too.
        patch.setattr(
            index._Honesty, "coverage", lambda self, one: frozenset(one.fragment_ids) & self._fragments.keys()
        )
        for _ in range(3):
            load_merge(graph)
        graph.optimize()
    assert any(one.false for one in coverage(graph.core.view().dataset(DOC)).values())
    assert found(graph, "reef") == ["d1"]
    graph.optimize()
    assert not any(one.false for one in coverage(graph.core.view().dataset(DOC)).values())
    assert found(graph, "reef") == ["d1"]


@pytest.mark.parametrize("is_rebuilt", [True, False], ids=["rebuilt", "as once"])
def test_rows_that_are_gone_are_never_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_rebuilt: bool
) -> None:
    graph = indexed(tmp_path, 40)
    if not is_rebuilt:
        monkeypatch.setattr(compact, "shrunk_fragments", lambda rewrite: frozenset())
    for number in range(0, 40, 4):
        graph.mutate(f'query q() {{ delete Doc where name = "d{number}" }}')
        graph.mutate(f'query q() {{ update Doc set {{ text: "reef" }} where name = "d{number + 1}" }}')
    graph.mutate('query q() { delete Doc where name = "d39" }')
    graph.optimize()
    sea = sorted(f"d{number}" for number in range(40) if number % 4 == 3 and number != 39)
    assert found(graph, "sea") == sea
    graph.branches.create("later")
    assert found(graph, "sea", branch="later") == sea
    assert [row["d.name"] for row in graph.query(RANK, params={"w": "sea"}).rows()] == sea[:5]
    assert len(found(graph, "reef")) == 10
