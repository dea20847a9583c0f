"""One measurement: where it runs, what it found, and in which forms it can be had.

The rounds themselves are in `engine.algo`; `blocks` runs them on Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.algo import NodeValues, read_edges, select_nodes, write_values
from omnigraph.engine.algo.measures import BlockGraph, Numbers
from omnigraph.engine.session import Moment, View
from omnigraph.errors import UsageError
from omnigraph.graph import Graph
from omnigraph.limits import ALGO_LOCAL_EDGES_MAX
from omnigraph.manifest.model import Commit
from omnigraph.pipeline.datasource.table_reader import Scan, plan_scan
from omnigraph.pipeline.spark.executors import Engine, check_engine
from omnigraph.pipeline.spark.session import session
from omnigraph.rules.arrow_typing import Column
from omnigraph.store.write.fragments import scan_fragments


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

        return frame_of(self.values, spark)


def measure(
    graph: Graph,
    edges: Sequence[str] | None,
    compute: Callable[[BlockGraph], Mapping[str, Numbers]],
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
        values = NodeValues(view, nodes, compute(read_edges(view, nodes)))
    commit = write_values(graph.core, values, write_to, branch) if write_to is not None else None
    return Measured(values, engine, commit)


def _edge_count(view: View, keys: Sequence[str]) -> int:
    return sum(view.snapshot.state.pins[key].row_count for key in keys)


@dataclass(frozen=True, slots=True)
class Numbered:
    """Scans of one type in which every task knows the number of its first row."""

    scan: Scan
    runs: Sequence[Sequence[int]]
    firsts: Sequence[int]


def plan_numbered(view: View, table_key: str) -> Numbered:
    """Return how tasks read a type, with the place of each task's rows among all."""
    scan, runs = plan_scan(view, table_key)
    dataset = view.dataset(table_key)
    rows = dict(zip((one.id for one in dataset.fragments), dataset.fragment_rows, strict=True))
    counts = [sum(rows[one] for one in run) for run in runs]
    return Numbered(scan, runs, [0, *np.cumsum(counts).tolist()][:-1])


def read_numbered(planned: Numbered, columns: Sequence[str], place: int) -> Iterator[tuple[list[Column], int]]:
    """Yield columns of one task's rows, batch by batch, each with the number of its first row."""
    first = planned.firsts[place]
    for batch in scan_fragments(planned.scan.open(), planned.runs[place], columns):
        yield [batch.column(batch.schema.get_field_index(name)) for name in columns], first
        first += batch.num_rows


def frame_of(values: NodeValues, spark: Any = None) -> Any:
    """Return what was measured as a DataFrame: `type`, `id` and a column each."""
    spark = spark if spark is not None else session()
    schema = "type string, id string" + "".join(
        f", {name} {'double' if one.dtype.kind == 'f' else 'long'}" for name, one in values.columns.items()
    )
    frames = [spark.createDataFrame([], schema)]
    for node_type in values.nodes.types:
        planned = plan_numbered(values.view, f"node:{node_type}")
        if planned.runs:
            own = {name: values.nodes.of(node_type, one) for name, one in values.columns.items()}
            tasks = spark.range(0, len(planned.runs), 1, len(planned.runs))
            frames.append(tasks.mapInArrow(partial(_rows, planned, node_type, own), schema))
    return reduce(lambda left, right: left.unionByName(right), frames)


def _rows(
    planned: Numbered, node_type: str, values: dict[str, Any], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for place in batch.column(0).to_numpy().tolist():
            for [ids], first in read_numbered(planned, ["id"], place):
                columns: dict[str, Any] = {"type": pa.repeat(pa.scalar(node_type), len(ids)), "id": ids}
                for name, one in values.items():
                    kind = pa.float64() if one.dtype.kind == "f" else pa.int64()
                    columns[name] = pa.array(one[first : first + len(ids)], kind)
                yield pa.RecordBatch.from_pydict(columns)
