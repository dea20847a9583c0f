"""Run histories until the time is over: `python -m tests.world --seconds 3600 --jobs 2`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.world.campaign import run_campaign
from tests.world.generator import run_history


def main() -> int:
    options = parse()
    root = Path(options.root) if options.root else None
    if options.only is not None:
        result = run_history(options.seed, only=[int(one) for one in options.only.split(",")], root=root)
        print(result.failure.script() if result.failure else "nothing fails")
        return 1 if result.failure else 0
    print(f"seeds from {options.seed} on", flush=True)
    summary = run_campaign(
        options.seed,
        options.seconds,
        operations=options.operations,
        jobs=options.jobs,
        root=root,
        failures_max=options.failures,
        is_shrunk=not options.no_shrink,
    )
    print("\n".join(summary.lines()))
    return 1 if summary.failures else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.world", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--operations", type=int, help="how many in each history")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--failures", type=int, default=1, help="stop after so many")
    parser.add_argument("--only", help="replay only these operations of the seed: 3,7,9")
    parser.add_argument("--root", help="where graphs are made, such as /dev/shm")
    parser.add_argument("--no-shrink", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
