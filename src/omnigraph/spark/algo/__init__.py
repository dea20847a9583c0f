"""Graph analytics over any number of edges: in process while they fit in memory, otherwise on Spark.

Every measure takes the `MeasureOptions` as keywords.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from omnigraph.docstrings import complete_docs
from omnigraph.engine import algo as measures
from omnigraph.engine.algo import BlockGraph, Numbers
from omnigraph.engine.session import HasSession
from omnigraph.spark.algo.measurement import Measured, MeasureOptions, measure

__all__ = ["MeasureOptions", "Measured", "components", "degree", "label_propagation", "pagerank"]


@complete_docs(measure)
def degree(graph: HasSession, edges: Sequence[str] | None = None, **options: Unpack[MeasureOptions]) -> Measured:
    """Measure `degree`, `in_degree` and `out_degree` of every node.

    Example:
        >>> from omnigraph import pipeline
        >>> pipeline.algo.degree(graph, ["Knows"]).to_arrow().column("degree").to_pylist()
        [1, 1]
    """
    return measure(graph, edges, measures.degrees, **options)


@complete_docs(measure)
def components(graph: HasSession, edges: Sequence[str] | None = None, **options: Unpack[MeasureOptions]) -> Measured:
    """Measure the connected `component` of every node, ignoring the direction of edges; 0 is the largest.

    Example:
        >>> from omnigraph import pipeline
        >>> pipeline.algo.components(graph).to_arrow().column("component").to_pylist()
        [0, 0]
    """
    return measure(graph, edges, lambda sweeps: {"component": measures.components(sweeps)}, **options)


@complete_docs(measure)
def pagerank(
    graph: HasSession,
    edges: Sequence[str] | None = None,
    *,
    damping: float = 0.85,
    iterations: int = 100,
    tolerance: float = 1e-8,
    **options: Unpack[MeasureOptions],
) -> Measured:
    """Measure the `pagerank` of every node; the ranks add up to 1.

    Args:
        damping: The probability of following an edge instead of jumping to a random node.
        iterations: The maximum number of iterations.
        tolerance: Stop when the ranks change by less than this.

    Example:
        >>> from omnigraph import pipeline
        >>> round(sum(pipeline.algo.pagerank(graph).to_arrow().column("pagerank").to_pylist()), 6)
        1.0
    """

    def compute(sweeps: BlockGraph) -> Mapping[str, Numbers]:
        return {"pagerank": measures.pagerank(sweeps, damping=damping, iterations=iterations, tolerance=tolerance)}

    return measure(graph, edges, compute, **options)


@complete_docs(measure)
def label_propagation(
    graph: HasSession, edges: Sequence[str] | None = None, *, iterations: int = 20, **options: Unpack[MeasureOptions]
) -> Measured:
    """Measure the `community` of every node by label propagation; 0 is the largest.

    Args:
        iterations: The maximum number of iterations.

    Example:
        >>> from omnigraph import pipeline
        >>> pipeline.algo.label_propagation(graph).to_arrow().column("community").to_pylist()
        [0, 0]
    """
    return measure(
        graph, edges, lambda sweeps: {"community": measures.label_propagation(sweeps, iterations=iterations)}, **options
    )
