"""Types as DataFrames: tasks read parts of a pinned snapshot, or stage rows that the driver publishes as one commit.

Filters come from the option `filter`, never from Spark's filter pushdown: Spark keeps pushed filters on a relation that
other parts of a query share, and results would be wrong.

Rows follow the rules of a bulk load. Spark plans, writes and commits in different processes, so their shared state
travels in commit messages. Spark may call `abort` after a commit that did publish, so `abort` removes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from omnigraph import clock
from omnigraph.engine.authorization import on_branch
from omnigraph.engine.entity_lookup import find_qualified_type
from omnigraph.engine.export import column_names
from omnigraph.engine.input.splits import Columns, plan_columns, write_batches
from omnigraph.engine.load.buckets import InBuckets, plan_job
from omnigraph.engine.load.job import InputSchema, Job, LoadOptions
from omnigraph.engine.load.plan_input import LoadPlan
from omnigraph.engine.load.stage_split import StagedSplit, StageTask, stage_split
from omnigraph.engine.load.transaction import LoadTransaction
from omnigraph.engine.pinned_scan import Scan, plan_scan, to_layout
from omnigraph.engine.session import GraphSession, View
from omnigraph.engine.tasks import Threads
from omnigraph.engine.write.write_authorization import write_permissions
from omnigraph.errors import JobExists, StorageError, UsageError
from omnigraph.ids import CommitId, OperationId, new_ulid
from omnigraph.lang.catalog import Type, TypeKey
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.limits import LOAD_SPLIT_BYTES, SPARK_PARTITION_ROWS, SPARK_PARTITIONS_MAX
from omnigraph.manifest.intents import Intent, Owner, finish, kept_fresh
from omnigraph.manifest.model import Commit
from omnigraph.public_values import Mode
from omnigraph.spark.datasource.options import (
    READ_OPTIONS,
    WRITE_OPTIONS,
    SourceOptions,
    parse_options,
    spark_errors,
    spark_fields,
    to_spark_column,
)
from omnigraph.store.read.row_ranges import RowRange, scan_range, split_rows
from omnigraph.store.write.fragments import side_folder

_QUOTED: Final = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`""")


@dataclass(frozen=True, slots=True)
class PinnedSnapshot:
    """The commit that a read shows from now on, and the one whose schema it names things by."""

    commit: CommitId
    today: CommitId


def pin_snapshot(values: Mapping[str, str]) -> PinnedSnapshot | None:
    """Return what a read of these options shows from now on; None for a write or a stream."""
    if not {name.lower() for name in values} <= {*READ_OPTIONS}:
        return None
    options = parse_options(values, READ_OPTIONS)
    with options.opened() as session:
        commit = _open_view(session, options, None).snapshot.head
        today = session.kernel.snapshot(options.branch).head
        assert commit is not None, "every state has a commit that made it"
        assert today is not None, "a graph is born with a commit"
        return PinnedSnapshot(commit, today)


def schema_of(values: Mapping[str, str], pin: PinnedSnapshot | None) -> Any:
    options = parse_options(values, READ_OPTIONS)
    with options.opened() as session:
        type_ = find_qualified_type(_open_view(session, options, pin).catalog, options.type)
        return StructType.fromJson({"type": "struct", "fields": spark_fields(type_, _selected_columns(options, type_))})


class Reader(DataSourceReader):
    """Plans a read in the driver and reads parts of the rows in tasks."""

    def __init__(self, values: Mapping[str, str], pin: PinnedSnapshot | None, schema: Any) -> None:
        options = parse_options(values, READ_OPTIONS)
        with options.opened() as session:
            view = _open_view(session, options, pin)
            type_ = find_qualified_type(view.catalog, options.type)
            self._layout = validate_layout(type_, schema)
            self._where = _validate_filter(view, type_, options)
            self._parts = split_rows(view.dataset(type_.table_key), _rows_per_task(view, type_, options))
            self._scan, _ = plan_scan(view, type_.table_key)

    def partitions(self) -> list[Any]:
        return [RowPartition(part) for part in self._parts]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        # An empty type has no parts; Spark then reads one empty partition of its own.
        if isinstance(partition, RowPartition):
            with spark_errors(is_planning=False):
                yield from read_spark_batches(self._scan, partition.value, self._layout, self._where)


class RowPartition(InputPartition):
    """The rows that one task reads."""


def read_spark_batches(scan: Scan, part: RowRange, layout: pa.Schema, where: str | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part that satisfy a filter, in Spark's types."""
    dataset = scan.open()
    stored = scan_range(dataset, part, layout.names, where)
    for batch in to_layout(scan.type, dataset, stored, layout.names):
        yield to_spark_batch(scan.type, batch, layout)


def to_spark_batch(type_: Type, batch: Any, layout: pa.Schema) -> pa.RecordBatch:
    """Return a batch with every column in its Spark type."""
    columns = [to_spark_column(batch.column(field.name), field.type) for field in layout]
    return pa.RecordBatch.from_arrays(columns, schema=layout)


def validate_layout(type_: Type, schema: Any) -> pa.Schema:
    """Return the Arrow schema of a Spark schema, which may omit columns but not change their types."""
    names = [str(name) for name in schema.fieldNames()]
    _require_columns(type_, names)
    expected = StructType.fromJson({"type": "struct", "fields": spark_fields(type_, names)})
    for requested, actual in zip(schema.fields, expected.fields, strict=True):
        if requested.dataType.simpleString() != actual.dataType.simpleString():
            raise UsageError(
                f"`{type_.name}.{actual.name}` is `{actual.dataType.simpleString()}` in Spark, but the schema says"
                f" `{requested.dataType.simpleString()}`; omit the schema and cast afterwards",
                column=actual.name,
            )
    layout: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return layout


def _open_view(session: GraphSession, options: SourceOptions, pin: PinnedSnapshot | None) -> View:
    if pin is None:
        return session.view(options.branch, options.at, names=options.naming)
    today = session.kernel.at_commit(pin.today)
    return session.view(options.branch, pin.commit, names=options.naming, today=today)


def _selected_columns(options: SourceOptions, type_: Type) -> list[str]:
    names = options.name_list("columns")
    if names is None:
        return column_names(type_)
    _require_columns(type_, names)
    return names


def _require_columns(type_: Type, names: list[str]) -> None:
    available = column_names(type_)
    for name in names:
        if name not in available:
            hint = did_you_mean(name, available) or f"it has {', '.join(available)}"
            raise UsageError(f"`{type_.name}` has no column `{name}`; {hint}", column=name)


def _rows_per_task(view: View, type_: Type, options: SourceOptions) -> int:
    """Return how many rows a task reads at most, for the requested number of tasks or one that suits their size."""
    dataset = view.dataset(type_.table_key)
    rows = dataset.count()
    if "numpartitions" in options.values:
        count = options.integer("numpartitions")
        if not 1 <= count <= SPARK_PARTITIONS_MAX:
            raise UsageError(
                f"`numPartitions` must be from 1 to {SPARK_PARTITIONS_MAX}, got {count}; without it, a task reads about"
                f" {LOAD_SPLIT_BYTES >> 20} MiB",
                option="numPartitions",
            )
        return max(1, -(-rows // count))
    nbytes = sum(file.file_size_bytes or 0 for fragment in dataset.fragments for file in fragment.files)
    return max(1, min(SPARK_PARTITION_ROWS, rows * LOAD_SPLIT_BYTES // max(1, nbytes)))


def _validate_filter(view: View, type_: Type, options: SourceOptions) -> str | None:
    where = options.values.get("filter")
    if where is None:
        return None
    if not is_single_condition(where):
        raise UsageError(
            f"`{where}` is not a single condition on `{type_.name}`: its brackets or quotes do not match, or it has a"
            " comment; write a single SQL condition",
            option="filter",
        )
    try:
        # `AND false` makes this a syntax check. Lance ignores trailing text that it cannot parse; in brackets it must
        # parse all of it.
        view.dataset(type_.table_key).count(f"({where}) AND false")
    except StorageError as error:
        raise UsageError(
            f"`{where}` is not a valid condition on `{type_.name}`: {error.message}", option="filter"
        ) from error
    return f"({where})"


def is_single_condition(text: str) -> bool:
    """Return True if SQL text cannot escape from brackets around it.

    >>> [is_single_condition(text) for text in ("name = ')' OR (age > 3)", "age > 3) OR (true", "a -- b")]
    [True, False, False]
    """
    bare = _QUOTED.sub("", text)
    if any(sign in bare for sign in ("'", '"', "`", "--", "/*", ";")):
        return False
    depth = 0
    for sign in bare:
        depth += (sign == "(") - (sign == ")")
        if depth < 0:
            return False
    return depth == 0


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

    @property
    def mode(self) -> Mode:
        return self.job.options.mode

    def of_batch(self, batch: str | None) -> WritePlan:
        """Return the plan of one batch of a stream, with its own operation id and files."""
        if batch is None:
            return self
        operation_id = f"{self.job.operation_id}-{batch}"
        access = replace(self.job.access, operation_id=operation_id)
        scratch = side_folder(self.job.targets[self.table_key], operation_id)
        # One plan serves all batches of a query, and each batch may replace rows of the previous one.
        job = replace(self.job, access=access, scratch=scratch, replaced=None)
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
    with options.opened() as session:
        session = session.with_message(options.message)
        session.require("change", on_branch(options.branch))
        view = session.full_view(options.branch)
        visible = write_permissions(session, view.snapshot).visible.snapshot.state.schema
        schema = InputSchema(visible.ir, view.snapshot.state.schema.ir_hash)
        key = find_qualified_type(schema.catalog, options.type).table_key
        load_options = LoadOptions(mode=mode, branch=options.branch)
        job = plan_job(session, view, load_options, LoadPlan([], {}, [key], [key], schema), new_ulid())
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
        return WritePlan(job, intent, key)


def _write_mode(options: SourceOptions, overwrite: bool) -> Mode:
    mode = options.values.get("mode", "overwrite" if overwrite else "append")
    if mode not in ("append", "merge", "overwrite") or overwrite != (mode == "overwrite"):
        raise UsageError(
            f'the option `mode` is `{mode}`, which does not match the mode of the writer; write `.mode("append")`, with'
            ' the option `mode` = `merge` to replace entities, or `.mode("overwrite")` alone',
            mode=mode,
        )
    return cast(Mode, mode)


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
    session: GraphSession,
    options: SourceOptions,
    write_plan: WritePlan,
    staged: Sequence[StagedPartition],
    marks: Mapping[str, str],
) -> None:
    """Check what tasks staged and publish it as one commit, or fail as a whole."""
    session = session.with_message(options.message)
    splits = [split for partition in staged for split in partition.splits]
    job_id = "/".join(marks.values()) or write_plan.job.operation_id
    # Spark may repeat a batch. An empty one is committed, too, because its commit records the progress of the stream.
    load_options = LoadOptions(
        mode=write_plan.mode,
        branch=options.branch,
        job_id=job_id,
        is_repeatable=True,
        properties=marks,
        commits_empty=True,
    )
    store = session.kernel.store
    written = InBuckets(write_plan.job, Threads(), store, [write_plan.table_key])
    try:
        with kept_fresh(store, write_plan.fresh_intent), written.cleaning_up():
            if write_plan.mode == "overwrite" or any(result.lines for _, result in splits):
                written.take_over(splits)
                permissions = write_permissions(session, session.kernel.snapshot(options.branch))
                transaction = LoadTransaction(session, load_options, permissions)
                transaction.publish(written, OperationId(write_plan.job.operation_id))
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
        with self._options.opened() as session:
            publish_partitions(session, self._options, self._write_plan, _staged_partitions(messages), {})

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
        with self._options.opened() as session:
            last = _last_commit(session, self._options.branch, stream)
            if last is not None and batchId <= int(last.properties["batch"]):
                # Files of this replay are left to the sweep, which distinguishes them from published ones.
                return
            # Cleanup deletes files by operation id, so a batch must not share the id of a published one.
            assert last is None or last.operation_id != write_plan.job.operation_id, "batches share an operation"
            try:
                publish_partitions(
                    session, self._options, write_plan, staged, {"stream": stream, "batch": str(batchId)}
                )
            except JobExists:
                # Another process committed the same batch meanwhile.
                return

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Do nothing: Spark calls this even after a commit that did publish."""


def _staged_partitions(messages: Sequence[Any]) -> list[StagedPartition]:
    return [message for message in messages if isinstance(message, StagedPartition)]


def _last_commit(session: GraphSession, branch: str, stream: str) -> Commit | None:
    """Return the newest commit of a stream on a branch."""
    commits = session.kernel.history(branch)
    return next((commit for commit in commits if commit.properties.get("stream") == stream), None)
