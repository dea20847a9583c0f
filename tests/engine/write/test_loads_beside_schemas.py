"""A load beside a schema change: it goes on unless the definition of a type that it writes has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.engine.load.transaction import LoadTransaction
from omnigraph.errors import DataError, ReadSetChanged
from tests.support.merge_fixtures import content
from tests.support.pipeline_fixtures import staging_in_files

pytestmark = pytest.mark.slow

SCHEMA = """
node Person { name: String @key  age: I32? }
node Tool { name: String @key }
edge Uses: Person -> Tool
"""
OTHERS = {
    "property of another type": SCHEMA.replace("Tool { name: String @key", "Tool { name: String @key  size: I32?"),
    "required property of another type": SCHEMA.replace(
        "Tool { name: String @key", "Tool { name: String @key  n: I32 @default(1)"
    ),
    "new type": SCHEMA + "node Box { name: String @key }",
    "dropped edge type": SCHEMA.partition("edge Uses")[0],
    "renamed edge type": SCHEMA.replace("edge Uses: Person -> Tool", 'edge Needs: Person -> Tool @rename_from("Uses")'),
}
OWN = {
    "property": SCHEMA.replace("age: I32?", "age: I32?  size: I32?"),
    "wider": SCHEMA.replace("age: I32?", "age: I64?"),
    "rule": SCHEMA.replace("age: I32?", "age: I32?  @range(age, 0..10)"),
    "renamed": SCHEMA.replace("Person {", 'Human @rename_from("Person") {').replace("Person ->", "Human ->"),
}
ROWS = [{"type": "Person", "data": {"name": "ann", "age": 50}}]


def small(graph: og.Graph, **options: Any) -> object:
    return graph.ingest(ROWS, **options)


def bulk(graph: og.Graph, **options: Any) -> object:
    with staging_in_files():
        return pipeline.load(graph, nodes={"Person": [row["data"] for row in ROWS]}, engine="local", **options)


WRITES = pytest.mark.parametrize("write", [small, bulk])


def apply_once(patch: pytest.MonkeyPatch, uri: str, schema: str) -> None:
    """Apply a schema from another handle when a load has been read, and nothing of it was prepared."""
    real = LoadTransaction.publish
    applied: list[object] = []

    def publish(self: LoadTransaction, *arguments: Any) -> Any:
        if not applied:
            applied.append(og.open(uri).schema.apply(schema))
        return real(self, *arguments)

    patch.setattr(LoadTransaction, "publish", publish)


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    graph.ingest([{"type": "Person", "data": {"name": "bob"}}, {"type": "Tool", "data": {"name": "saw"}}])
    return graph


@WRITES
@pytest.mark.parametrize("schema", OTHERS.values(), ids=OTHERS)
@pytest.mark.sampled(4)
def test_load_goes_on_if_other_types_changed(
    graph: og.Graph, write: Callable[..., object], schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply_once(monkeypatch, graph.uri, schema)
    write(graph)
    assert content(graph)["node:Person"].keys() == {"ann", "bob"}
    assert [item for item in graph.maintenance.verify().findings if item.severity == "error"] == []


@WRITES
@pytest.mark.parametrize("schema", OWN.values(), ids=OWN)
@pytest.mark.sampled(4)
def test_load_conflicts_if_its_own_type_changed(
    graph: og.Graph, write: Callable[..., object], schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply_once(monkeypatch, graph.uri, schema)
    with pytest.raises(ReadSetChanged, match=r"retry"):
        write(graph)
    names = {key for key, rows in content(graph).items() if "ann" in rows}
    assert names == set()


def test_overwrite_sees_edges_of_a_type_that_came_meanwhile(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = SCHEMA + "edge Likes: Person -> Person"
    real = LoadTransaction.publish
    applied: list[bool] = []

    def publish(*arguments: Any) -> Any:
        if not applied:
            applied.append(True)
            other = og.open(graph.uri)
            other.schema.apply(schema)
            other.ingest([{"edge": "Likes", "from": "bob", "to": "bob"}])
        return real(*arguments)

    monkeypatch.setattr(LoadTransaction, "publish", publish)
    with pytest.raises((DataError, ReadSetChanged)):
        small(graph, mode="overwrite")
    assert content(graph)["node:Person"].keys() == {"bob"}
