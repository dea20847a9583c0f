"""The comparison: results checked first, then the same calls to every engine in shuffled order, round by round.

Knows engines as processes only.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.reads.data import Size, write_data
from benchmarks.reads.engines import OURS
from benchmarks.reads.lines import Line
from benchmarks.reads.processes import Worker, build

ROUNDS = 9
# A slow line stops early, with at least this many rounds.
ROUNDS_MIN = 2
LINE_SECONDS = 15.0


class Draws(Protocol):
    """What parameters are drawn from."""

    def draw(self, line: Line, count: int) -> list[dict[str, Any]]:
        """Return this many parameter sets; the same ones for the same line and count."""


class Disagreement(Exception):
    """Two engines gave different results for one line."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What one line took, per engine and round: the median of the round's calls, in milliseconds."""

    line: Line
    rounds: Mapping[str, Sequence[float]]
    found: Mapping[str, Sequence[Sequence[str]]]
    failures: Mapping[str, str]

    def median(self, name: str) -> float:
        return statistics.median(self.rounds[name])

    def ratios(self) -> dict[str, float]:
        """Return for every peer how many times as long as ours it took: the median over rounds."""
        ours = self.rounds.get(OURS)
        if ours is None:
            return {}
        return {
            name: statistics.median(peer / mine for peer, mine in zip(taken, ours, strict=True))
            for name, taken in self.rounds.items()
            if name != OURS
        }


def prepare(size: Size, names: Sequence[str], cache: Path) -> tuple[Path, dict[str, Path]]:
    """Write the data and build every engine's database; return where they are."""
    data = cache / size.name
    write_data(size, data)
    homes = {name: cache / f"{size.name}-{name}" for name in names}
    for name, home in homes.items():
        build(name, data, home)
    return data, homes


def compare(
    lines: Sequence[Line], deck: Draws, workers: Mapping[str, Worker], *, rounds: int = ROUNDS
) -> Iterator[Timing]:
    """Yield each line as soon as it is measured; raise if engines disagree on its result."""
    order = random.Random(0)
    for line in lines:
        params = deck.draw(line, line.calls)
        answers = _check(line, params, workers)
        able = [workers[name] for name, answer in answers.items() if answer["digests"] is not None]
        found = {worker.name: answers[worker.name].get("keys", []) for worker in able}
        failures = {name: answer["failure"] for name, answer in answers.items() if "failure" in answer}
        yield Timing(line, _measure(line, params, able, order, rounds), found, failures)


def _check(line: Line, params: list[dict[str, Any]], workers: Mapping[str, Worker]) -> dict[str, dict[str, Any]]:
    answers = {name: worker.ask("check", line.name, params) for name, worker in workers.items()}
    able = [(name, answer) for name, answer in answers.items() if answer["digests"] is not None]
    for name, answer in able[1:]:
        if answer["digests"] != able[0][1]["digests"]:
            raise Disagreement(f"{name} and {able[0][0]} disagree on `{line.name}`: {answer} and {able[0][1]}")
    return answers


def _measure(
    line: Line, params: list[dict[str, Any]], workers: list[Worker], order: random.Random, count: int
) -> dict[str, list[float]]:
    rounds: dict[str, list[float]] = {worker.name: [] for worker in workers}
    until = time.perf_counter() + LINE_SECONDS
    for number in range(count):
        if number >= ROUNDS_MIN and time.perf_counter() > until:
            break
        order.shuffle(workers)
        for worker in workers:
            rounds[worker.name].append(statistics.median(worker.ask("time", line.name, params)["ms"]))
    return rounds
