"""Walkers: the neighbours of nodes, from adjacency in memory or by looking edges up in storage.

Both give the same neighbours; `choose_walker` decides by cost, and says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import settings
from omnigraph.engine.read.adjacency import Adjacency, build_adjacency
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.entities import ROW_ID, quoted
from omnigraph.engine.read.topology import Topology
from omnigraph.engine.read.vectors import Ids
from omnigraph.lang.query.ir import Direction

# So few edges are read whole in about the time of two lookups, and stay in memory for the next query.
_SMALL_EDGES: Final = 50_000
# An edge type that was looked up this often in one version is worth reading whole.
_PROBES_MAX: Final = 16
_CSR_COST_PER_EDGE: Final = 1.5
# What a lookup costs for each edge that no index covers, so that it is scanned.
_SCAN_COST: Final = 0.5
_LOOKED_UP: Final = {Direction.OUT: ("src",), Direction.IN: ("dst",), Direction.BOTH: ("src", "dst")}


@dataclass(frozen=True, slots=True)
class Located:
    """Where the neighbours of some nodes lie in an adjacency."""

    adjacency: Adjacency
    starts: npt.NDArray[np.int64]
    degrees: npt.NDArray[np.int64]

    @property
    def total(self) -> int:
        return len(self.adjacency.neighbours) if self.is_all else int(self.degrees.sum())

    @property
    def is_all(self) -> bool:
        """Tell whether these are all nodes in order, so that their neighbours are all there are."""
        return self.degrees is self.adjacency.degrees

    def neighbours(self) -> Ids:
        """Return all neighbours, node by node."""
        adjacency = self.adjacency
        return adjacency.neighbours if self.is_all else adjacency.neighbours[self.entries()]

    def entries(self) -> npt.NDArray[np.int64]:
        """Return the places of all neighbours in the adjacency, node by node."""
        if len(self.degrees) == 1:
            return np.arange(self.starts[0], self.starts[0] + self.degrees[0])
        ends = np.cumsum(self.degrees)
        total = int(ends[-1]) if len(ends) else 0
        entries: npt.NDArray[np.int64] = np.arange(total) + np.repeat(self.starts - (ends - self.degrees), self.degrees)
        return entries


class Walker(Protocol):
    """Finds neighbours; nodes may repeat, but none is null."""

    mode: str
    reason: str

    def locate(self, nodes: Ids) -> Located: ...


class MemoryWalker:
    """Walks adjacency in memory."""

    mode = "csr"

    def __init__(self, topology: Topology, direction: Direction, per_edge: bool, reason: str) -> None:
        self.topology, self.direction = topology, direction
        self.adjacency = topology.adjacency(direction, per_edge=per_edge)
        self.reason = reason

    def locate(self, nodes: Ids) -> Located:
        return locate(self.adjacency, nodes)


def locate(adjacency: Adjacency, nodes: Ids) -> Located:
    """Return where the neighbours of nodes lie; quickly when the very array of all nodes is asked for."""
    if nodes is adjacency.nodes:
        return Located(adjacency, adjacency.starts[:-1], adjacency.degrees)
    starts = adjacency.starts[nodes]
    return Located(adjacency, starts, adjacency.starts[nodes + 1] - starts)


class StorageWalker:
    """Looks up the edges of just these nodes; an index on `src` and `dst` makes that cheap."""

    mode = "indexed"

    def __init__(self, run: Run, edge: str, direction: Direction, per_edge: bool, reason: str) -> None:
        self._run, self._edge, self._direction, self._per_edge = run, edge, direction, per_edge
        self.reason = reason

    def locate(self, nodes: Ids) -> Located:
        frontier, places = np.unique(nodes, return_inverse=True)
        type_ = self._run.view.catalog.edges[self._edge]
        ends: list[tuple[Ids, Ids, Ids]] = []
        target_count = 0
        if self._direction is not Direction.IN:
            ends.append(self._lookup(frontier, "src", type_.source, "dst", type_.target))
            target_count = self._run.nodes(type_.target).count
        if self._direction is not Direction.OUT:
            ends.append(self._lookup(frontier, "dst", type_.target, "src", type_.source))
            target_count = self._run.nodes(type_.source).count
        if len(ends) == 2:
            # A self-loop is found from both ends and is one edge all the same.
            source, target, edge = ends[1]
            others = frontier[source] != target
            ends[1] = (source[others], target[others], edge[others])
        source, target, edge = (np.concatenate(parts) for parts in zip(*ends, strict=True))
        adjacency = build_adjacency(source, target, edge if self._per_edge else None, len(frontier), target_count)
        starts = adjacency.starts[places]
        return Located(adjacency, starts, adjacency.starts[places + 1] - starts)

    def _lookup(self, frontier: Ids, near: str, near_type: str, far: str, far_type: str) -> tuple[Ids, Ids, Ids]:
        """Return, for every edge at the frontier, the place of its near end there, its far end and itself."""
        if len(frontier) == 0:
            empty = np.empty(0, np.int64)
            return empty, empty, empty
        texts: Any = self._run.nodes(near_type).values("id", frontier).array  # type: ignore[union-attr]  # ids are texts
        edges = self._run.edges(self._edge)
        condition = f"{near} IN ({', '.join(quoted(text) for text in texts.to_pylist())})"
        table = edges.dataset.read([near, far], condition, with_row_id=True)
        source = pc.index_in(table.column(near), value_set=texts.cast(pa.string())).to_numpy()
        target = self._run.nodes(far_type).find_all(table.column(far))
        known = target >= 0
        rows = table.column(ROW_ID).to_numpy()
        edge = edges.from_row_ids(rows) if self._per_edge else np.zeros(len(rows), np.int32)
        return source[known], target[known], edge[known]


def choose_walker(run: Run, edge: str, direction: Direction, hops: int, frontier: int, *, per_edge: bool) -> Walker:
    """Return the cheaper way to walk, or the one that the settings ask for."""
    indexed, reason = is_indexed_cheaper(run, edge, direction, hops, frontier)
    if indexed:
        run.topology(edge).probes += 1
        return StorageWalker(run, edge, direction, per_edge, reason)
    return MemoryWalker(run.topology(edge), direction, per_edge, reason)


def is_indexed_cheaper(run: Run, edge: str, direction: Direction, hops: int, frontier: int) -> tuple[bool, str]:
    """Tell whether looking edges up costs less than reading all of them, and why."""
    mode = run.traversal_mode
    if mode != "auto":
        return mode == "indexed", f"OMNIGRAPH_TRAVERSAL_MODE is {mode}"
    if run.has_topology(edge):
        return False, "adjacency is in memory"
    type_ = run.view.catalog.edges[edge]
    edge_count = run.row_count(f"edge:{edge}")
    if edge_count <= _SMALL_EDGES:
        return False, f"{edge_count} edges are few enough to read whole"
    if hops > (hops_max := settings.whole("OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS")):
        return False, f"{hops} hops are more than {hops_max}"
    if frontier > (frontier_max := settings.whole("OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER")):
        return False, f"{frontier} nodes are more than {frontier_max}"
    near = type_.target if direction is Direction.IN else type_.source
    topology = run.topology(edge)
    average = edge_count / max(run.row_count(f"node:{near}"), 1)
    scanned = sum(topology.edges.unindexed_rows(end) for end in _LOOKED_UP[direction])
    looked_up, whole = hops * (frontier * average + _SCAN_COST * scanned), _CSR_COST_PER_EDGE * edge_count
    shown = f"about {looked_up:.0f} edges to look up{f', {scanned} of them scanned,' if scanned else ''}"
    if looked_up >= whole:
        return False, f"{shown} cost more than reading {edge_count}"
    if topology.is_nearly_loaded:
        return False, "adjacency of an older version is in memory"
    if topology.probes >= _PROBES_MAX or (topology.probes + 1) * looked_up >= whole:
        return False, f"looked up {topology.probes} times already"
    return True, f"{shown} cost less than reading {edge_count}"
