"""Reads: scans, walks, filters, aggregates and rankings over one captured snapshot, in memory and column by column.

May import `engine.session`, `engine.params` and everything below the engine; never another part of the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from omnigraph import clock
from omnigraph.engine.params import decode_params
from omnigraph.engine.query.budget import DEFAULT_BUDGET, Budget, CancelToken, Spending, charging, within_arrow
from omnigraph.engine.query.caches import Caches
from omnigraph.engine.query.context import Run
from omnigraph.engine.query.explain import Explanation, Profile, explain_plan
from omnigraph.engine.query.physical_plan import ReadPlan
from omnigraph.engine.query.result import Result
from omnigraph.engine.session import View, compiled_bytes
from omnigraph.lang.query import CompiledQuery, require_kind
from omnigraph.lang.query.ir import ReadIR
from omnigraph.store.objects.request_meter import own_requests

if TYPE_CHECKING:
    from omnigraph.engine.query.embedders import Embedder


__all__ = ["DEFAULT_BUDGET", "Budget", "Caches", "CancelToken", "Explanation", "Result", "explain", "run"]


def run(
    view: View,
    query: CompiledQuery,
    params: Mapping[str, object],
    *,
    now_us: int,
    budget: Budget = DEFAULT_BUDGET,
    caches: Caches,
    embedder: Embedder | None = None,
    started: float | None = None,
) -> Result:
    """Run a compiled read on one view; its time counts from `started`, an instant of `clock.elapsed`, or from now."""
    plan, running = _prepare(view, query, params, now_us, Spending(budget, started), caches, embedder)
    try:
        with charging(running.spending), within_arrow(running.spending):
            table = plan.run(running)
    finally:
        caches.trim()
    return Result(table, query.name, view.snapshot.branch, view.snapshot.head, running.spending)


def explain(
    view: View,
    query: CompiledQuery,
    params: Mapping[str, object],
    *,
    profile: bool = False,
    now_us: int,
    budget: Budget = DEFAULT_BUDGET,
    caches: Caches,
    embedder: Embedder | None = None,
    started: float | None = None,
) -> Explanation:
    """Return the physical plan of a read; with `profile` it is run, and the plan says what happened."""
    plan, running = _prepare(view, query, params, now_us, Spending(budget, started), caches, embedder)
    if not profile:
        return explain_plan(query.name, plan, running, None, {})
    started = clock.elapsed()
    with own_requests() as requests:
        running.observer = watch = Profile(requests)
        try:
            with charging(running.spending), within_arrow(running.spending):
                table = plan.run(running)
        finally:
            caches.trim()
    totals: dict[str, object] = {
        "rows": table.num_rows,
        "milliseconds": round((clock.elapsed() - started) * 1_000, 3),
        "rows_peak": running.spending.rows_peak,
        "bytes_peak": running.spending.bytes_peak,
        "storage": requests.snapshot(),
    }
    return explain_plan(query.name, plan, running, watch, totals)


def _prepare(
    view: View,
    query: CompiledQuery,
    params: Mapping[str, object],
    now_us: int,
    spending: Spending,
    caches: Caches,
    embedder: Embedder | None,
) -> tuple[ReadPlan, Run]:
    """Return the plan of a read, made once per query, and a run of it that has not begun."""
    read = require_kind(query, "read").ir
    assert isinstance(read, ReadIR)
    spending.check("compiling")
    size = compiled_bytes(query.source.text)
    plan = caches.plans.get_or_create(query.key, lambda: ReadPlan(read, view.catalog), size)
    assert isinstance(plan, ReadPlan)
    spending.check("planning")
    running = Run(
        view,
        decode_params(query.params, params),
        now_us // 1_000,
        spending,
        caches,
        embedder,
    )
    return plan, running
