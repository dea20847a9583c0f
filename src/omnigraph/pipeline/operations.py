"""The operations of a graph that take an engine: in this process, or on Spark if they are large."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omnigraph.docstrings import complete_docs
from omnigraph.engine.branches import Branches
from omnigraph.engine.embed import EmbedReceipt
from omnigraph.engine.embed.embed_tasks import Mode as EmbedMode
from omnigraph.engine.infer.api import InferredSchema
from omnigraph.engine.infer.api import infer_schema as infer
from omnigraph.engine.input.splits import Path as Source
from omnigraph.engine.load.job import LoadReport
from omnigraph.engine.load.load import OnError
from omnigraph.engine.load.load import load as load_input
from omnigraph.engine.load.transaction import LateProperties, no_late_properties
from omnigraph.engine.maintain.maintenance import Maintenance
from omnigraph.engine.maintain.optimize import OptimizeReport
from omnigraph.engine.maintain.verify import TypeScan, VerifyReport, scan_in_process
from omnigraph.engine.maintain.verify import verify as run_verify
from omnigraph.engine.merge.conflicts import ResolutionsInput
from omnigraph.engine.schema import Schema, SchemaReceipt
from omnigraph.engine.session import View
from omnigraph.engine.tasks import Progress, report_progress, reporting_to
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph, session_of
from omnigraph.graph import running_on as graph_running_on
from omnigraph.lang.catalog import Type, TypeKey
from omnigraph.limits import LOAD_ERRORS_MAX, MAINTAIN_LOCAL_ROWS_MAX
from omnigraph.manifest.model import MAIN
from omnigraph.pipeline.verify_on_spark import check_on_spark
from omnigraph.public_values import MergeReceipt, Mode, OnDuplicate
from omnigraph.spark.executors import ENGINE_DOCS, Engine, Executors, RunnerChoice


@contextmanager
def running_on(
    graph: Graph, engine: Engine, spark: Any, master: str | None, progress: Progress | None
) -> Iterator[Graph]:
    """Yield the graph with long operations that run where the caller says, and report their progress."""
    with reporting_to(progress):
        yield graph_running_on(graph, RunnerChoice(engine, master, spark))


@complete_docs(Graph.load, ENGINE_DOCS)
def load(
    graph: Graph,
    data: Source | Sequence[Source] = (),
    *,
    nodes: Mapping[str, Any] | None = None,
    edges: Mapping[str, Any] | None = None,
    mode: Mode = "merge",
    branch: str = MAIN,
    from_branch: str | None = None,
    job_id: str | None = None,
    on_error: OnError = "fail",
    on_duplicate: OnDuplicate = "error",
    max_errors: int = LOAD_ERRORS_MAX,
    report: str | os.PathLike[str] | None = None,
    embed: bool = False,
    message: str | None = None,
    actor: str | None = None,
    engine: Engine = "auto",
    spark: Any = None,
    master: str | None = None,
    progress: Progress | None = None,
    properties: Mapping[str, str] | None = None,
    is_input_digested: bool = True,
    commits_empty: bool = False,
    late_properties: LateProperties = no_late_properties,
) -> LoadReport:
    """Load an input of any size as one commit.

    Args:
        data: NDJSON files, whose lines name their types: paths, directories, glob patterns or addresses of objects.
        nodes: By node type: Parquet or CSV files, or frames (Spark, pandas, polars, Arrow tables and readers). Frames
            that are not Spark's are written to temporary files, which executors on other machines cannot read.
        edges: The same by edge type; `"FILE:from_column->to_column"` names the columns of the endpoints.
        job_id: Idempotency key; a load with the same key and input is applied at most once.
        on_error: `fail` raises the violations; `quarantine` leaves wrong entities out and writes them to `report`.
        on_duplicate: Entities of the input with the same key: an `error`, or load the `first` or the `last` of them.
            This is decided before other rules are checked.
        max_errors: How many entities a quarantine may leave out before the load fails.
        report: Directory for `report.json` and `rejected.ndjson`.
        embed: Make the `@embed` vectors that the input does not have from their texts.
        actor: Who writes; by default the actor of the graph.
        properties: Further properties of the commit, such as where the input came from; with them, its property
            `counts` has the number of entities by type, and `rejected` that of entities that were left out.
        commits_empty: Commit an input without entities as well, for the sake of its properties.
        late_properties: Returns more properties of the commit; called with what is rejected when everything is staged.
        is_input_digested: Compare the input of a repeated `job_id`; without it, the key alone decides.

    Returns:
        What was loaded and rejected, and the commit, if there was anything to publish.

    Raises:
        UsageError: An argument or a file cannot be used.
        DataError: The input breaks a rule of the schema; nothing was written.
        JobExists: `job_id` was used for another input.
        PipelineUnavailable: The input needs Spark, which is not installed.

    Example:
        >>> import pyarrow as pa
        >>> from omnigraph import pipeline
        >>> pipeline.load(graph, nodes={"Person": pa.table({"name": ["Cid", "Dee"]})}).total_entities
        2
    """
    session = session_of(graph if actor is None else graph.acting_as(actor)).with_message(message)
    with reporting_to(progress):
        return load_input(
            session.running_on(RunnerChoice(engine, master, spark)),
            data,
            nodes=nodes,
            edges=edges,
            mode=mode,
            branch=branch,
            from_branch=from_branch,
            job_id=job_id,
            on_error=on_error,
            on_duplicate=on_duplicate,
            max_errors=max_errors,
            report=report,
            embed=embed,
            properties=properties,
            is_input_digested=is_input_digested,
            commits_empty=commits_empty,
            late_properties=late_properties,
        )


@complete_docs(Branches.merge, ENGINE_DOCS)
def merge(
    graph: Graph,
    source: str,
    into: str = MAIN,
    *,
    delete_branch: bool = False,
    resolutions: ResolutionsInput = None,
    message: str | None = None,
    engine: Engine = "auto",
    spark: Any = None,
    master: str | None = None,
    progress: Progress | None = None,
) -> MergeReceipt:
    """Merge a branch like `graph.branches.merge`, on Spark if it is large.

    With `engine="auto"`, only large merges run on Spark, and only if it is installed. On Spark, only the first of very
    many conflicts are reported, and resolutions of rule violations need `engine="local"`.

    Raises:
        MergeConflict: Both sides changed the same entity; nothing was written.
        BranchNotFound: One of the branches does not exist.
        PipelineUnavailable: Spark was asked for and is not installed.

    Example:
        >>> from omnigraph import pipeline
        >>> branch = graph.branches.create("review")
        >>> pipeline.merge(graph, "review", delete_branch=True).outcome.value
        'already_up_to_date'
    """
    session_of(graph).kernel.reject_read_only()
    with running_on(graph, engine, spark, master, progress) as there:
        session_of(there).runners.require()
        return there.branches.merge(source, into, delete_branch=delete_branch, resolutions=resolutions, message=message)


@complete_docs(Graph.embed, ENGINE_DOCS)
def embed(
    graph: Graph,
    branch: str = MAIN,
    *,
    types: Sequence[str] | None = None,
    mode: EmbedMode = "fill_missing",
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
    with running_on(graph, engine, spark, master, progress) as there:
        return there.embed(branch, types=types, mode=mode, select=select, message=message)


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
    with running_on(graph, engine, spark, master, progress) as there:
        return there.maintenance.optimize(branch, message=message)


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
    with running_on(graph, engine, spark, master, progress) as there:
        return there.schema.apply(
            schema,
            allow_data_loss=allow_data_loss,
            allow_drops=allow_drops,
            queries=queries,
            branch=branch,
            message=message,
        )


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


@complete_docs(ENGINE_DOCS)
def infer_schema(
    data: Source | Sequence[Source] = (),
    *,
    nodes: Mapping[str, Any] | None = None,
    edges: Mapping[str, Any] | None = None,
    delimiter: str | None = None,
    engine: Engine = "auto",
    spark: Any = None,
    master: str | None = None,
    progress: Progress | None = None,
) -> InferredSchema:
    """Write a first schema for an input: types, nullability, enums, keys and edges, each with its evidence.

    Args:
        data: NDJSON files, whose lines name their types, and Parquet or CSV files, each a table that is called like its
            file: a node type, or an edge type if two of its columns hold keys of node types.
        nodes: By node type: Parquet or CSV files, or frames (Spark, pandas, polars, Arrow tables and readers).
        edges: The same by edge type; `"FILE:from_column->to_column"` names the columns of the endpoints.
        delimiter: What separates the fields of CSV files; by default a comma, or a tab in `.tsv`.

    Returns:
        The schema, which compiles, and the arguments of `pipeline.load` for the same input.

    Raises:
        UsageError: An argument or a file cannot be used, or there is nothing to infer from.
        DataError: A file is malformed.

    Example:
        >>> import pyarrow as pa
        >>> people = pa.table({"name": ["Ada", "Bob"], "age": [36, None]})
        >>> print(infer_schema(nodes={"Person": people}).source.partition("\\n\\n")[2], end="")
        node Person {
          name: String @key // 2 rows, 2 distinct, 0 null
          age: I64? // 2 rows, 1 distinct, 1 null
        }
    """
    with reporting_to(progress):
        return infer(RunnerChoice(engine, master, spark), data, nodes=nodes, edges=edges, delimiter=delimiter)
