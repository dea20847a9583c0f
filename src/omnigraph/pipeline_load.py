"""`pipeline.load`: a load of any size with job ids, quarantine and reports, where the caller says."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from omnigraph.docstrings import complete_docs
from omnigraph.engine.input.splits import Path as Source
from omnigraph.engine.load.job import LoadReport
from omnigraph.engine.load.load import OnError
from omnigraph.engine.load.load import load as load_input
from omnigraph.engine.load.transaction import LateProperties, no_late_properties
from omnigraph.engine.tasks import Progress, reporting_to
from omnigraph.graph import Graph, session_of
from omnigraph.limits import LOAD_ERRORS_MAX
from omnigraph.manifest.model import MAIN
from omnigraph.public_values import Mode, OnDuplicate
from omnigraph.spark.executors import ENGINE_DOCS, Engine, RunnerChoice


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
