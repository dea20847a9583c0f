"""Progress: how far long work is, told to whoever watches this context.

Imports nothing of ours. While nobody watches, telling costs one lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Watch = Callable[[str, int, int], None]

_watch: ContextVar[Watch | None] = ContextVar("omnigraph_progress", default=None)


def tell(stage: str, done: int, total: int) -> None:
    """Say that so much of a stage is done."""
    if (watch := _watch.get()) is not None:
        watch(stage, done, total)


@contextmanager
def watched(by: Watch) -> Iterator[None]:
    """Tell a watcher what this context, and the threads it starts work in, get done.

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
