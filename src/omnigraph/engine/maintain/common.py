"""Shared parts of maintenance: parallelism, the default actor, and progress reporting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from omnigraph import settings


def at_once() -> int:
    """Return how many types maintenance works on at the same time."""
    return settings.whole("OMNIGRAPH_MAINTENANCE_CONCURRENCY", least=1)


def system_actor(actor: str | None, work: str) -> str:
    """Return who made a commit of maintenance: the actor, or the work itself where none was named.

    >>> system_actor("ada", "optimize"), system_actor(None, "repair:force")
    ('ada', 'omnigraph:repair:force')
    """
    return f"omnigraph:{work}" if actor is None else actor


Watch = Callable[[str, int, int], None]

_watch: ContextVar[Watch | None] = ContextVar("omnigraph_progress", default=None)


def tell(stage: str, done: int, total: int) -> None:
    """Say that so much of a stage is done."""
    if (watch := _watch.get()) is not None:
        watch(stage, done, total)


@contextmanager
def watched(by: Watch) -> Iterator[None]:
    """Report the progress of this context, and of threads it starts, to a callback.

    >>> seen: list[tuple[str, int, int]] = []
    >>> with watched(lambda *said: seen.append(said)):
    ...     tell("types", 1, 2)
    >>> tell("types", 2, 2); seen
    [('types', 1, 2)]
    """
    token = _watch.set(by)
    try:
        yield
    finally:
        _watch.reset(token)
