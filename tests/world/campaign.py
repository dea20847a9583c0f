"""Many histories, one after the other or in several processes, until the time is over."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path

from tests.world.generator import Failure, History, run_history
from tests.world.replay import script, shrink_calls
from tests.world.shrink import SECONDS_MAX, shrink


@dataclass
class Summary:
    """What a campaign did."""

    histories: int = 0
    operations: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        failed = len(self.failures)
        yield f"{self.histories} histories, {self.operations:,} operations in {self.seconds:.0f} s, {failed} failed"
        yield from (f"  {count:8,} {name}" for name, count in sorted(self.counts.items()))


def run_campaign(
    seed: int,
    seconds: float,
    *,
    operations: int | None = None,
    jobs: int = 1,
    root: Path | None = None,
    failures_max: int = 1,
    is_shrunk: bool = True,
) -> Summary:
    """Run histories of ascending seeds and print each of them, so that any can be repeated."""
    summary, started = Summary(), time.monotonic()
    for result in _histories(seed, started + seconds, partial(run_history, operations=operations, root=root), jobs):
        summary.histories += 1
        summary.operations += result.operations
        summary.counts += result.counts
        print(f"seed {result.seed}: {result.operations} operations", flush=True)
        if result.failure:
            summary.failures.append(result.failure)
            text = shortest_script(result.failure, root=root) if is_shrunk else result.failure.script()
            print(f"FAILED\n{text}\n", flush=True)
            if len(summary.failures) >= failures_max:
                break
    summary.seconds = time.monotonic() - started
    return summary


def shortest_script(failure: Failure, *, root: Path | None = None, seconds: float = SECONDS_MAX) -> str:
    """Return the shortest program, or history, that fails in the same way."""
    calls = shrink_calls(failure, root=root, seconds=seconds)
    if calls is not None:
        numbers = ",".join(str(one) for one in failure.operations)
        return f"python -m tests.world --seed {failure.seed} --only {numbers}\n{failure.reason}\n\n{script(calls)}"
    return shrink(failure, root=root, seconds=seconds).script()


def _histories(seed: int, deadline: float, run: partial[History], jobs: int) -> Iterator[History]:
    if jobs == 1:
        while time.monotonic() < deadline:
            yield run(seed)
            seed += 1
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        seeds = count(seed)
        running = {pool.submit(run, next(seeds)) for _ in range(jobs)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                if time.monotonic() < deadline:
                    running.add(pool.submit(run, next(seeds)))
                yield future.result()
