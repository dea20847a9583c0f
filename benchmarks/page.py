"""The page of measurements: machine facts, then a section for each topic.

Pure but for the facts of the machine and the commit; names no host.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.topic import Measure, Table, Topic

_SECTION = re.compile(r"^(?=## )", re.MULTILINE)


def render_page(topics: Sequence[Topic], measured: str, before: str = "") -> str:
    """Return `docs/appendix/benchmarks.md` in full; sections that no topic replaces stay where they were.

    `measured` is the commit that the topics were measured on.
    """
    head = [
        "# Measurements",
        "",
        "Written by `make bench`; medians of wall time after a warm-up. A ratio below 1 beats its target.",
        "",
        f"Machine: {machine()}.",
        "",
    ]
    sections = {_title(text): text for text in _SECTION.split(before)[1:]}
    sections |= {topic.title: "\n".join(_section(topic, measured)) for topic in topics}
    parts = ["\n".join(head), *(text.strip("\n") + "\n" for text in sections.values())]
    return "\n".join(parts)


def commit() -> str:
    """Return the short name of the commit that is measured, and whether it was changed."""
    git = ("git", "-C", str(Path(__file__).parent))
    name, changes = (
        subprocess.run([*git, *words], capture_output=True, text=True, check=True).stdout.strip()
        for words in (("rev-parse", "--short=8", "HEAD"), ("status", "--porcelain", "--", "../src"))
    )
    return f"{name} with changes" if changes else name


def machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{cores} cores, {platform.machine()}, {platform.system()}, Python {platform.python_version()}"


def _title(section: str) -> str:
    return section.partition("\n")[0].removeprefix("## ").strip()


def _section(topic: Topic, measured: str) -> list[str]:
    lines = [f"## {topic.title}", "", f"{topic.about} Measured on commit {measured}.", ""]
    if topic.measures:
        lines += [*_table_head(("What", "Median", "Target", "Ratio", "Rounds")), *map(_row, topic.measures), ""]
    for table in topic.tables:
        lines += [table.about, "", *_table(table), ""]
    return lines


def _table(table: Table) -> list[str]:
    return [*_table_head(table.header), *(f"| {' | '.join(row)} |" for row in table.rows)]


def _table_head(names: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]


def _row(measure: Measure) -> str:
    """Render one table row.

    >>> _row(Measure("compile", 1.5, 3.0, 100))
    '| compile | 1.50 ms | 3 ms | 0.50 | 100 |'
    """
    target = f"{measure.target_ms:g} ms" if measure.target_ms else ""
    ratio = f"{measure.median_ms / measure.target_ms:.2f}" if measure.target_ms else ""
    return f"| {measure.name} | {measure.median_ms:.2f} ms | {target} | {ratio} | {measure.rounds} |"
