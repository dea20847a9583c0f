"""Cold starts: a fresh process whose files are out of the page cache, from its start to the first answer.

Knows engines as processes only.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.reads.draws import Deck
from benchmarks.reads.engines import OURS
from benchmarks.reads.lines import Line
from benchmarks.reads.processes import Worker, forget_pages

COLD_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Cold:
    """What the first answer of a process took, per engine: medians of milliseconds, and bytes read after opening."""

    line: Line
    total_ms: Mapping[str, float]
    first_ms: Mapping[str, float]
    bytes_read: Mapping[str, int]
    requests: int


def measure_cold(
    lines: Sequence[Line], deck: Deck, able: Mapping[str, Sequence[str]], homes: Mapping[str, Path]
) -> list[Cold]:
    """Start every engine that can answer a line anew for it, a few times, in shuffled order."""
    order = random.Random(1)
    measured = []
    for line in lines:
        params = deck.draw(line, 1)
        total: dict[str, list[float]] = {name: [] for name in able[line.name]}
        first: dict[str, list[float]] = {name: [] for name in total}
        read: dict[str, int] = {}
        for _ in range(COLD_ROUNDS):
            for name in order.sample(list(total), len(total)):
                forget_pages(homes[name])
                worker = Worker(name, homes[name])
                answer = worker.ask("time", line.name, params)
                total[name].append(worker.age_ms())
                first[name].append(answer["ms"][0])
                read[name] = answer["bytes_read"]
                worker.stop()
        measured.append(Cold(line, _medians(total), _medians(first), read, _requests(line, params, homes[OURS])))
    return measured


def _medians(taken: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: statistics.median(times) for name, times in taken.items()}


def _requests(line: Line, params: Sequence[object], home: Path) -> int:
    worker = Worker(OURS, home)
    try:
        return int(worker.ask("profile", line.name, params)["requests"])
    finally:
        worker.stop()
