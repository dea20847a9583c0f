"""Verify of indexes: any that can be read is sound, however little of it the cache holds."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.store import store

SCHEMA = "node Doc { name: String @key  text: String @index  place: Vector(4) @index }"


def build(root: Path) -> og.Graph:
    graph = og.init(root, SCHEMA)
    docs = [{"name": f"d{n}", "text": f"calm sea {n}", "place": [n, 1, 2, 3]} for n in range(300)]
    graph.ingest([{"type": "Doc", "data": doc} for doc in docs])
    graph.maintenance.ensure_indices()
    return graph


@pytest.fixture
def tiny_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PASSING_CACHE_BYTES_MAX", 1)


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_cache")
def test_verify_index_larger_than_the_cache_is_sound(tmp_path: Path) -> None:
    assert [
        finding for finding in build(tmp_path / "g").maintenance.verify().findings if finding.severity == "error"
    ] == []


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_cache")
@pytest.mark.parametrize("ending", ["tokens.lance", "invert.lance", "page_data.lance", "index.idx"])
def test_verify_lost_index_file_is_found_with_a_small_cache(tmp_path: Path, ending: str) -> None:
    graph = build(tmp_path / "g")
    lost = [path for path in (tmp_path / "g").rglob("_indices/**/*") if path.name.endswith(ending)]
    assert lost, sorted(path.name for path in (tmp_path / "g").rglob("_indices/**/*"))
    lost[0].unlink()
    assert any("cannot be read" in finding.message for finding in graph.maintenance.verify().findings)
