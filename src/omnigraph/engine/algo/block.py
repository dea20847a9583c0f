"""Blocks: some nodes and their neighbours as arrays, and the kernels that take the values of all nodes one round on.

Pure numpy. A kernel gives new values for the nodes of one block, so blocks may be worked on anywhere, in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from omnigraph.lang.query.ir import Direction

Numbers: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Block:
    """Nodes from `first` on; the neighbours of the n-th are `neighbours[starts[n]:starts[n + 1]]`, one per edge."""

    first: int
    starts: npt.NDArray[np.int64]
    neighbours: Numbers

    @property
    def size(self) -> int:
        return len(self.starts) - 1

    @property
    def filled(self) -> Numbers:
        """Those of the nodes, counted from 0, that have neighbours."""
        return np.flatnonzero(np.diff(self.starts))

    def own(self, state: Numbers) -> Numbers:
        return state[self.first : self.first + self.size]


# From a block and the values of all nodes to new values of the block's nodes.
Kernel: TypeAlias = Callable[[Block, Numbers], Numbers]


def build_block(owners: Numbers, neighbours: Numbers, first: int, size: int) -> Block:
    """Return pairs of a node and its neighbour as a block of the nodes `first` to `first + size`."""
    near = owners - first
    starts = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(near, minlength=size), out=starts[1:])
    return Block(first, starts, neighbours[np.argsort(near, kind="stable")])


def neighbour_sums(block: Block, state: Numbers) -> Numbers:
    """Add up the values of the neighbours."""
    sums = np.zeros(block.size, state.dtype)
    filled = block.filled
    if len(filled):
        sums[filled] = np.add.reduceat(state[block.neighbours], block.starts[filled])
    return sums


def lowest_labels(block: Block, state: Numbers) -> Numbers:
    """Return the lowest label of each node and its neighbours."""
    labels = block.own(state).copy()
    filled = block.filled
    if len(filled):
        met = np.minimum.reduceat(state[block.neighbours], block.starts[filled])
        labels[filled] = np.minimum(labels[filled], met)
    return labels


def favourite_labels(block: Block, state: Numbers) -> Numbers:
    """Return the label that most of a node and its neighbours have, the lowest of equally many."""
    if block.size == 0:
        return block.own(state).copy()
    width = int(state.max()) + 1
    everyone = np.arange(block.size, dtype=np.int64)
    # The own label votes too; two nodes that only know each other would swap their labels for ever otherwise.
    votes = np.concatenate([
        np.repeat(everyone, np.diff(block.starts)) * width + state[block.neighbours],
        everyone * width + block.own(state),
    ])  # fmt: skip
    pairs, counts = np.unique(votes, return_counts=True)
    voters, labels = np.divmod(pairs, width)
    # By voter, then most votes, then lowest label: the first of each voter wins.
    order = np.lexsort((labels, -counts, voters))
    ordered = voters[order]
    firsts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    return labels[order[firsts]].astype(state.dtype)


class Sweeps(Protocol):
    """A graph whose blocks can be swept, wherever they lie."""

    @property
    def size(self) -> int: ...

    def degrees(self) -> tuple[Numbers, Numbers]:
        """Return how many edges go out of every node, and how many come in."""
        ...

    def sweep(self, kernel: Kernel, direction: Direction, state: Numbers) -> Numbers:
        """Return new values of all nodes; the direction says who is whose neighbour."""
        ...


@dataclass
class LocalGraph:
    """A graph in the memory of this process: the ends of all edges, as numbers below `size`."""

    size: int
    source: Numbers
    target: Numbers

    def degrees(self) -> tuple[Numbers, Numbers]:
        return np.bincount(self.source, minlength=self.size), np.bincount(self.target, minlength=self.size)

    def sweep(self, kernel: Kernel, direction: Direction, state: Numbers) -> Numbers:
        return kernel(self._block(direction), state)

    def _block(self, direction: Direction) -> Block:
        return self._incoming if direction is Direction.IN else self._around

    @cached_property
    def _incoming(self) -> Block:
        return build_block(self.target, self.source, 0, self.size)

    @cached_property
    def _around(self) -> Block:
        return build_block(*both_ways(self.source, self.target), 0, self.size)


def both_ways(source: Numbers, target: Numbers) -> tuple[Numbers, Numbers]:
    """Return edges from both of their ends; a loop is one edge all the same."""
    others = source != target
    return np.concatenate([source, target[others]]), np.concatenate([target, source[others]])
