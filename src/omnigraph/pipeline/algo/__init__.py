"""Graph analytics over any number of edges: in this process while they fit, on Spark when they do not.

May import the facade and everything below it, and the rest of the pipeline; pyspark only when Spark is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from omnigraph.engine import algo
from omnigraph.engine.algo.measures import BlockGraph, Numbers
from omnigraph.engine.session import Moment
from omnigraph.graph import Graph
from omnigraph.manifest.model import MAIN
from omnigraph.pipeline.algo.measurement import Measured, measure
from omnigraph.pipeline.spark.executors import Engine

__all__ = ["Measured", "components", "degree", "label_propagation", "pagerank"]

Columns: TypeAlias = Callable[[BlockGraph], Mapping[str, Numbers]]


def degree(
    graph: Graph,
    edges: Sequence[str] | None = None,
    *,
    branch: str = MAIN,
    at: Moment | None = None,
    write_to: str | None = None,
    engine: Engine = "auto",
    spark: Any = None,
) -> Measured:
    """Measure `degree`, `in_degree` and `out_degree` of every node at an end of the edge types; all when None.

    `write_to` names a property that the degree is written to, in one commit on the branch.
    """
    return measure(graph, edges, algo.degrees, branch, at, write_to, engine, spark)


def components(
    graph: Graph,
    edges: Sequence[str] | None = None,
    *,
    branch: str = MAIN,
    at: Moment | None = None,
    write_to: str | None = None,
    engine: Engine = "auto",
    spark: Any = None,
) -> Measured:
    """Measure the `component` of every node: equal numbers for what edges join, in any direction; 0 is the largest."""
    compute: Columns = lambda sweeps: {"component": algo.components(sweeps)}  # noqa: E731 - it is handed on
    return measure(graph, edges, compute, branch, at, write_to, engine, spark)


def pagerank(
    graph: Graph,
    edges: Sequence[str] | None = None,
    *,
    damping: float = 0.85,
    iterations: int = 100,
    tolerance: float = 1e-8,
    branch: str = MAIN,
    at: Moment | None = None,
    write_to: str | None = None,
    engine: Engine = "auto",
    spark: Any = None,
) -> Measured:
    """Measure the `pagerank` of every node; all add up to 1."""

    def compute(sweeps: BlockGraph) -> Mapping[str, Numbers]:
        return {"pagerank": algo.pagerank(sweeps, damping=damping, iterations=iterations, tolerance=tolerance)}

    return measure(graph, edges, compute, branch, at, write_to, engine, spark)


def label_propagation(
    graph: Graph,
    edges: Sequence[str] | None = None,
    *,
    iterations: int = 20,
    branch: str = MAIN,
    at: Moment | None = None,
    write_to: str | None = None,
    engine: Engine = "auto",
    spark: Any = None,
) -> Measured:
    """Measure the `community` of every node by label propagation; 0 is the largest."""

    def compute(sweeps: BlockGraph) -> Mapping[str, Numbers]:
        return {"community": algo.label_propagation(sweeps, iterations=iterations)}

    return measure(graph, edges, compute, branch, at, write_to, engine, spark)
