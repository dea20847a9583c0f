"""Pairs of works that take turns, and the ratio between them.

Knows nothing of what is measured.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Pair:
    """Work of ours and its yardstick, which does the least that has to be done; `prepare` comes before each of ours."""

    title: str
    ours: Work
    yardstick: Work
    rounds: int
    prepare: Work = lambda: None


def measure(pair: Pair) -> float:
    """Return how many times as long as ours the yardstick takes: the median of all rounds but the first."""
    ratios = []
    for _ in range(pair.rounds + 1):
        pair.prepare()
        ratios.append(_time(pair.yardstick) / _time(pair.ours))
    return statistics.median(ratios[1:])


def _time(work: Work) -> float:
    gc.collect()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
