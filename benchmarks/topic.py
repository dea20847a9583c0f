"""Topics and their measures, and how a duration is measured.

Knows nothing of any topic; `benchmarks.page` turns topics into the document.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measure:
    """One measured duration and the target it is held against."""

    name: str
    median_ms: float
    target_ms: float | None = None
    rounds: int = 1


@dataclass(frozen=True, slots=True)
class Table:
    """Anything else that was measured: a sentence about it, and cells that are text already."""

    about: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Topic:
    title: str
    about: str
    measures: tuple[Measure, ...] = ()
    tables: tuple[Table, ...] = ()


def median_ms(work: Callable[[], object], *, rounds: int, warm_up: int = 3) -> float:
    """Return the median wall time of one call, in milliseconds, with the collector at rest."""
    for _ in range(warm_up):
        work()
    durations: list[float] = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            start = time.perf_counter()
            work()
            durations.append(time.perf_counter() - start)
    finally:
        gc.enable()
    return statistics.median(durations) * 1_000
