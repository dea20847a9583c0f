"""The two seams of long work: where tasks run (`Runner`), and who watches them (`Progress`).

Independent of graphs. `Threads` runs tasks in this process; the Spark runner is `pipeline.spark.executors`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias, TypeVar

P = TypeVar("P")
R = TypeVar("R")

# The unit of progress: bytes of input, or items of the stage.
Unit: TypeAlias = Literal["bytes", "items"]

# How often progress is updated while tasks run.
_POLL_SECONDS: Final = 0.2


class Progress(Protocol):
    """Receives the progress of an operation: how much of a stage is done.

    `total` is 0 while the operation waits for something outside of it; the stage then says for what.
    """

    def __call__(self, stage: str, done: int, total: int, unit: Unit) -> None: ...


_progress: ContextVar[Progress | None] = ContextVar("omnigraph_progress", default=None)


@contextmanager
def reporting_to(progress: Progress | None) -> Iterator[None]:
    """Report the progress of everything inside, and of threads it starts, to a callback.

    >>> with reporting_to(print):
    ...     report_progress("types", 1, 2)
    types 1 2 items
    >>> report_progress("types", 2, 2)
    """
    token = _progress.set(progress if progress is not None else _progress.get())
    try:
        yield
    finally:
        _progress.reset(token)


def report_progress(stage: str, done: int, total: int, unit: Unit = "items") -> None:
    """Report that so much of a stage is done."""
    if (progress := _progress.get()) is not None:
        progress(stage, done, total, unit)


class Runner(Protocol):
    """Runs tasks: in threads of this process, or on Spark executors."""

    @property
    def engine(self) -> str: ...

    @property
    def processes(self) -> int:
        """How many processes run tasks at the same time, and share global limits."""
        ...

    def run(self, stage: str, work: Callable[[P], R], payloads: Sequence[P], sizes: Sequence[int] = ()) -> list[R]:
        """Return the results in the order of the payloads; progress counts `sizes`, which are bytes, or tasks."""
        ...


# Returns the runner for tasks of a size, in the unit of the operation.
ChooseRunner: TypeAlias = Callable[[int], Runner]


@dataclass(frozen=True)
class Threads:
    """Runs tasks in threads of this process, as many as there are cores and at most `at_once`."""

    at_once: int | None = None
    engine = "local"
    processes = 1

    def run(self, stage: str, work: Callable[[P], R], payloads: Sequence[P], sizes: Sequence[int] = ()) -> list[R]:
        unit, weights = weigh_tasks(payloads, sizes)
        report_progress(stage, 0, sum(weights), unit)
        cores = os.cpu_count() or 1
        pool = ThreadPoolExecutor(min(cores, self.at_once or cores), thread_name_prefix="omnigraph-task")
        try:
            futures = [pool.submit(copy_context().run, work, payload) for payload in payloads]
            pending: set[Future[R]] = set(futures)
            while pending:
                _, pending = wait(pending, _POLL_SECONDS, FIRST_EXCEPTION)
                finished = sum(weight for weight, future in zip(weights, futures, strict=True) if future.done())
                report_progress(stage, finished, sum(weights), unit)
                failed = next((future for future in futures if future.done() and future.exception() is not None), None)
                if failed is not None:
                    failed.result()
            return [future.result() for future in futures]
        finally:
            # Cancel queued tasks; running ones must end before their files may be removed.
            pool.shutdown(wait=True, cancel_futures=True)


def weigh_tasks(payloads: Sequence[object], sizes: Sequence[int]) -> tuple[Unit, list[int]]:
    """Return the unit of progress, and the weight of each task.

    >>> weigh_tasks(["a", "b"], [10, 20]), weigh_tasks(["a", "b"], [])
    (('bytes', [10, 20]), ('items', [1, 1]))
    """
    return ("bytes", list(sizes)) if sizes else ("items", [1] * len(payloads))
