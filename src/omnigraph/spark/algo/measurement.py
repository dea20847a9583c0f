"""Run one graph measure in process or, by blocks of target nodes, on Spark; its result as Arrow or as a DataFrame.

The algorithms are in `engine.algo`; `SparkGraph` runs their iterations on Spark. The driver holds one number per node.
Temporary files are covered by an intent and removed at the end.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa

from omnigraph.display import commit_note, summarize
from omnigraph.engine.algo import (
    BlockGraph,
    Kernel,
    NodeNumbering,
    NodeValues,
    Numbers,
    build_block,
    check_writable,
    read_edges,
    select_nodes,
    symmetrize_edges,
    write_values,
)
from omnigraph.engine.pinned_scan import Scan, plan_scan
from omnigraph.engine.query.result import to_pandas
from omnigraph.engine.revisions import AsOf
from omnigraph.engine.session import HasSession, View, session_of
from omnigraph.engine.tasks import GraphAccess, Progress, graph_access, report_progress, reporting_to
from omnigraph.errors import GraphError, UsageError
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import TypeKey
from omnigraph.lang.query.ir import Direction
from omnigraph.limits import ALGO_BLOCK_NODES, ALGO_LOCAL_EDGES_MAX
from omnigraph.manifest.intents import declared
from omnigraph.manifest.model import MAIN
from omnigraph.public_values import Commit
from omnigraph.rules.arrow_typing import Column
from omnigraph.spark.executors import Engine, Executors, RunnerChoice, map_tasks
from omnigraph.spark.query.paths import union_frames
from omnigraph.spark.session import run_job, session
from omnigraph.store.write.fragments import claims, scan_fragments, side_folder


class MeasureOptions(TypedDict, total=False):
    """Options of every measure.

    Attributes:
        branch: The branch to read; `main` by default.
        at: Measure a past state: a commit, tag, manifest version or timestamp.
        write_to: A node property to write the measure to, in one commit on the branch.
        message: What that commit is for.
        engine: `local` runs in process, `spark` on executors, `auto` chooses by the number of edges.
        spark: A running Spark session to use; by default the active one, or a new one.
        master: The master of a new Spark session; by default Spark runs on this machine.
        progress: Called with each stage and how much of it is done.
    """

    branch: str
    at: AsOf | None
    write_to: str | None
    message: str | None
    engine: Engine
    spark: Any
    master: str | None
    progress: Progress | None


@dataclass(frozen=True)
class Measured:
    """The values of every node, the engine that computed them, and the commit that wrote them, if any."""

    values: NodeValues
    engine: str
    commit: Commit | None = None

    def to_arrow(self) -> pa.Table:
        """Return one row per node: `type`, `id` and the measured columns.

        Returns:
            The table.

        Example:
            >>> from omnigraph import pipeline
            >>> pipeline.algo.degree(graph).to_arrow().num_rows
            2
        """
        return self.values.to_arrow()

    def to_pandas(self) -> Any:
        """Return the same rows as a pandas DataFrame.

        Returns:
            The DataFrame.

        Raises:
            UsageError: pandas is not installed.

        Example:
            >>> from omnigraph import pipeline
            >>> list(pipeline.algo.degree(graph).to_pandas().columns)
            ['type', 'id', 'degree', 'in_degree', 'out_degree']
        """
        return to_pandas(self.to_arrow())

    def __repr__(self) -> str:
        nodes = self.values.nodes
        counts = [f"{count:,} {name}" for name, count in zip(nodes.types, nodes.counts, strict=True)]
        written = None if self.commit is None else commit_note(self.commit)
        return summarize(self, f"{', '.join(self.values.columns)} of {' and '.join(counts)}", self.engine, written)

    def to_dataframe(self, spark: Any = None) -> Any:
        """Return the same rows as a Spark DataFrame; its tasks read the ids.

        Args:
            spark: A running Spark session to use; by default the active one, or a new one.

        Returns:
            The DataFrame.

        Raises:
            PipelineUnavailable: Spark is not installed.

        Example:
            >>> from omnigraph import pipeline
            >>> frame = pipeline.algo.degree(graph).to_dataframe()  # doctest: +SKIP
        """
        return values_frame(self.values, spark)


def measure(
    graph: HasSession,
    edges: Sequence[str] | None,
    compute: Callable[[BlockGraph], Mapping[str, Numbers]],
    *,
    branch: str = MAIN,
    at: AsOf | None = None,
    write_to: str | None = None,
    message: str | None = None,
    engine: Engine = "auto",
    spark: Any = None,
    master: str | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Compute a measure on a branch or a past state, and write it back if `write_to` is set.

    Args:
        graph: The graph to measure.
        edges: The edge types to follow; all by default.
        options: See `MeasureOptions`.

    Returns:
        The values of every node, and the commit, if they were written.

    Raises:
        UsageError: There is no such edge type, or an option does not fit another.
        BranchNotFound: There is no such branch.
        GraphReadOnly: It was to be written or to run on Spark, and the graph was opened read-only.
        PipelineUnavailable: Spark was asked for and is not installed.
    """
    choice = RunnerChoice(engine, master, spark)
    if at is not None and write_to is not None:
        raise UsageError("`at` and `write_to` exclude each other: a past state cannot be written; use one of them")
    branch = branch.strip()
    graph_session = session_of(graph).with_message(message)
    view = graph_session.view(branch, at)
    nodes = select_nodes(view, edges)
    edge_count = sum(view.snapshot.state.pins[edge.table_key].row_count for edge in nodes.edges)
    is_on_spark = choice.takes_spark(edge_count, ALGO_LOCAL_EDGES_MAX)
    # All that can be refused is refused before Spark starts, which takes longer than most measures.
    if write_to is not None:
        check_writable(graph_session, view, nodes, write_to, branch)
    if is_on_spark and view.kernel.read_only:
        raise GraphError(
            "analytics on Spark write temporary files to the graph, which was opened read-only; open it for writing, or"
            ' use `engine="local"`',
            code="graph.read_only",
        )
    with reporting_to(progress):
        running = choice.start_session("a measure on executors", '`engine="auto"`') if is_on_spark else None
        report_progress("measuring", 0, 1)
        blocks: AbstractContextManager[BlockGraph] = (
            nullcontext(read_edges(view, nodes)) if running is None else spark_graph(view, nodes, running)
        )
        with blocks as sweeps:
            values = NodeValues(view, nodes, compute(sweeps))
        report_progress("measuring", 1, 1)
    commit = write_values(graph_session, values, write_to, branch) if write_to is not None else None
    return Measured(values, "spark" if is_on_spark else "local", commit)


@dataclass(frozen=True, slots=True)
class NumberedScan:
    """The scan of a type with the number of the first row of each task."""

    scan: Scan
    runs: Sequence[Sequence[int]]
    firsts: Sequence[int]

    def frame(self, spark: Any, columns: Sequence[str], convert: Callable[..., pa.RecordBatch], schema: str) -> Any:
        """Return what a function makes of the first row number and the columns of each batch, as a lazy DataFrame."""
        read = partial(_read_numbered, self.scan, columns, convert)
        return map_tasks(spark, read, list(zip(self.firsts, self.runs, strict=True)), schema)


def _read_numbered(
    scan: Scan, columns: Sequence[str], convert: Callable[..., pa.RecordBatch], task: tuple[int, Sequence[int]]
) -> Iterator[pa.RecordBatch]:
    first, fragments = task
    for batch in scan_fragments(scan.open(), fragments, columns):
        yield convert(first, *(batch.column(batch.schema.get_field_index(name)) for name in columns))
        first += batch.num_rows


def plan_numbered_scan(view: View, table_key: TypeKey) -> NumberedScan:
    """Plan the scan of a type, with the number of the first row of each task."""
    scan, runs = plan_scan(view, table_key)
    dataset = view.dataset(table_key)
    rows = dict(zip((fragment.id for fragment in dataset.fragments), dataset.fragment_rows, strict=True))
    counts = [sum(rows[fragment] for fragment in run) for run in runs]
    return NumberedScan(scan, runs, [0, *np.cumsum(counts).tolist()][:-1])


def values_frame(values: NodeValues, spark: Any = None) -> Any:
    """Return the measured columns as a DataFrame with `type` and `id`."""
    spark = spark if spark is not None else session()
    schema = "type string, id string" + "".join(
        f", {name} {'double' if column.dtype.kind == 'f' else 'long'}" for name, column in values.columns.items()
    )
    frames = [spark.createDataFrame([], schema)]
    for node_type in values.nodes.types:
        planned = plan_numbered_scan(values.view, TypeKey.of("node", node_type))
        type_columns = {name: values.nodes.of(node_type, column) for name, column in values.columns.items()}
        frames.append(planned.frame(spark, ["id"], partial(_value_rows, node_type, type_columns), schema))
    return union_frames(frames)


def _value_rows(node_type: str, values: Mapping[str, Numbers], first: int, ids: Column) -> pa.RecordBatch:
    columns: dict[str, Any] = {"type": pa.repeat(pa.scalar(node_type), len(ids)), "id": ids}
    for name, column in values.items():
        kind = pa.float64() if column.dtype.kind == "f" else pa.int64()
        columns[name] = pa.array(column[first : first + len(ids)], kind)
    return pa.RecordBatch.from_pydict(columns)


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
            yield SparkGraph(spark, view, nodes, ArrayFiles(access, folder))
        finally:
            store.objects.discard_prefix(folder)


@dataclass
class SparkGraph:
    """A graph whose blocks are processed by tasks."""

    spark: Any
    view: View
    nodes: NodeNumbering
    files: ArrayFiles
    _blocks: dict[Direction, list[BlockTask]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.nodes.size

    def degrees(self) -> tuple[Numbers, Numbers]:
        tasks = self._tasks(Direction.IN)
        partial_counts = Executors(self.spark).run(
            "counting edges", partial(_count_edges, self.files, self.size), tasks
        )
        going, coming = np.zeros(self.size, np.int64), np.zeros(self.size, np.int64)
        for task, (going_path, coming_path) in zip(tasks, partial_counts, strict=True):
            going += self.files.read(going_path)
            coming[task.first : task.first + task.size] = self.files.read(coming_path)
        return going, coming

    def sweep(self, kernel: Kernel, direction: Direction, state: Numbers) -> Numbers:
        tasks = self._tasks(direction)
        path = self.files.write(state)
        paths = Executors(self.spark).run("computing", partial(_sweep, self.files, kernel, path), tasks)
        swept = np.concatenate([np.empty(0, state.dtype), *(self.files.read(file) for file in paths)])
        for file in (path, *paths):
            self.files.remove(file)
        return swept

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
        files = by_block.mapInArrow(partial(_write_pairs, self.files), "block long, path string")
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
                ends = planned.frame(self.spark, ["src", "dst"], _pair_rows, "src string, dst string")
                ends = ends.join(numbers[edge.source].toDF("src", "source"), "src")
                ends = ends.join(numbers[edge.target].toDF("dst", "target"), "dst")
                frames.append(ends.select("source", "target"))
        return union_frames(frames)

    def _numbers(self, node_type: str) -> Any:
        planned = plan_numbered_scan(self.view, TypeKey.of("node", node_type))
        convert = partial(_number_rows, self.nodes.first(node_type))
        return planned.frame(self.spark, ["id"], convert, "id string, number long")


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


def _number_rows(start: int, first: int, ids: Column) -> pa.RecordBatch:
    numbers = np.arange(start + first, start + first + len(ids), dtype=np.int64)
    return pa.RecordBatch.from_pydict({"id": ids, "number": numbers})


def _pair_rows(_first: int, sources: Column, targets: Column) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"src": sources, "dst": targets})


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
