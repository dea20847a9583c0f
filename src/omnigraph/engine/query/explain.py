"""EXPLAIN and PROFILE: the physical plan of a read as a tree with estimated and actual rows.

Estimates come from the row counts in the manifest; nothing is opened for them.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from omnigraph import clock
from omnigraph.engine.query import operators
from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.expand import is_indexed_cheaper_for_all, near_type
from omnigraph.engine.query.operators import Pipeline, PlanStep
from omnigraph.engine.query.physical_plan import ReadPlan
from omnigraph.engine.query.vectors import Rows
from omnigraph.lang.catalog import TypeKey
from omnigraph.lang.query.ir import Direction, ParameterRef, ReadIR
from omnigraph.store.objects.backend import Meter

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
        lines += [f"{name.replace('_', ' ')}: {_format_value(value)}" for name, value in self.totals.items()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.render()

    def _repr_html_(self) -> str:
        """Return the plan as a tree of nested lists."""
        tree = "".join(item.html() for item in self.operators)
        totals = "; ".join(f"{name.replace('_', ' ')}: {_format_value(value)}" for name, value in self.totals.items())
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
    """Return the plan as a tree; with a profile, of a run that has ended."""
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
        operators = (OperatorReport(title, max(round(rows), 0), {}, operators),)
    end = _report_projection(run, plan, rows, word)
    return (*before, *operators, end), float(end.estimated_rows)


def _report_source(run: QueryRun, plan: ReadPlan, profile: Profile | None) -> tuple[tuple[OperatorReport, ...], float]:
    if plan.source is None:
        return (), 1.0
    if isinstance(plan.query.source, ReadIR):
        [stage] = plan.source.plans
        return _report_plan(run.fork(), stage, profile, "with")
    blocks = [_report_plan(run.fork(), block, profile, "return") for block in plan.source.plans]
    reports = tuple(OperatorReport("block of the union", max(round(rows), 0), {}, inner) for inner, rows in blocks)
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
        actual = profile.actual.get(id(step), {}) if profile is not None else _expected_traversal(run, step, outer)
        details = {**actual, **_describe_text_searches(run, step)}
        reports.append(OperatorReport(step.title, max(round(rows), 0), details, inner))
    return tuple(reports), rows


def _estimate_rows(run: QueryRun, step: PlanStep, rows: float) -> float:
    selectivity = _KEPT_BY_CONDITION ** len(getattr(step, "conditions", ()))
    if isinstance(step, operators.Scan):
        count = run.row_count(TypeKey.of("node", step.node_type))
        if step.join is not None:
            selectivity *= _KEPT_BY_CONDITION
        return rows * (min(count, 1) if step.find_key is not None else count * selectivity)
    if isinstance(step, operators.Expand):
        nodes = run.row_count(TypeKey.of("node", step.target_type))
        degree = _estimate_degree(run, step)
        if step.is_existence:
            return rows * min(degree, 1.0)
        minimum, maximum = _expected_hops(run, step)
        hops = range(minimum, min(maximum, minimum + 5) + 1)
        return rows * min(sum(degree**hop for hop in hops), nodes) * selectivity
    if isinstance(step, operators.ExpandInto):
        return rows * _KEPT_BY_CLOSING
    if isinstance(step, operators.ExpandIntersect):
        return _estimate_rows(run, step.walk, rows) * _KEPT_BY_CLOSING
    return rows * selectivity


def _expected_hops(run: QueryRun, step: PlanStep) -> tuple[int, int]:
    """Return the hop bounds of a step; a plan can be explained before its parameters have values."""
    if not isinstance(step, operators.Expand):
        return 1, 1
    bounds = (step.minimum, step.maximum)
    if any(isinstance(bound, ParameterRef) and bound.name not in run.params for bound in bounds):
        return 1, 1
    return step.bounds(run)[:2]


def _estimate_degree(run: QueryRun, step: operators.Expand) -> float:
    """Return the mean number of edges that a walk finds at a node."""
    if not step.legs:
        edges = run.row_count(TypeKey.of("edge", step.edge)) * (2 if step.direction is Direction.BOTH else 1)
        near = TypeKey.of("node", near_type(run, step.edge, step.direction))
        return edges / max(run.row_count(near), 1)
    ways = {leg.edge: 2 if leg.direction is Direction.BOTH else 1 for leg in step.legs}
    edges = sum(run.row_count(TypeKey.of("edge", name)) * count for name, count in ways.items())
    return edges / max(run.row_count(TypeKey.of("node", step.source_type)), 1)


def _expected_traversal(run: QueryRun, step: PlanStep, rows: float) -> dict[str, object]:
    """Return the traversal mode that the estimates imply."""
    if isinstance(step, operators.ExpandIntersect):
        return _expected_traversal(run, step.walk, rows)
    if not isinstance(step, operators.Expand | operators.ExpandInto):
        return {}
    _, hops = _expected_hops(run, step)
    walks = [(leg.edge, leg.direction) for leg in step.legs] or [(step.edge, step.direction)]
    is_indexed, reason = is_indexed_cheaper_for_all(run, walks, hops, round(rows))
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
    if isinstance(query.limit, int):
        parts.append(f"limit {query.limit}")
        rows = min(rows, query.limit)
    details = plan.ranking.describe(run, plan.cut(run).end) if plan.ranking is not None else {}
    return OperatorReport(" ".join(parts), max(round(rows), 0), details)


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count}× {name}" for name, count in value.items()) or "none"
    return str(value)
