"""One set of open engines, asked every line warm, with what that cost besides time.

Knows engines as processes only.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.reads.compare import Timing, compare, prepare
from benchmarks.reads.data import Size
from benchmarks.reads.draws import Deck
from benchmarks.reads.engines import OURS
from benchmarks.reads.lines import Draw, Line
from benchmarks.reads.processes import serving
from benchmarks.reads.quality import Truth


@dataclass(frozen=True, slots=True)
class Warm:
    """Everything that one set of open engines was asked."""

    timings: Sequence[Timing]
    peak_bytes: Mapping[str, int]
    planning: Mapping[str, Mapping[str, float]]
    requests: Mapping[str, int]
    shares: Mapping[str, Mapping[str, float]]


def measure_warm(size: Size, lines: Sequence[Line], names: Sequence[str], cache: Path) -> Warm:
    """Build every engine at one size, and ask all of them these lines."""
    data, homes = prepare(size, names, cache)
    deck = Deck.read(data)
    with serving(homes) as workers:
        timings = []
        for timing in compare(lines, deck, workers):
            print(f"reads, {size.name} size: {timing.line.title}", flush=True)
            timings.append(timing)
        peaks = {name: int(worker.ask("memory")["peak_bytes"]) for name, worker in workers.items()}
        able = [timing.line for timing in timings if OURS in timing.rounds]
        ours = workers[OURS]
        planning = {line.name: ours.ask("plan", line.name, deck.draw(line, 1)) for line in able}
        requests = {line.name: int(ours.ask("profile", line.name, deck.draw(line, 1))["requests"]) for line in able}
    return Warm(timings, peaks, planning, requests, _shares(timings, deck, Truth(data)))


def _shares(timings: Sequence[Timing], deck: Deck, truth: Truth) -> dict[str, dict[str, float]]:
    shares: dict[str, dict[str, float]] = {}
    for timing in timings:
        if timing.line.draw in (Draw.WORDS, Draw.VECTOR):
            params = deck.draw(timing.line, timing.line.calls)
            shares[timing.line.name] = {
                name: statistics.mean(truth.share(one, keys) for one, keys in zip(params, found, strict=True))
                for name, found in timing.found.items()
            }
    return shares
