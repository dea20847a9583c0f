"""The graph of a path search: between two nodes the lightest edge stands for its parallels, then the smallest id."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from omnigraph.engine.query.adjacency import Adjacency
from omnigraph.engine.query.entities import Entities
from omnigraph.engine.query.expand import NeighbourRanges, locate_neighbours
from omnigraph.engine.query.vectors import Ids, Numbers, group_offsets, run_starts
from omnigraph.errors import DataError

Numeric = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
# How many edges of a node, the lightest of them, a step of the search by weight is as heavy as.
_STEP_EDGES: Final = 4.0


@dataclass(frozen=True)
class PathGraph:
    """The edges of a search, one for each pair of nodes, with their weights (1 each without a property)."""

    adjacency: Adjacency
    weights: Numeric
    is_weighted: bool

    @property
    def nbytes(self) -> int:
        turned: PathGraph | None = self.__dict__.get("turned")
        return self.adjacency.nbytes + int(self.weights.nbytes) + (0 if turned is None else turned.nbytes)

    @property
    def width(self) -> int:
        return max(self.adjacency.target_count, 1)

    @cached_property
    def is_finite(self) -> bool:
        return bool(np.isfinite(self.weights).all())

    @cached_property
    def turned(self) -> PathGraph:
        order = np.argsort(self.adjacency.neighbours, kind="stable")
        owners = np.repeat(np.arange(len(self.adjacency.starts) - 1), self.adjacency.degrees)[order]
        starts = group_offsets(self.adjacency.neighbours, self.width)
        return replace(self, adjacency=Adjacency(starts, owners, None, self.width), weights=self.weights[order])

    @cached_property
    def step_weight(self) -> float:
        """The weight by which the bound of settled states grows: what a few of the lightest edges of a node weigh."""
        finite = self.weights[np.isfinite(self.weights)]
        mean, degree = float(finite.mean()) if len(finite) else 0.0, len(self.weights) / self.width
        return _STEP_EDGES * mean / max(degree, 1.0)

    def steps(self, nodes: Ids) -> tuple[NeighbourRanges, Indices]:
        located = locate_neighbours(self.adjacency, nodes)
        return located, located.entries()


def weight_error(weight: str) -> DataError:
    message = f"paths by `{weight}` need weights of 0 or more, but an edge has a negative one or NaN; correct the edge"
    return DataError(message, rule="E4", column=weight)


def build_path_graph(adjacency: Adjacency, edges: Entities, weight: str | None) -> PathGraph:
    """Return the graph of a search from a per-edge adjacency; edges without a weight are left out."""
    assert adjacency.edges is not None
    pairs, edge = adjacency.pairs, adjacency.edges
    weights = np.ones(len(edge), np.float64)
    if weight is not None:
        column = edges.column(weight).vector
        assert isinstance(column, Numbers)
        values = column.take(edge)
        weights = values.data.astype(np.float64)
        valid = values.valid_mask
        if bool((weights[valid] < 0).any()) or bool(np.isnan(weights[valid]).any()):
            raise weight_error(weight)
        pairs, edge, weights = pairs[valid], edge[valid], weights[valid]
    order = np.lexsort((edges.id_ranks[edge], weights, pairs))
    first = order[np.flatnonzero(run_starts(pairs[order]))]
    owners, neighbours = np.divmod(pairs[first], max(adjacency.target_count, 1))
    starts = group_offsets(owners, len(adjacency.starts) - 1)
    graph = Adjacency(starts, neighbours, edge[first], adjacency.target_count)
    return PathGraph(graph, weights[first], weight is not None)
