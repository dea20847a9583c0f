"""Run one function over many payloads on Spark executors, as `engine.tasks` does in threads.

The one primitive of the pipeline: every payload yields exactly one result, or the whole call fails.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from omnigraph.engine.tasks import NO_PROGRESS, Progress, Runner
from omnigraph.errors import OmniGraphError, PipelineError, UsageError
from omnigraph.limits import LOAD_WAVE_TASKS

P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Executors:
    """Runs tasks on the executors of a Spark session, one partition per payload."""

    spark: Any
    watcher: Progress = NO_PROGRESS
    engine = "spark"

    def run(self, stage: str, work: Callable[[P], R], payloads: Sequence[P], sizes: Sequence[int] = ()) -> list[R]:
        weights = list(sizes) or [1] * len(payloads)
        results: list[R] = []
        if payloads:
            self.watcher.begin(stage, sum(weights))
        # Spark sends the payloads of a whole job to each of its tasks, so the size of a job is bounded.
        for start in range(0, len(payloads), LOAD_WAVE_TASKS):
            results += self._wave(stage, work, payloads[start : start + LOAD_WAVE_TASKS], weights, start)
        return results

    def _wave(
        self, stage: str, work: Callable[[P], R], payloads: Sequence[P], weights: Sequence[int], first: int
    ) -> list[R]:
        from omnigraph.pipeline.spark.session import run_job

        before, mean = sum(weights[:first]), sum(weights) / len(weights)
        rows = run_job(
            self.spark,
            stage,
            lambda: self._collect(work, payloads),
            lambda done: self.watcher.reach(int(before + done * mean)),
        )
        return _unpack_results(rows, len(payloads), stage)

    def _collect(self, work: Callable[[P], R], payloads: Sequence[P]) -> list[Any]:
        count = len(payloads)
        packed = [pickle.dumps(payload) for payload in payloads]
        frame = self.spark.range(0, count, 1, count).mapInArrow(executor_function(work, packed), "i long, r binary")
        return list(frame.collect())


def executor_function(work: Callable[[Any], Any], packed: Sequence[bytes]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the function that Spark maps over the indexes of the payloads."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        # Spark discards a worker that has not consumed its input, and with it all its imports.
        for batch in batches:
            for index in batch.column(0).to_pylist():
                result = run_task(work, packed[index])
                yield pa.RecordBatch.from_pydict({"i": pa.array([index], pa.int64()), "r": pa.array([result])})

    return run


def run_task(work: Callable[[Any], Any], packed: bytes) -> bytes:
    """Run one task; an OmniGraph error is returned as a result, so that Spark does not retry it."""
    try:
        return pickle.dumps((True, work(pickle.loads(packed))))
    except OmniGraphError as error:
        return pickle.dumps((False, error))


def _unpack_results(rows: Sequence[Any], count: int, stage: str) -> list[Any]:
    packed = {int(row["i"]): bytes(row["r"]) for row in rows}
    # A driver that runs out of memory returns fewer rows and no error.
    if len(rows) != count or len(packed) != count:
        raise PipelineError(
            f"Spark returned {len(rows)} of {count} results of the stage `{stage}`; nothing was written. Give the"
            " driver more memory and retry",
            stage=stage,
        )
    results = [pickle.loads(packed[index]) for index in range(count)]
    for is_ok, value in results:
        if not is_ok:
            raise value
    return [value for _, value in results]


Engine = Literal["auto", "local", "spark"]


def check_engine(engine: str) -> None:
    """Raise `UsageError` for an unknown engine."""
    if engine not in get_args(Engine):
        raise UsageError(f"unknown engine `{engine}`; expected one of {', '.join(get_args(Engine))}", engine=engine)


def start_executors(master: str | None, watcher: Progress = NO_PROGRESS) -> Runner:
    """Return the executors of the running session; start one if there is none."""
    from omnigraph.pipeline.spark.session import session

    return Executors(session(master), watcher)
