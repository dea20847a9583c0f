"""Traversal kernels: single hops, cycle checks, neighbour intersection and breadth-first search.

Result sizes are computed and reserved in the budget before anything is allocated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import settings
from omnigraph.engine.query.adjacency import Adjacency, AdjacencyCache, build_adjacency, member_offset
from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.entities import ROW_ID, quote_literal
from omnigraph.engine.query.vectors import (
    Ids,
    Mask,
    flag_positions,
    group_offsets,
    range_indices,
    run_starts,
    sort_distinct,
)
from omnigraph.lang.catalog import Catalog, TypeKey
from omnigraph.lang.query.ir import Direction, Expand, Leg, join_types, walk_space

# So few edges are read whole in about the time of two lookups, and stay in memory for the next query.
_SMALL_EDGES: Final = 50_000
# An edge type that was looked up this often in one version is worth reading whole.
_PROBES_MAX: Final = 16
_CSR_COST_PER_EDGE: Final = 1.5
# The cost of a lookup for each unindexed edge, which has to be scanned.
_SCAN_COST: Final = 0.5
_LOOKUP_COLUMNS: Final = {Direction.OUT: ("src",), Direction.IN: ("dst",), Direction.BOTH: ("src", "dst")}


@dataclass(frozen=True, slots=True)
class NeighbourRanges:
    """The ranges of an adjacency with the neighbours of some nodes."""

    adjacency: Adjacency
    starts: npt.NDArray[np.int64]
    degrees: npt.NDArray[np.int64]

    @property
    def total(self) -> int:
        return len(self.adjacency.neighbours) if self.is_all else int(self.degrees.sum())

    @property
    def is_all(self) -> bool:
        """True if these are all nodes in order, so that the ranges cover the whole adjacency."""
        return self.degrees is self.adjacency.degrees

    def neighbours(self) -> Ids:
        adjacency = self.adjacency
        return adjacency.neighbours if self.is_all else adjacency.neighbours[self.entries()]

    def entries(self) -> npt.NDArray[np.int64]:
        """Return the adjacency indices of all neighbours, node by node."""
        if len(self.degrees) == 1:
            return np.arange(self.starts[0], self.starts[0] + self.degrees[0])
        return range_indices(self.starts, self.degrees)

    def owners(self) -> npt.NDArray[np.int64]:
        """Return, for every neighbour, which of the nodes it belongs to."""
        if len(self.degrees) == 1:
            return np.zeros(int(self.degrees[0]), np.int64)
        return np.repeat(np.arange(len(self.degrees)), self.degrees)


class MemoryWalker:
    """Walks adjacency in memory."""

    def __init__(self, topology: AdjacencyCache, direction: Direction, per_edge: bool) -> None:
        self.topology, self.direction = topology, direction
        self.adjacency = topology.adjacency(direction, per_edge=per_edge)

    def locate(self, nodes: Ids) -> NeighbourRanges:
        return locate_neighbours(self.adjacency, nodes)


def locate_neighbours(adjacency: Adjacency, nodes: Ids) -> NeighbourRanges:
    """Return where the neighbours of nodes lie; quickly when the very array of all nodes is asked for."""
    if nodes is adjacency.nodes:
        return NeighbourRanges(adjacency, adjacency.starts[:-1], adjacency.degrees)
    starts = adjacency.starts[nodes]
    return NeighbourRanges(adjacency, starts, adjacency.starts[nodes + 1] - starts)


class StorageWalker:
    """Looks up the edges of just these nodes; an index on `src` and `dst` makes that cheap."""

    def __init__(self, run: QueryRun, legs: tuple[Leg, ...], near: str, far: str, per_edge: bool) -> None:
        self._run, self._legs, self._per_edge = run, legs, per_edge
        self._near, self._far = run.nodes(near), run.nodes(far)
        self._edges = run.edges(join_types(leg.edge for leg in legs))

    def locate(self, nodes: Ids) -> NeighbourRanges:
        frontier, positions = np.unique(nodes, return_inverse=True)
        lookups = [part for leg in self._legs for part in self._lookup_leg(frontier, leg)]
        source, target, edge = (np.concatenate(parts) for parts in zip(*lookups, strict=True))
        adjacency = build_adjacency(source, target, edge if self._per_edge else None, len(frontier), self._far.count)
        return locate_neighbours(adjacency, positions)

    def _lookup_leg(self, frontier: Ids, leg: Leg) -> Iterator[tuple[Ids, Ids, Ids]]:
        """Yield, for the edges in each direction, the places of their near ends in the frontier, far ends and edges."""
        ends = (("src", leg.source), ("dst", leg.target))
        ways = {Direction.OUT: (ends,), Direction.IN: (ends[::-1],), Direction.BOTH: (ends, ends[::-1])}
        for (near, near_type), (far, far_type) in ways[leg.direction]:
            offset, far_offset = member_offset(self._near, near_type), member_offset(self._far, far_type)
            first, last = np.searchsorted(frontier, [offset, offset + self._run.nodes(near_type).count])
            local = frontier[first:last] - offset
            source, target, edge = self._lookup(leg.edge, local, near, near_type, far, far_type)
            if near == "dst" and leg.direction is Direction.BOTH and leg.source == leg.target:
                # A self-loop is found from both endpoints but counts once.
                not_loops = local[source] != target
                source, target, edge = source[not_loops], target[not_loops], edge[not_loops]
            yield source + first, target + far_offset, edge + member_offset(self._edges, leg.edge)

    def _lookup(
        self, edge_type: str, frontier: Ids, near: str, near_type: str, far: str, far_type: str
    ) -> tuple[Ids, Ids, Ids]:
        if len(frontier) == 0:
            empty = np.empty(0, np.int64)
            return empty, empty, empty
        ids: Any = self._run.nodes(near_type).values("id", frontier).array  # type: ignore[union-attr]  # ids are texts
        edges = self._run.edges(edge_type)
        condition = f"{near} IN ({', '.join(quote_literal(node_id) for node_id in ids.to_pylist())})"
        table = edges.dataset.read([near, far], condition, with_row_id=True)
        source = pc.index_in(table.column(near), value_set=ids.cast(pa.string())).to_numpy()
        target = self._run.nodes(far_type).find_all(table.column(far))
        has_target = target >= 0
        rows = table.column(ROW_ID).to_numpy()
        edge = edges.from_row_ids(rows) if self._per_edge else np.zeros(len(rows), np.int32)
        return source[has_target], target[has_target], edge[has_target]


# Finds neighbours of nodes, which may repeat, but of which none is null.
Walker: TypeAlias = MemoryWalker | StorageWalker


def choose_walker(
    run: QueryRun, walk: Expand, frontier: int, hops: int = 1, ends: tuple[str, str] | None = None
) -> Walker:
    """Return the cheaper traversal of a walk from `frontier` nodes, or the one that the settings force, and report it.

    `ends` replace the types, or unions, that the walk itself leads from and to.
    """
    near, far = ends or (walk.source_type, walk.target_type)
    is_indexed, reason = is_indexed_cheaper_for_all(run, walk, hops, frontier)
    per_edge = walk.edge_variable is not None
    run.note("traversal", "indexed" if is_indexed else "csr")
    run.note("because", reason)
    if is_indexed:
        legs = walk_legs(run.view.catalog, walk)
        for leg in legs:
            run.topology(leg.edge).probes += 1
        return StorageWalker(run, legs, near, far, per_edge)
    if walk.legs:
        return MemoryWalker(run.union_topology(walk.legs, near, far), Direction.OUT, per_edge)
    return MemoryWalker(run.topology(walk.edge), walk.direction, per_edge)


def walk_legs(catalog: Catalog, walk: Expand) -> tuple[Leg, ...]:
    """Return the legs of a walk; one edge type between single types is a leg as well."""
    if walk.legs:
        return walk.legs
    edge = catalog.edges[walk.edge]
    return (Leg(edge.name, walk.direction, edge.source, edge.target),)


def average_degree(run: QueryRun, walk: Expand) -> float:
    ways = {leg.edge: 2 if leg.direction is Direction.BOTH else 1 for leg in walk_legs(run.view.catalog, walk)}
    edges = sum(run.row_count(TypeKey.of("edge", name)) * count for name, count in ways.items())
    return edges / max(run.row_count(TypeKey.of("node", walk.source_type)), 1)


def is_indexed_cheaper_for_all(run: QueryRun, walk: Expand, hops: int, frontier: int) -> tuple[bool, str]:
    """Return True if index lookups cost less for each edge type of a walk, and the reason."""
    walks = [(leg.edge, leg.direction) for leg in walk.legs] or [(walk.edge, walk.direction)]
    choices = [is_indexed_cheaper(run, edge, direction, hops, frontier) for edge, direction in walks]
    return min(choices, key=lambda choice: choice[0])


def is_indexed_cheaper(run: QueryRun, edge: str, direction: Direction, hops: int, frontier: int) -> tuple[bool, str]:
    """Return True if index lookups cost less than reading all edges, and the reason."""
    mode = run.traversal_mode
    if mode != "auto":
        return mode == "indexed", f"OMNIGRAPH_TRAVERSAL_MODE is {mode}"
    if run.has_topology(edge):
        return False, "adjacency is in memory"
    edge_count = run.row_count(TypeKey.of("edge", edge))
    if edge_count <= _SMALL_EDGES:
        return False, f"{edge_count} edges are few enough to read whole"
    if hops > (hops_max := settings.read_integer("OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS")):
        return False, f"{hops} hops are more than {hops_max}"
    if frontier > (frontier_max := settings.read_integer("OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER")):
        return False, f"{frontier} nodes are more than {frontier_max}"
    topology = run.topology(edge)
    average = edge_count / max(run.row_count(TypeKey.of("node", near_type(run, edge, direction))), 1)
    scanned = sum(topology.edges.unindexed_rows(end) for end in _LOOKUP_COLUMNS[direction])
    lookup_cost, read_cost = hops * (frontier * average + _SCAN_COST * scanned), _CSR_COST_PER_EDGE * edge_count
    estimate = f"about {lookup_cost:.0f} edges to look up{f', {scanned} of them scanned,' if scanned else ''}"
    if lookup_cost >= read_cost:
        return False, f"{estimate} cost more than reading {edge_count}"
    if topology.is_nearly_loaded:
        return False, "adjacency of an older version is in memory"
    if topology.probes >= _PROBES_MAX or (topology.probes + 1) * lookup_cost >= read_cost:
        return False, f"looked up {topology.probes} times already"
    return True, f"{estimate} cost less than reading {edge_count}"


def near_type(run: QueryRun, edge: str, direction: Direction) -> str:
    type_ = run.view.catalog.edges[edge]
    return type_.target if direction is Direction.IN else type_.source


# How many flags, one per node and source, a walk has in memory at once.
_FLAGS_MAX: Final = 1 << 24
# So many marks, one per node and owner, stay in the processor's cache; of a large type a few owners at once are worth
# more than that.
_MARKS_MAX: Final = 1 << 22
_OWNERS_MIN: Final = 64
# What a block of owners takes besides, in lookups.
_BLOCK_COST: Final = 10_000
# Fewer pairs than this are found among the neighbours themselves.
MANY_PAIRS: Final = 4_096
# What the work on one reached node takes while it goes on, besides the row that may come of it.
_WORK_BYTES: Final = 32


class Expansion(NamedTuple):
    """The result of an expansion: `rows` are the indices of the input rows, one per output row."""

    rows: Ids
    targets: Ids
    edges: Ids | None
    hops: Ids | None


class HopBounds(NamedTuple):
    """The bounds of a walk; a backward walk starts at the end of the walk as written."""

    minimum: int
    maximum: int
    is_backwards: bool


def hop_bounds(run: QueryRun, walk: Expand) -> HopBounds:
    """Return the hop bounds of a run; an open range ends at the number of nodes, beyond which nothing is new."""
    minimum = run.bound(walk.minimum, "hops")
    if walk.maximum is None:
        maximum = max(run.row_count(TypeKey.of("node", visited_types(walk))), minimum)
    else:
        maximum = run.bound(walk.maximum, "hops")
        if walk.joins_types:
            minimum, maximum = max(minimum, 1), min(maximum, 1)
    return HopBounds(minimum, maximum, walk.is_backwards)


def visited_types(walk: Expand) -> str:
    """Return the types that a walk of several hops visits."""
    return walk_space(walk.source_type, walk.legs) if walk.legs else walk.target_type


def expand_once(run: QueryRun, walker: Walker, nodes: Ids, row_bytes: int, where: str) -> Expansion:
    """Go over one edge from every node; the walker decides whether neighbours or edges are counted."""
    located = walker.locate(nodes)
    run.spending.reserve(located.total, row_bytes + _WORK_BYTES, where)
    edges = located.adjacency.edges
    if edges is None:
        return Expansion(located.owners(), located.neighbours(), None, None)
    entries = located.entries()
    return Expansion(located.owners(), located.adjacency.neighbours[entries], edges[entries], None)


def expand_into(run: QueryRun, walker: Walker, nodes: Ids, ends: Ids, row_bytes: int, where: str) -> Expansion:
    """Keep the pairs that an edge joins; once each, or once per edge when the walker counts edges."""
    if isinstance(walker, MemoryWalker) and len(nodes) > MANY_PAIRS and walker.adjacency.edges is None:
        rows = _joined_rows(run, walker, nodes, ends, where)
        return Expansion(rows, ends[rows], None, None)
    located = walker.locate(nodes)
    adjacency = located.adjacency
    if isinstance(walker, MemoryWalker) and located.total > len(nodes):
        pairs = nodes.astype(np.int64) * max(adjacency.target_count, 1) + ends
        matches = _find_pairs(adjacency, pairs)
        run.spending.reserve(matches.total, row_bytes, where)
        rows, entries = matches.owners(), matches.entries()
    else:
        run.spending.reserve(located.total, row_bytes + _WORK_BYTES, where)
        rows, entries = located.owners(), located.entries()
        is_joined = adjacency.neighbours[entries] == ends[rows]
        rows, entries = rows[is_joined], entries[is_joined]
    edges = None if adjacency.edges is None else adjacency.edges[entries]
    return Expansion(rows, ends[rows], edges, None)


def _joined_rows(run: QueryRun, walker: MemoryWalker, nodes: Ids, ends: Ids, where: str) -> Ids:
    """Return the places of the pairs that an edge joins: one side in order is marked, the other looks its marks up."""
    if _is_ascending(ends):
        return find_marked(run, walker.topology.backwards(walker.direction), ends, nodes, where)
    if _is_ascending(nodes):
        return find_marked(run, walker.adjacency, nodes, ends, where)
    order = np.argsort(ends)
    matches = find_marked(run, walker.topology.backwards(walker.direction), ends[order], nodes[order], where)
    return np.sort(order[matches])


def _is_ascending(ids: Ids) -> bool:
    return bool((ids[1:] >= ids[:-1]).all())


def find_marked(run: QueryRun, adjacency: Adjacency, owners: Ids, others: Ids, where: str) -> Ids:
    """Return the places at which the other is a neighbour of the owner; owners come in order."""
    matches = [
        np.flatnonzero(flags[others[rows] + shifts]) + rows.start
        for rows, shifts, flags in _mark_neighbours(run, adjacency, owners, where)
    ]
    return np.concatenate(matches)


def intersect_neighbours(
    run: QueryRun, near: Adjacency, nodes: Ids, far: Adjacency, others: Ids, row_bytes: int, where: str
) -> Expansion:
    """Return which neighbours a node and another one have in common, pair by pair; each neighbour counts once.

    One of the two lists is marked, and the other one looked up in it; see `_probe_near_side` for which.
    """
    is_some = (near.degrees[nodes] > 0) & (far.degrees[others] > 0)
    is_near = _probe_near_side(near, nodes, far, others)
    rows_found, targets, reached = [np.empty(0, np.int64)], [np.empty(0, near.neighbours.dtype)], 0
    for pair_rows, short, short_nodes, long, owners in (
        (np.flatnonzero(is_some & is_near), near, nodes, far, others),
        (np.flatnonzero(is_some & ~is_near), far, others, near, nodes),
    ):
        pair_rows = pair_rows[np.argsort(owners[pair_rows], kind="stable")]
        for rows, shifts, flags in _mark_neighbours(run, long, owners[pair_rows], where):
            located = locate_neighbours(short, short_nodes[pair_rows[rows]])
            run.spending.reserve(reached + located.total, row_bytes + _WORK_BYTES, where)
            neighbours = located.neighbours()
            hits = np.flatnonzero(flags[neighbours + np.repeat(shifts, located.degrees)])
            rows_found.append(pair_rows[rows][np.searchsorted(np.cumsum(located.degrees), hits, "right")])
            targets.append(neighbours[hits])
            reached += len(hits)
    matched_rows = np.concatenate(rows_found)
    order = np.argsort(matched_rows, kind="stable")
    return Expansion(matched_rows[order], np.concatenate(targets)[order], None, None)


def _probe_near_side(near: Adjacency, nodes: Ids, far: Adjacency, others: Ids) -> Mask:
    """Return for which pairs the near list is probed and the far list marked.

    The shorter one, so that a node with many neighbours costs little; or the same side of all pairs, when that spares
    more marks than it costs lookups.
    """
    lengths, other_lengths = near.degrees[nodes], far.degrees[others]

    def cost(is_near: Mask) -> int:
        looked_up = int(np.where(is_near, lengths, other_lengths).sum())
        return looked_up + _marking_cost(far, others[is_near]) + _marking_cost(near, nodes[~is_near])

    sides = (lengths <= other_lengths, np.ones(len(nodes), np.bool_), np.zeros(len(nodes), np.bool_))
    return min(sides, key=cost)


def _marking_cost(adjacency: Adjacency, owners: Ids) -> int:
    is_owner = flag_positions(owners, len(adjacency.degrees))
    blocks = int(np.count_nonzero(is_owner)) // _owners_per_block(adjacency) + 1
    return int(adjacency.degrees[is_owner].sum()) + blocks * _BLOCK_COST


def _owners_per_block(adjacency: Adjacency) -> int:
    width = max(adjacency.target_count, 1)
    return max(1, _MARKS_MAX // width, min(_OWNERS_MIN, _FLAGS_MAX // width))


def _mark_neighbours(run: QueryRun, adjacency: Adjacency, owners: Ids, where: str) -> Iterator[tuple[slice, Ids, Mask]]:
    """Yield rows, block by block, with flags in which the neighbours of their owners are marked; owners come in order.

    A neighbour of a row's owner is marked at itself plus the row's shift.
    """
    if len(owners) == 0:
        return
    heads = np.flatnonzero(run_starts(owners))
    bounds = np.append(heads, len(owners))
    width = max(adjacency.target_count, 1)
    block = _owners_per_block(adjacency)
    flags = np.zeros(min(block, len(heads)) * width, np.bool_)
    for start in range(0, len(heads), block):
        run.check(where)
        stop = min(start + block, len(heads))
        shifts = np.arange(stop - start) * width
        located = locate_neighbours(adjacency, owners[heads[start:stop]])
        marks = located.neighbours() + np.repeat(shifts, located.degrees)
        flags[marks] = True
        yield slice(bounds[start], bounds[stop]), np.repeat(shifts, np.diff(bounds[start : stop + 1])), flags
        flags[marks] = False


def _find_pairs(adjacency: Adjacency, wanted_pairs: npt.NDArray[np.int64]) -> NeighbourRanges:
    """Return where packed pairs lie in an adjacency; sorted questions touch memory in order, which is far faster."""
    order = np.argsort(wanted_pairs)
    ordered = wanted_pairs[order]
    stored_pairs = adjacency.pairs
    first = np.searchsorted(stored_pairs, ordered, "left")
    if adjacency.edges is None:
        # Pairs are distinct here, so one is there or not.
        counts = (stored_pairs[np.minimum(first, max(len(stored_pairs) - 1, 0))] == ordered).astype(np.int64)
    else:
        counts = np.searchsorted(stored_pairs, ordered, "right") - first
    starts, degrees = np.empty_like(first), np.empty(len(first), np.int64)
    starts[order], degrees[order] = first, counts
    return NeighbourRanges(adjacency, starts, degrees)


def expand_hops(
    run: QueryRun, walker: Walker, nodes: Ids, node_count: int, bounds: HopBounds, row_bytes: int, where: str
) -> Expansion:
    """Walk several hops from every node: each other node once, at its shortest distance, if that is within bounds."""
    sources, origins = np.unique(nodes, return_inverse=True)
    block = max(1, _FLAGS_MAX // max(node_count, 1))
    # Of each block: the sources, as their places, and what is reached from them after how many hops.
    parts: list[tuple[Ids, Ids, Ids]] = [(np.empty(0, np.int64),) * 3]
    reached = 0
    for start in range(0, len(sources), block):
        owners, targets, hops = _walk_block(run, walker, sources[start : start + block], node_count, bounds, where)
        parts.append((owners + start, targets, hops))
        reached += len(targets)
        run.spending.reserve(reached, row_bytes + _WORK_BYTES, where)
    owners, targets, hops = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    if len(sources) == len(nodes) == 1:
        return Expansion(owners, targets, None, hops)
    order = np.argsort(owners, kind="stable")
    starts = group_offsets(owners, len(sources))
    degrees = np.diff(starts)[origins]
    run.spending.reserve(int(degrees.sum()), row_bytes + _WORK_BYTES, where)
    entries = order[range_indices(starts[origins], degrees)]
    return Expansion(np.repeat(np.arange(len(nodes)), degrees), targets[entries], None, hops[entries])


def _walk_block(
    run: QueryRun,
    walker: Walker,
    sources: Ids,
    node_count: int,
    bounds: HopBounds,
    where: str,
) -> tuple[Ids, Ids, Ids]:
    """Walk breadth-first from all sources of a block at once; a state is a source and a node, packed into a number."""
    width = max(node_count, 1)
    frontier: npt.NDArray[np.int64] = np.arange(len(sources), dtype=np.int64) * width + sources
    visited = flag_positions(frontier, len(sources) * width)
    emitted: list[tuple[npt.NDArray[np.int64], int]] = [(frontier, 0)] if bounds.minimum == 0 else []
    for hop in range(1, bounds.maximum + 1):
        run.check(where)
        # What makes states of nodes again; nothing where there is one source.
        shifts = None if len(sources) == 1 else frontier // width * width
        located = walker.locate(frontier if shifts is None else frontier - shifts)
        run.spending.reserve(located.total, _WORK_BYTES, where)
        reached = located.neighbours()
        if shifts is not None:
            reached = reached + np.repeat(shifts, located.degrees)
        if bounds.is_backwards and hop == 1:
            has_loop = flag_positions(_self_loops(reached, frontier, located) // width, len(sources))
        if hop == bounds.minimum:
            # A node that is its own neighbour is reached again one hop later, and only then can that be its first
            # time within the bounds; it is never walked from again. Backwards, that node is the one started from.
            revisited = (
                frontier[has_loop[frontier // width]]
                if bounds.is_backwards
                else _self_loops(reached, frontier, located)
            )
            emitted.append((revisited, hop))
        frontier = _unvisited(reached, visited)
        visited[frontier] = True
        if hop >= bounds.minimum:
            emitted.append((frontier, hop))
        if len(frontier) == 0:
            break
    states = np.concatenate([states for states, _ in emitted] or [np.empty(0, np.int64)])
    hops = np.repeat([hop for _, hop in emitted], [len(states) for states, _ in emitted]).astype(np.int64)
    owners = states // width
    return owners, states - owners * width, hops


def _self_loops(
    reached: npt.NDArray[np.int64], frontier: npt.NDArray[np.int64], located: NeighbourRanges
) -> npt.NDArray[np.int64]:
    return sort_distinct(reached[reached == np.repeat(frontier, located.degrees)])


def _unvisited(reached: npt.NDArray[np.int64], visited: Mask) -> npt.NDArray[np.int64]:
    """Return the states not visited before, distinct and sorted."""
    if len(reached) * 16 < len(visited):
        return sort_distinct(reached[~visited[reached]])
    return np.flatnonzero(flag_positions(reached, len(visited)) & ~visited)
