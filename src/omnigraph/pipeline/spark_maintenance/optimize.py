"""Optimize with large tasks on Spark executors; `engine.maintain.optimize` plans, defines the tasks and publishes."""

from __future__ import annotations

from omnigraph.engine.maintain.optimize import IN_TURN, OptimizeReport
from omnigraph.engine.maintain.optimize import optimize as run_optimize
from omnigraph.graph import Graph, session_of
from omnigraph.limits import MAINTAIN_LOCAL_BYTES_MAX
from omnigraph.manifest.model import MAIN
from omnigraph.pipeline.spark.executors import Engine, RunnerChoice


def optimize(graph: Graph, branch: str = MAIN, *, engine: Engine = "auto", master: str | None = None) -> OptimizeReport:
    """Optimize a branch like `graph.maintenance.optimize`, on Spark if it is large.

    With `engine="auto"`, only large tasks run on Spark, and only if it is installed.
    """
    choice, session = RunnerChoice(engine, master), session_of(graph)
    choice.start_if_required()
    return run_optimize(session, branch, lambda size: choice.by_size(size, MAINTAIN_LOCAL_BYTES_MAX, IN_TURN))
