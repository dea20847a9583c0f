"""Small graphs for read tests: written as NDJSON, queried as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import omnigraph as og

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  big: I64?
  huge: U64?
  score: F64?
  ratio: F32?
  city: String?
  active: Bool?
  born: Date?
  seen: DateTime?
  tags: [String]?
  nums: [I64]?
  photo: Blob?
}
node City { name: String @key  country: String? }
edge Knows: Person -> Person { since: Date?  weight: F64? }
edge LivesIn: Person -> City { rent: I32? }
"""


def create(path: Path, lines: Iterable[Mapping[str, Any]] = (), schema: str = SCHEMA) -> og.Graph:
    """Create a graph with these records."""
    graph = og.init(path / "graph.omni", schema)
    write(graph, lines)
    return graph


def write(graph: og.Graph, lines: Iterable[Mapping[str, Any]], branch: str = "main") -> None:
    data = "".join(json.dumps(line) + "\n" for line in lines)
    if data:
        graph.ingest(data.encode(), mode="append", branch=branch)


def person(name: str, **values: Any) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **values}}


def city(name: str, **values: Any) -> dict[str, Any]:
    return {"type": "City", "data": {"name": name, **values}}


def knows(source: str, target: str, **values: Any) -> dict[str, Any]:
    return {"edge": "Knows", "from": source, "to": target, "data": values}


def lives_in(source: str, target: str, **values: Any) -> dict[str, Any]:
    return {"edge": "LivesIn", "from": source, "to": target, "data": values}


def rows(
    graph: og.Graph, match: str, returns: str, rest: str = "", declared: str = "", **params: Any
) -> list[tuple[Any, ...]]:
    """Return the rows of a read as tuples, in the order they came."""
    source = f"query q({declared}) {{ match {{ {match} }} return {{ {returns} }} {rest} }}"
    table = graph.query(source, params=params).to_arrow()
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def sorted_rows(graph: og.Graph, match: str, returns: str, rest: str = "") -> list[tuple[Any, ...]]:
    return sorted(rows(graph, match, returns, rest), key=repr)


def firsts(graph: og.Graph, match: str, returns: str, rest: str = "", declared: str = "", **params: Any) -> list[Any]:
    """Return the first column, sorted unless the query orders it."""
    found = [row[0] for row in rows(graph, match, returns, rest, declared, **params)]
    return found if "order" in rest else sorted(found, key=repr)
