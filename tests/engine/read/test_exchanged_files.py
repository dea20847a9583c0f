"""Files that were exchanged: rows that are more or fewer than their version says are refused by code."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import OmniGraphError

SCHEMA = "node P { name: String @key  n: I32? }\nedge K: P -> P"
QUERIES = (
    "match { $p: P } return { $p.name }",
    "match { $p: P $p.n > 3 } return { $p.name }",
    "match { $p: P $p k $q } return { $p.name, $q.n }",
)


def test_deletion_file_with_another_count_is_corruption(tmp_path: Path) -> None:
    root = tmp_path / "g.omni"
    graph = og.init(root, SCHEMA)
    graph.ingest([{"type": "P", "data": {"name": f"a{n}", "n": n}} for n in range(30)])
    graph.ingest([{"edge": "K", "from": "a1", "to": "a2"}])
    graph.mutate('query q() { delete P where name = "a3" }')
    (first,) = root.glob("nodes/*/_deletions/*")
    graph.mutate("query q() { delete P where n > 20 }")
    (second,) = set(root.glob("nodes/*/_deletions/*")) - {first}
    graph.close()
    second.write_bytes(first.read_bytes())
    for query in QUERIES:
        with pytest.raises(OmniGraphError, match="was exchanged or damaged") as caught:
            og.open(root).query(f"query q() {{ {query} }}")
        assert caught.value.code == "graph.corrupt"
    assert not og.open(root).verify().is_sound
    assert not og.open(root).verify(data=True).is_sound
