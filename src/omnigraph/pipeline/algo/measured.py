"""One measurement: where it runs, what it found, and in which forms it can be had.

The rounds themselves are in `engine.algo`; `blocks` runs them on Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from omnigraph.engine.algo import NodeValues, read_ends, select_nodes, write_values
from omnigraph.engine.algo.block import Numbers, Sweeps
from omnigraph.engine.core import Moment, View
from omnigraph.errors import UsageError
from omnigraph.graph import Graph
from omnigraph.limits import ALGO_LOCAL_EDGES_MAX
from omnigraph.manifest.model import Commit
from omnigraph.pipeline.engine import Engine, check_engine


@dataclass(frozen=True)
class Measured:
    """What was measured of every node, where it was computed, and the commit that wrote it, if any."""

    values: NodeValues
    engine: str
    commit: Commit | None = None

    def to_arrow(self) -> pa.Table:
        """Return one row per node: `type`, `id` and what was measured."""
        return self.values.to_arrow()

    def to_dataframe(self, spark: Any = None) -> Any:
        """Return the same as a DataFrame of Spark; ids are read by its tasks."""
        from omnigraph.pipeline.algo.frame import frame_of

        return frame_of(self.values, spark)


def measure(
    graph: Graph,
    edges: Sequence[str] | None,
    compute: Callable[[Sweeps], Mapping[str, Numbers]],
    branch: str,
    at: Moment | None,
    write_to: str | None,
    engine: Engine,
    spark: Any,
) -> Measured:
    """Run a measure on a branch, or at a moment of the past, and write it back when asked to."""
    check_engine(engine)
    if at is not None and write_to is not None:
        raise UsageError("what was measured in the past cannot be written; leave `at` or `write_to` out")
    branch = branch.strip()
    view = graph.core.view(branch, at)
    nodes = select_nodes(view, edges)
    if engine == "auto":
        engine = (
            "spark" if _edge_count(view, [one.table_key for one in nodes.edges]) > ALGO_LOCAL_EDGES_MAX else "local"
        )
    if engine == "spark":
        from omnigraph.pipeline.algo.blocks import spark_graph

        with spark_graph(view, nodes, spark) as blocks:
            values = NodeValues(view, nodes, compute(blocks))
    else:
        values = NodeValues(view, nodes, compute(read_ends(view, nodes)))
    commit = write_values(graph.core, values, write_to, branch) if write_to is not None else None
    return Measured(values, engine, commit)


def _edge_count(view: View, keys: Sequence[str]) -> int:
    return sum(view.snapshot.state.pins[key].row_count for key in keys)
