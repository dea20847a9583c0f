"""The seams of long work: where tasks run (`Runner`), who watches them (`Progress`), and how they reach a graph.

Independent of graphs. `Threads` runs tasks in this process; that of Spark is `spark.executors`.

Tasks never read the manifest; what they need to know of the graph is sent to them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

import orjson
import pyarrow as pa

from omnigraph.errors import UsageError
from omnigraph.lang.catalog import Catalog
from omnigraph.lang.schema import SchemaIR, catalog_of
from omnigraph.rules.arrow_typing import pc
from omnigraph.store.objects.schemes import STORES
from omnigraph.store.objects.uri import Location
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.store import Store

# Names of environment variables with their values; None for a variable that must be unset in the task's process.
Settings: TypeAlias = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class GraphAccess:
    """The address of a graph and the driver's storage settings, for the tasks of one operation."""

    uri: str
    operation_id: str
    # Not shown: some are secrets.
    settings: Settings = field(default=(), repr=False)

    def store(self) -> Store:
        """Return the store; tasks of one operation in one process share it."""
        self.apply_settings()
        return _cached_store(self)

    def apply_settings(self) -> None:
        """Set the storage settings of the driver in the process of a task."""
        # A Spark worker serves one operation after another, so each sets and unsets what its own driver sent.
        os.environ.update({name: value for name, value in self.settings if value is not None})
        for name in (name for name, value in self.settings if value is None):
            os.environ.pop(name, None)

    def open(self, ref: DatasetRef) -> Dataset:
        return self.store().open(ref)


class TaskStore:
    """The store of a graph for tasks: in threads the driver's own, in another process one that is opened by address."""

    def __init__(self, access: GraphAccess, store: Store | None = None) -> None:
        self.access = access
        self._store = store or access.store()

    def __reduce__(self) -> tuple[object, ...]:
        return TaskStore, (self.access,)

    def open(self, ref: DatasetRef, manifest: str | None = None) -> Dataset:
        """Open a version; `manifest` is the staged one of a version that is not published yet."""
        return self._store.open(ref) if manifest is None else self._store.open_unlinked(ref, manifest)


def graph_access(uri: str, operation_id: str, required: Sequence[str] = ()) -> GraphAccess:
    """Return access with the storage settings of this process; `required` settings are unset in tasks if unset here."""
    stored = (name for kind in STORES.values() for name in kind.settings)
    names = {*stored, "OMNIGRAPH_DURABILITY", *required}
    # A storage setting that is unset here is left alone: executors may be configured by themselves.
    settings = {name: os.environ.get(name) for name in sorted(names) if name in os.environ or name in required}
    return GraphAccess(uri, operation_id, tuple(settings.items()))


@lru_cache(maxsize=4)
def _cached_store(access: GraphAccess) -> Store:
    return Store(Location.parse(access.uri))


@lru_cache(maxsize=4)
def parse_catalog(ir: str) -> Catalog:
    return catalog_of(SchemaIR.from_json(orjson.loads(ir)))


T = TypeVar("T")
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


# What the stages of an operation belong to, and the views that types are read from.
_described: ContextVar[tuple[str, Mapping[str, str]]] = ContextVar("omnigraph_stages", default=("", {}))


@contextmanager
def describing_stages(prefix: str, views: Mapping[str, str]) -> Iterator[None]:
    """Say what the stages inside belong to, and which view becomes which type."""
    token = _described.set((prefix, views))
    try:
        yield
    finally:
        _described.reset(token)


def describe_stage(stage: str) -> str:
    """Return a stage with what it belongs to.

    >>> with describing_stages("nightly", {}):
    ...     describe_stage("types")
    'nightly: types'
    """
    prefix, _ = _described.get()
    return f"{prefix}: {stage}" if prefix else stage


def reading_stage(type_name: str) -> str:
    """Return the name of the stage that reads the rows of a type: that of its view, if a pipeline has said it."""
    view = _described.get()[1].get(type_name)
    return f"reading {type_name}" if view is None else f"{view} → {type_name}"


def report_progress(stage: str, done: int, total: int, unit: Unit = "items") -> None:
    if (progress := _progress.get()) is not None:
        progress(stage, done, total, unit)


class Runner(Protocol):
    """Runs tasks: in this thread, in threads of this process, or on Spark executors."""

    @property
    def engine(self) -> str: ...

    @property
    def processes(self) -> int:
        """How many processes run tasks at the same time, and share global limits."""
        ...

    def run(self, stage: str, work: Callable[[P], R], payloads: Sequence[P], sizes: Sequence[int] = ()) -> list[R]:
        """Return the results in the order of the payloads; progress counts `sizes`, which are bytes, or tasks."""
        ...

    def map_frame(self, stage: str, frame: Any, work: MapBatches, schema: str) -> list[Any]:
        """Return the column of values that a function makes of the batches of a distributed frame, where they are."""
        ...

    def map_groups(
        self,
        stage: str,
        work: Callable[[P], Iterable[pa.RecordBatch]],
        payloads: Sequence[P],
        schema: str,
        by: Sequence[str],
        combine: Callable[[pa.Table], pa.Table],
        combined: str,
    ) -> list[dict[str, Any]]:
        """Return the rows that `combine` makes of the batches of all tasks, one group of equal columns `by` at a time.

        `schema` is of the batches and `combined` of the result, as a Spark schema in words.
        """
        ...


MapBatches: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
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

    def map_frame(self, stage: str, frame: Any, work: MapBatches, schema: str) -> list[Any]:
        raise UsageError("a distributed frame is read where it is, not in this process; load a file or a table instead")

    def map_groups(
        self,
        stage: str,
        work: Callable[[P], Iterable[pa.RecordBatch]],
        payloads: Sequence[P],
        schema: str,
        by: Sequence[str],
        combine: Callable[[pa.Table], pa.Table],
        combined: str,
    ) -> list[dict[str, Any]]:
        tables = [
            pa.Table.from_batches(batches)
            for batches in self.run(stage, lambda task: [*work(task)], payloads)
            if batches
        ]
        if not tables:
            return []
        rows = pa.concat_tables(tables)
        groups = rows.select(by).group_by([*by]).aggregate([]).to_pylist()
        masks = (reduce(pc.and_, [pc.equal(rows[name], group[name]) for name in by]) for group in groups)
        return [row for mask in masks for row in combine(rows.filter(mask)).to_pylist()]


class ThisThread(Threads):
    """Runs tasks one after the other where it is called, which is best for what is small."""

    def run(self, stage: str, work: Callable[[P], R], payloads: Sequence[P], sizes: Sequence[int] = ()) -> list[R]:
        unit, weights = weigh_tasks(payloads, sizes)
        report_progress(stage, 0, sum(weights), unit)
        results = [work(payload) for payload in payloads]
        report_progress(stage, sum(weights), sum(weights), unit)
        return results


def group_by_weight(items: Iterable[T], weigh: Callable[[T], int], weight_max: int) -> Iterator[list[T]]:
    """Yield items in groups up to a total weight; one that is heavier is a group of its own.

    >>> list(group_by_weight([2, 1, 3, 9], int, 4))
    [[2, 1], [3], [9]]
    """
    group: list[T] = []
    total = 0
    for item in items:
        weight = weigh(item)
        if group and total + weight > weight_max:
            yield group
            group, total = [], 0
        group.append(item)
        total += weight
    if group:
        yield group


def weigh_tasks(payloads: Sequence[object], sizes: Sequence[int]) -> tuple[Unit, list[int]]:
    """Return the unit of progress, and the weight of each task.

    >>> weigh_tasks(["a", "b"], [10, 20]), weigh_tasks(["a", "b"], [])
    (('bytes', [10, 20]), ('items', [1, 1]))
    """
    return ("bytes", list(sizes)) if sizes else ("items", [1] * len(payloads))
