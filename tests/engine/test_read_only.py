"""Read-only handles: every write is refused by code, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.graph import Graph

SCHEMA = "node P { name: String @key  note: String? @index }"
ROW = [{"type": "P", "data": {"name": "new"}}]
WRITES: dict[str, Callable[[Graph], object]] = {
    "create branch": lambda graph: graph.branches.create("x"),
    "delete branch": lambda graph: graph.branches.delete("review"),
    "merge": lambda graph: graph.branches.merge("review"),
    "tag": lambda graph: graph.tags.create("t"),
    "ingest": lambda graph: graph.ingest(ROW),
    "ingest to a new branch": lambda graph: graph.ingest(ROW, branch="x", from_branch="main"),
    "mutate": lambda graph: graph.mutate('query q() { delete P where name = "a" }'),
    "load": lambda graph: pipeline.load(graph, f"{graph.uri}/../rows.jsonl", engine="local"),
    "optimize": lambda graph: graph.maintenance.optimize(),
    "ensure indices": lambda graph: graph.maintenance.ensure_indices(),
    "repair": lambda graph: graph.maintenance.repair(confirm=True),
    "cleanup": lambda graph: graph.maintenance.cleanup(keep=1, confirm=True),
    "reconcile": lambda graph: graph.maintenance.reconcile(),
    "apply schema": lambda graph: graph.schema.apply(SCHEMA.replace("}", "other: String? }")),
}


def test_read_only_handle_refuses_every_write_and_leaves_nothing(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    for name in "abc":
        graph.ingest([{"type": "P", "data": {"name": name}}])
    graph.branches.create("review")
    graph.ingest(ROW, branch="review")
    graph.close()
    (tmp_path / "rows.jsonl").write_text('{"type": "P", "data": {"name": "new"}}')
    before = sorted(tmp_path.rglob("*"))
    reader = og.open(graph.uri, read_only=True)
    for what, write in WRITES.items():
        with pytest.raises(og.errors.OmniGraphError) as caught:
            write(reader)
        assert caught.value.code == "graph.read_only", what
        assert sorted(tmp_path.rglob("*")) == before, what
