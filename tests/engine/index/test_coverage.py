"""An index is believed only about rows that it was built on: what writers, compaction and old damage leave behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.engine.read.search.embed import MockEmbedder
from omnigraph.graph import Graph
from omnigraph.store import change
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
    path.write_text(json.dumps(record("d1", "calm sea again", 1)))
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
