"""Graph analytics: degrees, components, PageRank and communities of one snapshot, in arrays of numbers.

May import `engine.session`, `engine.write` and everything below the engine; knows nothing of Spark.
"""

from omnigraph.engine.algo.measures import (
    Block,
    LocalGraph,
    Sweeps,
    build_block,
    components,
    degrees,
    label_propagation,
    pagerank,
)
from omnigraph.engine.algo.nodes import Nodes, NodeValues, read_ends, select_nodes, write_values

__all__ = [
    "Block",
    "LocalGraph",
    "NodeValues",
    "Nodes",
    "Sweeps",
    "build_block",
    "components",
    "degrees",
    "label_propagation",
    "pagerank",
    "read_ends",
    "select_nodes",
    "write_values",
]
