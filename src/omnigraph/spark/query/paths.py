"""Path search on Spark: the same paths as in process, level by level, with a path as an array of node ids.

Node arrays are in written order, so that comparing them compares the ids from left to right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

START, NODE, NODES, EDGES, COST, COUNT = "start", "node", "path_nodes", "path_edges", "path_cost", "path_hops"
# The attributes of a path variable, with the columns of a search that hold them; its nodes are what breaks ties.
PATH_COLUMNS = (("hops", NODES), ("edges", EDGES), ("length", COUNT), ("cost", COST))
_PATH = (START, NODE, COST, COUNT, NODES, EDGES)


def union_frames(frames: Iterable[Any]) -> Any:
    """Return the rows of some DataFrames, at least one, with the same columns."""
    return reduce(lambda left, right: left.unionByName(right), frames)


@dataclass(frozen=True)
class PathFrames:
    """One search: `steps` has near, far, edge and weight of the edge that stands for each pair of nodes."""

    functions: Any
    steps: Any
    minimum: int
    maximum: int
    is_backwards: bool
    # How many paths of each pair; None for all that tie for the shortest.
    count: int | None
    is_weighted: bool

    def search(self, starts: Any, pairs: Any | None) -> Any:
        """Return the paths from the starts, one per row; to the ends of `pairs` only, unless it is None."""
        col, lit = self.functions.col, self.functions.lit
        frontier = starts.select(
            col(START), col(START).alias(NODE), lit(0.0).alias(COST), lit(0).cast("long").alias(COUNT),
            self.functions.array(col(START)).alias(NODES),
            self.functions.array().cast("array<string>").alias(EDGES),
        ).localCheckpoint()  # fmt: skip
        if (self.count or 1) > 1:
            paths = self._best_of(self._enumerated(frontier), pairs)
        elif self.is_weighted:
            paths = self._select_pairs(self._lightest(frontier), pairs)
        else:
            paths = self._select_pairs(union_frames([frontier, *self._nearest(frontier)]), pairs)
        return paths.where((col(COUNT) >= self.minimum) & (col(COUNT) <= self.maximum))

    def _step(self, frontier: Any) -> Any:
        """Return the paths with one more edge, where that does not lead to a node of the path."""
        functions, col = self.functions, self.functions.col
        node, edge = functions.array(col("far")), functions.array(col("edge"))
        nodes, edges = (col(NODES), node), (col(EDGES), edge)
        if self.is_backwards:
            nodes, edges = nodes[::-1], edges[::-1]
        joined = frontier.join(self.steps, col(NODE) == col("near"))
        return joined.where(~functions.array_contains(col(NODES), col("far"))).select(
            col(START), col("far").alias(NODE), (col(COST) + col("weight")).alias(COST), (col(COUNT) + 1).alias(COUNT),
            functions.concat(*nodes).alias(NODES), functions.concat(*edges).alias(EDGES),
        )  # fmt: skip

    def _first(self, paths: Any) -> Any:
        """Return the best path of each start and node."""
        functions, col = self.functions, self.functions.col
        best = functions.min(functions.struct(*(col(name) for name in _PATH[2:]))).alias("best")
        return paths.groupBy(START, NODE).agg(best).select(START, NODE, *(f"best.{name}" for name in _PATH[2:]))

    def _nearest(self, frontier: Any) -> Iterator[Any]:
        """Yield the paths of fewest hops, hop by hop: breadth-first search."""
        visited = frontier.select(START, NODE)
        for _ in range(self.maximum):
            stepped = self._step(frontier).join(visited, [START, NODE], "left_anti")
            frontier = (stepped if self.count is None else self._first(stepped)).localCheckpoint()
            if frontier.isEmpty():
                return
            yield frontier
            visited = visited.unionByName(frontier.select(START, NODE).distinct())

    def _lightest(self, frontier: Any) -> Any:
        """Return the paths of least weight: relaxation until nothing improves, then all that tie, if wanted."""
        best, changed = frontier, frontier
        while not changed.isEmpty():
            improved = self._first(best.unionByName(self._step(changed))).localCheckpoint()
            changed = improved.join(best.select(START, NODE, COST, COUNT, NODES), [START, NODE, COST, COUNT, NODES],
                                    "left_anti").select(*_PATH).localCheckpoint()  # fmt: skip
            best = improved
        if self.count is not None:
            return best
        limits = best.select(START, NODE, COST, COUNT)
        levels = [frontier]
        while not levels[-1].isEmpty():
            stepped = self._step(levels[-1])
            levels.append(
                stepped.join(limits, [START, NODE, COST, COUNT], "left_semi").select(*_PATH).localCheckpoint()
            )
        return union_frames(levels)

    def _enumerated(self, frontier: Any) -> Iterator[Any]:
        """Yield all paths, by their number of hops."""
        yield frontier
        for _ in range(self.maximum):
            frontier = self._step(frontier).localCheckpoint()
            if frontier.isEmpty():
                return
            yield frontier

    def _best_of(self, levels: Iterator[Any], pairs: Any | None) -> Any:
        """Return the best few paths of each pair; by hops, no further than until all of `pairs` have enough."""
        from pyspark.sql import Window

        col, parts = self.functions.col, []
        for level in levels:
            parts.append(self._select_pairs(level, pairs))
            if pairs is not None and not self.is_weighted and self._is_enough(parts, pairs):
                break
        window = Window.partitionBy(START, NODE).orderBy(COST, COUNT, NODES)
        ranked = union_frames(parts).withColumn("row_number", self.functions.row_number().over(window))
        return ranked.where(col("row_number") <= self.count).drop("row_number")

    def _is_enough(self, parts: list[Any], pairs: Any) -> bool:
        counts = union_frames(parts).groupBy(START, NODE).count().where(self.functions.col("count") >= self.count)
        return bool(pairs.join(counts, [START, NODE], "left_anti").isEmpty())

    def _select_pairs(self, paths: Any, pairs: Any | None) -> Any:
        return paths if pairs is None else paths.join(pairs, [START, NODE], "left_semi")
