"""The page of measurements: machine facts, then a table for each topic.

Pure but for the machine facts; names no host.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

from benchmarks.topic import Measure, Topic


def render_page(topics: Sequence[Topic]) -> str:
    """Return `docs/benchmarks.md` in full."""
    head = [
        "# Measurements",
        "",
        "Written by `make bench`; medians of wall time after a warm-up. A ratio below 1 beats its target.",
        "",
        f"Machine: {machine()}.",
        "",
    ]
    return "\n".join(head + [line for topic in topics for line in _section(topic)]).rstrip("\n") + "\n"


def machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{cores} cores, {platform.machine()}, {platform.system()}, Python {platform.python_version()}"


def _section(topic: Topic) -> list[str]:
    table = ["| What | Median | Target | Ratio | Rounds |", "|---|---|---|---|---|"]
    return [f"## {topic.title}", "", topic.about, "", *table, *(_row(measure) for measure in topic.measures), ""]


def _row(measure: Measure) -> str:
    """Render one table row.

    >>> _row(Measure("compile", 1.5, 3.0, 100))
    '| compile | 1.50 ms | 3 ms | 0.50 | 100 |'
    """
    target = f"{measure.target_ms:g} ms" if measure.target_ms else ""
    ratio = f"{measure.median_ms / measure.target_ms:.2f}" if measure.target_ms else ""
    return f"| {measure.name} | {measure.median_ms:.2f} ms | {target} | {ratio} | {measure.rounds} |"
