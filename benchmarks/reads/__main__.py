"""`python -m benchmarks.reads`: measure some lines on some engines and print them, without touching the page."""

from __future__ import annotations

import argparse

from benchmarks.reads.compare import Timing, compare, prepare
from benchmarks.reads.construct_lines import ANY_LINE
from benchmarks.reads.data import SIZES
from benchmarks.reads.draws import Deck
from benchmarks.reads.engines import OURS, PEERS
from benchmarks.reads.lines import BY_NAME
from benchmarks.reads.processes import available, serving
from benchmarks.reads.topic import CACHE


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reads", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="tenth")
    parser.add_argument("--engines", nargs="+", choices=[OURS, *PEERS], default=[OURS, "duckdb"])
    parser.add_argument("--lines", nargs="+", choices=ANY_LINE, default=list(BY_NAME))
    given = parser.parse_args()
    names = [OURS, *(name for name in available(given.engines) if name != OURS)]
    data, homes = prepare(SIZES[given.size], names, CACHE)
    with serving(homes) as workers:
        for timing in compare([ANY_LINE[name] for name in given.lines], Deck.read(data), workers):
            print(_shown(timing), flush=True)


def _shown(timing: Timing) -> str:
    ratios = timing.ratios()
    cells = [
        f"{name} {timing.median(name):.3f} ms" + (f" ({ratios[name]:.1f}×)" if name in ratios else "")
        for name in timing.rounds
    ]
    return f"{timing.line.name:14}" + ", ".join([*cells, *(f"{name}: {why}" for name, why in timing.failures.items())])


if __name__ == "__main__":
    main()
