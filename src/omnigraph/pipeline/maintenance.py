"""Embed, optimize, verify and apply schemas like the engine, but on Spark executors if the data is large."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.docstrings import complete_docs
from omnigraph.engine.arguments import strip_name
from omnigraph.engine.embed import EmbedReceipt
from omnigraph.engine.embed.embed import embed as embed_stored
from omnigraph.engine.embed.embed_tasks import Mode
from omnigraph.engine.maintain.maintenance import Maintenance
from omnigraph.engine.maintain.optimize import IN_TURN, OptimizeReport
from omnigraph.engine.maintain.optimize import optimize as run_optimize
from omnigraph.engine.maintain.verify import (
    TypeScan,
    VerifyReport,
    columns_to_verify,
    count_lost,
    count_repeated,
    find_wrong_ids,
    scan_in_process,
)
from omnigraph.engine.maintain.verify import verify as run_verify
from omnigraph.engine.schema import Schema, SchemaReceipt
from omnigraph.engine.schema import apply as run_apply
from omnigraph.engine.session import GraphSession, View
from omnigraph.engine.tasks import GraphAccess, Progress, Runner, graph_access, report_progress, reporting_to
from omnigraph.errors import OmniGraphError, PipelineError
from omnigraph.graph import Graph, session_of
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import EdgeType, Type, TypeKey
from omnigraph.limits import (
    EMBED_LOCAL_BYTES_MAX,
    MAINTAIN_LOCAL_BYTES_MAX,
    MAINTAIN_LOCAL_ROWS_MAX,
    MAINTAIN_TASK_ROWS,
)
from omnigraph.manifest.model import MAIN
from omnigraph.pipeline.key_buckets.hashes import bucket_of
from omnigraph.pipeline.spark.executors import ENGINE_DOCS, Engine, Executors, RunnerChoice, map_tasks
from omnigraph.rules.arrow_typing import Column, pc
from omnigraph.source_files import schema_source
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.write.fragments import fragment_runs, scan_fragments
from omnigraph.stored_queries import QueryFolder, read_queries


@complete_docs(Graph.embed, ENGINE_DOCS)
def embed(
    graph: Graph,
    branch: str = MAIN,
    *,
    types: Sequence[str] | None = None,
    mode: Mode = "fill_missing",
    select: Sequence[str] = (),
    message: str | None = None,
    engine: Engine = "auto",
    spark: Any = None,
    master: str | None = None,
    progress: Progress | None = None,
) -> EmbedReceipt:
    """Compute the vectors of `@embed` properties like `Graph.embed`, on Spark if the types are large.

    Raises:
        UsageError: There is no such type, or an argument does not fit another.
        BranchNotFound: There is no such branch.
        PipelineUnavailable: Spark was asked for and is not installed.

    Example:
        >>> from omnigraph import pipeline
        >>> notes = "node Note { text: String @key  vector: Vector(4)? @embed(text) }"
        >>> with og.init(path + ".notes", schema=notes) as graph:
        ...     pipeline.embed(graph).commit is None
        True
    """
    choice, session = RunnerChoice(engine, master, spark), session_of(graph).with_message(message)
    branch = strip_name(branch)
    with reporting_to(progress):
        runner = choice.by_size(_embedded_bytes(session, branch), EMBED_LOCAL_BYTES_MAX)
        return embed_stored(session, branch, types, mode, select, runner=runner)


def _embedded_bytes(session: GraphSession, branch: str) -> int:
    """Return the size of all types that have an `@embed` property."""
    snapshot = session.kernel.snapshot(branch)
    nodes = session.catalog(snapshot).nodes.values()
    keys = [item.table_key for item in nodes if any(property_.embed for property_ in item.properties.values())]
    fragments = [item for key in keys for item in session.kernel.dataset(snapshot, key).fragments]
    return sum(file.file_size_bytes or 0 for item in fragments for file in item.files)


@complete_docs(Maintenance.optimize, ENGINE_DOCS)
def optimize(
    graph: Graph,
    branch: str = MAIN,
    *,
    message: str | None = None,
    engine: Engine = "auto",
    spark: Any = None,
    master: str | None = None,
    progress: Progress | None = None,
) -> OptimizeReport:
    """Optimize a branch like `graph.maintenance.optimize`, on Spark if it is large.

    With `engine="auto"`, only large tasks run on Spark, and only if it is installed.

    Raises:
        BranchNotFound: There is no such branch.
        PipelineUnavailable: Spark was asked for and is not installed.

    Example:
        >>> from omnigraph import pipeline
        >>> len(pipeline.optimize(graph).types)
        2
    """
    choice, session = RunnerChoice(engine, master, spark), session_of(graph).with_message(message)
    session.kernel.reject_read_only()
    with reporting_to(progress):
        choice.start_if_required()
        return run_optimize(session, branch, lambda size: choice.by_size(size, MAINTAIN_LOCAL_BYTES_MAX, IN_TURN))


@complete_docs(Schema.apply, ENGINE_DOCS)
def apply_schema(
    graph: Graph,
    schema: str | Path,
    *,
    allow_data_loss: bool = False,
    allow_drops: bool = True,
    queries: str | Path | Iterable[str | Path] | None = None,
    branch: str = MAIN,
    message: str | None = None,
    engine: Engine = "auto",
    spark: Any = None,
    master: str | None = None,
    progress: Progress | None = None,
) -> SchemaReceipt:
    """Apply a schema like `graph.schema.apply`; what reads and writes many stored rows runs on Spark.

    With `engine="auto"`, Spark is used if there are many rows to check or to write, and only if it is installed.

    Raises:
        LanguageError: The schema is invalid, or a step is not supported.
        DataError: Stored rows break a constraint that the schema adds; nothing was applied.
        PipelineUnavailable: Spark was asked for and is not installed.

    Example:
        >>> from omnigraph import pipeline
        >>> pipeline.apply_schema(graph, graph.schema.source).applied
        False
    """
    choice, session = RunnerChoice(engine, master, spark), session_of(graph).with_message(message)
    check = None if queries is None else QueryFolder(read_queries(queries)).reject_breakage

    def choose(rows: int) -> Runner:
        return choice.by_size(rows, MAINTAIN_LOCAL_ROWS_MAX)

    with reporting_to(progress):
        choice.start_if_required()
        source = schema_source(schema)
        return run_apply(session, source, allow_data_loss, check, choose, branch, allow_drops=allow_drops)


# A string, the type that owns it as an id, and the type (asker) and column it was read from. Column -1 is an error.
_KEYS: Final = "bucket int, owner int, asker int, column int, text string"
_COUNTS: Final = "asker int, column int, rows long, wrong long, text string"
_COUNT_TYPES: Final[Mapping[str, pa.DataType]] = {
    **dict.fromkeys(("asker", "column"), pa.int32()),
    **dict.fromkeys(("rows", "wrong"), pa.int64()),
    "text": pa.string(),
}
_COLUMNS: Final = ("id", "src", "dst")
_FAILED: Final = -1
# The column of ids that do not follow from the key.
_WRONG_ID: Final = 3


@dataclass(frozen=True, slots=True)
class _VerifyTask:
    """The fragments that one task reads; `owners` has, by column, the type whose ids it refers to."""

    type: Type
    type_index: int
    ref: DatasetRef
    fragment_ids: tuple[int, ...]
    owners: tuple[int, ...]


@complete_docs(Maintenance.verify, ENGINE_DOCS)
def verify(
    graph: Graph,
    *,
    data: bool = False,
    engine: Engine = "auto",
    spark: Any = None,
    master: str | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Verify a graph like `graph.maintenance.verify`; on Spark, no process holds all ids of a type.

    With `engine="auto"`, only branches with many entities are read on Spark, and only if it is installed.

    Raises:
        PolicyDenied: The actor may not administer the graph.
        PipelineUnavailable: Spark was asked for and is not installed.

    Example:
        >>> from omnigraph import pipeline
        >>> pipeline.verify(graph).is_sound
        True
    """
    choice, session = RunnerChoice(engine, master, spark), session_of(graph)

    def scan(view: View, types: Sequence[Type]) -> Mapping[TypeKey, TypeScan | OmniGraphError]:
        rows = sum(view.snapshot.state.pins[type_.table_key].row_count for type_ in types)
        runner = choice.by_size(rows, MAINTAIN_LOCAL_ROWS_MAX)
        report_progress("verifying", 0, len(types))
        scans = (
            check_on_spark(runner.spark, view, types) if isinstance(runner, Executors) else scan_in_process(view, types)
        )
        report_progress("verifying", len(types), len(types))
        return scans

    with reporting_to(progress):
        return run_verify(session, scan, data=data)


def check_on_spark(spark: Any, view: View, types: Sequence[Type]) -> Mapping[TypeKey, TypeScan | OmniGraphError]:
    """Read all ids and endpoints of a view on executors and compare them by bucket."""
    from omnigraph.pipeline.spark.session import run_job

    # Tasks open versions by path, so links of recent commits must be finished first.
    view.kernel.finish_links(view.snapshot)
    failed: dict[int, OmniGraphError] = {}
    tasks: list[_VerifyTask] = []
    rows: dict[int, int] = {}
    for index, type_ in enumerate(types):
        try:
            rows[index] = view.dataset(type_.table_key).count()
            tasks += _plan_tasks(view, types, index)
        except OmniGraphError as error:
            failed[index] = error
    columns = sum(count * (3 if isinstance(types[index], EdgeType) else 1) for index, count in rows.items())
    buckets = max(1, math.ceil(columns / MAINTAIN_TASK_ROWS))
    access = graph_access(view.kernel.store.root.uri, new_ulid())

    def job() -> list[Any]:
        keys = map_tasks(spark, partial(read_keys, access, buckets), tasks, _KEYS)
        return list(keys.groupBy("bucket", "owner").applyInArrow(check_bucket, _COUNTS).collect())

    counted = run_job(spark, "verifying", job) if tasks else []
    failed |= {row["asker"]: PipelineError(row["text"]) for row in counted if row["column"] == _FAILED}
    return {
        type_.table_key: failed[index] if index in failed else _summarize(types, index, rows, counted, failed)
        for index, type_ in enumerate(types)
    }


def _plan_tasks(view: View, types: Sequence[Type], index: int) -> list[_VerifyTask]:
    type_ = types[index]
    nodes = {other.name: number for number, other in enumerate(types) if not isinstance(other, EdgeType)}
    ends = [nodes[end] for end in type_.ends.values()]
    dataset = view.dataset(type_.table_key)
    runs = fragment_runs(dataset)
    return [_VerifyTask(type_, index, dataset.ref, tuple(run), (index, *ends)) for run in runs]


def read_keys(access: GraphAccess, buckets: int, task: _VerifyTask) -> Iterator[pa.RecordBatch]:
    """Yield the ids and endpoints of some fragments with their buckets."""
    try:
        dataset = access.open(task.ref)
        for batch in scan_fragments(dataset, task.fragment_ids, columns_to_verify(task.type)):
            wrong_ids = find_wrong_ids(task.type, pa.Table.from_batches([batch])).combine_chunks()
            bucket = np.zeros(len(wrong_ids), np.int32)
            yield _key_batch(bucket, task.type_index, task.type_index, _WRONG_ID, wrong_ids)
            for column, owner in enumerate(task.owners):
                texts: Column = batch.column(_COLUMNS[column])
                bucket = bucket_of(texts, access.operation_id, buckets).astype(np.int32)
                yield _key_batch(bucket, owner, task.type_index, column, texts)
    except OmniGraphError as error:
        # Not raised, so that the other types are still verified.
        yield _key_batch(np.zeros(1, np.int32), task.type_index, task.type_index, _FAILED, pa.array([error.message]))


def _key_batch(bucket: Any, owner: int, asker: int, column: int, texts: Column) -> pa.RecordBatch:
    numbers = {"owner": owner, "asker": asker, "column": column}
    columns = {name: np.full(len(texts), number, np.int32) for name, number in numbers.items()}
    return pa.RecordBatch.from_pydict({"bucket": bucket, **columns, "text": texts})


def check_bucket(keys: pa.Table) -> pa.Table:
    """Count duplicate ids in one bucket of a type, and endpoints that are not among its ids."""
    ids = keys.filter(pc.equal(keys["column"], 0))["text"]
    counts: list[dict[str, object]] = []
    for group in keys.group_by(["asker", "column"]).aggregate([]).to_pylist():
        asker, column = group["asker"], group["column"]
        texts = keys.filter(pc.and_(pc.equal(keys["asker"], asker), pc.equal(keys["column"], column)))["text"]
        if column == _FAILED:
            counts.append({**group, "rows": 0, "wrong": 0, "text": texts[0].as_py()})
            continue
        if column == _WRONG_ID:
            wrong = len(texts)
        else:
            wrong = count_repeated(texts) if column == 0 else count_lost(texts, ids)
        counts.append({**group, "rows": len(texts), "wrong": wrong})
    return pa.Table.from_pylist(counts, schema=pa.schema(_COUNT_TYPES))


def _summarize(
    types: Sequence[Type],
    index: int,
    rows: Mapping[int, int],
    counted: Sequence[Any],
    failed: Mapping[int, OmniGraphError],
) -> TypeScan:
    rows_seen, wrong = [0, 0, 0, 0], [0, 0, 0, 0]
    for row in counted:
        if row["asker"] == index:
            rows_seen[row["column"]] += row["rows"]
            wrong[row["column"]] += row["wrong"]
    type_ = types[index]
    # A driver that runs out of memory returns fewer rows and no error.
    if any(number != rows[index] for number in rows_seen[: 1 + len(type_.ends)]):
        raise PipelineError(
            f"Spark returned {rows_seen[0]} of {rows[index]} ids of `{type_.name}`, so it was not verified; give"
            " the driver more memory and retry"
        )
    unread = {types[number].name for number in failed if not isinstance(types[number], EdgeType)}
    # Nothing is known of the edges that lead to a type which could not be read.
    lost = {column: wrong[_COLUMNS.index(column)] for column, end in type_.ends.items() if end not in unread}
    return TypeScan(rows[index], wrong[0] == 0, lost, wrong[_WRONG_ID])
