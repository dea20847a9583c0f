"""Graph algorithms: degrees, connected components, PageRank and label propagation, as rounds over adjacency blocks.

Pure numpy; the same rounds run in one process and on Spark executors.
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
class AdjacencyBlock:
    """Nodes from `first` on; the neighbours of the n-th are `neighbours[starts[n]:starts[n + 1]]`, one per edge."""

    first: int
    starts: npt.NDArray[np.int64]
    neighbours: Numbers

    @property
    def size(self) -> int:
        return len(self.starts) - 1

    @property
    def filled(self) -> Numbers:
        """The indexes of nodes that have neighbours."""
        return np.flatnonzero(np.diff(self.starts))

    def slice_of(self, state: Numbers) -> Numbers:
        return state[self.first : self.first + self.size]


# From a block and the values of all nodes to new values of the block's nodes.
Kernel: TypeAlias = Callable[[AdjacencyBlock, Numbers], Numbers]


def build_block(owners: Numbers, neighbours: Numbers, first: int, size: int) -> AdjacencyBlock:
    """Return pairs of a node and its neighbour as a block of the nodes `first` to `first + size`."""
    near = owners - first
    starts = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(near, minlength=size), out=starts[1:])
    return AdjacencyBlock(first, starts, neighbours[np.argsort(near, kind="stable")])


def sum_neighbours(block: AdjacencyBlock, state: Numbers) -> Numbers:
    """Add up the values of the neighbours."""
    sums = np.zeros(block.size, state.dtype)
    filled = block.filled
    if len(filled):
        sums[filled] = np.add.reduceat(state[block.neighbours], block.starts[filled])
    return sums


def propagate_min_labels(block: AdjacencyBlock, state: Numbers) -> Numbers:
    """Return the lowest label of each node and its neighbours."""
    labels = block.slice_of(state).copy()
    filled = block.filled
    if len(filled):
        neighbour_minimum = np.minimum.reduceat(state[block.neighbours], block.starts[filled])
        labels[filled] = np.minimum(labels[filled], neighbour_minimum)
    return labels


def vote_labels(block: AdjacencyBlock, state: Numbers) -> Numbers:
    """Return the most frequent label among a node and its neighbours, ties to the lowest."""
    if block.size == 0:
        return block.slice_of(state).copy()
    width = int(state.max()) + 1
    nodes = np.arange(block.size, dtype=np.int64)
    # A node votes for its own label too; otherwise two isolated neighbours would swap labels forever.
    votes = np.concatenate([
        np.repeat(nodes, np.diff(block.starts)) * width + state[block.neighbours],
        nodes * width + block.slice_of(state),
    ])  # fmt: skip
    pairs, counts = np.unique(votes, return_counts=True)
    voters, labels = np.divmod(pairs, width)
    # By voter, then most votes, then lowest label: the first of each voter wins.
    order = np.lexsort((labels, -counts, voters))
    ordered = voters[order]
    firsts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    return labels[order[firsts]].astype(state.dtype)


class BlockGraph(Protocol):
    """A graph in adjacency blocks, in memory or distributed, over which a kernel can run."""

    @property
    def size(self) -> int: ...

    def degrees(self) -> tuple[Numbers, Numbers]:
        """Return the out-degree and in-degree of every node."""
        ...

    def sweep(self, kernel: Kernel, direction: Direction, state: Numbers) -> Numbers:
        """Return new values of all nodes; the direction decides which nodes are neighbours."""
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

    def _block(self, direction: Direction) -> AdjacencyBlock:
        return self._incoming if direction is Direction.IN else self._around

    @cached_property
    def _incoming(self) -> AdjacencyBlock:
        return build_block(self.target, self.source, 0, self.size)

    @cached_property
    def _around(self) -> AdjacencyBlock:
        return build_block(*symmetrize_edges(self.source, self.target), 0, self.size)


def symmetrize_edges(source: Numbers, target: Numbers) -> tuple[Numbers, Numbers]:
    """Return edges in both directions; a self-loop stays one edge."""
    not_loops = source != target
    return np.concatenate([source, target[not_loops]]), np.concatenate([target, source[not_loops]])


def degrees(graph: BlockGraph) -> dict[str, Numbers]:
    """Return total, in- and out-degree of every node; a self-loop counts twice."""
    out_degrees, in_degrees = graph.degrees()
    return {"degree": out_degrees + in_degrees, "in_degree": in_degrees, "out_degree": out_degrees}


def components(graph: BlockGraph) -> Numbers:
    """Return the number of each node's connected component, ignoring the direction of edges; 0 is the largest."""
    labels = np.arange(graph.size, dtype=np.int64)
    for _ in range(ALGO_ROUNDS_MAX):
        minimums = graph.sweep(propagate_min_labels, Direction.BOTH, labels)
        if np.array_equal(minimums, labels):
            break
        # Hook: pass the smaller label on to the current representative (union-find style).
        hooked = minimums.copy()
        np.minimum.at(hooked, labels, minimums)
        labels = _compress_paths(hooked)
    return renumber_by_size(labels)


def _compress_paths(labels: Numbers) -> Numbers:
    """Pointer jumping: replace each label by its label until stable; labels only decrease, so it terminates."""
    while True:
        further = labels[labels]
        if np.array_equal(further, labels):
            return labels
        labels = further


def pagerank(
    graph: BlockGraph, *, damping: float = 0.85, iterations: int = 100, tolerance: float = 1e-8
) -> npt.NDArray[np.float64]:
    """Return the PageRank of every node; all of them add up to 1. Parallel edges count as often as they are there.

    Ends when an iteration changes the ranks by less than the tolerance in total, or at the maximum number of
    iterations.
    """
    _check("damping", damping, 0 <= damping < 1, "at least 0 and below 1")
    _check_iterations(iterations)
    size = graph.size
    if size == 0:
        return np.zeros(0)
    out_degrees, _ = graph.degrees()
    is_dangling = out_degrees == 0
    ranks = np.full(size, 1 / size)
    for _ in range(iterations):
        shares = np.divide(ranks, out_degrees, out=np.zeros(size), where=~is_dangling)
        # Dangling nodes spread their rank over all nodes.
        dangling_rank = float(ranks[is_dangling].sum())
        incoming = graph.sweep(sum_neighbours, Direction.IN, shares)
        new_ranks = damping * (incoming + dangling_rank / size) + (1 - damping) / size
        change = float(np.abs(new_ranks - ranks).sum())
        ranks = new_ranks
        if change < tolerance:
            break
    return ranks


def label_propagation(graph: BlockGraph, *, iterations: int = 20) -> Numbers:
    """Return the number of each node's community; 0 is the largest.

    In each round all nodes at once take the label that is most frequent around them, the lowest of equally many.
    """
    _check_iterations(iterations)
    labels = np.arange(graph.size, dtype=np.int64)
    for _ in range(iterations):
        new_labels = graph.sweep(vote_labels, Direction.BOTH, labels)
        if np.array_equal(new_labels, labels):
            break
        labels = new_labels
    return renumber_by_size(labels)


def renumber_by_size(labels: Numbers) -> Numbers:
    """Return labels as numbers from 0 on, by how many have them, then by the label.

    >>> renumber_by_size(np.array([7, 3, 7, 9])).tolist()
    [0, 1, 0, 2]
    """
    distinct, label_of_node, counts = np.unique(labels, return_inverse=True, return_counts=True)
    numbers = np.empty(len(distinct), np.int64)
    numbers[np.lexsort((distinct, -counts))] = np.arange(len(distinct))
    return numbers[label_of_node]


def _check_iterations(iterations: int) -> None:
    _check("iterations", iterations, 1 <= iterations <= ALGO_ROUNDS_MAX, f"between 1 and {ALGO_ROUNDS_MAX}")


def _check(name: str, value: float, is_right: bool, allowed: str) -> None:
    if not is_right:
        raise UsageError(f"`{name}` is {value}; it must be {allowed}", option=name, value=value)
