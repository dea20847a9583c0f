"""Read queries on Spark, as DataFrames, for data that one machine cannot hold.

The same IR and the same results as in process (`engine.query`): `scan` prunes columns, pushes down filters, reads types
and ranks, `lower` turns patterns into joins, `paths` searches paths, and `projection` finishes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from omnigraph import clock
from omnigraph.docstrings import complete_docs
from omnigraph.engine.arguments import decode_params
from omnigraph.engine.past_schemas import NOW, Naming
from omnigraph.engine.query.aggregate import overflow_error
from omnigraph.engine.query.budget import DEFAULT_BUDGET, BudgetUsage
from omnigraph.engine.query.context import Caches, QueryRun
from omnigraph.engine.query.physical_plan import ReadPlan
from omnigraph.engine.query.result import Result
from omnigraph.engine.query.vectors import function_overflow_message
from omnigraph.engine.revisions import AsOf
from omnigraph.engine.session import HasSession, View, session_of
from omnigraph.engine.tasks import Progress, reporting_to
from omnigraph.errors import ArithmeticOverflow, PipelineError
from omnigraph.lang.catalog import PropertyType, Scalar
from omnigraph.lang.query import CompiledQuery, require_kind
from omnigraph.lang.query.functions import AGGREGATES
from omnigraph.lang.query.ir import ReadIR
from omnigraph.lang.schema.arrow_schema import arrow_type
from omnigraph.manifest.model import MAIN
from omnigraph.protocol import GraphProtocol
from omnigraph.rules.delta import one_array
from omnigraph.rules.time_columns import from_timestamps
from omnigraph.source_files import SourceInput, query_source
from omnigraph.spark.executors import ENGINE_DOCS, Engine, RunnerChoice
from omnigraph.spark.session import run_job

if TYPE_CHECKING:
    from omnigraph.engine.query.embedders import Embedder

# The words of an overflow, in whatever Spark wraps round them.
_OVERFLOW: Final = re.compile(r"a result of `([^`]+)` does not fit (\w+)")


@complete_docs(GraphProtocol.query, ENGINE_DOCS)
def query(
    graph: HasSession,
    source: SourceInput,
    params: Mapping[str, object] | None = None,
    *,
    name: str | None = None,
    branch: str = MAIN,
    at: AsOf | None = None,
    names: Naming = NOW,
    embedder: Embedder | None = None,
    engine: Engine = "auto",
    spark: Any = None,
    master: str | None = None,
    progress: Progress | None = None,
) -> Any:
    """Return a read query as a Spark DataFrame.

    Variable-length paths and searches are computed eagerly, everything else lazily.

    Args:
        at: Read a past state: a commit, tag, manifest version or timestamp.
        embedder: Turns query text into vectors; by default the configured provider.
        engine: `auto` or `spark`; a DataFrame cannot be made in process.
        progress: Called while the call waits for Spark; the jobs of the DataFrame report to Spark.

    Returns:
        A DataFrame with the columns of the query.

    Raises:
        LanguageError: The query does not parse or type-check.
        UsageError: `engine` is `local`; use `Graph.query`.
        PipelineUnavailable: Spark is not installed.

    Example:
        >>> from omnigraph import pipeline
        >>> frame = pipeline.query(graph, "query q() { match { $p: Person } return { $p.name } }")  # doctest: +SKIP
    """
    choice = RunnerChoice(engine, master, spark)
    view, compiled = _compile(graph, source, name, branch, at, names)
    with reporting_to(progress):
        running = choice.start_session("`pipeline.query`", "`graph.query`")
        return _frame(view, compiled, params or {}, running, embedder)


def collect(
    graph: HasSession,
    source: SourceInput,
    params: Mapping[str, object] | None = None,
    *,
    name: str | None = None,
    branch: str = MAIN,
    at: AsOf | None = None,
    names: Naming = NOW,
    spark: Any = None,
    embedder: Embedder | None = None,
) -> Result:
    """Run a read query on Spark and return its result as `Graph.query` does; it must fit into memory."""

    view, compiled = _compile(graph, source, name, branch, at, names)
    frame = _frame(view, compiled, params or {}, spark, embedder)
    return collect_result(frame, compiled, view)


def _compile(
    graph: HasSession, source: SourceInput, name: str | None, branch: str, at: AsOf | None, names: Naming
) -> tuple[View, CompiledQuery]:
    branch = branch.strip()
    view = session_of(graph).view(branch, at, names=names)
    return view, require_kind(session_of(graph).compile(query_source(source), view.catalog, name), "read")


def _frame(
    view: View, compiled: CompiledQuery, params: Mapping[str, object], spark: Any, embedder: Embedder | None
) -> Any:
    from omnigraph.spark.query.lower import read_frame
    from omnigraph.spark.session import session

    read = compiled.ir
    assert isinstance(read, ReadIR)
    plan = ReadPlan(read, view.catalog)
    now_ms = clock.now_us() // 1_000
    run = QueryRun(
        view, decode_params(compiled.params, params), now_ms, BudgetUsage(DEFAULT_BUDGET), Caches(), embedder
    )
    for parameter in plan.parameters:
        run.parameter(parameter)
    return read_frame(spark if spark is not None else session(), plan, run)


def collect_result(frame: Any, query: CompiledQuery, view: View) -> Result:
    """Collect the DataFrame of a query."""
    read = query.ir
    assert isinstance(read, ReadIR)
    try:
        table: pa.Table = run_job(frame.sparkSession, "a query", frame.toArrow)
    except PipelineError as error:
        raise_if_overflow(str(error.__cause__))
        raise
    columns = [
        from_spark_column(one_array(values), column.type)
        for values, column in zip(table.columns, read.returned, strict=True)
    ]
    result = pa.Table.from_arrays(columns, names=[column.name for column in read.returned])
    return Result(result, query.name, view.snapshot.branch, view.snapshot.head)


def raise_if_overflow(reason: str) -> None:
    """Raise `ArithmeticOverflow` if Spark failed because a computed number did not fit its type."""
    match = _OVERFLOW.search(reason)
    if match is None:
        return
    function, type_name = match[1], match[2]
    if function in AGGREGATES:
        raise overflow_error(function, Scalar(type_name))
    message = function_overflow_message(function, type_name)
    raise ArithmeticOverflow(message, function=function, type=type_name)


def from_spark_column(column: Any, type_: PropertyType) -> Any:
    """Convert a Spark column to the layout of a property.

    >>> from_spark_column(pa.array([0], pa.timestamp("us", "UTC")), PropertyType(Scalar.DATETIME)).type
    DataType(date64[ms])
    """
    stored = arrow_type(type_)
    is_instant = type_.scalar is Scalar.DATETIME
    return from_timestamps(column, stored) if is_instant else column.cast(stored)
