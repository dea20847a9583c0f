"""Measures: what is computed about every node, round by round, over a graph that can be swept.

Pure numpy; the same rounds run in one process and over blocks on many machines.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from omnigraph.engine.algo.block import Numbers, Sweeps, favourite_labels, lowest_labels, neighbour_sums
from omnigraph.errors import UsageError
from omnigraph.lang.query.ir import Direction
from omnigraph.limits import ALGO_ROUNDS_MAX


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
