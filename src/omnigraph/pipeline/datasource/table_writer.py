"""Writing DataFrames and streams: tasks stage what they get, and one commit in the driver publishes it or refuses it.

The rules are those of a load. Spark plans, writes and commits in processes of their own, so all that they share travels
in messages; and it may abort what was published, so aborting takes nothing away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from omnigraph import clock
from omnigraph.engine.authorization import on_branch
from omnigraph.engine.tasks import Threads
from omnigraph.engine.write.write_authorization import authorize, write_permissions
from omnigraph.errors import JobExists, UsageError
from omnigraph.graph import Graph
from omnigraph.ids import OperationId, new_ulid
from omnigraph.manifest.intents import Intent, Owner, finish, kept_fresh
from omnigraph.manifest.model import Commit
from omnigraph.pipeline.bulk_load.job import Job
from omnigraph.pipeline.bulk_load.splits import Columns, plan_columns, write_batches
from omnigraph.pipeline.bulk_load.stage_split import StagedSplit, StageTask, stage_split
from omnigraph.pipeline.bulk_load.transaction import Loading, Options
from omnigraph.pipeline.datasource.options import WRITE, GivenOptions, coded, given_options
from omnigraph.pipeline.datasource.spark_types import find_type
from omnigraph.store.write.fragments import side_folder

# No process owns the work of a whole cluster; whoever is at it beats, and a long silence means that nobody is.
_NOBODY: Final = Owner("spark", 0, "")
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class Writing:
    """One write as its tasks know it."""

    job: Job
    intent: Intent
    table_key: str
    mode: str

    def of_batch(self, batch: str | None) -> Writing:
        """Return the write of one batch of a stream, with files of its own."""
        if batch is None:
            return self
        operation_id = f"{self.job.operation_id}-{batch}"
        place = replace(self.job.place, operation_id=operation_id)
        side = side_folder(self.job.targets[self.table_key], operation_id)
        # One plan serves all batches of a query, each of which replaces what the one before has written.
        job = replace(self.job, place=place, operation_id=operation_id, side=side, base_version=None)
        intent = replace(self.intent, operation_id=OperationId(operation_id), paths=tuple(job.claims))
        return replace(self, job=job, intent=intent)

    @property
    def fresh_intent(self) -> Intent:
        return replace(self.intent, heartbeat_us=clock.now_us())


@dataclass
class Staged(WriterCommitMessage):
    """What one task staged."""

    writing: Writing
    splits: list[tuple[StageTask, StagedSplit]]
    query: str | None


def plan_write(given: GivenOptions, overwrite: bool) -> Writing:
    """Return what tasks have to know, before any of them writes."""
    mode = _mode(given, overwrite)
    with given.open() as graph:
        session = graph.session
        actor = authorize(session, "change", on_branch(given.branch), None).actor
        view = session.full_view(given.branch)
        key = find_type(write_permissions(session, view.snapshot).visible.catalog, given.type).table_key
        options = Options(mode, given.branch, "", "", actor, 0, None)
        job = Loading(session, view, Threads(), options).plan_job(new_ulid(), [key])
        snapshot, now = view.snapshot, clock.now_us()
        intent = Intent(
            OperationId(job.operation_id),
            "load",
            actor,
            snapshot.branch,
            snapshot.state.branch_id,
            snapshot.version,
            _NOBODY,
            now,
            now,
            tuple(job.claims),
        )
        return Writing(job, intent, key, mode)


def _mode(given: GivenOptions, overwrite: bool) -> str:
    mode = given.values.get("mode", "overwrite" if overwrite else "append")
    if mode not in ("append", "merge", "overwrite") or overwrite != (mode == "overwrite"):
        raise UsageError(
            f'the option `mode` is `{mode}`, and Spark was told otherwise; write `.mode("append")`, with the option'
            ' `mode` = `merge` to replace entities, or `.mode("overwrite")` alone',
            mode=mode,
        )
    return mode


def stage(writing: Writing, batches: Iterator[pa.RecordBatch]) -> Staged:
    """Stage the rows of one partition, in a task."""
    context = TaskContext.get()
    query, batch = (context.getLocalProperty(name) if context else None for name in (_QUERY, _BATCH))
    writing = writing.of_batch(batch if query else None)
    job = writing.job
    store = job.place.store()
    splits: list[tuple[StageTask, StagedSplit]] = []
    with kept_fresh(store, writing.fresh_intent):
        for found in write_batches(job.place, job.side, batches):
            file = store.root.child(found.column("path")[0].as_py()).uri
            tasks = [StageTask(split) for split in plan_columns(writing.table_key, Columns([file]))]
            splits += [(task, stage_split(job, task)) for task in tasks]
    return Staged(writing, splits, query)


def publish(
    graph: Graph, given: GivenOptions, writing: Writing, staged: Sequence[Staged], marks: Mapping[str, str]
) -> None:
    """Publish what tasks staged as one commit, or refuse all of it."""
    session = graph.session
    splits = [split for one in staged for split in one.splits]
    if not any(result.lines for _, result in splits) and writing.mode != "overwrite":
        splits = []
    job_id = "/".join(marks.values()) or writing.job.operation_id
    options = Options(writing.mode, given.branch, job_id, "", writing.intent.actor, 0, None, marks)
    loading = Loading(session, session.full_view(given.branch), Threads(), options)
    store = session.kernel.store
    try:
        with kept_fresh(store, writing.fresh_intent):
            if not splits and writing.mode != "overwrite":
                loading.job = writing.job
                loading.clean(set())
            else:
                loading.publish(writing.job, [writing.table_key], splits)
    finally:
        finish(store, writing.intent)


class Writer(DataSourceArrowWriter):
    """Writes a DataFrame as one commit."""

    def __init__(self, options: Mapping[str, str], overwrite: bool) -> None:
        self._given = given_options(options, WRITE)
        self._writing = plan_write(self._given, overwrite)

    @coded(is_planning=False)
    def write(self, iterator: Any) -> Any:
        return stage(self._writing, iterator)

    @coded()
    def commit(self, messages: list[Any]) -> None:
        with self._given.open() as graph:
            publish(graph, self._given, self._writing, _arrived(messages), {})

    def abort(self, messages: list[Any]) -> None:
        """Leave everything as it is: what nobody published is swept when its intent has gone silent."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes each batch of a stream as one commit, once."""

    def __init__(self, options: Mapping[str, str], overwrite: bool) -> None:
        self._given = given_options(options, WRITE)
        self._writing = plan_write(self._given, overwrite)

    @coded(is_planning=False)
    def write(self, iterator: Any) -> Any:
        return stage(self._writing, iterator)

    @coded()
    def commit(self, messages: list[Any], batchId: int) -> None:
        staged = _arrived(messages)
        if not staged:
            return
        stream = self._given.values.get("stream") or staged[0].query
        if not stream:
            raise UsageError("Spark does not say which query this is; name it with the option `stream`")
        writing = staged[0].writing
        with self._given.open() as graph:
            last = _last_commit(graph, self._given.branch, stream)
            if last is not None and batchId <= int(last.properties["batch"]):
                # The files of this attempt are left to the sweep: only it can tell them from published ones.
                return
            # What is left over of one batch is removed by its name, which must not be that of a published one.
            assert last is None or last.operation_id != writing.job.operation_id, "batches share an operation"
            try:
                publish(graph, self._given, writing, staged, {"stream": stream, "batch": str(batchId)})
            except JobExists:
                # Somebody else finished the same batch meanwhile.
                return

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Leave everything as it is: Spark calls this even after a commit that did publish."""


def _arrived(messages: Sequence[Any]) -> list[Staged]:
    return [one for one in messages if isinstance(one, Staged)]


def _last_commit(graph: Graph, branch: str, stream: str) -> Commit | None:
    """Return the newest commit of a stream on a branch."""
    commits = graph.session.kernel.history(branch)
    return next((one for one in commits if one.properties.get("stream") == stream), None)
