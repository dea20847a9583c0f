"""A graph in blocks on Spark: edges as files of numbers, one set for each range of nodes, and rounds as tasks on them.

The driver holds one number a node. Files lie beside the graph under an intent, and are removed at the end.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.algo import NodeNumbering, build_block
from omnigraph.engine.algo.measures import Kernel, Numbers, symmetrize_edges
from omnigraph.engine.session import View
from omnigraph.errors import GraphError
from omnigraph.ids import new_ulid
from omnigraph.lang.query.ir import Direction
from omnigraph.limits import ALGO_BLOCK_NODES
from omnigraph.manifest.intents import declared
from omnigraph.pipeline.algo.measurement import Numbered, plan_numbered, read_numbered
from omnigraph.pipeline.bulk_load.job import Place, place_of
from omnigraph.pipeline.spark.executors import Executors
from omnigraph.pipeline.spark.session import session, watched
from omnigraph.store.write.fragments import claims, side_folder


@dataclass(frozen=True, slots=True)
class BlockTask:
    """One range of nodes, and the files of the edges that end at them."""

    first: int
    size: int
    paths: tuple[str, ...]


@contextmanager
def spark_graph(view: View, nodes: NodeNumbering, spark: Any = None) -> Iterator[SparkGraph]:
    """Hold a graph in blocks while it is measured."""
    if view.kernel.read_only:
        raise GraphError(
            "measuring on Spark puts files beside the graph, which was opened read-only; open it for writing, or use"
            ' `engine="local"`',
            code="graph.read_only",
        )
    store = view.kernel.store
    ref = view.snapshot.state.pins[nodes.edges[0].table_key].ref
    with declared(store, "analytics", view.snapshot) as held:
        folder = side_folder(ref, held.operation_id)
        held.staging(*claims(ref, held.operation_id))
        place = place_of(store.root.uri, held.operation_id)
        try:
            yield SparkGraph(spark if spark is not None else session(), view, nodes, place, folder)
        finally:
            store.objects.discard_prefix(folder)


@dataclass
class SparkGraph:
    """A graph whose blocks are swept by tasks."""

    spark: Any
    view: View
    nodes: NodeNumbering
    place: Place
    folder: str
    _blocks: dict[Direction, list[BlockTask]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.nodes.size

    def degrees(self) -> tuple[Numbers, Numbers]:
        tasks = self._tasks(Direction.IN)
        partial_counts = Executors(self.spark).run("counting edges", partial(_count, self._work, self.size), tasks)
        going, coming = np.zeros(self.size, np.int64), np.zeros(self.size, np.int64)
        for task, (going_path, coming_path) in zip(tasks, partial_counts, strict=True):
            going += self._work.read(going_path)
            coming[task.first : task.first + task.size] = self._work.read(coming_path)
        return going, coming

    def sweep(self, kernel: Kernel, direction: Direction, state: Numbers) -> Numbers:
        tasks = self._tasks(direction)
        path = self._work.write(state)
        found = Executors(self.spark).run("a round", partial(_sweep, self._work, kernel, path), tasks)
        fresh = np.concatenate([np.empty(0, state.dtype), *(self._work.read(one) for one in found)])
        for one in (path, *found):
            self._work.remove(one)
        return fresh

    @property
    def _work(self) -> Workplace:
        return Workplace(self.place, self.folder)

    def _tasks(self, direction: Direction) -> list[BlockTask]:
        if direction not in self._blocks:
            self._blocks[direction] = self._write_blocks(direction)
        return self._blocks[direction]

    def _write_blocks(self, direction: Direction) -> list[BlockTask]:
        """Put the edges of every range of nodes into files of their own."""
        from pyspark.sql import functions

        width = ALGO_BLOCK_NODES
        ranges = range(0, self.size, width)
        frame = self._pairs().mapInArrow(partial(_owned, direction, width), "block long, owner long, neighbour long")
        spread = frame.repartition(max(len(ranges), 1), functions.col("block"))
        files = spread.mapInArrow(partial(_write_pairs, self._work), "block long, path string")
        rows = watched(self.spark, "numbering edges", files.collect, lambda done: None)
        paths: dict[int, list[str]] = {}
        for row in rows:
            paths.setdefault(int(row["block"]), []).append(str(row["path"]))
        return [
            BlockTask(first, min(width, self.size - first), tuple(paths.get(block, ())))
            for block, first in enumerate(ranges)
        ]

    def _pairs(self) -> Any:
        """Return all edges as pairs of numbers."""
        frames = [self.spark.createDataFrame([], "source long, target long")]
        numbers = {name: self._numbers(name) for name in self.nodes.types}
        for edge in self.nodes.edges:
            planned = plan_numbered(self.view, edge.table_key)
            if planned.runs:
                ends = self._scan(planned, partial(_read_ends, planned), "src string, dst string")
                ends = ends.join(numbers[edge.source].toDF("src", "source"), "src")
                ends = ends.join(numbers[edge.target].toDF("dst", "target"), "dst")
                frames.append(ends.select("source", "target"))
        return reduce(lambda left, right: left.unionByName(right), frames)

    def _numbers(self, node_type: str) -> Any:
        planned = plan_numbered(self.view, f"node:{node_type}")
        read = partial(_read_numbers, planned, self.nodes.first(node_type))
        return self._scan(planned, read, "id string, number long")

    def _scan(self, planned: Numbered, read: Any, schema: str) -> Any:
        if not planned.runs:
            return self.spark.createDataFrame([], schema)
        return self.spark.range(0, len(planned.runs), 1, len(planned.runs)).mapInArrow(read, schema)


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where arrays of one measurement lie, for the driver and for tasks."""

    place: Place
    folder: str

    def write(self, numbers: Numbers) -> str:
        sink = io.BytesIO()
        np.save(sink, numbers, allow_pickle=False)
        path = f"{self.folder}/{new_ulid()}.npy"
        self.place.store().objects.write(path, sink.getvalue())
        return path

    def read(self, path: str) -> Numbers:
        found: Numbers = np.load(io.BytesIO(self.place.store().objects.read(path)), allow_pickle=False)
        return found

    def remove(self, path: str) -> None:
        self.place.store().objects.delete(path)


def _places(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_numpy().tolist()


def _read_numbers(planned: Numbered, start: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for place in _places(batches):
        for [ids], first in read_numbered(planned, ["id"], place):
            numbers = np.arange(start + first, start + first + len(ids), dtype=np.int64)
            yield pa.RecordBatch.from_pydict({"id": ids, "number": numbers})


def _read_ends(planned: Numbered, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for place in _places(batches):
        for [sources, targets], _ in read_numbered(planned, ["src", "dst"], place):
            yield pa.RecordBatch.from_pydict({"src": sources, "dst": targets})


def _owned(direction: Direction, width: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield edges from the end that they are kept with."""
    for batch in batches:
        source, target = (batch.column(place).to_numpy() for place in (0, 1))
        owners, neighbours = (target, source) if direction is Direction.IN else symmetrize_edges(source, target)
        yield pa.RecordBatch.from_pydict({"block": owners // width, "owner": owners, "neighbour": neighbours})


def _write_pairs(work: Workplace, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        blocks, owners, neighbours = (batch.column(place).to_numpy() for place in (0, 1, 2))
        for block in np.unique(blocks):
            own = blocks == block
            path = work.write(np.stack([owners[own], neighbours[own]]))
            yield pa.RecordBatch.from_pydict({"block": pa.array([int(block)], pa.int64()), "path": [path]})


def _load(work: Workplace, paths: Sequence[str]) -> Numbers:
    return np.concatenate([np.empty((2, 0), np.int64), *(work.read(path) for path in paths)], axis=1)


def _count(work: Workplace, size: int, task: BlockTask) -> tuple[str, str]:
    """Count what comes in to the nodes of a block, and what goes out from anywhere to there."""
    owners, neighbours = _load(work, task.paths)
    coming = np.bincount(owners - task.first, minlength=task.size)
    return work.write(np.bincount(neighbours, minlength=size)), work.write(coming)


def _sweep(work: Workplace, kernel: Kernel, state_path: str, task: BlockTask) -> str:
    owners, neighbours = _load(work, task.paths)
    block = build_block(owners, neighbours, task.first, task.size)
    return work.write(kernel(block, work.read(state_path)))
