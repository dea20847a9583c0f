"""Engines: where the work of a pipeline runs, as its caller says it.

Imports Spark only where executors are asked for.
"""

from __future__ import annotations

from typing import Literal, get_args

from omnigraph.engine.tasks import NOBODY, Runner, Watcher
from omnigraph.errors import UsageError
from omnigraph.pipeline.tasks import Executors

Engine = Literal["auto", "local", "spark"]


def check_engine(engine: str) -> None:
    """Refuse a word that is no engine."""
    if engine not in get_args(Engine):
        raise UsageError(f"there is no engine `{engine}`; it is one of {', '.join(get_args(Engine))}", engine=engine)


def executors(master: str | None, watcher: Watcher = NOBODY) -> Runner:
    """Return the executors of a session, which is started if there is none."""
    from omnigraph.pipeline.session import session

    return Executors(session(master), watcher)
