"""Tasks on the executors of Spark: one function over many payloads, as `engine.tasks` runs it in threads.

The one primitive of the pipeline. A result comes back for every payload, exactly once, or nothing does.
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
    """Runs tasks on the executors of a Spark session, one partition for each payload."""

    spark: Any
    watcher: Progress = NO_PROGRESS
    engine = "spark"

    def run(self, stage: str, work: Callable[[P], R], payloads: Sequence[P], sizes: Sequence[int] = ()) -> list[R]:
        weights = list(sizes) or [1] * len(payloads)
        results: list[R] = []
        if payloads:
            self.watcher.begin(stage, sum(weights))
        # Every task is sent the payloads of its whole job, so a job has only so many of them.
        for start in range(0, len(payloads), LOAD_WAVE_TASKS):
            results += self._wave(stage, work, payloads[start : start + LOAD_WAVE_TASKS], weights, start)
        return results

    def _wave(
        self, stage: str, work: Callable[[P], R], payloads: Sequence[P], weights: Sequence[int], first: int
    ) -> list[R]:
        from omnigraph.pipeline.spark.session import watched

        before, mean = sum(weights[:first]), sum(weights) / len(weights)
        rows = watched(
            self.spark,
            stage,
            lambda: self._collect(work, payloads),
            lambda done: self.watcher.reach(int(before + done * mean)),
        )
        return _results(rows, len(payloads), stage)

    def _collect(self, work: Callable[[P], R], payloads: Sequence[P]) -> list[Any]:
        count = len(payloads)
        packed = [pickle.dumps(payload) for payload in payloads]
        frame = self.spark.range(0, count, 1, count).mapInArrow(on_executor(work, packed), "i long, r binary")
        return list(frame.collect())


def on_executor(work: Callable[[Any], Any], packed: Sequence[bytes]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return what Spark is to run over numbers of payloads."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        # Spark throws a worker away that has not read its input to the end, and with it all that was imported.
        for batch in batches:
            for place in batch.column(0).to_pylist():
                result = attempt(work, packed[place])
                yield pa.RecordBatch.from_pydict({"i": pa.array([place], pa.int64()), "r": pa.array([result])})

    return run


def attempt(work: Callable[[Any], Any], packed: bytes) -> bytes:
    """Run one task; a refusal is a result like any other, so that Spark does not try it again."""
    try:
        return pickle.dumps((True, work(pickle.loads(packed))))
    except OmniGraphError as error:
        return pickle.dumps((False, error))


def _results(rows: Sequence[Any], count: int, stage: str) -> list[Any]:
    found = {int(row["i"]): bytes(row["r"]) for row in rows}
    # A driver that runs out of memory gives back fewer rows and no error.
    if len(rows) != count or len(found) != count:
        raise PipelineError(
            f"Spark gave back {len(rows)} of {count} results of the stage `{stage}`; nothing was written. Give the"
            " driver more memory and run it again",
            stage=stage,
        )
    results = [pickle.loads(found[place]) for place in range(count)]
    for is_right, value in results:
        if not is_right:
            raise value
    return [value for _, value in results]


Engine = Literal["auto", "local", "spark"]


def check_engine(engine: str) -> None:
    """Refuse a word that is no engine."""
    if engine not in get_args(Engine):
        raise UsageError(f"there is no engine `{engine}`; it is one of {', '.join(get_args(Engine))}", engine=engine)


def executors(master: str | None, watcher: Progress = NO_PROGRESS) -> Runner:
    """Return the executors of a session, which is started if there is none."""
    from omnigraph.pipeline.spark.session import session

    return Executors(session(master), watcher)
