"""Analytics on Spark: edges in files by block of target nodes, and each iteration as one task per block.

The driver holds one number per node. Temporary files are covered by an intent and removed at the end.
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

from omnigraph.engine.algo.measures import Kernel, Numbers, build_block, symmetrize_edges
from omnigraph.engine.algo.nodes import NodeNumbering
from omnigraph.engine.graph_access import GraphAccess, graph_access
from omnigraph.engine.session import View
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import TypeKey
from omnigraph.lang.query.ir import Direction
from omnigraph.limits import ALGO_BLOCK_NODES
from omnigraph.manifest.intents import declared
from omnigraph.pipeline.algo.measurement import NumberedScan, plan_numbered_scan, read_numbered
from omnigraph.pipeline.spark.executors import Executors
from omnigraph.pipeline.spark.session import run_job
from omnigraph.store.write.fragments import claims, side_folder


@dataclass(frozen=True, slots=True)
class BlockTask:
    """One block of nodes, and the files of the edges that end in it."""

    first: int
    size: int
    paths: tuple[str, ...]


@contextmanager
def spark_graph(view: View, nodes: NodeNumbering, spark: Any) -> Iterator[SparkGraph]:
    """Provide a graph in blocks while it is measured, which writes temporary files to it."""
    store = view.kernel.store
    ref = view.snapshot.state.pins[nodes.edges[0].table_key].ref
    with declared(store, "analytics", view.snapshot) as intent:
        folder = side_folder(ref, intent.operation_id)
        intent.staging(*claims(ref, intent.operation_id))
        access = graph_access(store.root.uri, intent.operation_id)
        try:
            yield SparkGraph(spark, view, nodes, access, folder)
        finally:
            store.objects.discard_prefix(folder)


@dataclass
class SparkGraph:
    """A graph whose blocks are processed by tasks."""

    spark: Any
    view: View
    nodes: NodeNumbering
    access: GraphAccess
    folder: str
    _blocks: dict[Direction, list[BlockTask]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.nodes.size

    def degrees(self) -> tuple[Numbers, Numbers]:
        tasks = self._tasks(Direction.IN)
        partial_counts = Executors(self.spark).run(
            "counting edges", partial(_count_edges, self._files, self.size), tasks
        )
        going, coming = np.zeros(self.size, np.int64), np.zeros(self.size, np.int64)
        for task, (going_path, coming_path) in zip(tasks, partial_counts, strict=True):
            going += self._files.read(going_path)
            coming[task.first : task.first + task.size] = self._files.read(coming_path)
        return going, coming

    def sweep(self, kernel: Kernel, direction: Direction, state: Numbers) -> Numbers:
        tasks = self._tasks(direction)
        path = self._files.write(state)
        paths = Executors(self.spark).run("computing", partial(_sweep, self._files, kernel, path), tasks)
        swept = np.concatenate([np.empty(0, state.dtype), *(self._files.read(file) for file in paths)])
        for file in (path, *paths):
            self._files.remove(file)
        return swept

    @property
    def _files(self) -> ArrayFiles:
        return ArrayFiles(self.access, self.folder)

    def _tasks(self, direction: Direction) -> list[BlockTask]:
        if direction not in self._blocks:
            self._blocks[direction] = self._write_blocks(direction)
        return self._blocks[direction]

    def _write_blocks(self, direction: Direction) -> list[BlockTask]:
        """Partition the edges by block into files."""
        from pyspark.sql import functions

        width = ALGO_BLOCK_NODES
        ranges = range(0, self.size, width)
        frame = self._pairs().mapInArrow(
            partial(_assign_blocks, direction, width), "block long, owner long, neighbour long"
        )
        by_block = frame.repartition(max(len(ranges), 1), functions.col("block"))
        files = by_block.mapInArrow(partial(_write_pairs, self._files), "block long, path string")
        rows = run_job(self.spark, "numbering edges", files.collect)
        paths: dict[int, list[str]] = {}
        for row in rows:
            paths.setdefault(int(row["block"]), []).append(str(row["path"]))
        return [
            BlockTask(first, min(width, self.size - first), tuple(paths.get(block, ())))
            for block, first in enumerate(ranges)
        ]

    def _pairs(self) -> Any:
        """Return all edges as pairs of node numbers."""
        frames = [self.spark.createDataFrame([], "source long, target long")]
        numbers = {name: self._numbers(name) for name in self.nodes.types}
        for edge in self.nodes.edges:
            planned = plan_numbered_scan(self.view, edge.table_key)
            if planned.runs:
                ends = self._scan(planned, partial(_read_ends, planned), "src string, dst string")
                ends = ends.join(numbers[edge.source].toDF("src", "source"), "src")
                ends = ends.join(numbers[edge.target].toDF("dst", "target"), "dst")
                frames.append(ends.select("source", "target"))
        return reduce(lambda left, right: left.unionByName(right), frames)

    def _numbers(self, node_type: str) -> Any:
        planned = plan_numbered_scan(self.view, TypeKey.of("node", node_type))
        read = partial(_read_numbers, planned, self.nodes.first(node_type))
        return self._scan(planned, read, "id string, number long")

    def _scan(self, planned: NumberedScan, read: Any, schema: str) -> Any:
        if not planned.runs:
            return self.spark.createDataFrame([], schema)
        return self.spark.range(0, len(planned.runs), 1, len(planned.runs)).mapInArrow(read, schema)


@dataclass(frozen=True, slots=True)
class ArrayFiles:
    """Arrays in temporary files, shared by the driver and tasks."""

    access: GraphAccess
    folder: str

    def write(self, numbers: Numbers) -> str:
        sink = io.BytesIO()
        np.save(sink, numbers, allow_pickle=False)
        path = f"{self.folder}/{new_ulid()}.npy"
        self.access.store().objects.write(path, sink.getvalue())
        return path

    def read(self, path: str) -> Numbers:
        numbers: Numbers = np.load(io.BytesIO(self.access.store().objects.read(path)), allow_pickle=False)
        return numbers

    def remove(self, path: str) -> None:
        self.access.store().objects.delete(path)


def _run_numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_numpy().tolist()


def _read_numbers(planned: NumberedScan, start: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for run in _run_numbers(batches):
        for [ids], first in read_numbered(planned, ["id"], run):
            numbers = np.arange(start + first, start + first + len(ids), dtype=np.int64)
            yield pa.RecordBatch.from_pydict({"id": ids, "number": numbers})


def _read_ends(planned: NumberedScan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for run in _run_numbers(batches):
        for [sources, targets], _ in read_numbered(planned, ["src", "dst"], run):
            yield pa.RecordBatch.from_pydict({"src": sources, "dst": targets})


def _assign_blocks(direction: Direction, width: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield edges with the block of the node that owns them."""
    for batch in batches:
        source, target = (batch.column(index).to_numpy() for index in (0, 1))
        owners, neighbours = (target, source) if direction is Direction.IN else symmetrize_edges(source, target)
        yield pa.RecordBatch.from_pydict({"block": owners // width, "owner": owners, "neighbour": neighbours})


def _write_pairs(files: ArrayFiles, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        blocks, owners, neighbours = (batch.column(index).to_numpy() for index in (0, 1, 2))
        for block in np.unique(blocks):
            in_block = blocks == block
            path = files.write(np.stack([owners[in_block], neighbours[in_block]]))
            yield pa.RecordBatch.from_pydict({"block": pa.array([int(block)], pa.int64()), "path": [path]})


def _read_pairs(files: ArrayFiles, paths: Sequence[str]) -> Numbers:
    return np.concatenate([np.empty((2, 0), np.int64), *(files.read(path) for path in paths)], axis=1)


def _count_edges(files: ArrayFiles, size: int, task: BlockTask) -> tuple[str, str]:
    """Count the incoming edges of the nodes of a block, and the outgoing edges of all nodes into it."""
    owners, neighbours = _read_pairs(files, task.paths)
    coming = np.bincount(owners - task.first, minlength=task.size)
    return files.write(np.bincount(neighbours, minlength=size)), files.write(coming)


def _sweep(files: ArrayFiles, kernel: Kernel, state_path: str, task: BlockTask) -> str:
    owners, neighbours = _read_pairs(files, task.paths)
    block = build_block(owners, neighbours, task.first, task.size)
    return files.write(kernel(block, files.read(state_path)))
