"""Nodes by number: every node of the types that some edges join gets a number, and edges become pairs of them.

Numbers follow the scan order of the pinned versions, type by type in name order; they mean nothing elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from omnigraph.engine.algo.block import LocalGraph, Numbers
from omnigraph.engine.core import View
from omnigraph.errors import UsageError
from omnigraph.lang.catalog import Catalog, EdgeType
from omnigraph.lang.query.words import suggestion
from omnigraph.rules.delta import one_array
from omnigraph.rules.kernels import pc


@dataclass(frozen=True, slots=True)
class Nodes:
    """The edge types that are looked at, and the node types at their ends, with how many nodes each has."""

    edges: tuple[EdgeType, ...]
    types: tuple[str, ...]
    counts: tuple[int, ...]

    @property
    def size(self) -> int:
        return sum(self.counts)

    def first(self, node_type: str) -> int:
        """Return the number of the first node of a type."""
        return sum(self.counts[: self.types.index(node_type)])

    def of(self, node_type: str, values: Numbers) -> Numbers:
        """Return those of the values of all nodes that belong to a type."""
        first = self.first(node_type)
        return values[first : first + self.counts[self.types.index(node_type)]]


def select_nodes(view: View, edges: Sequence[str] | None) -> Nodes:
    """Return the nodes that edge types join; without names, those of all edge types."""
    chosen = _edge_types(view.catalog, edges)
    types = sorted({end for one in chosen for end in (one.source, one.target)})
    pins = view.snapshot.state.pins
    return Nodes(chosen, tuple(types), tuple(pins[f"node:{name}"].row_count for name in types))


def _edge_types(catalog: Catalog, names: Sequence[str] | None) -> tuple[EdgeType, ...]:
    if not catalog.edges:
        raise UsageError("the schema has no edge types, so there is nothing to measure")
    if names is None:
        return tuple(catalog.edges[name] for name in sorted(catalog.edges))
    if isinstance(names, str):
        names = [names]
    found: dict[str, EdgeType] = {}
    for name in names:
        edge = catalog.edge_by_word(name)
        if edge is None:
            hint = suggestion(name, catalog.edges) or f"the schema has {', '.join(sorted(catalog.edges)[:8]) or 'none'}"
            raise UsageError(f"there is no edge type `{name}`; {hint}", type=name)
        found[edge.name] = edge
    if not found:
        raise UsageError("name at least one edge type, or leave `edges` out for all of them")
    return tuple(found[name] for name in sorted(found))


def read_ends(view: View, nodes: Nodes) -> LocalGraph:
    """Read all edges into memory, their ends as numbers."""
    ids = {name: one_array(view.dataset(f"node:{name}").read(["id"]).column("id")) for name in nodes.types}
    parts: list[tuple[Numbers, Numbers]] = []
    for edge in nodes.edges:
        table = view.dataset(edge.table_key).read(["src", "dst"])
        ends = []
        for column, type_ in (("src", edge.source), ("dst", edge.target)):
            places = pc.index_in(one_array(table.column(column)), value_set=ids[type_]).fill_null(-1)
            found = places.to_numpy(zero_copy_only=False).astype(np.int64)
            ends.append(np.where(found < 0, -1, found + nodes.first(type_)))
        # Every write checks endpoints; an edge whose end is gone all the same leads nowhere.
        joined = (ends[0] >= 0) & (ends[1] >= 0)
        parts.append((ends[0][joined], ends[1][joined]))
    small = np.int32 if nodes.size < 2**31 else np.int64
    source, target = (np.concatenate([np.empty(0, np.int64), *one]).astype(small) for one in _unzip(parts))
    return LocalGraph(nodes.size, source, target)


def _unzip(parts: Sequence[tuple[Numbers, Numbers]]) -> tuple[list[Numbers], list[Numbers]]:
    return [source for source, _ in parts], [target for _, target in parts]
