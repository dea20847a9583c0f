"""Physical plan of a read: start, pattern pipeline, ranking, aggregation and projection, and EXPLAIN and PROFILE of it.

Independent of data, parameters and time; built once per compiled query and shared by threads.

Estimates come from the row counts in the manifest; nothing is opened for them.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph import clock
from omnigraph.engine.query import operators
from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.expand import average_degree, hop_bounds, is_indexed_cheaper_for_all
from omnigraph.engine.query.expressions import parameters_of, source_key, variables_of, walk
from omnigraph.engine.query.factorized import FactorizedAggregate
from omnigraph.engine.query.meeting import MeetingWalks
from omnigraph.engine.query.operators import Pipeline, PlanStep, Scan
from omnigraph.engine.query.ordering import top_rows
from omnigraph.engine.query.paths import path_key
from omnigraph.engine.query.planning import Planner, conditions_of, variable_types
from omnigraph.engine.query.projection import Projection, SkipLimit, returns_identity
from omnigraph.engine.query.ranking import Ranked, Ranking, union_of_ids
from omnigraph.engine.query.subqueries import CountJoin
from omnigraph.engine.query.vectors import UNIT_ROW, Ids, Rows, vector_from_arrow
from omnigraph.errors import BudgetExceeded, DataError
from omnigraph.lang.catalog import KINDS, Catalog, TypeKey
from omnigraph.lang.query import ir
from omnigraph.lang.query.functions import AGGREGATES
from omnigraph.lang.query.ir import ParameterRef, ReadIR
from omnigraph.lang.schema.arrow_schema import arrow_type
from omnigraph.rules.delta import one_array
from omnigraph.store.objects.backend import Meter

_RANKED_LISTS, _BEST, _WEIGHTS = "arms", "best", "weights"


class ReadPlan:
    """The plan of one read."""

    def __init__(self, query: ir.ReadIR, catalog: Catalog) -> None:
        self.query = query
        keys = {node.name: node.key[0] for node in catalog.nodes.values() if len(node.key) == 1}
        self.source = _plan_source(query, catalog, keys)
        self.values = _unwound_values(query.pipeline)
        self.tables = {
            name: type_ for name, type_ in _named_variables(query.pipeline).items() if name not in self.values
        }
        if self.source is not None:
            self.tables = {**self.source.tables, **self.tables}
            self.values = (*self.source.values, *self.values)
        self.projection = Projection(query, self.tables, self.values, keys)
        self.ranking = Ranking(query.rank) if query.rank is not None else None
        self.parameters = _used_parameters(query)
        # A ranked variable is ranked where it is written: among all of its kind at a root, else among what is reached.
        planner = Planner(catalog, keeps_roots=query.rank is not None)
        outer = () if self.source is None else [column.name for column in self.source.columns]
        needed = self._needed()
        self.pipeline = planner.pipeline(query.pipeline, outer, needed, as_set=self._is_set())
        self.factorized = FactorizedAggregate.of(query, self.pipeline) if self.source is None else None
        is_at_root = self._narrow_ranked_scan()
        # With nothing but the ranked nodes, one row each, the best of them are the result.
        is_plain = not query.is_grouped and not query.is_distinct
        self._is_alone = is_at_root and self.source is None and len(self.pipeline.steps) == 1 and is_plain

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
        rows = UNIT_ROW if self.source is None else self.source.rows(run)
        rows = self.pipeline.run(run, rows).only(self.pipeline.outputs)
        if self.ranking is None:
            return self.projection.run(run, rows, bounds, None)
        rows, ranked = (rows, run.scratch[_BEST]) if self._is_alone else self._rank(run, self.ranking, rows, bounds)
        return self.projection.run(run, rows, bounds, ranked)

    def uses_weights(self, run: QueryRun) -> bool:
        """True if a run uses factorized aggregation; decided once per run."""
        if _WEIGHTS not in run.scratch:
            run.scratch[_WEIGHTS] = self.factorized is not None and self.factorized.is_worthwhile(run)
        return bool(run.scratch[_WEIGHTS])

    def cut(self, run: QueryRun) -> SkipLimit:
        bounds = (("skip", self.query.skip), ("limit", self.query.limit))
        skip, limit = (None if bound is None else run.bound(bound, word) for word, bound in bounds)
        if limit == 0 and self.query.rank is not None and not isinstance(self.query.rank, ir.Bm25):
            raise DataError("ordering by `nearest` or `rrf` needs a limit of at least 1", rule="E4", limit=0)
        return SkipLimit(skip or 0, limit)

    def _needed(self) -> set[str]:
        query = self.query
        needed = {name for expression in _result_expressions(query) for name in variables_of(expression)}
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
            return all(item.is_distinct or AGGREGATES[item.function].ignores_duplicates for item in aggregates)
        return self.query.is_distinct

    # -- ranking -----------------------------------------------------------------------------------------------

    def _narrow_ranked_scan(self) -> bool:
        """Let the scan of the ranked variable, if it has one, take the best of what its own conditions leave."""
        for step in self.pipeline.steps:
            if self.ranking is not None and isinstance(step, Scan) and step.variable == self.ranking.variable:
                step.narrow = self._narrow
                return True
        return False

    def _narrow(self, run: QueryRun, ids: Ids) -> Ids:
        assert self.ranking is not None
        if self._is_alone:
            run.scratch[_BEST] = ranked = self.ranking.best(run, ids, self.cut(run).end)
            return ranked.ids
        arms = self.ranking.narrow(run, ids, self.cut(run).end)
        if arms is None:
            return ids
        run.scratch[_RANKED_LISTS] = arms
        return union_of_ids(arms)

    def _rank(self, run: QueryRun, ranking: Ranking, rows: Rows, bounds: SkipLimit) -> tuple[Rows, Ranked]:
        ids = rows.columns[ranking.variable]
        present = np.unique(ids[ids >= 0])
        count = run.nodes(ranking.node_type).count
        # There are no lists yet if the ranked variable is reached by a walk, an earlier step left no rows, or windows
        # wait for what the pattern leaves.
        arms = run.scratch.get(_RANKED_LISTS) or ranking.arms(run, present, bounds.end)
        ranked = ranking.rank_present(run, arms, present, bounds.end)
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
            arrays = [one_array(table.column(index)) for table in tables]
            if isinstance(column.expression, ir.VariableRef):
                bindings[column.name] = arrays[0].to_numpy(zero_copy_only=False)
                passed_key = path_key(column.expression.variable)
                if column.expression.kind not in KINDS and passed_key in scratch:
                    run.scratch[path_key(column.name)] = scratch[passed_key]
            else:
                joined = pa.concat_arrays([array.cast(arrow_type(column.type)) for array in arrays])
                run.scratch[source_key(column.name)] = vector_from_arrow(joined)
                bindings[column.name] = np.arange(count)
        return Rows(count, bindings)


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
    is_whole = query.skip is None and query.limit is None and query.limit_per is None
    return is_plain and is_whole and returns_identity(query, keys)


def _named_variables(pipeline: Iterable[ir.Operator]) -> dict[str, TypeKey | None]:
    """Return the variables that a pattern binds by name, with their types."""
    types = {name: type_ for operator in pipeline for name, type_ in variable_types(operator).items()}
    # Temporaries have names that no source can spell, and what cannot be named breaks no ties.
    return {name: type_ for name, type_ in types.items() if not name.startswith("~")}


def _unwound_values(pipeline: Iterable[ir.Operator]) -> tuple[str, ...]:
    """Return the names of the elements of lists that a pattern binds, in optional blocks, too."""
    bound: list[str] = []
    for operator in pipeline:
        if isinstance(operator, ir.Unwind):
            bound.append(operator.variable)
        elif isinstance(operator, ir.OptionalJoin):
            bound.extend(item.variable for item in operator.bindings if item.kind == "value")
    return tuple(bound)


def _used_parameters(query: ir.ReadIR) -> tuple[str, ...]:
    used: set[str] = set()
    for read in ir.reads_of(query):
        for expression in (*_pattern_conditions(read.pipeline), *_result_expressions(read)):
            used |= parameters_of(expression)
    return tuple(sorted(used))


def _result_expressions(query: ir.ReadIR) -> Iterator[ir.Expr]:
    yield from (column.expression for column in query.columns)
    yield from (key.expression for key in query.order)
    if query.rank is not None:
        yield query.rank
    if query.having is not None:
        yield query.having
    yield from query.distinct_on
    per = query.limit_per
    if per is not None:
        yield from per.keys
    bounds = (query.skip, query.limit, None if per is None else per.count)
    yield from (bound for bound in bounds if isinstance(bound, ir.ParameterRef))


def _pattern_conditions(operators: Sequence[ir.Operator]) -> Iterator[ir.Expr]:
    for operator in operators:
        yield from conditions_of(operator)
        if isinstance(operator, ir.Expand):
            bounds = (operator.minimum, operator.maximum, operator.path and operator.path.count)
            yield from (bound for bound in bounds if isinstance(bound, ir.ParameterRef))
        elif isinstance(operator, ir.Unwind):
            yield operator.collection
        elif isinstance(operator, ir.Join):
            yield from _pattern_conditions(operator.inner)


# Assumed selectivity of a condition; there are no value statistics.
_KEPT_BY_CONDITION: Final = 0.1
_KEPT_BY_CLOSING: Final = 0.1
_INDENT: Final = "  "


@dataclass
class OperatorReport:
    """One operator of the plan."""

    title: str
    estimated_rows: int
    actual: dict[str, object] = field(default_factory=dict)
    inner: tuple[OperatorReport, ...] = ()

    def to_json(self) -> dict[str, object]:
        report: dict[str, object] = {"operator": self.title, "estimated_rows": self.estimated_rows, **self.actual}
        if self.inner:
            report["inner"] = [item.to_json() for item in self.inner]
        return report

    def lines(self, depth: int) -> Iterator[str]:
        yield f"{_INDENT * depth}{self.title}  ({self._numbers()})"
        for item in self.inner:
            yield from item.lines(depth + 1)

    def html(self) -> str:
        inner = f"<ul>{''.join(item.html() for item in self.inner)}</ul>" if self.inner else ""
        return f"<li><code>{html.escape(self.title)}</code> <small>{html.escape(self._numbers())}</small>{inner}</li>"

    def _numbers(self) -> str:
        actual = [f"{name.replace('_', ' ')} {_format_value(value)}" for name, value in self.actual.items()]
        return "; ".join([f"about {self.estimated_rows} rows", *([", ".join(actual)] if actual else [])])


@dataclass(frozen=True)
class Explanation:
    """A rendered plan: text for people, JSON for programs."""

    query_name: str
    operators: tuple[OperatorReport, ...]
    totals: dict[str, object]

    def render(self) -> str:
        """Return the plan as text, an operator per line.

        Returns:
            The text, which `print` shows as well.

        Example:
            >>> print(graph.explain("query q() { match { $p: Person } return { $p.name } }").render().splitlines()[0])
            read q
        """
        lines = [f"read {self.query_name}", *(line for item in self.operators for line in item.lines(1))]
        return "\n".join(lines + self._total_lines())

    def _total_lines(self) -> list[str]:
        return [f"{name.replace('_', ' ')}: {_format_value(value)}" for name, value in self.totals.items()]

    def __repr__(self) -> str:
        return self.render()

    def _repr_html_(self) -> str:
        tree = "".join(item.html() for item in self.operators)
        totals = "; ".join(self._total_lines())
        note = f"<p><small>{html.escape(totals)}</small></p>" if totals else ""
        return f"<p>read <b>{html.escape(self.query_name)}</b></p><ul>{tree}</ul>{note}"

    def to_json(self) -> dict[str, object]:
        """Return the plan as a JSON object.

        Returns:
            The operators as a tree, with estimated and, after a profile, actual numbers.

        Example:
            >>> graph.explain("query q() { match { $p: Person } return { $p.name } }").to_json()["query"]
            'q'
        """
        return {"query": self.query_name, "plan": [item.to_json() for item in self.operators], **self.totals}


class Profile:
    """Measures rows, time, bytes and storage requests of each step."""

    def __init__(self, requests: Meter) -> None:
        self.actual: dict[int, dict[str, object]] = {}
        self._requests = requests
        self._current: list[dict[str, object]] = []

    def observe(self, run: QueryRun, step: PlanStep, rows: Rows) -> Rows:
        actuals: dict[str, object] = {}
        self._current.append(actuals)
        requests, started = self._requests.snapshot(), clock.elapsed()
        try:
            result = step.run(run, rows)
        finally:
            self._current.pop()
        actuals["rows"] = result.count
        actuals["milliseconds"] = round((clock.elapsed() - started) * 1_000, 3)
        actuals["bytes"] = result.count * result.row_bytes
        actuals["storage"] = self._requests.since(requests)
        self.actual[id(step)] = actuals
        return result

    def note(self, key: str, value: object) -> None:
        if self._current:
            self._current[-1][key] = value


def explain_plan(
    name: str, plan: ReadPlan, run: QueryRun, profile: Profile | None, totals: dict[str, object]
) -> Explanation:
    reports, _ = _report_plan(run, plan, profile, "return")
    if profile is not None and "rows" in totals:
        reports[-1].actual["rows"] = totals["rows"]
    return Explanation(name, reports, totals)


def _report_plan(
    run: QueryRun, plan: ReadPlan, profile: Profile | None, word: str
) -> tuple[tuple[OperatorReport, ...], float]:
    """Return what a read starts from, its steps, and what it makes of the rows; with about how many rows there are."""
    before, rows = _report_source(run, plan, profile)
    operators, rows = _report_steps(run, plan.pipeline, rows, profile)
    if plan.uses_weights(run):
        title = "count by weights on nodes, without making these rows"
        operators = (OperatorReport(title, round(rows), {}, operators),)
    end = _report_projection(run, plan, rows, word)
    return (*before, *operators, end), float(end.estimated_rows)


def _report_source(run: QueryRun, plan: ReadPlan, profile: Profile | None) -> tuple[tuple[OperatorReport, ...], float]:
    if plan.source is None:
        return (), 1.0
    if isinstance(plan.query.source, ReadIR):
        [stage] = plan.source.plans
        return _report_plan(run.fork(), stage, profile, "with")
    blocks = [_report_plan(run.fork(), block, profile, "return") for block in plan.source.plans]
    reports = tuple(OperatorReport("block of the union", round(rows), {}, inner) for inner, rows in blocks)
    return reports, sum(rows for _, rows in blocks)


def _report_steps(
    run: QueryRun, pipeline: Pipeline, rows: float, profile: Profile | None
) -> tuple[tuple[OperatorReport, ...], float]:
    reports = []
    for step in pipeline.steps:
        outer = rows
        rows = _estimate_rows(run, step, rows)
        inner: tuple[OperatorReport, ...] = ()
        if step.inner is not None:
            inner, solutions = _report_steps(run, step.inner, outer, profile)
            rows = max(outer, solutions) if isinstance(step, operators.OptionalJoin) else outer * 0.5
            if isinstance(step, CountJoin):
                rows = outer
            elif isinstance(step, MeetingWalks):
                rows = solutions
        actual = profile.actual.get(id(step), {}) if profile is not None else _expected_traversal(run, step, outer)
        details = {**actual, **_describe_text_searches(run, step)}
        reports.append(OperatorReport(step.title, round(rows), details, inner))
    return tuple(reports), rows


def _estimate_rows(run: QueryRun, step: PlanStep, rows: float) -> float:
    selectivity = _KEPT_BY_CONDITION ** len(getattr(step, "conditions", ()))
    if isinstance(step, operators.Scan):
        count = run.row_count(TypeKey.of("node", step.node_type))
        if step.join is not None:
            selectivity *= _KEPT_BY_CONDITION
        return rows * (min(count, 1) if step.find_key is not None else count * selectivity)
    if isinstance(step, operators.Expand):
        nodes = run.row_count(TypeKey.of("node", step.walk.target_type))
        degree = average_degree(run, step.walk)
        if step.is_existence:
            return rows * min(degree, 1.0)
        minimum, maximum = _expected_hops(run, step)
        hops = range(minimum, min(maximum, minimum + 5) + 1)
        return rows * min(sum(degree**hop for hop in hops), nodes) * selectivity
    if isinstance(step, operators.ExpandInto):
        return rows * _KEPT_BY_CLOSING
    if isinstance(step, operators.ExpandIntersect):
        return _estimate_rows(run, step.expand, rows) * _KEPT_BY_CLOSING
    return rows * selectivity


def _expected_hops(run: QueryRun, step: PlanStep) -> tuple[int, int]:
    """Return the hop bounds of a step; a plan can be explained before its parameters have values."""
    if not isinstance(step, operators.Expand):
        return 1, 1
    bounds = (step.walk.minimum, step.walk.maximum)
    if any(isinstance(bound, ParameterRef) and bound.name not in run.params for bound in bounds):
        return 1, 1
    return hop_bounds(run, step.walk)[:2]


def _expected_traversal(run: QueryRun, step: PlanStep, rows: float) -> dict[str, object]:
    if isinstance(step, operators.ExpandIntersect):
        return _expected_traversal(run, step.expand, rows)
    if isinstance(step, MeetingWalks):
        return {"meeting": step.describe(step.choose_meeting(run, round(rows)))}
    if not isinstance(step, operators.Expand | operators.ExpandInto):
        return {}
    _, hops = _expected_hops(run, step)
    is_indexed, reason = is_indexed_cheaper_for_all(run, step.walk, hops, round(rows))
    return {"traversal": "indexed" if is_indexed else "csr", "because": reason}


def _describe_text_searches(run: QueryRun, step: PlanStep) -> dict[str, object]:
    """Describe how a step's text conditions would be searched."""
    from omnigraph.engine.query.ranking import describe_search

    columns = {column for condition in getattr(step, "conditions", ()) for column in condition.searched}
    descriptions = sorted({describe_search(run.view, *column) for column in columns})
    return {"texts": "; ".join(descriptions)} if descriptions else {}


def _report_projection(run: QueryRun, plan: ReadPlan, rows: float, word: str) -> OperatorReport:
    query = plan.query
    grouped = "group" if word == "return" else f"{word} group"
    distinct = " distinct" if query.is_distinct else " distinct on keys:" if query.distinct_on else ""
    parts = [grouped if query.is_grouped else f"{word}{distinct}"]
    parts.append(", ".join(column.name for column in query.returned))
    if query.rank is not None:
        parts.append(f"ranked by {type(query.rank).__name__.lower()}")
    if query.order:
        parts.append(f"in order of {len(query.order)} keys" if len(query.order) > 1 else "in order")
    if query.limit_per is not None:
        count = query.limit_per.count
        shown = count if isinstance(count, int) else f"${count.name}"
        parts.append(f"limit {shown} per {len(query.limit_per.keys)} keys")
    if isinstance(query.limit, int):
        parts.append(f"limit {query.limit}")
        rows = min(rows, query.limit)
    details = plan.ranking.describe(run, plan.cut(run).end) if plan.ranking is not None else {}
    return OperatorReport(" ".join(parts), round(rows), details)


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count}× {name}" for name, count in value.items()) or "none"
    return str(value)
