"""A graph with a property of every type, for tests of what leaves the graph and comes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.graph import Graph

SCHEMA = """
node Thing {
  name: String @key
  kind: enum(small, large)?
  flag: Bool?
  small: I32?
  big: I64?
  count: U32?
  total: U64?
  ratio: F32?
  exact: F64?
  day: Date?
  at: DateTime?
  near: Vector(3)?
  body: Blob?
  texts: [String]?
  totals: [U64]?
  days: [Date]?
  instants: [DateTime]?
}
node Dot { name: String @key }
edge Likes: Dot -> Dot { weight: U64? }
"""
FULL: dict[str, Any] = {
    "name": "full",
    "kind": "large",
    "flag": True,
    "small": -(2**31),
    "big": 2**63 - 1,
    "count": 2**32 - 1,
    "total": 2**64 - 1,
    "ratio": 0.1,
    "exact": 1e-300,
    "day": "1969-12-31",
    "at": "1969-12-31T23:59:59.999Z",
    "near": [0.1, -2.5, 3.0],
    "body": "base64:AAH/",
    "texts": ["", 'a "b", ü'],
    "totals": [0, 2**64 - 1],
    "days": ["2024-02-29"],
    "instants": ["2024-02-29T12:30:00.123Z", "1900-01-01T00:00:00Z"],
}
RECORDS = [
    {"type": "Thing", "data": FULL},
    {"type": "Thing", "data": {"name": "empty", "texts": [], "totals": [], "body": "base64:"}},
    {"type": "Thing", "data": {"name": "none"}},
    {"type": "Dot", "data": {"name": "a"}},
    {"type": "Dot", "data": {"name": "b"}},
    {"edge": "Likes", "from": "a", "to": "b", "data": {"id": "l1", "weight": 2**64 - 1}},
    {"edge": "Likes", "from": "b", "to": "b", "data": {"id": "l2"}},
]


def things(folder: Path) -> Graph:
    """Return a graph that holds all records, in several fragments."""
    graph = empty_things(folder)
    graph.ingest(RECORDS[:2], mode="append")
    graph.ingest(RECORDS[2:], mode="append")
    return graph


def empty_things(folder: Path) -> Graph:
    return og.init(folder, SCHEMA)


def entities(graph: Graph, branch: str = "main") -> list[dict[str, Any]]:
    """Return everything a graph holds."""
    return [json.loads(line) for line in b"".join(graph.export(branch=branch)).splitlines()]
