"""Measures: what is computed about every node, round by round, over a graph that can be swept.

Pure numpy; the same rounds run in one process and over blocks on many machines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from omnigraph.errors import UsageError
from omnigraph.lang.query.ir import Direction
from omnigraph.limits import ALGO_ROUNDS_MAX

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


def degrees(graph: Sweeps) -> dict[str, Numbers]:
    """Return how many edges every node has, comes in to it and go out of it; a loop counts at both of its ends."""
    going, coming = graph.degrees()
    return {"degree": going + coming, "in_degree": coming, "out_degree": going}


def components(graph: Sweeps) -> Numbers:
    """Return the number of each node's connected component, whatever the direction of edges; 0 is the largest."""
    labels = np.arange(graph.size, dtype=np.int64)
    for _ in range(ALGO_ROUNDS_MAX):
        met = graph.sweep(lowest_labels, Direction.BOTH, labels)
        if np.array_equal(met, labels):
            break
        # What a node met is news for the node it takes its label from, and so for all that do the same.
        hooked = met.copy()
        np.minimum.at(hooked, labels, met)
        labels = _shortened(hooked)
    return renumbered(labels)


def _shortened(labels: Numbers) -> Numbers:
    """Let every node take the label that its label has come to; labels only point down, so this ends."""
    while True:
        further = labels[labels]
        if np.array_equal(further, labels):
            return labels
        labels = further


def pagerank(
    graph: Sweeps, *, damping: float = 0.85, iterations: int = 100, tolerance: float = 1e-8
) -> npt.NDArray[np.float64]:
    """Return the PageRank of every node; all of them add up to 1. Parallel edges count as often as they are there.

    Ends when a round changes the ranks by less than the tolerance in all, or after so many iterations.
    """
    _check("damping", damping, 0 <= damping < 1, "at least 0 and below 1")
    _check_rounds("iterations", iterations)
    size = graph.size
    if size == 0:
        return np.zeros(0)
    going, _ = graph.degrees()
    ends = going == 0
    ranks = np.full(size, 1 / size)
    for _ in range(iterations):
        shares = np.divide(ranks, going, out=np.zeros(size), where=~ends)
        # Who has no way out is followed by anybody.
        lost = float(ranks[ends].sum())
        flowing = graph.sweep(neighbour_sums, Direction.IN, shares)
        fresh = damping * (flowing + lost / size) + (1 - damping) / size
        change = float(np.abs(fresh - ranks).sum())
        ranks = fresh
        if change < tolerance:
            break
    return ranks


def label_propagation(graph: Sweeps, *, iterations: int = 20) -> Numbers:
    """Return the number of each node's community; 0 is the largest.

    In each round all nodes at once take the label that is most frequent around them, the lowest of equally many.
    """
    _check_rounds("iterations", iterations)
    labels = np.arange(graph.size, dtype=np.int64)
    for _ in range(iterations):
        fresh = graph.sweep(favourite_labels, Direction.BOTH, labels)
        if np.array_equal(fresh, labels):
            break
        labels = fresh
    return renumbered(labels)


def renumbered(labels: Numbers) -> Numbers:
    """Return labels as numbers from 0 on, by how many have them, then by the label.

    >>> renumbered(np.array([7, 3, 7, 9])).tolist()
    [0, 1, 0, 2]
    """
    distinct, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    numbers = np.empty(len(distinct), np.int64)
    numbers[np.lexsort((distinct, -counts))] = np.arange(len(distinct))
    return numbers[places]


def _check_rounds(name: str, value: int) -> None:
    _check(name, value, 1 <= value <= ALGO_ROUNDS_MAX, f"between 1 and {ALGO_ROUNDS_MAX}")


def _check(name: str, value: float, is_right: bool, wanted: str) -> None:
    if not is_right:
        raise UsageError(f"`{name}` is {value}; it must be {wanted}", option=name, value=value)
