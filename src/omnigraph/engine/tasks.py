"""Tasks: one function over many payloads, somewhere, while somebody may watch; here they run in threads.

Knows nothing of graphs. Executors are the pipeline's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

P = TypeVar("P")
R = TypeVar("R")

# How long to wait before looking again at how far the tasks are.
_LOOK_SECONDS: Final = 0.2


class Watcher(Protocol):
    """Whoever wants to know how far a pipeline is."""

    def begin(self, stage: str, total: int) -> None:
        """A stage starts, with this much to do."""
        ...

    def reach(self, done: int) -> None:
        """So much of the current stage is done."""
        ...


class Nobody:
    """A watcher that does not look."""

    def begin(self, stage: str, total: int) -> None:
        pass

    def reach(self, done: int) -> None:
        pass


NOBODY: Final = Nobody()


class Runner(Protocol):
    """Somewhere for tasks to run."""

    @property
    def engine(self) -> str: ...

    def run(self, stage: str, work: Callable[[P], R], payloads: Sequence[P], sizes: Sequence[int] = ()) -> list[R]:
        """Return the results in the order of the payloads; `sizes` are what progress counts."""
        ...


@dataclass(frozen=True)
class Threads:
    """Runs tasks in threads of this process, as many as there are cores and at most `at_once`."""

    watcher: Watcher = NOBODY
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
                _, pending = wait(pending, _LOOK_SECONDS, FIRST_EXCEPTION)
                self.watcher.reach(sum(w for w, one in zip(weights, futures, strict=True) if one.done()))
                failed = next((one for one in futures if one.done() and one.exception() is not None), None)
                if failed is not None:
                    failed.result()
            return [one.result() for one in futures]
        finally:
            # What has not begun never will; what has must end before its files may be removed.
            pool.shutdown(wait=True, cancel_futures=True)
