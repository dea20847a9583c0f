"""Run one function over many payloads on Spark executors, as `engine.tasks` does in threads.

The one primitive of the pipeline: every payload yields exactly one result, or the whole call fails.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, Literal, TypeVar, get_args

from omnigraph.engine.tasks import Runner, Threads, report_progress, weigh_tasks
from omnigraph.errors import OmniGraphError, PipelineError, PipelineUnavailable, UsageError
from omnigraph.limits import LOAD_WAVE_TASKS

# What the functions of the pipeline have in common, for their docstrings.
ENGINE_DOCS: Final = """
Args:
    graph: The graph.
    engine: `local` runs in this process, `spark` on executors, `auto` chooses by size.
    spark: A running Spark session to use; by default the active one, or a new one.
    master: The master of a new Spark session; by default Spark runs on this machine.
    progress: Called with each stage and how much of it is done.

Raises:
    PipelineUnavailable: Spark was asked for and is not installed.
"""
# Spark Connect does not report its parallelism.
_PROCESSES_UNKNOWN: Final = 8

P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Executors:
    """Runs tasks on the executors of a Spark session, one partition per payload."""

    spark: Any
    engine = "spark"

    @property
    def processes(self) -> int:
        from pyspark.errors import PySparkException

        try:
            return max(1, int(self.spark.sparkContext.defaultParallelism))
        except PySparkException:
            return _PROCESSES_UNKNOWN

    def run(self, stage: str, work: Callable[[P], R], payloads: Sequence[P], sizes: Sequence[int] = ()) -> list[R]:
        unit, weights = weigh_tasks(payloads, sizes)
        total, mean = sum(weights), sum(weights) / max(1, len(weights))
        results: list[R] = []
        # Spark sends the payloads of a whole job to each of its tasks, so the size of a job is bounded.
        for start in range(0, len(payloads), LOAD_WAVE_TASKS):
            before = sum(weights[:start])

            def report(done: int, before: int = before) -> None:
                report_progress(stage, int(before + done * mean), total, unit)

            report(0)
            results += self._run_wave(stage, work, payloads[start : start + LOAD_WAVE_TASKS], report)
        return results

    def _run_wave(
        self, stage: str, work: Callable[[P], R], payloads: Sequence[P], report: Callable[[int], None]
    ) -> list[R]:
        from omnigraph.pipeline.spark.session import run_job

        rows = run_job(self.spark, stage, lambda: self._collect(work, payloads), report)
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


class RunnerChoice:
    """Chooses where tasks run, as the caller's `engine`, `spark` and `master` say; starts Spark at most once.

    An operation that runs anywhere, only slower, is `flexible`: with the engine `auto` it does without Spark where that
    is not available.
    """

    def __init__(
        self, engine: Engine, master: str | None = None, spark: Any = None, *, is_flexible: bool = True
    ) -> None:
        if engine not in get_args(Engine):
            raise UsageError(f"unknown engine `{engine}`; expected one of {', '.join(get_args(Engine))}", engine=engine)
        if spark is not None and master is not None:
            raise UsageError("`spark` is a running session, which has its master; omit `master`", master=master)
        if engine == "local" and (spark is not None or master is not None):
            omitted = "master" if spark is None else "spark"
            raise UsageError(f'`engine="local"` runs in this process; omit `{omitted}`', engine=engine)
        self.engine = engine
        self._master = master
        self._spark = spark
        self._is_flexible = is_flexible
        self._executors: Runner | None = None
        self._lock = Lock()

    @property
    def is_spark_required(self) -> bool:
        return self.engine == "spark" or (
            self.engine == "auto" and (self._master is not None or self._spark is not None)
        )

    def takes_spark(self, size: int, local_max: int) -> bool:
        return self.is_spark_required or (self.engine == "auto" and size > local_max)

    def by_size(self, size: int, local_max: int, local: Runner = Threads()) -> Runner:  # noqa: B008 - it is frozen
        """Return the runner for tasks of a size; small ones are done here before Spark would have started."""
        if not self.takes_spark(size, local_max):
            return local
        try:
            return self.start()
        except PipelineUnavailable:
            if self.is_spark_required or not self._is_flexible:
                raise
            return local

    def start_if_required(self) -> None:
        """Fail early if Spark was asked for and does not start."""
        if self.is_spark_required:
            self.start()

    def start(self) -> Runner:
        """Return the executors; the first caller starts Spark."""
        with self._lock:
            if self._executors is None:
                self._executors = start_executors(self._master) if self._spark is None else Executors(self._spark)
            return self._executors

    def start_session(self, returned: str, in_process: str) -> Any:
        """Return the Spark session of a function that returns a DataFrame, which has no other engine."""
        if self.engine == "local":
            raise UsageError(
                f'{returned} is a Spark DataFrame, so `engine="local"` cannot make it; use {in_process}',
                engine=self.engine,
            )
        if self._spark is not None:
            return self._spark
        from omnigraph.pipeline.spark.session import session

        return wait_for_spark(lambda: session(self._master))


def start_executors(master: str | None) -> Runner:
    """Return the executors of the running session; start one if there is none."""
    from omnigraph.pipeline.spark.session import task_session

    return Executors(wait_for_spark(lambda: task_session(master)))


def wait_for_spark(start: Callable[[], Any]) -> Any:
    """Start Spark, and report that the caller waits for it."""
    waiting = "waiting for Spark to start"
    report_progress(waiting, 0, 0)
    spark = start()
    report_progress(waiting, 1, 1)
    return spark
