"""The k lightest paths without a repeated node between two nodes: best-first search, guided by exact distances.

What a partial path must still weigh is at least the least weight from its last node to the end, which one search from
the end finds for all nodes. Partial paths are extended by the least total that they can have, many at a time, until
none can be as light as the last path wanted; so about as many are made as the paths have nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from omnigraph.engine.query.path_graph import Indices, Numeric, PathGraph

# Partial paths that are extended at once.
_BATCH_MIN: Final = 32
# Least weights are summed from the end, weights of paths from the start: by this share sums of many may differ.
_SLACK: Final = 1e-9


class PartialPaths:
    """Paths from one node, each as its last node and the path without it."""

    def __init__(self, start: int) -> None:
        self.nodes: Indices = np.array([start], np.int64)
        self.parents: Indices = np.array([-1], np.int64)
        self.costs: Numeric = np.zeros(1)
        self.hops: Indices = np.zeros(1, np.int64)

    def add(self, parents: Indices, nodes: Indices, costs: Numeric) -> Indices:
        """Add paths that are one node longer than others; return their numbers."""
        first = len(self.nodes)
        self.nodes = np.concatenate([self.nodes, nodes])
        self.parents = np.concatenate([self.parents, parents])
        self.costs = np.concatenate([self.costs, costs])
        self.hops = np.concatenate([self.hops, self.hops[parents] + 1])
        return np.arange(first, len(self.nodes))

    def visits(self, paths: Indices, nodes: Indices) -> npt.NDArray[np.bool_]:
        is_there = np.zeros(len(paths), np.bool_)
        while len(paths) and bool((paths >= 0).any()):
            is_there |= (paths >= 0) & (self.nodes[paths] == nodes)
            paths = np.where(paths >= 0, self.parents[paths], -1)
        return is_there

    def by_length(self, paths: Indices) -> Iterator[tuple[Indices, Numeric]]:
        """Yield the nodes of paths, a row each, and their weights: those of one length together."""
        for hops in np.unique(self.hops[paths]):
            chosen = last = paths[self.hops[paths] == hops]
            columns = [self.nodes[last]]
            for _ in range(int(hops)):
                last = self.parents[last]
                columns.insert(0, self.nodes[last])
            yield np.stack(columns, axis=1), self.costs[chosen]


def find_k_shortest(
    graph: PathGraph,
    start: int,
    end: int,
    count: int,
    hops_max: int,
    remaining: Numeric,
    reserve: Callable[[int], None],
) -> Iterator[tuple[Indices, Numeric]]:
    """Yield the `count` lightest paths, and all that are as light as the last of them, as rows of nodes and weights.

    `remaining` is the least weight from each node to the end. `reserve` is told how many partial paths there are.
    """
    paths = PartialPaths(start)
    opened: Indices = np.zeros(1 if np.isfinite(remaining[start]) else 0, np.int64)
    ended: Indices = np.empty(0, np.int64)
    limit = np.inf
    while True:
        bounds = paths.costs[opened] + remaining[paths.nodes[opened]]
        is_open = bounds <= limit * (1.0 + _SLACK)
        opened, bounds = opened[is_open], bounds[is_open]
        if len(opened) == 0:
            break
        batch = max(count, _BATCH_MIN)
        is_next = np.ones(len(opened), np.bool_)
        if np.isinf(limit) and len(opened) > batch:
            is_next = bounds <= np.partition(bounds, batch - 1)[batch - 1]
        following, opened = opened[is_next], opened[~is_next]
        following = following[paths.hops[following] < hops_max]
        located, entries = graph.steps(paths.nodes[following])
        parents = np.repeat(following, located.degrees)
        reached = graph.adjacency.neighbours[entries].astype(np.int64)
        kept = np.flatnonzero(np.isfinite(remaining[reached]))
        kept = kept[~paths.visits(parents[kept], reached[kept])]
        reserve(len(paths.nodes) + len(kept))
        added = paths.add(parents[kept], reached[kept], paths.costs[parents[kept]] + graph.weights[entries[kept]])
        is_end = paths.nodes[added] == end
        ended, opened = np.concatenate([ended, added[is_end]]), np.concatenate([opened, added[~is_end]])
        if len(ended) >= count:
            limit = float(np.partition(paths.costs[ended], count - 1)[count - 1])
    yield from paths.by_length(ended[paths.costs[ended] <= limit])
