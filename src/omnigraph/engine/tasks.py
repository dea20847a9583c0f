"""Run one function over many payloads and report progress; `Threads` runs them in this process.

Independent of graphs; the Spark runner is `pipeline.spark.executors`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

P = TypeVar("P")
R = TypeVar("R")

# How often progress is updated while tasks run.
_POLL_SECONDS: Final = 0.2


class Progress(Protocol):
    """Receives the progress of a pipeline, stage by stage."""

    def begin(self, stage: str, total: int) -> None:
        """A stage starts, with this much to do."""
        ...

    def reach(self, done: int) -> None:
        """So much of the current stage is done."""
        ...


class NullProgress:
    """Discards progress."""

    def begin(self, stage: str, total: int) -> None:
        pass

    def reach(self, done: int) -> None:
        pass


NO_PROGRESS: Final = NullProgress()


class Runner(Protocol):
    """Runs tasks: threads of this process or Spark executors."""

    @property
    def engine(self) -> str: ...

    def run(self, stage: str, work: Callable[[P], R], payloads: Sequence[P], sizes: Sequence[int] = ()) -> list[R]:
        """Return the results in the order of the payloads; `sizes` are what progress counts."""
        ...


@dataclass(frozen=True)
class Threads:
    """Runs tasks in threads of this process, as many as there are cores and at most `at_once`."""

    watcher: Progress = NO_PROGRESS
    at_once: int | None = None
    engine = "local"

    def run(self, stage: str, work: Callable[[P], R], payloads: Sequence[P], sizes: Sequence[int] = ()) -> list[R]:
        weights = list(sizes) or [1] * len(payloads)
        self.watcher.begin(stage, sum(weights))
        cores = os.cpu_count() or 1
        pool = ThreadPoolExecutor(min(cores, self.at_once or cores), thread_name_prefix="omnigraph-task")
        try:
            futures = [pool.submit(work, payload) for payload in payloads]
            pending: set[Future[R]] = set(futures)
            while pending:
                _, pending = wait(pending, _POLL_SECONDS, FIRST_EXCEPTION)
                self.watcher.reach(
                    sum(weight for weight, future in zip(weights, futures, strict=True) if future.done())
                )
                failed = next((future for future in futures if future.done() and future.exception() is not None), None)
                if failed is not None:
                    failed.result()
            return [future.result() for future in futures]
        finally:
            # Cancel queued tasks; running ones must end before their files may be removed.
            pool.shutdown(wait=True, cancel_futures=True)
