"""Graph analytics: degrees, components, PageRank and communities of one snapshot, as numpy arrays.

May import `engine.session`, `engine.write` and everything below the engine; knows nothing of Spark.
"""

from omnigraph.engine.algo.measures import (
    AdjacencyBlock,
    BlockGraph,
    LocalGraph,
    build_block,
    components,
    degrees,
    label_propagation,
    pagerank,
)
from omnigraph.engine.algo.nodes import (
    NodeNumbering,
    NodeValues,
    check_writable,
    read_edges,
    select_nodes,
    write_values,
)

__all__ = [
    "AdjacencyBlock",
    "BlockGraph",
    "LocalGraph",
    "NodeNumbering",
    "NodeValues",
    "build_block",
    "check_writable",
    "components",
    "degrees",
    "label_propagation",
    "pagerank",
    "read_edges",
    "select_nodes",
    "write_values",
]
