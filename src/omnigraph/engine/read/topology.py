"""Topology: who is whose neighbour by one edge type, as sorted adjacency over dense ids.

Built from the pinned versions of the edges and of both end types; a pair of arrays per direction, made when asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple
from weakref import ref

import numpy as np

from omnigraph.engine.read.adjacency import Adjacency, add_to_adjacency, build_adjacency
from omnigraph.engine.read.budget import loading
from omnigraph.engine.read.entities import Entities
from omnigraph.engine.read.vectors import Ids
from omnigraph.lang.query.ir import Direction
from omnigraph.store.tail import read_after, shared_beginning

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
