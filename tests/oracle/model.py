"""A graph as plain Python values: what the reference evaluator reads.

Dates are `date`, instants aware `datetime`, lists tuples; a missing value is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    type: str
    id: str
    values: Mapping[str, object]

    def __hash__(self) -> int:
        return hash((self.type, self.id))


@dataclass(frozen=True)
class Edge:
    type: str
    id: str
    source: str
    target: str
    values: Mapping[str, object]

    def __hash__(self) -> int:
        return hash((self.type, self.id))


def field(entity: Node | Edge, name: str) -> object:
    """Return a property, or a system field: the id, the type, and the ids at the ends of an edge."""
    if isinstance(entity, Edge) and name in ("@src", "@dst"):
        return entity.source if name == "@src" else entity.target
    return {"@id": entity.id, "@type": entity.type}[name] if name.startswith("@") else entity.values[name]


@dataclass(frozen=True)
class Graph:
    """Nodes by type and id, edges by type."""

    nodes: Mapping[str, Mapping[str, Node]]
    edges: Mapping[str, tuple[Edge, ...]]
