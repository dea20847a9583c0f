"""Queries on Spark: the reads of the language as DataFrames, for data that one machine cannot hold.

The same IR and the same answers as in process; see `engine.read`. May import the facade and everything below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from omnigraph import clock
from omnigraph.engine.params import decode_params
from omnigraph.engine.past_names import NOW, Naming
from omnigraph.engine.query.budget import DEFAULT_BUDGET, BudgetUsage
from omnigraph.engine.query.caches import Caches
from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.physical_plan import ReadPlan
from omnigraph.engine.query.result import Result
from omnigraph.engine.session import Moment, View
from omnigraph.graph import Graph
from omnigraph.lang.query import CompiledQuery, require_kind
from omnigraph.lang.query.ir import NodeScan, ReadIR
from omnigraph.manifest.model import MAIN

if TYPE_CHECKING:
    from omnigraph.engine.query.embedders import Embedder

__all__ = ["collect", "query"]


def query(
    graph: Graph,
    source: str,
    name: str | None = None,
    params: Mapping[str, object] | None = None,
    branch: str = MAIN,
    at: Moment | None = None,
    *,
    names: Naming = NOW,
    spark: Any = None,
    embedder: Embedder | None = None,
) -> Any:
    """Return a read as a DataFrame of Spark, on the newest state of a branch or at a moment of the past.

    `names` is as in `Graph.query`. Walks of several hops and searches run at once, all else when rows are asked for.
    """
    view, compiled = _compiled(graph, source, name, branch, at, names)
    return _frame(view, compiled, params or {}, spark, embedder)


def collect(
    graph: Graph,
    source: str,
    name: str | None = None,
    params: Mapping[str, object] | None = None,
    branch: str = MAIN,
    at: Moment | None = None,
    *,
    names: Naming = NOW,
    spark: Any = None,
    embedder: Embedder | None = None,
) -> Result:
    """Run a read on Spark and return its rows as `Graph.query` does; they must fit into memory."""
    from omnigraph.pipeline.query.result import result_of

    view, compiled = _compiled(graph, source, name, branch, at, names)
    frame = _frame(view, compiled, params or {}, spark, embedder)
    return result_of(frame, compiled, view)


def _compiled(
    graph: Graph, source: str, name: str | None, branch: str, at: Moment | None, names: Naming
) -> tuple[View, CompiledQuery]:
    branch = branch.strip()
    view = graph.core.view(branch, at, names=names)
    return view, require_kind(graph.core.compile(source, view.catalog, name), "read")


def _frame(
    view: View, compiled: CompiledQuery, params: Mapping[str, object], spark: Any, embedder: Embedder | None
) -> Any:
    from omnigraph.pipeline.query.expressions import Expressions
    from omnigraph.pipeline.query.lower import Lowering
    from omnigraph.pipeline.query.needs import Names, needs_of, with_early_filters
    from omnigraph.pipeline.query.projection import Finish
    from omnigraph.pipeline.query.search import Search
    from omnigraph.pipeline.spark.session import session

    read = compiled.ir
    assert isinstance(read, ReadIR)
    plan = ReadPlan(read, view.catalog)
    now_ms = clock.now_us() // 1_000
    run = QueryRun(
        view, decode_params(compiled.params, params), now_ms, BudgetUsage(DEFAULT_BUDGET), Caches(), embedder
    )
    for parameter in plan.parameters:
        run.parameter(parameter)
    cut = plan.cut(run)
    spark = spark if spark is not None else session()
    names, search = Names(), Search(spark, plan, run)
    expressions = Expressions(run.params, now_ms, names)
    pipeline = with_early_filters(read.pipeline)
    lowering = Lowering(spark, view, expressions, names, needs_of(read, pipeline), search)
    roots = {one.variable for one in pipeline if isinstance(one, NodeScan)}
    narrow = {plan.ranking.variable: search.narrow} if plan.ranking and plan.ranking.variable in roots else {}
    return Finish(plan, expressions, names, search).run(lowering.pipeline(pipeline, narrow=narrow), cut)
