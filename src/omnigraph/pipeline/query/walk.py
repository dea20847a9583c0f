"""Walks of several hops: breadth-first from all starts at once, a join and an anti join each hop.

Every hop is put down on the executors, so that it is computed once, and a walk ends where nothing new is reached.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from omnigraph.lang.query.ir import Direction, Expand

NEAR = "near"
FAR = "far"
_START = "start"


def turned(functions: Any, edges: Any, direction: Direction) -> Any:
    """Return edges as they are walked in a direction; a loop is one edge, also when walked both ways."""
    if direction is Direction.OUT:
        return edges
    col = functions.col
    others = [name for name in edges.columns if name not in (NEAR, FAR)]
    back = edges.select(col(FAR).alias(NEAR), col(NEAR).alias(FAR), *others)
    if direction is Direction.IN:
        return back
    return edges.select(NEAR, FAR, *others).unionByName(back.where(col(NEAR) != col(FAR)))


def reached(functions: Any, starts: Any, edges: Any, walk: Expand, hops: str) -> Any:
    """Return every node within the bounds of a walk from every start, once, at its shortest distance."""
    col, lit = functions.col, functions.lit
    pairs = edges.select(NEAR, FAR).localCheckpoint()
    loops = pairs.where(col(NEAR) == col(FAR)).select(col(NEAR).alias("loop"))
    frontier = starts.select(col(NEAR).alias(_START), col(NEAR).alias("node")).localCheckpoint()
    visited, emitted = frontier, []
    for hop in range(1, walk.maximum + 1):
        if hop == walk.minimum:
            # A node that is its own neighbour is reached again one hop later, and only then can that be its first time
            # within the bounds. Backwards, that node is the one started from.
            looping = col(_START if walk.is_backwards else "node") == col("loop")
            emitted.append(_at(frontier.join(loops, looping, "left_semi"), lit(hop), hops))
        stepped = frontier.join(pairs, col("node") == col(NEAR)).select(_START, col(FAR).alias("node")).distinct()
        frontier = stepped.join(visited, [_START, "node"], "left_anti").localCheckpoint()
        visited = visited.unionByName(frontier)
        if hop >= walk.minimum:
            emitted.append(_at(frontier, lit(hop), hops))
        if frontier.isEmpty():
            break
    if not emitted:
        emitted.append(_at(frontier.limit(0), lit(0), hops))
    everything = reduce(lambda left, right: left.unionByName(right), emitted)
    return everything.select(col(_START).alias(NEAR), col("node").alias(FAR), hops)


def _at(nodes: Any, hop: Any, hops: str) -> Any:
    return nodes.withColumn(hops, hop.cast("long"))
