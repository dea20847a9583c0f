"""Failpoints: named steps at which a test can inject an error, a pause or a kill.

Ground layer: no imports from the package. While nothing is armed, a failpoint costs one attribute test.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import StrEnum

Action = Callable[[str], None]


class Point(StrEnum):
    """All failpoints."""

    DURABLE_BEFORE = "durable.before"
    DURABLE_AFTER = "durable.after"
    COMMIT_PREPARED = "commit.prepared"
    COMMIT_STAGED = "commit.staged"
    COMMIT_SYNCED = "commit.synced"
    PUBLISH_BEFORE = "publish.before"
    PUBLISH_AFTER = "publish.after"
    LINK_BEFORE = "link.before"
    INIT_CLAIMED = "init.claimed"
    INIT_DATASETS_CREATED = "init.datasets_created"
    INIT_MANIFEST_CREATED = "init.manifest_created"
    SWEEP_LISTED = "sweep.listed"
    CLEANUP_DECIDED = "cleanup.decided"


_armed: dict[Point, Action] | None = None


def hit(point: Point, detail: str = "") -> None:
    """Run the action that is armed at a failpoint, if any."""
    if _armed is not None and (action := _armed.get(point)) is not None:
        action(detail)


def around_change(detail: str) -> AbstractContextManager[None]:
    """Hit the failpoints before and, unless it fails, after a step that changes storage."""
    return nullcontext() if _armed is None else _hit_around_change(detail)


@contextmanager
def _hit_around_change(detail: str) -> Iterator[None]:
    hit(Point.DURABLE_BEFORE, detail)
    yield
    hit(Point.DURABLE_AFTER, detail)


@contextmanager
def armed(actions: dict[Point, Action]) -> Iterator[None]:
    """Arm failpoints within the block; restore the previous actions afterwards.

    >>> seen: list[str] = []
    >>> with armed({Point.PUBLISH_BEFORE: seen.append}):
    ...     hit(Point.PUBLISH_BEFORE, "main")
    >>> hit(Point.PUBLISH_BEFORE, "again"); seen
    ['main']
    """
    global _armed
    before, _armed = _armed, {**(_armed or {}), **actions}
    try:
        yield
    finally:
        _armed = before


def kill(_: str) -> None:
    """Kill the process, as a power cut would: no handler, no flush, no cleanup."""
    os.kill(os.getpid(), signal.SIGKILL)
