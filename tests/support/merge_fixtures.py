"""What the tests of merges share: a small graph, short ways to change its branches, and what a reader sees of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from tests.support.graph_template import copy_graph
from tests.support.write_fixtures import rows

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  city: String?
  tags: [String]? @merge(union)
}
edge Knows: Person -> Person { since: I32? }
"""
DATA = b"""
{"type":"Person","data":{"name":"Alice","age":30,"tags":["a"]}}
{"type":"Person","data":{"name":"Bob","age":25}}
{"type":"Person","data":{"name":"Carol","age":20}}
{"edge":"Knows","from":"Bob","to":"Carol","data":{"id":"bc"}}
"""
PERSON, KNOWS = TypeKey("node:Person"), TypeKey("edge:Knows")


def people(root: Path, schema: str = SCHEMA, data: bytes = DATA) -> Graph:
    """Return a graph with three people, of whom Bob knows Carol."""
    return copy_graph(root / "graph.omni", schema, data)


def change(graph: Graph, body: str, branch: str = "main") -> Any:
    return graph.mutate(f"query q() {{ {body} }}", branch=branch)


def put(graph: Graph, *lines: str, branch: str = "main") -> Any:
    return graph.ingest("\n".join(lines).encode(), mode="merge", branch=branch)


def knows(source: str, target: str, edge_id: str, **data: object) -> str:
    members = "".join(f',"{name}":{value}' for name, value in data.items())
    return f'{{"edge":"Knows","from":"{source}","to":"{target}","data":{{"id":"{edge_id}"{members}}}}}'


def content(graph: Graph, branch: str = "main") -> dict[str, dict[str, Any]]:
    """Return all that a reader sees of a branch, by type and id."""
    return {key: rows(graph, key, branch) for key in graph.snapshot(branch).state.pins}


def age(graph: Graph, name: str, branch: str = "main") -> Any:
    return rows(graph, PERSON, branch)[name]["age"]


def files(graph: Graph) -> set[str]:
    return {one.path for one in session_of(graph).kernel.store.objects.list("")}
