"""The only place where the product reads the time, so that a test can hold it still.

Ground layer: imports nothing of ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_wall: Callable[[], int] = lambda: time.time_ns() // 1_000  # noqa: E731 - one replaceable seam


def now_us() -> int:
    """Return the wall clock in Unix microseconds."""
    return _wall()


def monotonic() -> float:
    """Return seconds on a clock that never goes back; for deadlines and durations only."""
    return time.monotonic()


@contextmanager
def replaced(wall: Callable[[], int]) -> Iterator[None]:
    """Let tests supply the wall clock: a fixed instant, a counter, a clock that jumps.

    >>> with replaced(lambda: 42):
    ...     now_us()
    42
    """
    global _wall
    before, _wall = _wall, wall
    try:
        yield
    finally:
        _wall = before
