"""Validates a pipeline before any data moves, and judges the rows of its views and the answers of its queries."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from omnigraph.display import count_of
from omnigraph.errors import UsageError
from omnigraph.graph import Graph
from omnigraph.lang.diagnostic import Source, did_you_mean
from omnigraph.pipelines.declaration.config import (
    Expectation,
    PipelineDeclaration,
    TypeMapping,
    read_pipelines,
    resolve_variables,
)
from omnigraph.pipelines.frame_columns import all_of, all_present, column_of, suggest_column
from omnigraph.pipelines.redaction import redact_errors
from omnigraph.pipelines.row_operations import classify_rows
from omnigraph.pipelines.sources.read import read_source
from omnigraph.pipelines.transform import map_deletions, map_types, run_statement
from omnigraph.public_values import PublicValue
from omnigraph.spark.session import first_line, run_job

# SQL of a pipeline reads its views: no files by their path (parquet.`/data`), and no variables of the process.
_CLOSED_SQL: Final = {"spark.sql.runSQLOnFiles": "false", "spark.sql.variable.substitute": "false"}
# How many rows a message shows.
_SAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class Verdict(PublicValue):
    """The outcome of an expectation: how many of the rows failed, and what follows from it."""

    expectation: str
    passed: bool
    rows: int
    failed: int
    outcome: str
    message: str


def judge_view(
    frame: Any, view: str, expectations: Iterable[Expectation], quarantine: Path | None
) -> tuple[list[Verdict], Any]:
    """Judge the rows of a view; returns the verdicts, and the view without its quarantined rows."""
    verdicts: list[Verdict] = []
    for expectation in expectations:
        if expectation.view != view:
            continue
        verdict = _judge(frame, expectation)
        verdicts.append(verdict)
        if is_stopped(verdicts):
            break
        if expectation.outcome == "quarantine" and verdict.failed:
            holds = row_condition(frame, expectation)
            _write_quarantined(frame.filter(~holds), view, view, quarantine)
            frame = frame.filter(holds)
    return verdicts, frame


def _write_quarantined(rows: Any, view: str, label: str, folder: Path | None) -> None:
    if folder is not None:
        write = partial(rows.write.mode("append").json, (folder / view).absolute().as_uri())
        run_job(rows.sparkSession, f"writing quarantined rows of {label}", write)


def row_condition(frame: Any, expectation: Expectation) -> Any:
    """Return what must hold of every row, as a Spark column; None if nothing is expected of single rows.

    Raises:
        UsageError: The view has no such column, or the condition is not valid SQL.
    """
    from pyspark.sql import functions

    for name in (*expectation.not_null, *expectation.unique):
        if name not in frame.columns:
            hint = suggest_column(name, frame)
            message = f"an expectation names `{name}`; `{expectation.view}` has no such column; {hint}"
            raise UsageError(message, part=expectation.part)
    conditions = [column_of(name).isNotNull() for name in expectation.not_null]
    if expectation.condition is not None:
        # Unknown fails, so that a null does not pass unnoticed.
        try:
            condition = functions.coalesce(functions.expr(expectation.condition), functions.lit(False))
            # Rows are counted and then left out by it, so it must have the same value twice.
            _ = frame.filter(condition).agg(functions.count_if(condition)).schema
        except Exception as error:
            message = f"the condition `{expectation.condition}` is not valid: {first_line(error)}"
            raise UsageError(message, part=expectation.part) from error
        conditions.append(condition)
    return all_of(conditions) if conditions else None


def _judge(frame: Any, expectation: Expectation) -> Verdict:
    from pyspark.sql import functions

    holds = row_condition(frame, expectation)
    counts = [functions.count(functions.lit(1)).alias("rows")]
    counts += [functions.count_if(~holds).alias("failed")] if holds is not None else []
    if expectation.unique:
        # As in SQL, a row without one of the values equals no other.
        columns = [column_of(name) for name in expectation.unique]
        counts.append(functions.count_distinct(*columns).alias("distinct"))
        counts.append(functions.count_if(all_present(columns)).alias("complete"))
    stage = f"judging {expectation.label}"
    [row] = run_job(frame.sparkSession, stage, frame.agg(*counts).collect)
    rows = row["rows"]
    failed = (row["failed"] if holds is not None else 0) + (
        row["complete"] - row["distinct"] if expectation.unique else 0
    )
    is_short = expectation.rows_min is not None and rows < expectation.rows_min
    # In fractions, because 0.57 % of 10,000 rows are 57, and fewer as floats.
    passed = not is_short and failed <= expectation.at_most * rows
    message = f"{failed:,} of {rows:,} rows fail" if failed else count_of(rows, "row")
    if is_short:
        message = f"{count_of(rows, 'row')}, expected at least {expectation.rows_min}"
    return Verdict(expectation.label, passed, rows, failed, expectation.outcome, message)


def judge_operations(
    frame: Any, mapping: TypeMapping, pipeline: PipelineDeclaration, quarantine: Path | None
) -> Verdict:
    """Count the rows whose operation is not declared, and write them to the quarantine, if that is their outcome."""
    from pyspark.sql import functions

    spark, mark = frame.sparkSession, str(mapping.delete_when)
    is_unknown = classify_rows(frame, mapping).isNull()
    counts = frame.agg(functions.count(functions.lit(1)).alias("rows"), functions.count_if(is_unknown).alias("failed"))
    label = f"{mapping.type_name} (delete_when)"
    [row] = run_job(spark, f"judging {label}", counts.collect)
    outcome = mapping.otherwise or ("quarantine" if pipeline.is_rejecting else "stop")
    if not row["failed"]:
        return Verdict(label, True, row["rows"], 0, outcome, "every operation is declared")
    unknown = frame.filter(is_unknown)
    samples = unknown.select(functions.to_json(functions.struct(*map(column_of, frame.columns)))).limit(_SAMPLES)
    shown = " and ".join(item[0] for item in run_job(spark, f"judging {label}", samples.collect))
    message = (
        f"{row['failed']:,} of {row['rows']:,} rows of `{mapping.from_view}` have a `{mark}` that is not declared, such"
        f" as {shown}; name its values in `delete_when`, `upsert_when` or `ignore_when`, or say what is `otherwise`"
    )
    if outcome == "quarantine":
        _write_quarantined(unknown, mapping.from_view, label, quarantine)
    return Verdict(label, outcome == "quarantine", row["rows"], row["failed"], outcome, message)


def judge_answers(pipeline: PipelineDeclaration, ask: Callable[[str], int]) -> list[Verdict]:
    """Judge the queries; `ask` runs one on the loaded branch and returns the number of its rows."""
    verdicts = []
    for expectation in (item for item in pipeline.expectations if item.query is not None):
        rows = ask(str(expectation.query))
        passed = rows == expectation.rows
        message = f"{count_of(rows, 'row')}, expected {expectation.rows}"
        verdicts.append(Verdict(expectation.label, passed, rows, 0, expectation.outcome, message))
    return verdicts


def is_stopped(verdicts: Iterable[Verdict]) -> bool:
    """Return True if a failed expectation forbids going on."""
    return any(not verdict.passed and verdict.outcome != "warn" for verdict in verdicts)


# A directory of `.gq` files, or their texts.
Queries: TypeAlias = str | Path | Sequence[Source]
Pipelines: TypeAlias = str | Path | PipelineDeclaration | Mapping[str, PipelineDeclaration]


@dataclass(frozen=True, slots=True)
class CheckReport(PublicValue):
    """A valid pipeline: the columns of its views with their Spark types, and the columns that each type takes."""

    pipeline: str
    views: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    nodes: Mapping[str, list[str]] = field(default_factory=dict)
    edges: Mapping[str, list[str]] = field(default_factory=dict)


def find_pipeline(pipelines: Pipelines, name: str | None = None) -> PipelineDeclaration:
    """Return a pipeline of a file or of declarations.

    Raises:
        UsageError: There is no such pipeline, or there are several and none is named.
    """
    if isinstance(pipelines, PipelineDeclaration):
        return pipelines
    declared = pipelines if isinstance(pipelines, Mapping) else read_pipelines(pipelines)
    names = ", ".join(f"`{item}`" for item in declared) or "none"
    if name is None and len(declared) == 1:
        return next(iter(declared.values()))
    if name is None:
        raise UsageError(f"name the pipeline; there are {names}")
    if name not in declared:
        hint = did_you_mean(name, declared) or f"there are {names}"
        raise UsageError(f"there is no pipeline `{name}`; {hint}", pipeline=name)
    return declared[name]


def check(
    graph: Graph,
    pipelines: Pipelines,
    name: str | None = None,
    *,
    spark: Any = None,
    queries: Queries | None = None,
) -> CheckReport:
    """Validate a pipeline: columns, types, keys and SQL, with the schemas of its sources and of the graph.

    Spark analyses the statements and runs no job, except to infer the schema of formats that have none.

    Args:
        graph: The graph to load into.
        pipelines: A YAML file, or a declaration that `read_pipelines` returned.
        name: Which pipeline of the file to check; may be omitted if it has only one.
        spark: A Spark session to use; by default the running one, or one that is started as the declaration says.
        queries: Directory of the `.gq` files of expectations; by default that of the declaration.

    Returns:
        The columns of sources and transforms, and those that each type takes.

    Raises:
        UsageError: What is wrong, and what to do about it.

    Example:
        >>> from omnigraph import pipeline
        >>> pipeline.check(graph, "pipelines.yaml", "crm").nodes  # doctest: +SKIP
        {'Person': ['name', 'age']}
    """
    pipeline = find_pipeline(pipelines, name)
    with redact_errors(pipeline):
        return _check(graph, pipeline, spark, queries)


def _check(graph: Graph, pipeline: PipelineDeclaration, spark: Any, queries: Queries | None) -> CheckReport:
    read_expected_queries(graph, pipeline, queries)
    require_target(graph, pipeline)
    session = prepare_session(pipeline, spark)
    frames: dict[str, Any] = {}
    for view in (*pipeline.sources, *pipeline.transforms):
        frame = (
            read_source(session, pipeline.sources[view], pipeline.folder)
            if view in pipeline.sources
            else run_statement(session, view, pipeline.transforms[view])
        )
        for expectation in pipeline.expectations:
            if expectation.view == view:
                row_condition(frame, expectation)
        frame.createOrReplaceTempView(view)
        frames[view] = frame
    nodes, edges = map_types(pipeline, frames, graph.schema.catalog)
    map_deletions(pipeline, frames, graph.schema.catalog)
    return CheckReport(
        pipeline.name,
        {view: {item.name: item.dataType.simpleString() for item in frame.schema} for view, frame in frames.items()},
        {type_name: list(columns.data.columns) for type_name, columns in nodes.items()},
        {type_name: list(columns.data.columns) for type_name, columns in edges.items()},
    )


def require_target(graph: Graph, pipeline: PipelineDeclaration) -> None:
    """Refuse a pipeline that publishes to a branch which does not exist."""
    branches, target = graph.branches.list(), pipeline.publication.merge_into
    if target is not None and target not in branches:
        hint = did_you_mean(target, branches) or "create it first"
        raise UsageError(f"there is no branch `{target}` to merge into; {hint}", part="publish", branch=target)


def read_expected_queries(
    graph: Graph, pipeline: PipelineDeclaration, queries: Queries | None = None
) -> dict[str, str]:
    """Return the sources of the queries that expectations name, compiled against the schema of the graph."""
    from omnigraph.stored_queries import check_queries, read_queries

    names = [str(item.query) for item in pipeline.expectations if item.query is not None]
    if not names:
        return {}
    if queries is None and pipeline.queries is not None:
        queries = (pipeline.folder or Path()) / pipeline.queries
    if queries is None:
        raise UsageError(f"an expectation names the query `{names[0]}`; add `queries`, the directory of its `.gq` file")
    sources = read_queries(queries) if isinstance(queries, str | Path) else list(queries)
    stored = check_queries(sources, graph.schema.catalog)
    for name in names:
        query = stored.get(name)
        broken = next((item for item in stored.broken if item.name == name), None)
        if broken is not None:
            raise UsageError(f"the query of an expectation does not compile: {broken.render()}", query=name)
        if query is None:
            known = [item.name for item in stored.queries]
            hint = did_you_mean(name, known) or f"there are {', '.join(known) or 'none'}"
            raise UsageError(f"there is no stored query `{name}`, which an expectation names; {hint}", query=name)
        if query.mutation or any(not parameter.nullable for parameter in query.params):
            raise UsageError(f"the query `{name}` of an expectation must be a read without parameters", query=name)
    return {name: query.source for name in names if (query := stored.get(name)) is not None}


def prepare_session(pipeline: PipelineDeclaration, spark: Any = None) -> Any:
    """Return a session with views and settings of its own, so that runs and their callers do not disturb each other."""
    from omnigraph.spark.session import session

    options = _spark_options(pipeline)
    master = None if pipeline.master is None else resolve_variables(pipeline.master, os.environ)
    isolated = (session(master, options) if spark is None else spark).newSession()
    for name, value in {**options, **_CLOSED_SQL}.items():
        if isolated.conf.isModifiable(name):
            isolated.conf.set(name, value)
    return isolated


def find_ignored_settings(pipeline: PipelineDeclaration, spark: Any) -> list[str]:
    """Return the settings of a pipeline that its session does not have: Spark sets them when it starts, or never."""
    return sorted(name for name, value in _spark_options(pipeline).items() if spark.conf.get(name, None) != value)


def find_ui(spark: Any) -> str | None:
    """Return the address of Spark's pages, if they are on; Spark Connect does not tell."""
    context = getattr(spark, "_sc", None)
    return None if context is None else context.uiWebUrl


def _spark_options(pipeline: PipelineDeclaration) -> dict[str, str]:
    return {name: resolve_variables(value, os.environ) for name, value in pipeline.spark_options.items()}
