"""What an opened graph remembers of storage is bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.graph import session_of
from omnigraph.store import dataset_cache

pytestmark = pytest.mark.slow

ADD = "query add($name: String) { insert Person { name: $name } }"


@pytest.mark.parametrize(("bytes_max", "is_bounded"), [(100_000, True), (100_000_000, False)])
def test_what_lance_remembers_of_versions_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_max: int, is_bounded: bool
) -> None:
    # The second case shows that the first would fail if the limit did not reach Lance.
    monkeypatch.setattr(dataset_cache, "FILE_CACHE_BYTES_MAX", bytes_max)
    with og.init(tmp_path / "g.omni", "node Person {\n  name: String @key\n}") as graph:
        for number in range(30):
            graph.mutate(ADD, params={"name": f"p{number}"})
        remembered = session_of(graph).kernel.store._session.size_bytes()
    assert (remembered < 2 * 100_000) is is_bounded
