"""Topology: who is whose neighbour by one edge type, as sorted adjacency over dense ids.

Built from the pinned versions of the edges and of both end types; a pair of arrays per direction, made when asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph.engine.read.entities import Entities
from omnigraph.engine.read.vectors import Ids, Mask
from omnigraph.lang.query.ir import Direction


@dataclass(frozen=True)
class Adjacency:
    """Neighbours of every node in one direction: those of node n are `neighbours[starts[n]:starts[n + 1]]`, sorted.

    With `edges`, one entry per stored edge and that edge's dense id; without, each neighbour once.
    """

    starts: npt.NDArray[np.int64]
    neighbours: Ids
    edges: Ids | None
    target_count: int

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


class Topology:
    """The adjacency of one edge type in every direction and form that was asked for."""

    def __init__(self, edges: Entities, sources: Entities, targets: Entities, grow: Callable[[], None]) -> None:
        self._grow = grow
        self._entities = (edges, sources, targets)
        self._made: dict[tuple[Direction, bool], Adjacency] = {}
        self._lock = threading.RLock()
        self._ends: tuple[Ids, Ids, Ids] | None = None
        self.probes = 0

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
        source, target, edge = self._read_ends()
        source_count, target_count = sources.count, targets.count
        if direction is Direction.IN:
            source, target, source_count, target_count = target, source, target_count, source_count
        elif direction is Direction.BOTH:
            # A self-loop is one edge, so it is one entry even when walked both ways.
            others = source != target
            source, target, edge = (
                np.concatenate([source, target[others]]),
                np.concatenate([target, source[others]]),
                np.concatenate([edge, edge[others]]),
            )
        return build_adjacency(source, target, edge if per_edge else None, source_count, target_count)

    def _read_ends(self) -> tuple[Ids, Ids, Ids]:
        """Return source, target and edge of every stored edge, as dense ids."""
        if self._ends is None:
            edges, sources, targets = self._entities
            table = edges.dataset.read(["src", "dst"])
            source, target = sources.find_all(table.column("src")), targets.find_all(table.column("dst"))
            ends = (source.astype(sources.dtype), target.astype(targets.dtype), edges.all)
            # Every write checks endpoints; an edge whose end is gone all the same leads nowhere.
            joined = (source >= 0) & (target >= 0)
            self._ends = ends if bool(joined.all()) else tuple(array[joined] for array in ends)  # type: ignore[assignment]
        assert self._ends is not None
        return self._ends

    @property
    def is_loaded(self) -> bool:
        """Tell whether the edges have been read, so that any direction costs no storage request."""
        return self._ends is not None

    @property
    def nbytes(self) -> int:
        total = sum(adjacency.nbytes for adjacency in list(self._made.values()))
        return total + (0 if self._ends is None else sum(int(array.nbytes) for array in self._ends))


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
