"""Pace: requests kept so far apart that no more than an allowed number is made in a second.

Threads share one; it knows nothing of what is asked.
"""

from __future__ import annotations

from threading import Lock
from typing import Final

from omnigraph import clock


class Pace:
    """So many requests a second; 0 is no limit."""

    def __init__(self, per_second: float) -> None:
        self._gap = 1 / per_second if per_second else 0.0
        self._free_at = 0.0
        self._lock = Lock()

    def wait(self) -> float:
        """Wait for the next turn, and return how many seconds that took."""
        if not self._gap:
            return 0.0
        with self._lock:
            now = clock.elapsed()
            turn = max(now, self._free_at)
            self._free_at = turn + self._gap
        if turn > now:
            clock.pause(turn - now)
        return turn - now


NO_PACE: Final = Pace(0)
