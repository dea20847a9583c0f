"""Measured values as DataFrames, and nodes by number: tasks read the ids, in the order in which nodes are numbered.

Numbers of nodes follow the scan order of the pinned version, so a task knows them without talking to others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.algo import NodeValues
from omnigraph.engine.core import View
from omnigraph.pipeline.scanning import Scan, plan_scan
from omnigraph.pipeline.session import session
from omnigraph.rules.kernels import Column
from omnigraph.store.fragments import scan_fragments


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
