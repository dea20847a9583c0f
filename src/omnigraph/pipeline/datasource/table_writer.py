"""Batch and stream writes of the data source: tasks stage rows, and the driver publishes one commit.

Rows follow the rules of a bulk load. Spark plans, writes and commits in different processes, so their shared state
travels in commit messages. Spark may call `abort` after a commit that did publish, so `abort` removes nothing.
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
from omnigraph.engine.write.write_authorization import write_permissions
from omnigraph.errors import JobExists, UsageError
from omnigraph.graph import Graph, session_of
from omnigraph.ids import OperationId, new_ulid
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest.intents import Intent, Owner, finish, kept_fresh
from omnigraph.manifest.model import Commit
from omnigraph.pipeline.bulk_load.job import InputSchema, Job, LoadOptions
from omnigraph.pipeline.bulk_load.splits import Columns, plan_columns, write_batches
from omnigraph.pipeline.bulk_load.stage_split import StagedSplit, StageTask, stage_split
from omnigraph.pipeline.bulk_load.transaction import LoadTransaction
from omnigraph.pipeline.datasource.options import WRITE_OPTIONS, SourceOptions, find_type, parse_options, spark_errors
from omnigraph.store.write.fragments import side_folder

# No single process owns the work of a cluster: every active task refreshes the heartbeat of the intent.
_NO_OWNER: Final = Owner("spark", 0, "")
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class WritePlan:
    """A write as its tasks see it."""

    job: Job
    intent: Intent
    table_key: TypeKey
    mode: str

    def of_batch(self, batch: str | None) -> WritePlan:
        """Return the plan of one batch of a stream, with its own operation id and files."""
        if batch is None:
            return self
        operation_id = f"{self.job.operation_id}-{batch}"
        access = replace(self.job.access, operation_id=operation_id)
        scratch = side_folder(self.job.targets[self.table_key], operation_id)
        # One plan serves all batches of a query, and each batch may replace rows of the previous one.
        job = replace(self.job, access=access, scratch=scratch, base_version=None)
        intent = replace(self.intent, operation_id=OperationId(operation_id), paths=tuple(job.claims))
        return replace(self, job=job, intent=intent)

    @property
    def fresh_intent(self) -> Intent:
        return replace(self.intent, heartbeat_us=clock.now_us())


@dataclass
class StagedPartition(WriterCommitMessage):
    """The commit message of one task: what it staged."""

    write_plan: WritePlan
    splits: list[tuple[StageTask, StagedSplit]]
    query: str | None


def plan_write(options: SourceOptions, overwrite: bool) -> WritePlan:
    """Authorize and plan a write before any task runs."""
    mode = _write_mode(options, overwrite)
    with options.open() as graph:
        session = session_of(graph).with_message(options.message)
        session.require("change", on_branch(options.branch))
        view = session.full_view(options.branch)
        visible = write_permissions(session, view.snapshot).visible.snapshot.state.schema
        schema = InputSchema(visible.ir, view.snapshot.state.schema.ir_hash)
        key = find_type(schema.catalog, options.type).table_key
        load_options = LoadOptions(mode=mode, branch=options.branch)
        job = LoadTransaction(session, view, Threads(), load_options).plan_job(new_ulid(), [key], schema)
        snapshot, now = view.snapshot, clock.now_us()
        intent = Intent(
            OperationId(job.operation_id),
            "load",
            session.actor,
            snapshot.branch,
            snapshot.state.branch_id,
            snapshot.version,
            _NO_OWNER,
            now,
            now,
            tuple(job.claims),
        )
        return WritePlan(job, intent, key, mode)


def _write_mode(options: SourceOptions, overwrite: bool) -> str:
    mode = options.values.get("mode", "overwrite" if overwrite else "append")
    if mode not in ("append", "merge", "overwrite") or overwrite != (mode == "overwrite"):
        raise UsageError(
            f'the option `mode` is `{mode}`, which does not match the mode of the writer; write `.mode("append")`, with'
            ' the option `mode` = `merge` to replace entities, or `.mode("overwrite")` alone',
            mode=mode,
        )
    return mode


def stage_partition(write_plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> StagedPartition:
    """Stage the rows of one partition in a task."""
    context = TaskContext.get()
    query, batch = (context.getLocalProperty(name) if context else None for name in (_QUERY_ID, _BATCH_ID))
    write_plan = write_plan.of_batch(batch if query else None)
    job = write_plan.job
    store = job.access.store()
    splits: list[tuple[StageTask, StagedSplit]] = []
    with kept_fresh(store, write_plan.fresh_intent):
        for written in write_batches(job.access, job.scratch, batches):
            file = store.root.child(written.column("path")[0].as_py()).uri
            tasks = [StageTask(split) for split in plan_columns(write_plan.table_key, Columns([file]))]
            splits += [(task, stage_split(job, task)) for task in tasks]
    return StagedPartition(write_plan, splits, query)


def publish_partitions(
    graph: Graph,
    options: SourceOptions,
    write_plan: WritePlan,
    staged: Sequence[StagedPartition],
    marks: Mapping[str, str],
) -> None:
    """Check what tasks staged and publish it as one commit, or fail as a whole."""
    session = session_of(graph).with_message(options.message)
    splits = [split for partition in staged for split in partition.splits]
    if not any(result.lines for _, result in splits) and write_plan.mode != "overwrite":
        splits = []
    job_id = "/".join(marks.values()) or write_plan.job.operation_id
    load_options = LoadOptions(mode=write_plan.mode, branch=options.branch, job_id=job_id, properties=marks)
    transaction = LoadTransaction(session, session.full_view(options.branch), Threads(), load_options)
    store = session.kernel.store
    try:
        with kept_fresh(store, write_plan.fresh_intent):
            if not splits and write_plan.mode != "overwrite":
                transaction.job = write_plan.job
                transaction.clean(set())
            else:
                transaction.publish(write_plan.job, [write_plan.table_key], splits)
    finally:
        finish(store, write_plan.intent)


class _PartitionWriter:
    def __init__(self, options: Mapping[str, str], overwrite: bool) -> None:
        self._options = parse_options(options, WRITE_OPTIONS)
        self._write_plan = plan_write(self._options, overwrite)

    @spark_errors(is_planning=False)
    def write(self, iterator: Any) -> Any:
        return stage_partition(self._write_plan, iterator)


class Writer(_PartitionWriter, DataSourceArrowWriter):
    """Writes a DataFrame as one commit."""

    @spark_errors()
    def commit(self, messages: list[Any]) -> None:
        with self._options.open() as graph:
            publish_partitions(graph, self._options, self._write_plan, _staged_partitions(messages), {})

    def abort(self, messages: list[Any]) -> None:
        """Do nothing: a sweep removes unpublished files once the heartbeat of the intent stops."""


class StreamWriter(_PartitionWriter, DataSourceStreamArrowWriter):
    """Writes each batch of a stream as one commit, exactly once."""

    @spark_errors()
    def commit(self, messages: list[Any], batchId: int) -> None:
        staged = _staged_partitions(messages)
        if not staged:
            return
        stream = self._options.values.get("stream") or staged[0].query
        if not stream:
            raise UsageError("Spark did not pass the id of the query; name the stream with the option `stream`")
        write_plan = staged[0].write_plan
        with self._options.open() as graph:
            last = _last_commit(graph, self._options.branch, stream)
            if last is not None and batchId <= int(last.properties["batch"]):
                # Files of this replay are left to the sweep, which distinguishes them from published ones.
                return
            # Cleanup deletes files by operation id, so a batch must not share the id of a published one.
            assert last is None or last.operation_id != write_plan.job.operation_id, "batches share an operation"
            try:
                publish_partitions(graph, self._options, write_plan, staged, {"stream": stream, "batch": str(batchId)})
            except JobExists:
                # Another process committed the same batch meanwhile.
                return

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Do nothing: Spark calls this even after a commit that did publish."""


def _staged_partitions(messages: Sequence[Any]) -> list[StagedPartition]:
    return [message for message in messages if isinstance(message, StagedPartition)]


def _last_commit(graph: Graph, branch: str, stream: str) -> Commit | None:
    """Return the newest commit of a stream on a branch."""
    commits = session_of(graph).kernel.history(branch)
    return next((commit for commit in commits if commit.properties.get("stream") == stream), None)
