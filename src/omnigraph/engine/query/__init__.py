"""Query execution: run and explain compiled read queries against one snapshot, column at a time.

May import `engine.session`, `engine.arguments` and everything below the engine; never another part of the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph import clock
from omnigraph.engine.arguments import decode_params
from omnigraph.engine.query.budget import (
    DEFAULT_BUDGET,
    Budget,
    BudgetUsage,
    CancelToken,
    charge_to,
    report_arrow_overflow,
)
from omnigraph.engine.query.context import Caches, QueryRun
from omnigraph.engine.query.physical_plan import Explanation, Profile, ReadPlan, explain_plan
from omnigraph.engine.query.result import Result
from omnigraph.engine.session import View, compiled_bytes
from omnigraph.lang.query import CompiledQuery, require_kind
from omnigraph.lang.query.ir import ReadIR
from omnigraph.store.objects.backend import own_requests

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
    """Run a compiled read on one view; its time budget counts from `started` (a `clock.elapsed` value) or from now."""
    plan, running = _prepare(view, query, params, now_us, BudgetUsage(budget, started), caches, embedder)
    table = _run_plan(plan, running)
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
    """Return the physical plan of a read; with `profile`, run it and add the measured figures."""
    plan, running = _prepare(view, query, params, now_us, BudgetUsage(budget, started), caches, embedder)
    if not profile:
        return explain_plan(query.name, plan, running, None, {})
    started = clock.elapsed()
    with own_requests() as requests:
        running.observer = watch = Profile(requests)
        table = _run_plan(plan, running)
    totals: dict[str, object] = {
        "rows": table.num_rows,
        "milliseconds": round((clock.elapsed() - started) * 1_000, 3),
        "rows_peak": running.spending.rows_peak,
        "bytes_peak": running.spending.bytes_peak,
        "storage": requests.snapshot(),
    }
    return explain_plan(query.name, plan, running, watch, totals)


def _run_plan(plan: ReadPlan, running: QueryRun) -> pa.Table:
    try:
        with charge_to(running.spending), report_arrow_overflow(running.spending):
            return plan.run(running)
    finally:
        running.caches.trim()


def _prepare(
    view: View,
    query: CompiledQuery,
    params: Mapping[str, object],
    now_us: int,
    spending: BudgetUsage,
    caches: Caches,
    embedder: Embedder | None,
) -> tuple[ReadPlan, QueryRun]:
    """Return the cached plan of a read and a new, unstarted run of it."""
    read = require_kind(query, "read").ir
    assert isinstance(read, ReadIR)
    spending.check("compiling")
    size = compiled_bytes(query.source.text)
    plan = caches.plans.get_or_create(query.key, lambda: ReadPlan(read, view.catalog), size)
    assert isinstance(plan, ReadPlan)
    spending.check("planning")
    return plan, QueryRun(view, decode_params(query.params, params), now_us // 1_000, spending, caches, embedder)
