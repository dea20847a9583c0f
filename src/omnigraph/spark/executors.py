"""Run one function over many payloads on Spark executors, as `engine.tasks` does in threads.

The one primitive of the pipeline: every payload yields exactly one result, or the whole call fails.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, Final, Literal, TypeVar, get_args

from omnigraph.engine.runners import input_threads
from omnigraph.engine.tasks import MapBatches, Runner, Threads, report_progress, weigh_tasks
from omnigraph.errors import OmniGraphError, PipelineError, PipelineUnavailable, UsageError
from omnigraph.limits import LOAD_LOCAL_BYTES_MAX, LOAD_WAVE_TASKS

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
        from omnigraph.spark.session import run_job

        unit, weights = weigh_tasks(payloads, sizes)
        total, mean = sum(weights), sum(weights) / max(1, len(weights))
        results: list[R] = []
        # Spark sends the payloads of a whole job to each of its tasks, so the size of a job is bounded.
        for start in range(0, len(payloads), LOAD_WAVE_TASKS):
            before, wave = sum(weights[:start]), payloads[start : start + LOAD_WAVE_TASKS]

            def report(done: int, before: int = before) -> None:
                report_progress(stage, int(before + done * mean), total, unit)

            def job(wave: Sequence[P] = wave) -> list[Any]:
                tasks = list(enumerate(wave))
                return list(map_tasks(self.spark, partial(run_task, work), tasks, "i long, r binary").collect())

            report(0)
            results += _unpack_results(run_job(self.spark, stage, job, report), len(wave), stage)
        return results

    def map_frame(self, stage: str, frame: Any, work: MapBatches, schema: str) -> list[Any]:
        from omnigraph.spark.session import run_job

        return [row[0] for row in run_job(frame.sparkSession, stage, frame.mapInArrow(work, schema).collect)]

    def map_groups(
        self,
        stage: str,
        work: Callable[[P], Iterable[Any]],
        payloads: Sequence[P],
        schema: str,
        by: Sequence[str],
        combine: Callable[[Any], Any],
        combined: str,
    ) -> list[dict[str, Any]]:
        from omnigraph.spark.session import run_job

        def job() -> list[Any]:
            rows = map_tasks(self.spark, work, payloads, schema)
            return list(rows.groupBy(*by).applyInArrow(combine, combined).collect())

        return [row.asDict() for row in run_job(self.spark, stage, job)] if payloads else []


def map_tasks(spark: Any, work: Callable[[P], Iterable[Any]], payloads: Sequence[P], schema: Any) -> Any:
    """Return a lazy frame of the Arrow batches that a function yields; each payload is a task of its own."""
    if not payloads:
        return spark.createDataFrame([], schema)
    packed = [pickle.dumps(payload) for payload in payloads]
    indexes = spark.range(0, len(packed), 1, len(packed))
    return indexes.mapInArrow(partial(run_indexed_tasks, work, packed), schema)


def run_indexed_tasks(
    work: Callable[[Any], Iterable[Any]], packed: Sequence[bytes], batches: Iterator[Any]
) -> Iterator[Any]:
    """Yield what a function yields for the payloads whose indexes are in the batches."""
    # Spark discards a worker that has not consumed its input, and with it all its imports.
    for batch in batches:
        for index in batch.column(0).to_pylist():
            yield from work(pickle.loads(packed[index]))


def run_task(work: Callable[[P], R], task: tuple[int, P]) -> Iterator[Any]:
    """Yield the index and the result of a task; an OmniGraph error is a result, so that Spark does not retry it."""
    import pyarrow as pa

    index, payload = task
    try:
        result = pickle.dumps((True, work(payload)))
    except OmniGraphError as error:
        result = pickle.dumps((False, error))
    yield pa.RecordBatch.from_pydict({"i": pa.array([index], pa.int64()), "r": pa.array([result])})


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

    Every operation runs anywhere: with the engine `auto` it does without Spark where that is not available.
    """

    def __init__(self, engine: Engine, master: str | None = None, spark: Any = None) -> None:
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
            if self.is_spark_required:
                raise
            return local

    def by_input(self, size: int, frames: Iterable[Any], other_input: str, local: Runner | None = None) -> Runner:
        """Return the runner for files of a size, or where DataFrames are; an error names an input for this process."""
        for frame in frames:
            if self.engine == "local":
                raise UsageError(f"a DataFrame needs Spark; omit `engine`, or {other_input}", engine=self.engine)
            return Executors(frame.sparkSession)
        return self.by_size(size, LOAD_LOCAL_BYTES_MAX, local or input_threads())

    def require(self) -> None:
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
        from omnigraph.spark.session import session

        return wait_for_spark(lambda: session(self._master))


def start_executors(master: str | None) -> Runner:
    """Return the executors of the running session; start one if there is none."""
    from omnigraph.spark.session import task_session

    return Executors(wait_for_spark(lambda: task_session(master)))


def wait_for_spark(start: Callable[[], Any]) -> Any:
    """Start Spark, and report that the caller waits for it."""
    waiting = "waiting for Spark to start"
    report_progress(waiting, 0, 0)
    spark = start()
    report_progress(waiting, 1, 1)
    return spark
