"""Explain and profile: the physical plan of a read as a tree, with estimates, and with actuals once it has run.

Estimates come from the row counts in the manifest; nothing is opened for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from omnigraph import clock
from omnigraph.engine.query import operators
from omnigraph.engine.query.context import Run
from omnigraph.engine.query.operators import Pipeline, Step
from omnigraph.engine.query.physical_plan import ReadPlan
from omnigraph.engine.query.vectors import Rows
from omnigraph.lang.query.ir import Direction
from omnigraph.store.objects.request_meter import Meter

# What share of rows a condition is taken to keep when nothing is known about its values.
_KEPT_BY_CONDITION: Final = 0.1
_KEPT_BY_CLOSING: Final = 0.1
_INDENT: Final = "  "


@dataclass
class Operator:
    """One operator of the plan."""

    title: str
    estimated_rows: int
    actual: dict[str, object] = field(default_factory=dict)
    inner: tuple[Operator, ...] = ()

    def to_json(self) -> dict[str, object]:
        shown: dict[str, object] = {"operator": self.title, "estimated_rows": self.estimated_rows, **self.actual}
        if self.inner:
            shown["inner"] = [item.to_json() for item in self.inner]
        return shown

    def lines(self, depth: int) -> Iterator[str]:
        actual = ", ".join(f"{name.replace('_', ' ')} {_shown(value)}" for name, value in self.actual.items())
        yield f"{_INDENT * depth}{self.title}  (about {self.estimated_rows} rows{'; ' if actual else ''}{actual})"
        for item in self.inner:
            yield from item.lines(depth + 1)


@dataclass(frozen=True)
class Explanation:
    """A plan for people and for programs."""

    query_name: str
    operators: tuple[Operator, ...]
    totals: dict[str, object]

    def render(self) -> str:
        lines = [f"read {self.query_name}", *(line for item in self.operators for line in item.lines(1))]
        lines += [f"{name.replace('_', ' ')}: {_shown(value)}" for name, value in self.totals.items()]
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        return {"query": self.query_name, "plan": [item.to_json() for item in self.operators], **self.totals}


class Profile:
    """Runs steps with a watch: rows, time, bytes and storage requests of each."""

    def __init__(self, requests: Meter) -> None:
        self.actual: dict[int, dict[str, object]] = {}
        self._requests = requests
        self._current: list[dict[str, object]] = []

    def observe(self, run: Run, step: Step, rows: Rows) -> Rows:
        noted: dict[str, object] = {}
        self._current.append(noted)
        requests, started = self._requests.snapshot(), clock.elapsed()
        try:
            made = step.run(run, rows)
        finally:
            self._current.pop()
        noted["rows"] = made.count
        noted["milliseconds"] = round((clock.elapsed() - started) * 1_000, 3)
        noted["bytes"] = made.count * made.row_bytes
        noted["storage"] = self._requests.since(requests)
        self.actual[id(step)] = noted
        return made

    def note(self, key: str, value: object) -> None:
        if self._current:
            self._current[-1][key] = value


def explain_plan(
    name: str, plan: ReadPlan, run: Run, profile: Profile | None, totals: dict[str, object]
) -> Explanation:
    """Return the plan as a tree; with a profile, of a run that has ended."""
    operators, rows = _operators(run, plan.pipeline, 1.0, profile)
    if plan.uses_weights(run):
        operators = (
            Operator("count by weights on nodes, without making these rows", max(round(rows), 0), {}, operators),
        )
    end = _end(run, plan, rows)
    if profile is not None and "rows" in totals:
        end.actual["rows"] = totals["rows"]
    return Explanation(name, (*operators, end), totals)


def _operators(
    run: Run, pipeline: Pipeline, rows: float, profile: Profile | None
) -> tuple[tuple[Operator, ...], float]:
    made = []
    for step in pipeline.steps:
        outer = rows
        rows = _estimate(run, step, rows)
        inner: tuple[Operator, ...] = ()
        if step.inner is not None:
            inner, solutions = _operators(run, step.inner, outer, profile)
            rows = max(outer, solutions) if isinstance(step, operators.Optional) else outer * 0.5
        actual = profile.actual.get(id(step), {}) if profile is not None else _expected(run, step, outer)
        told = {**actual, **_searches(run, step)}
        made.append(Operator(step.title, max(round(rows), 0), told, inner))
    return tuple(made), rows


def _estimate(run: Run, step: Step, rows: float) -> float:
    kept = _KEPT_BY_CONDITION ** len(getattr(step, "conditions", ()))
    if isinstance(step, operators.Scan):
        count = run.row_count(f"node:{step.node_type}")
        if step.join is not None:
            kept *= _KEPT_BY_CONDITION
        return rows * (min(count, 1) if step.find_key is not None else count * kept)
    if isinstance(step, operators.Expand):
        edges, nodes = run.row_count(f"edge:{step.edge}"), run.row_count(f"node:{step.target_type}")
        degree = edges / max(_near_count(run, step.edge, step.direction), 1)
        degree *= 2 if step.direction is Direction.BOTH else 1
        if step.is_existence:
            return rows * min(degree, 1.0)
        reached = sum(degree**hop for hop in range(step.minimum, min(step.maximum, step.minimum + 5) + 1))
        return rows * min(reached, nodes) * kept
    if isinstance(step, operators.Close):
        return rows * _KEPT_BY_CLOSING
    if isinstance(step, operators.Meet):
        return _estimate(run, step.walk, rows) * _KEPT_BY_CLOSING
    return rows * kept


def _near_count(run: Run, edge: str, direction: Direction) -> int:
    type_ = run.view.catalog.edges[edge]
    return run.row_count(f"node:{type_.target if direction is Direction.IN else type_.source}")


def _expected(run: Run, step: Step, rows: float) -> dict[str, object]:
    """Say how a walk would be made if the estimates were right."""
    from omnigraph.engine.query.expand import is_indexed_cheaper

    if isinstance(step, operators.Meet):
        return _expected(run, step.walk, rows)
    if not isinstance(step, operators.Expand | operators.Close):
        return {}
    hops = step.maximum if isinstance(step, operators.Expand) else 1
    indexed, reason = is_indexed_cheaper(run, step.edge, step.direction, hops, round(rows))
    return {"traversal": "indexed" if indexed else "csr", "because": reason}


def _searches(run: Run, step: Step) -> dict[str, object]:
    """Say how the texts that the conditions of a step search would be looked at."""
    from omnigraph.engine.query.search import describe_search

    places = {place for condition in getattr(step, "conditions", ()) for place in condition.searched}
    how = sorted({describe_search(run.view, *place) for place in places})
    return {"texts": "; ".join(how)} if how else {}


def _end(run: Run, plan: ReadPlan, rows: float) -> Operator:
    query = plan.query
    parts = ["group" if query.is_grouped else "return distinct" if query.is_distinct else "return"]
    parts.append(", ".join(column.name for column in query.columns))
    if query.rank is not None:
        parts.append(f"ranked by {type(query.rank).__name__.lower()}")
    if query.order:
        parts.append(f"in order of {len(query.order)} keys" if len(query.order) > 1 else "in order")
    if isinstance(query.limit, int):
        parts.append(f"limit {query.limit}")
        rows = min(rows, query.limit)
    told = plan.ranking.describe(run, plan.cut(run).end) if plan.ranking is not None else {}
    return Operator(" ".join(parts), max(round(rows), 0), told)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count}× {name}" for name, count in value.items()) or "none"
    return str(value)
