"""Expansion: from rows to rows with one more node, over one edge or over several hops.

Sizes are known, and held against the budget, before anything is made.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from omnigraph.engine.read.context import Run
from omnigraph.engine.read.topology import Adjacency
from omnigraph.engine.read.vectors import Ids, Mask
from omnigraph.engine.read.walker import Located, MemoryWalker, Walker

# How many flags, one per node and source, a breadth-first walk holds at once.
_FLAGS_MAX: Final = 1 << 24
# What the work on one reached node takes while it goes on, besides the row that may come of it.
_WORK_BYTES: Final = 32


class Reached(NamedTuple):
    """The outcome of an expansion: `places` are the rows it goes on from, one per entry."""

    places: Ids
    targets: Ids
    edges: Ids | None
    hops: Ids | None


class Hops(NamedTuple):
    """How far a walk goes; backwards, it starts at what the walk as written ends at."""

    minimum: int
    maximum: int
    is_backwards: bool


def expand_once(run: Run, walker: Walker, nodes: Ids, row_bytes: int, where: str) -> Reached:
    """Go over one edge from every node; the walker decides whether neighbours or edges are counted."""
    located = walker.locate(nodes)
    run.spending.reserve(located.total, row_bytes + _WORK_BYTES, where)
    places = np.repeat(np.arange(len(nodes), dtype=np.int64), located.degrees)
    entries = located.entries()
    edges = located.adjacency.edges
    return Reached(places, located.adjacency.neighbours[entries], None if edges is None else edges[entries], None)


def has_neighbour(walker: Walker, nodes: Ids) -> Mask:
    """Tell which nodes have any neighbour."""
    return walker.locate(nodes).degrees > 0


def expand_into(run: Run, walker: Walker, nodes: Ids, ends: Ids, row_bytes: int, where: str) -> Reached:
    """Keep the pairs that an edge joins; once each, or once per edge when the walker counts edges."""
    located = walker.locate(nodes)
    adjacency = located.adjacency
    if isinstance(walker, MemoryWalker) and located.total > len(nodes):
        sought = nodes.astype(np.int64) * max(adjacency.target_count, 1) + ends
        found = _find_pairs(adjacency, sought)
        run.spending.reserve(found.total, row_bytes, where)
        places, entries = np.repeat(np.arange(len(nodes)), found.degrees), found.entries()
    else:
        run.spending.reserve(located.total, row_bytes + _WORK_BYTES, where)
        places, entries = np.repeat(np.arange(len(nodes)), located.degrees), located.entries()
        joined = adjacency.neighbours[entries] == ends[places]
        places, entries = places[joined], entries[joined]
    edges = None if adjacency.edges is None else adjacency.edges[entries]
    return Reached(places, ends[places], edges, None)


def _find_pairs(adjacency: Adjacency, sought: npt.NDArray[np.int64]) -> Located:
    """Return where packed pairs lie in an adjacency; sorted questions touch memory in order, which is far faster."""
    order = np.argsort(sought)
    ordered = sought[order]
    pairs = adjacency.pairs
    first = np.searchsorted(pairs, ordered, "left")
    if adjacency.edges is None:
        # Pairs are distinct here, so one is there or not.
        counts = (pairs[np.minimum(first, max(len(pairs) - 1, 0))] == ordered).astype(np.int64)
    else:
        counts = np.searchsorted(pairs, ordered, "right") - first
    starts, degrees = np.empty_like(first), np.empty(len(first), np.int64)
    starts[order], degrees[order] = first, counts
    return Located(adjacency, starts, degrees)


def expand_hops(
    run: Run, walker: Walker, nodes: Ids, node_count: int, bounds: Hops, row_bytes: int, where: str
) -> Reached:
    """Walk several hops from every node: each other node once, at its shortest distance, if that is within bounds."""
    sources, origins = np.unique(nodes, return_inverse=True)
    block = max(1, _FLAGS_MAX // max(node_count, 1))
    parts: list[Reached] = []
    reached = 0
    for start in range(0, len(sources), block):
        part = _walk_block(run, walker, sources[start : start + block], node_count, bounds, where, start)
        parts.append(part)
        reached += len(part.targets)
        run.spending.reserve(reached, row_bytes + _WORK_BYTES, where)
    owners = np.concatenate([part.places for part in parts] or [np.empty(0, np.int64)])
    targets = np.concatenate([part.targets for part in parts] or [np.empty(0, np.int64)])
    hops = np.concatenate([part.hops for part in parts if part.hops is not None] or [np.empty(0, np.int64)])
    if len(sources) == len(nodes) == 1:
        return Reached(owners, targets, None, hops)
    order = np.argsort(owners, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=len(sources)))])
    degrees = np.diff(starts)[origins]
    run.spending.reserve(int(degrees.sum()), row_bytes + _WORK_BYTES, where)
    ends = np.cumsum(degrees)
    entries = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts[origins] - (ends - degrees), degrees)
    entries = order[entries]
    return Reached(np.repeat(np.arange(len(nodes)), degrees), targets[entries], None, hops[entries])


def _walk_block(
    run: Run,
    walker: Walker,
    sources: Ids,
    node_count: int,
    bounds: Hops,
    where: str,
    first: int,
) -> Reached:
    """Walk breadth-first from all sources of a block at once; a state is a source and a node, packed into a number."""
    width = max(node_count, 1)
    frontier: npt.NDArray[np.int64] = np.arange(len(sources), dtype=np.int64) * width + sources
    visited = np.zeros(len(sources) * width, np.bool_)
    visited[frontier] = True
    emitted: list[tuple[npt.NDArray[np.int64], int]] = []
    for hop in range(1, bounds.maximum + 1):
        run.check(where)
        owners, nodes = np.divmod(frontier, width)
        located = walker.locate(nodes)
        run.spending.reserve(located.total, _WORK_BYTES, where)
        entries = located.entries()
        reached = np.repeat(owners, located.degrees) * width + located.adjacency.neighbours[entries]
        if bounds.is_backwards and hop == 1:
            has_loop = np.zeros(len(sources), np.bool_)
            has_loop[_looping(reached, frontier, located) // width] = True
        if hop == bounds.minimum:
            # A node that is its own neighbour is reached again one hop later, and only then can that be its first
            # time within the bounds; it is never walked from again. Backwards, that node is the one started from.
            again = (
                frontier[has_loop[frontier // width]] if bounds.is_backwards else _looping(reached, frontier, located)
            )
            emitted.append((again, hop))
        frontier = _fresh(reached, visited)
        visited[frontier] = True
        if hop >= bounds.minimum:
            emitted.append((frontier, hop))
        if len(frontier) == 0:
            break
    states = np.concatenate([states for states, _ in emitted] or [np.empty(0, np.int64)])
    hops = np.repeat([hop for _, hop in emitted], [len(states) for states, _ in emitted]).astype(np.int64)
    owners, targets = np.divmod(states, width)
    return Reached(owners + first, targets, None, hops)


def _looping(
    reached: npt.NDArray[np.int64], frontier: npt.NDArray[np.int64], located: Located
) -> npt.NDArray[np.int64]:
    """Return the states of the frontier whose nodes are their own neighbours."""
    return _distinct(reached[reached == np.repeat(frontier, located.degrees)])


def _fresh(reached: npt.NDArray[np.int64], visited: Mask) -> npt.NDArray[np.int64]:
    """Return the states that were not visited before, each once and in order."""
    if len(reached) * 16 < len(visited):
        return _distinct(reached[~visited[reached]])
    flags = np.zeros(len(visited), np.bool_)
    flags[reached] = True
    flags &= ~visited
    return np.flatnonzero(flags)


def _distinct(states: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    if len(states) < 2:
        return states
    states = np.sort(states)
    kept: npt.NDArray[np.int64] = states[np.concatenate([[True], states[1:] != states[:-1]])]
    return kept
