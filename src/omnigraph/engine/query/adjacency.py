"""Adjacency: the neighbours of every node in one direction, as sorted arrays over dense ids.

Works on numbers alone; `topology` makes them from storage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple
from weakref import ref

import numpy as np
import numpy.typing as npt

from omnigraph.engine.query.budget import loading
from omnigraph.engine.query.entities import Entities
from omnigraph.engine.query.vectors import Ids, Mask
from omnigraph.lang.query.ir import Direction
from omnigraph.store.read.version_diff import read_after, shared_beginning


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


_ENDS: Final = ("src", "dst")
# What one edge takes while adjacency is made of it: two texts of ids, and their numbers.
_EDGE_BYTES: Final = 64
REVERSED: Final = {Direction.OUT: Direction.IN, Direction.IN: Direction.OUT, Direction.BOTH: Direction.BOTH}


class Ends(NamedTuple):
    """Source, target and edge of edges, as dense ids."""

    source: Ids
    target: Ids
    edge: Ids

    @property
    def size(self) -> int:
        return len(self.edge)


class Topology:
    """The adjacency of one edge type in every direction and form that was asked for."""

    def __init__(
        self,
        edges: Entities,
        sources: Entities,
        targets: Entities,
        grow: Callable[[], None],
        previous: Topology | None = None,
    ) -> None:
        self._grow = grow
        self._entities = (edges, sources, targets)
        self._previous = None if previous is None else ref(previous)
        self._made: dict[tuple[Direction, bool], Adjacency] = {}
        self._lock = threading.RLock()
        self._ends: Ends | None = None
        self.probes = 0

    def backwards(self, direction: Direction) -> Adjacency:
        """Return who has whom as a neighbour in a direction, each once."""
        return self.adjacency(REVERSED[direction], per_edge=False)

    def adjacency(self, direction: Direction, *, per_edge: bool) -> Adjacency:
        """Return the neighbours in a direction, each once or once per stored edge."""
        key = (direction, per_edge)
        found = self._made.get(key)
        if found is None:
            with self._lock:
                found = self._made.get(key) or self._make(direction, per_edge)
                self._made[key] = found
                self._grow()
        return found

    def _make(self, direction: Direction, per_edge: bool) -> Adjacency:
        _, sources, targets = self._entities
        near, far = (targets, sources) if direction is Direction.IN else (sources, targets)
        previous = self._extended()
        known = None if previous is None else previous._made.get((direction, per_edge))
        if previous is None or known is None or known.neighbours.dtype != far.dtype:
            source, target, edge = _turned(self._read_ends(), direction)
            made = build_adjacency(source, target, edge if per_edge else None, near.count, far.count)
        else:
            added = Ends(*(array[previous._read_ends().size :] for array in self._read_ends()))
            source, target, edge = _turned(added, direction)
            made = add_to_adjacency(known, source, target, edge if per_edge else None, near.count, far.count)
        return replace(made, nodes=near.all)

    def _read_ends(self) -> Ends:
        """Return the ends of every stored edge; after an append only those of new edges are read."""
        if self._ends is None:
            edges, sources, targets = self._entities
            previous = self._extended()
            known = Ends(*(entities.all[:0] for entities in (sources, targets, edges)))
            if previous is not None:
                known = previous._read_ends()
            with loading(edges.count - known.size, _EDGE_BYTES, "reading adjacency"):
                if previous is None:
                    table = edges.dataset.read(_ENDS)
                else:
                    table = read_after(edges.dataset, shared_beginning(edges.dataset, previous.edges.dataset), _ENDS)
                source, target = sources.find_all(table.column("src")), targets.find_all(table.column("dst"))
            ends = Ends(source.astype(sources.dtype), target.astype(targets.dtype), edges.all[known.size :])
            # Every write checks endpoints; an edge whose end is gone all the same leads nowhere.
            joined = (source >= 0) & (target >= 0)
            if not bool(joined.all()):
                ends = Ends(*(array[joined] for array in ends))
            self._ends = Ends(*map(np.concatenate, zip(known, ends, strict=True))) if known.size else ends
        return self._ends

    def _extended(self) -> Topology | None:
        """Return the topology that this one only adds edges and nodes to, if it is in memory."""
        previous = self._previous() if self._previous is not None else None
        if previous is None or previous._ends is None or previous._ends.size < previous.edges.count:
            # An edge that led nowhere might lead to a new node, so those of the past are all looked at again.
            return None
        is_added_to = all(
            own is known or shared_beginning(own.dataset, known.dataset).rows == known.count
            for own, known in zip(self._entities, previous._entities, strict=True)
        )
        return previous if is_added_to else None

    @property
    def edges(self) -> Entities:
        return self._entities[0]

    @property
    def is_loaded(self) -> bool:
        """Tell whether the edges have been read, so that any direction costs no storage request."""
        return self._ends is not None

    @property
    def is_nearly_loaded(self) -> bool:
        """Tell whether all but the edges of the last appends have been read."""
        return self._extended() is not None

    @property
    def nbytes(self) -> int:
        total = sum(adjacency.nbytes for adjacency in list(self._made.values()))
        return total + (0 if self._ends is None else sum(int(array.nbytes) for array in self._ends))


def _turned(ends: Ends, direction: Direction) -> Ends:
    """Return edges as they are walked in a direction."""
    source, target, edge = ends
    if direction is Direction.OUT:
        return ends
    if direction is Direction.IN:
        return Ends(target, source, edge)
    # A self-loop is one edge, so it is one entry even when walked both ways.
    others = source != target
    return Ends(
        np.concatenate([source, target[others]]),
        np.concatenate([target, source[others]]),
        np.concatenate([edge, edge[others]]),
    )
