"""Adjacency: the neighbours of every node in one direction, as sorted arrays over dense ids.

Works on numbers alone; `topology` makes them from storage.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph.engine.read.vectors import Ids, Mask


@dataclass(frozen=True)
class Adjacency:
    """Neighbours of every node in one direction: those of node n are `neighbours[starts[n]:starts[n + 1]]`, sorted.

    With `edges`, one entry per stored edge and that edge's dense id; without, each neighbour once.
    """

    starts: npt.NDArray[np.int64]
    neighbours: Ids
    edges: Ids | None
    target_count: int
    nodes: Ids | None = None
    """All nodes, as the array that their entities hand out: whoever asks for those asks for everything."""

    @cached_property
    def degrees(self) -> npt.NDArray[np.int64]:
        return np.diff(self.starts)

    @cached_property
    def pairs(self) -> npt.NDArray[np.int64]:
        """Source and neighbour of every entry packed into one ascending number, for membership tests."""
        sources = np.repeat(np.arange(len(self.starts) - 1, dtype=np.int64), self.degrees)
        return sources * max(self.target_count, 1) + self.neighbours

    @cached_property
    def has_loop(self) -> Mask:
        """Which nodes are their own neighbour."""
        sources = np.repeat(np.arange(len(self.starts) - 1), self.degrees)
        mask = np.zeros(len(self.starts) - 1, np.bool_)
        mask[sources[sources == self.neighbours]] = True
        return mask

    @property
    def nbytes(self) -> int:
        arrays = [self.starts, self.neighbours, self.edges]
        arrays += [self.__dict__.get(name) for name in ("degrees", "pairs", "has_loop")]
        return sum(int(array.nbytes) for array in arrays if array is not None)


def add_to_adjacency(
    known: Adjacency, source: Ids, target: Ids, edge: Ids | None, source_count: int, target_count: int
) -> Adjacency:
    """Return an adjacency with more pairs, the same as if all had been there when it was built."""
    added = build_adjacency(source, target, edge, source_count, target_count)
    old_starts = np.append(known.starts, np.full(source_count + 1 - len(known.starts), known.starts[-1]))
    nodes = np.flatnonzero(added.degrees)
    # New pairs are put in their places among the neighbours of the few nodes that have any.
    degrees = old_starts[nodes + 1] - old_starts[nodes]
    firsts = np.cumsum(degrees) - degrees
    entries = np.arange(int(degrees.sum())) + np.repeat(old_starts[nodes] - firsts, degrees)
    width = max(target_count, 1)
    old = np.repeat(np.arange(len(nodes)), degrees) * width + known.neighbours[entries]
    owners = np.repeat(np.arange(len(nodes)), added.degrees[nodes])
    new = owners * width + added.neighbours
    places = np.searchsorted(old, new, "right")
    if edge is None and len(old):
        fresh = np.flatnonzero((places == 0) | (old[places - 1] != new))
        owners, places, neighbours = owners[fresh], places[fresh], added.neighbours[fresh]
    else:
        neighbours = added.neighbours
    places = places - firsts[owners] + old_starts[nodes[owners]]
    more = np.zeros(source_count + 1, np.int64)
    more[1:] = np.cumsum(np.bincount(nodes[owners], minlength=source_count))
    edges = None if added.edges is None else np.insert(_kept(known.edges), places, added.edges)
    return Adjacency(old_starts + more, np.insert(known.neighbours, places, neighbours), edges, target_count)


def _kept(edges: Ids | None) -> Ids:
    assert edges is not None, "an adjacency per edge is added to one per edge"
    return edges


def build_adjacency(source: Ids, target: Ids, edge: Ids | None, source_count: int, target_count: int) -> Adjacency:
    """Return the adjacency of pairs; without edges, equal pairs count once."""
    width = max(target_count, 1)
    packed = source.astype(np.int64) * width + target
    if edge is None:
        packed = _distinct(packed)
        owners, neighbours = np.divmod(packed, width)
    else:
        order = _order(packed, source_count * width, len(edge))
        owners, neighbours, edge = source[order], target[order], edge[order]
    starts = np.zeros(source_count + 1, np.int64)
    np.cumsum(np.bincount(owners, minlength=source_count), out=starts[1:])
    small = np.int32 if target_count < 2**31 else np.int64
    return Adjacency(starts, neighbours.astype(small, copy=False), edge, target_count)


def _distinct(packed: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    packed = np.sort(packed)
    if len(packed) < 2:
        return packed
    kept: npt.NDArray[np.int64] = packed[np.concatenate([[True], packed[1:] != packed[:-1]])]
    return kept


def _order(packed: npt.NDArray[np.int64], bound: int, count: int) -> npt.NDArray[Any]:
    """Return the order that sorts the pairs, ties by position."""
    if bound <= 2**63 // max(count, 1) - 1:
        # Sorting numbers that carry their own position is several times faster than sorting positions.
        order: npt.NDArray[Any] = np.sort(packed * count + np.arange(count)) % max(count, 1)
        return order
    return np.argsort(packed, kind="stable")
