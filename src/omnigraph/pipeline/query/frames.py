"""Whole reads as DataFrames: what a read starts from, its pattern and its projection.

The stages of a `with` and the blocks of a union are reads of their own, whose columns the next read binds.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.physical_plan import ReadPlan, Source
from omnigraph.lang.catalog import KINDS, TypeKey
from omnigraph.lang.query import ir
from omnigraph.pipeline.query.expressions import Expressions
from omnigraph.pipeline.query.lower import Lowering
from omnigraph.pipeline.query.paths import PATH_COLUMNS
from omnigraph.pipeline.query.projection import Projection
from omnigraph.pipeline.query.scan import ID, VALUE, Names, collect_needs, push_down_filters, spark_type
from omnigraph.pipeline.query.search import Search


def read_frame(spark: Any, plan: ReadPlan, run: QueryRun) -> Any:
    """Return a read as a lazy DataFrame with the names of its columns."""
    return _projected(spark, plan, run).toDF(*(column.name for column in plan.query.returned))


def _projected(spark: Any, plan: ReadPlan, run: QueryRun) -> Any:
    names, search, cut = Names(), Search(spark, plan, run), plan.cut(run)
    expressions = Expressions(run.params, run.now_ms, names)
    pipeline = push_down_filters(plan.query.pipeline)
    lowering = Lowering(spark, run.view, expressions, names, collect_needs(plan.query, pipeline), search)
    start = None if plan.source is None else _bound(spark, plan.source, run, names, lowering)
    roots = {operator.variable for operator in pipeline if isinstance(operator, ir.NodeScan)}
    narrow = {plan.ranking.variable: search.narrow} if plan.ranking and plan.ranking.variable in roots else {}
    rows = lowering.pipeline(pipeline, start, narrow)
    return Projection(plan, expressions, names, search).run(rows, cut)


def _bound(spark: Any, source: Source, run: QueryRun, names: Names, lowering: Lowering) -> Any:
    """Return the rows of a source with its columns under the names of variables, and what is needed of entities."""
    frames = [_projected(spark, plan, run.fork()) for plan in source.plans]
    if len(frames) > 1:
        types = [spark_type(column.type) for column in source.columns]
        frames = [_cast(frame, types) for frame in frames]
    rows = reduce(lambda above, below: above.union(below), frames)
    rows = rows.select(
        *(
            selected
            for index, column in enumerate(source.columns)
            for selected in _variable_columns(rows[f"r{index}"], column, names)
        )
    )
    for column in source.columns:
        passed = column.expression
        if isinstance(passed, ir.VariableRef) and passed.kind in KINDS:
            rows = lowering.passed_on(rows, column.name, TypeKey.of(passed.kind, passed.type_name))
    return rows


def _cast(frame: Any, types: list[str]) -> Any:
    return frame.select(*(frame[f"r{index}"].cast(type_).alias(f"r{index}") for index, type_ in enumerate(types)))


def _variable_columns(value: Any, column: ir.Column, names: Names) -> list[Any]:
    passed = column.expression
    if not isinstance(passed, ir.VariableRef):
        return [value.alias(names(column.name, VALUE))]
    if passed.kind in KINDS:
        return [value.alias(names(column.name, ID))]
    return [value[name].alias(names(column.name, name)) for name, _ in PATH_COLUMNS]
