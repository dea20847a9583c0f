"""Physical plan of a read: what it starts from, pattern pipeline, ranking, factorized aggregation and projection.

Independent of data, parameters and time; built once per compiled query and shared by threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.expressions import parameters_of, source_key, variables_of, walk
from omnigraph.engine.query.factorized import FactorizedAggregate
from omnigraph.engine.query.operators import Scan
from omnigraph.engine.query.ordering import top_rows
from omnigraph.engine.query.paths import path_key
from omnigraph.engine.query.planning import Planner
from omnigraph.engine.query.projection import Projection, SkipLimit, returns_identity
from omnigraph.engine.query.ranking import Ranked, Ranking
from omnigraph.engine.query.vectors import UNIT_ROW, Ids, Rows, vector_from_arrow
from omnigraph.errors import BudgetExceeded, DataError
from omnigraph.lang.catalog import KINDS, Catalog, TypeKey
from omnigraph.lang.query import ir
from omnigraph.lang.schema.arrow_schema import arrow_type

_RANKED_LISTS, _BEST, _WEIGHTS = "arms", "best", "weights"


class ReadPlan:
    """The plan of one read."""

    def __init__(self, query: ir.ReadIR, catalog: Catalog) -> None:
        self.query = query
        keys = {node.name: node.key[0] for node in catalog.nodes.values() if len(node.key) == 1}
        self.source = _plan_source(query, catalog, keys)
        self.tables = bound_variable_types(query.pipeline)
        self.values: tuple[str, ...] = ()
        if self.source is not None:
            self.tables, self.values = {**self.source.tables, **self.tables}, self.source.values
        self.projection = Projection(query, self.tables, self.values, keys)
        self.ranking = Ranking(query.rank) if query.rank is not None else None
        self.parameters = _used_parameters(query)
        # A ranked variable is ranked where it is written: among all of its kind at a root, else among what is reached.
        planner = Planner(catalog, keeps_roots=query.rank is not None)
        outer = () if self.source is None else [column.name for column in self.source.columns]
        needed = self._needed()
        self.pipeline = planner.pipeline(query.pipeline, outer, needed, as_set=self._is_set())
        self.factorized = FactorizedAggregate.of(query, self.pipeline) if self.source is None else None
        self._root = self._ranked_scan()
        # With nothing but the ranked nodes, one row each, the best of them are the result.
        is_plain = not query.is_grouped and not query.is_distinct
        is_first = self.source is None and self._root is not None
        self._is_alone = is_first and len(self.pipeline.steps) == 1 and is_plain

    def run(self, run: QueryRun) -> pa.Table:
        """Run the plan and return its columns."""
        for name in self.parameters:
            run.parameter(name)
        bounds = self.cut(run)
        if self.uses_weights(run):
            return self._run_factorized(run, bounds)
        try:
            return self._run_rows(run, bounds)
        except BudgetExceeded as error:
            if self.factorized is None or error.context["limit"] == "seconds":
                raise
        # Rows exceed the budget, but the factorized count may not.
        return self._run_factorized(run, bounds)

    def _run_factorized(self, run: QueryRun, bounds: SkipLimit) -> pa.Table:
        assert self.factorized is not None
        columns, count = self.factorized.columns(run, self.projection)
        return self.projection.run_grouped(run, columns, count, bounds)

    def _run_rows(self, run: QueryRun, bounds: SkipLimit) -> pa.Table:
        if self._root is not None:
            run.scratch[_RANKED_LISTS] = None
        rows = UNIT_ROW if self.source is None else self.source.rows(run)
        rows = self.pipeline.run(run, rows).only(self.pipeline.outputs)
        if self.ranking is None:
            return self.projection.run(run, rows, bounds, None, None)
        rows, ranked = (rows, run.scratch[_BEST]) if self._is_alone else self._rank(run, self.ranking, rows, bounds)
        return self.projection.run(run, rows, bounds, ranked, self.ranking)

    def uses_weights(self, run: QueryRun) -> bool:
        """True if a run uses factorized aggregation; decided once per run."""
        if _WEIGHTS not in run.scratch:
            run.scratch[_WEIGHTS] = self.factorized is not None and self.factorized.is_worthwhile(run)
        return bool(run.scratch[_WEIGHTS])

    def cut(self, run: QueryRun) -> SkipLimit:
        """Return what `skip` and `limit` mean for this run."""
        bounds = (("skip", self.query.skip), ("limit", self.query.limit))
        skip, limit = (None if bound is None else run.bound(bound, word) for word, bound in bounds)
        if limit == 0 and self.query.rank is not None and not isinstance(self.query.rank, ir.Bm25):
            raise DataError("ordering by `nearest` or `rrf` needs a limit of at least 1", rule="E4", limit=0)
        return SkipLimit(skip or 0, limit)

    def _needed(self) -> set[str]:
        query = self.query
        needed = {name for column in query.columns for name in variables_of(column.expression)}
        needed |= {name for key in query.order for name in variables_of(key.expression)}
        needed |= variables_of(query.rank)
        needed |= {name for key in query.distinct_on for name in variables_of(key)}
        has_rows = not query.is_grouped and not query.is_distinct
        if has_rows and (query.is_ordered or query.rank is not None or query.distinct_on):
            # Rows that the keys leave equal are put in order by all that is bound.
            needed |= {*self.tables, *self.values}
        return needed

    def _is_set(self) -> bool:
        aggregates = [
            part for item in self.query.columns for part in walk(item.expression) if isinstance(part, ir.Aggregate)
        ]
        if aggregates:
            return all(item.is_distinct or item.function in ("min", "max") for item in aggregates)
        return self.query.is_distinct

    # -- ranking -----------------------------------------------------------------------------------------------

    def _ranked_scan(self) -> Scan | None:
        """Let the scan of the ranked variable take the best of what its own conditions leave."""
        for step in self.pipeline.steps if self.ranking is not None else ():
            if isinstance(step, Scan) and step.variable == self.ranking.variable:  # type: ignore[union-attr]
                step.narrow = self._narrow
                return step
        return None

    def _narrow(self, run: QueryRun, ids: Ids) -> Ids:
        assert self.ranking is not None
        if self._is_alone:
            run.scratch[_BEST] = ranked = self.ranking.best(run, ids, self.cut(run).end)
            return ranked.ids
        arms = self.ranking.arms(run, ids, self.cut(run).end)
        run.scratch[_RANKED_LISTS] = arms
        return np.unique(np.concatenate([arm.ids for arm in arms]))

    def _rank(self, run: QueryRun, ranking: Ranking, rows: Rows, bounds: SkipLimit) -> tuple[Rows, Ranked]:
        ids = rows.columns[ranking.variable]
        present = np.unique(ids[ids >= 0])
        count = run.nodes(ranking.node_type).count
        arms = run.scratch.get(_RANKED_LISTS)
        if self._root is None:
            arms = ranking.arms(run, present, bounds.end)
        ranked = ranking.fuse(run, [arm.among(present, count) for arm in arms or ()] if arms else [])
        if not isinstance(ranking.rank, ir.Bm25) and bounds.end is not None:
            ranked = Ranked(ranked.ids[: bounds.end], ranked.scores[: bounds.end])
        positions = np.full(count + 1, count, np.int64)
        positions[ranked.ids] = np.arange(len(ranked.ids))
        rows = rows.where(positions[ids] < count)
        if self.query.is_grouped:
            return rows, ranked
        keys = [positions[rows.columns[ranking.variable]]]
        limit = None if self.query.is_distinct else bounds.end

        def ties(row_indices: Ids) -> list[Ids]:
            return [] if self.query.is_distinct else self.projection.ties(run, rows, row_indices)

        return rows.take(top_rows(keys, rows.count, limit, ties)), ranked


class Source:
    """The rows that a read starts from: those of a `with`, or of the blocks of a union, bound as variables.

    Entities stay the numbers that they are. A value is bound as the row of the source that holds it, so that the
    operators of a pattern copy a number and never the value.
    """

    def __init__(self, columns: Sequence[ir.Column], plans: Sequence[ReadPlan]) -> None:
        self.columns = columns
        self.plans = plans

    @property
    def tables(self) -> dict[str, TypeKey | None]:
        """The nodes, edges and paths that are passed on, with their types; a path has none."""
        passed = {column.name: column.expression for column in self.columns}
        return {
            name: TypeKey.of(item.kind, item.type_name) if item.kind in KINDS else None
            for name, item in passed.items()
            if isinstance(item, ir.VariableRef)
        }

    @property
    def values(self) -> tuple[str, ...]:
        """The names of the values."""
        return tuple(column.name for column in self.columns if not isinstance(column.expression, ir.VariableRef))

    def rows(self, run: QueryRun) -> Rows:
        """Run the source and bind its columns."""
        scratch: dict[str, Any] = {}
        tables = []
        for plan in self.plans:
            part = run.fork()
            tables.append(plan.run(part))
            scratch = part.scratch
        count = sum(table.num_rows for table in tables)
        run.spending.reserve(count, 8 * len(self.columns), "the rows of a union" if len(tables) > 1 else "a `with`")
        bindings: dict[str, Ids] = {}
        for index, column in enumerate(self.columns):
            arrays = [_one_array(table.column(index)) for table in tables]
            if isinstance(column.expression, ir.VariableRef):
                bindings[column.name] = arrays[0].to_numpy(zero_copy_only=False)
                _pass_path(run, scratch, column.name, column.expression)
            else:
                joined = pa.concat_arrays([array.cast(arrow_type(column.type)) for array in arrays])
                run.scratch[source_key(column.name)] = vector_from_arrow(joined)
                bindings[column.name] = np.arange(count)
        return Rows(count, bindings)


def _pass_path(run: QueryRun, scratch: Mapping[str, Any], name: str, passed: ir.VariableRef) -> None:
    if passed.kind not in KINDS and path_key(passed.variable) in scratch:
        run.scratch[path_key(name)] = scratch[path_key(passed.variable)]


def _one_array(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _plan_source(query: ir.ReadIR, catalog: Catalog, keys: Mapping[str, str]) -> Source | None:
    source = query.source
    if source is None:
        return None
    parts = source.parts if isinstance(source, ir.Union) else (source,)
    if isinstance(source, ir.Union) and query.is_distinct:
        # Rows that the union returns once may as well leave their block once, while they are still ids.
        parts = tuple(replace(part, is_distinct=True) if _has_rows_of_ids(part, keys) else part for part in parts)
    return Source(source.returned, [ReadPlan(part, catalog) for part in parts])


def _has_rows_of_ids(query: ir.ReadIR, keys: Mapping[str, str]) -> bool:
    is_plain = not query.is_grouped and not query.distinct_on and query.rank is None
    return is_plain and query.skip is None and query.limit is None and returns_identity(query, keys)


def bound_variable_types(pipeline: Iterable[ir.Operator]) -> dict[str, TypeKey | None]:
    """Return the variables that a pattern binds by name, with their types; hops and paths have none."""
    types: dict[str, TypeKey | None] = {}
    for operator in pipeline:
        match operator:
            case (
                ir.NodeScan(variable=variable, node_type=node_type)
                | ir.PathNodes(variable=variable, node_type=node_type)
            ):
                types[variable] = TypeKey.of("node", node_type)
            case ir.Expand():
                types[operator.target] = TypeKey.of("node", operator.target_type)
                if operator.edge_variable is not None:
                    types[operator.edge_variable] = TypeKey.of("edge", operator.edge)
                if operator.hops_variable is not None:
                    types[operator.hops_variable] = None
                if operator.path is not None:
                    types[operator.path.variable] = None
            case ir.OptionalJoin(bindings=bindings):
                for item in bindings:
                    is_entity = item.type_name is not None and item.kind in KINDS
                    types[item.variable] = TypeKey.of(item.kind, str(item.type_name)) if is_entity else None
            case _:
                pass
    # Temporaries have names that no source can spell, and what cannot be named breaks no ties.
    return {name: table for name, table in types.items() if not name.startswith("~")}


def _used_parameters(query: ir.ReadIR) -> tuple[str, ...]:
    """Return the parameters that a read uses, in name order."""
    expressions = (expression for read in ir.reads_of(query) for expression in _expressions(read))
    used = {name for expression in expressions for name in parameters_of(expression)}
    return tuple(sorted(used))


def _expressions(query: ir.ReadIR) -> Iterator[ir.Expr]:
    yield from _pattern_conditions(query.pipeline)
    yield from (column.expression for column in query.columns)
    yield from (key.expression for key in query.order)
    if query.rank is not None:
        yield query.rank
    if query.having is not None:
        yield query.having
    yield from query.distinct_on
    yield from (bound for bound in (query.skip, query.limit) if isinstance(bound, ir.ParameterRef))


def _pattern_conditions(operators: Sequence[ir.Operator]) -> Iterator[ir.Expr]:
    for operator in operators:
        if isinstance(operator, ir.NodeScan | ir.Expand | ir.PathNodes):
            yield from operator.filters
            bounds: tuple[object, ...] = ()
            if isinstance(operator, ir.Expand):
                bounds = (operator.minimum, operator.maximum, operator.path and operator.path.count)
            yield from (bound for bound in bounds if isinstance(bound, ir.ParameterRef))
        elif isinstance(operator, ir.Filter):
            yield operator.condition
        else:
            yield from _pattern_conditions(operator.inner)
