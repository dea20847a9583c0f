"""The only module that reads clocks, so that tests can replace them.

Ground layer: no imports from the package.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

# CLOCK_MONOTONIC stops during suspend, and deadlines must not.
_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_elapsed: Callable[[], float] = partial(time.clock_gettime, _BOOT)
_storage: Callable[[int], int] = lambda modified_us: modified_us  # noqa: E731 - storage's time, as an object shows it
_wall: Callable[[], int] = lambda: time.time_ns() // 1_000  # noqa: E731 - one replaceable seam
_pause: Callable[[float], None] = time.sleep


def now_us() -> int:
    """Return the wall clock in Unix microseconds."""
    return _wall()


def elapsed() -> float:
    """Return seconds on a monotonic clock that keeps counting while the machine is suspended."""
    return _elapsed()


def storage_us(modified_us: int) -> int:
    """Return storage's time in Unix microseconds, taken from the modification time of an object just written.

    Deletion by age relies on it alone, since the wall clock of this machine may be wrong.
    """
    return _storage(modified_us)


def pause(seconds: float) -> None:
    _pause(seconds)


@contextmanager
def replaced(
    wall: Callable[[], int] | None = None,
    elapsed: Callable[[], float] | None = None,
    storage: Callable[[int], int] | None = None,
    pause: Callable[[float], None] | None = None,
) -> Iterator[None]:
    """Replace the clocks in tests: a fixed timestamp, a counter, a clock that jumps.

    >>> with replaced(wall=lambda: 42):
    ...     now_us()
    42
    """
    global _wall, _elapsed, _storage, _pause
    before = (_wall, _elapsed, _storage, _pause)
    _wall, _elapsed, _storage, _pause = wall or _wall, elapsed or _elapsed, storage or _storage, pause or _pause
    try:
        yield
    finally:
        _wall, _elapsed, _storage, _pause = before
