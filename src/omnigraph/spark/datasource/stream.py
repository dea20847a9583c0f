"""The change feed as a Spark stream: offsets are feed cursors, and each task reads one type of one commit.

The driver walks commits and reads no entities. The changes between two offsets are immutable, so a batch that is
replayed after a crash has the same rows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from omnigraph.engine.changes import row_diff
from omnigraph.engine.changes.commit_diff import Step, image_texts
from omnigraph.engine.changes.cursor import ChangeFilter, Scope, Token, decode, encode
from omnigraph.engine.changes.feed import feed_scope, start_commit, steps_after
from omnigraph.engine.changes.row_diff import RowChanges
from omnigraph.engine.changes.state_diff import Pair, of_ops
from omnigraph.engine.entity_lookup import find_qualified_type
from omnigraph.engine.export import column_names
from omnigraph.engine.pinned_scan import Scan
from omnigraph.engine.session import GraphSession, View
from omnigraph.engine.tasks import GraphAccess, graph_access
from omnigraph.errors import ChangeFeedGap, SchemaBoundary, StorageError, UsageError
from omnigraph.ids import CommitId, new_ulid
from omnigraph.lang.catalog import Type
from omnigraph.limits import CHANGE_WINDOW_BLOB_ROWS, STREAM_COMMITS, STREAM_TASK_ROWS, STREAM_WINDOW_ROWS
from omnigraph.rules.arrow_typing import pc
from omnigraph.spark.datasource.options import (
    STREAM_OPTIONS,
    SourceOptions,
    parse_options,
    spark_errors,
    spark_field,
    spark_fields,
)
from omnigraph.spark.datasource.tables import to_spark_batch
from omnigraph.store.read.dataset import DatasetRef

_STRING_COLUMNS: Final = ("graph_commit_id", "actor_id", "authored_branch", "kind", "type", "op", "id")
_AT: Final = "authored_at"
_BEFORE, _AFTER = "before", "after"
_OPTIONAL: Final = ("actor_id", _BEFORE, _AFTER)


@dataclass(frozen=True, slots=True)
class TypeChange:
    """The changes of one commit to one type. `scan` is the version after it, `before` the one before.

    A large change is cut into `shares`, one task each.
    """

    graph_commit_id: str
    authored_at_us: int
    actor_id: str | None
    authored_branch: str
    scan: Scan
    before: DatasetRef
    selection: ChangeFilter
    share: int = 0
    shares: int = 1


def stream_schema(type_: Type | None) -> Any:
    """Return the Spark schema of a stream: images are JSON, or structs if the stream has one type."""
    image = "string" if type_ is None else _image_fields(type_)
    names = [*_STRING_COLUMNS[:1], _AT, *_STRING_COLUMNS[1:], _BEFORE, _AFTER]
    kinds: dict[str, object] = {_AT: "timestamp", _BEFORE: image, _AFTER: image}
    fields = [spark_field(name, kinds.get(name, "string"), nullable=name in _OPTIONAL, metadata={}) for name in names]
    return StructType.fromJson({"type": "struct", "fields": fields})


def _image_fields(type_: Type) -> dict[str, object]:
    # A missing image has no values, so even required properties are nullable.
    fields = [field | {"nullable": True} for field in spark_fields(type_, column_names(type_))]
    return {"type": "struct", "fields": fields}


def read_change(change: TypeChange, schema: Any) -> Iterator[pa.RecordBatch]:
    """Yield the changes by id, one window of entities at a time."""
    layout = to_arrow_schema(schema, timezone="UTC")
    try:
        before, after = (change.scan.access.open(ref) for ref in (change.before, change.scan.ref))
        candidates = _slice_share(of_ops(row_diff.candidates(before, after), change.selection), change)
        size = CHANGE_WINDOW_BLOB_ROWS if change.scan.type.has_blobs else STREAM_WINDOW_ROWS
        for offset in range(0, candidates.num_rows, size):
            changes = row_diff.compare_candidates(before, after, candidates.slice(offset, size))
            if changes.count:
                yield _batch(change, changes, layout)
    except StorageError as error:
        raise _as_feed_gap(change, error) from error


def _slice_share(rows: pa.Table, change: TypeChange) -> pa.Table:
    first, last = (rows.num_rows * part // change.shares for part in (change.share, change.share + 1))
    return rows.slice(first, last - first)


def _batch(change: TypeChange, changes: RowChanges, layout: pa.Schema) -> pa.RecordBatch:
    type_, kind = change.scan.type, layout.field(_AFTER).type
    inserted, deleted, before, after = (
        _image_column(type_, rows, kind) for rows in (changes.inserted, changes.deleted, changes.before, changes.after)
    )
    groups = {"insert": changes.inserted, "update": changes.after, "delete": changes.deleted}
    ids = pa.concat_arrays([rows.column("id").combine_chunks().cast(pa.string()) for rows in groups.values()])
    columns: dict[str, Any] = {
        "id": ids,
        "op": pa.concat_arrays([pa.repeat(op, rows.num_rows) for op, rows in groups.items()]),
        _BEFORE: pa.concat_arrays([pa.nulls(len(inserted), kind), before, deleted]),
        _AFTER: pa.concat_arrays([inserted, after, pa.nulls(len(deleted), kind)]),
    }
    constant = {
        "graph_commit_id": change.graph_commit_id,
        _AT: change.authored_at_us,
        "actor_id": change.actor_id,
        "authored_branch": change.authored_branch,
        "kind": change.scan.table_key.kind,
        "type": type_.name,
    }
    for name, value in constant.items():
        columns[name] = pa.repeat(pa.scalar(value, layout.field(name).type), len(ids))
    order = pc.sort_indices(ids)
    return pa.RecordBatch.from_arrays([columns[name].take(order) for name in layout.names], schema=layout)


def _image_column(type_: Type, rows: pa.Table, kind: Any) -> Any:
    """Return each row as one value: JSON as in the feed, or a struct of the columns."""
    if not rows.num_rows:
        return pa.nulls(0, kind)
    if not isinstance(kind, pa.StructType):
        return image_texts(type_, rows).cast(kind)
    (batch,) = rows.combine_chunks().to_batches()
    return pa.StructArray.from_arrays(to_spark_batch(type_, batch, pa.schema(kind.fields)).columns, fields=kind.fields)


def _as_feed_gap(change: TypeChange, error: StorageError) -> ChangeFeedGap | StorageError:
    """Return `ChangeFeedGap` if the error is due to a version that cleanup removed."""
    store = change.scan.access.store()
    if all(store.has_version(ref) for ref in (change.before, change.scan.ref)):
        return error
    return ChangeFeedGap(
        f"cleanup removed a version that the changes of commit {change.graph_commit_id} need; take a new baseline, and"
        " restart the stream from there with the option `start` and a new checkpoint",
        first_unreadable_commit_id=change.graph_commit_id,
    )


@dataclass(frozen=True)
class Feed:
    """The feed of a branch up to its current head."""

    session: GraphSession
    view: View
    options: SourceOptions
    schema: Any

    @property
    def head(self) -> CommitId:
        head = self.view.snapshot.head
        assert head is not None, "a graph is born with a commit"
        return head

    @cached_property
    def selection(self) -> ChangeFilter:
        options, type_ = self.options, feed_type(self.options, self.view)
        if type_ is None:
            filters = (options.name_list(name) for name in ("kinds", "types", "ops"))
            return ChangeFilter(*filters).check_types(self.view.catalog)
        return ChangeFilter([type_.table_key.kind], [type_.name], options.name_list("ops"))

    @cached_property
    def scope(self) -> Scope:
        return feed_scope(self.view.snapshot, self.selection)

    @cached_property
    def access(self) -> GraphAccess:
        # Shared by all tasks of a batch, because workers cache stores by it.
        return graph_access(self.session.kernel.store.root.uri, new_ulid())

    def start(self, start: str) -> CommitId:
        """Return the commit after which a stream starts."""
        # A cursor has digits, so an unknown word is not mistaken for one.
        if start.isalpha() or start.startswith("after:"):
            return start_commit(self.session, self.view.snapshot, start)
        return self.commit({"cursor": start})

    def offset(self, commit: CommitId) -> dict[str, str]:
        """Return the offset after a commit: the commit id for people, the cursor for decoding."""
        return {"commit": commit, "cursor": encode(Token("feed-cursor", self.scope, commit))}

    def commit(self, offset: Mapping[str, str]) -> CommitId:
        return decode(offset["cursor"], "feed-cursor", self.scope).commit

    def steps(self, first: CommitId, last: CommitId, most: int) -> list[Step]:
        """Return the commits after `first` up to `last`, oldest first."""
        token = Token("feed-cursor", self.scope, first, cut=last)
        return steps_after(self.session, self.view.snapshot, token, most)[0]

    def changes(self, step: Step) -> list[TypeChange]:
        """Plan the tasks of a commit; a commit whose versions are gone is an error."""
        kernel = self.session.kernel
        # A type that is new or dropped has no entities on one side, so no changes.
        pairs = [
            pair
            for pair in step.pairs()
            if pair.before
            and pair.after
            and not pair.is_same_data
            and self.selection.has_type(pair.after.pin.table_key)
        ]
        step.check_versions_exist(pairs)
        for view in step.views() if pairs else ():
            # Tasks open versions by path, so links of recent commits must be finished first.
            kernel.finish_links(view.snapshot)
        return [change for pair in pairs for change in self._shares(step, pair)]

    def _shares(self, step: Step, pair: Pair) -> list[TypeChange]:
        assert pair.before is not None
        assert pair.after is not None
        self._reject_other_shape(step, pair.after.type_)
        snapshot, pin = pair.after.view.snapshot, pair.after.pin
        session, commit = self.session, step.commit
        # Row counts show how much a large load inserted, without reading any row.
        shares = max(1, -(-(pin.row_count - pair.before.pin.row_count) // STREAM_TASK_ROWS))
        change = TypeChange(
            commit.commit_id,
            commit.created_at_us,
            commit.actor,
            session.kernel.name_of(commit.branch),
            Scan(self.access, snapshot.state.schema.ir, pin.table_key, pin.ref),
            pair.before.pin.ref,
            self.selection,
        )
        return [replace(change, share=share, shares=shares) for share in range(shares)]

    def _reject_other_shape(self, step: Step, type_: Type) -> None:
        """Raise `SchemaBoundary` if the columns of the type changed since the stream started."""
        if "type" not in self.options.values:
            return
        if stream_schema(type_).simpleString() != self.schema.simpleString():
            raise SchemaBoundary(
                f"`{type_.name}` has other columns today than when the stream was started, so commit"
                f" {step.commit.commit_id} does not fit; begin before it, or omit `type` to get JSON",
                reason="schema_boundary",
                graph_commit_id=step.commit.commit_id,
                type_name=type_.name,
            )


def feed_type(options: SourceOptions, view: View) -> Type | None:
    """Return the type of a typed stream, or None."""
    if "type" not in options.values:
        return None
    for name in ("kinds", "types"):
        if name in options.values:
            raise UsageError(f"`type` and `{name}` exclude each other; use one of them", option=name)
    return find_qualified_type(view.catalog, options.type)


_START_FORMS: Final = "`beginning`, `now`, `after:<commit>` or a cursor of the feed"
_RESTART_HINT: Final = "restart the stream with the option `start` and a new checkpoint"


def is_stream(options: Mapping[str, str]) -> bool:
    """Return True if options ask for the feed: they have `start`."""
    return "start" in {name.lower() for name in options}


def schema_of(values: Mapping[str, str]) -> Any:
    options = parse_options(values, STREAM_OPTIONS)
    with options.opened() as session:
        return stream_schema(feed_type(options, session.view(options.branch)))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches in the driver and reads changes in tasks."""

    def __init__(self, values: Mapping[str, str], schema: Any) -> None:
        options = parse_options(values, STREAM_OPTIONS)
        self._start = options.require("start", f"a stream begins at {_START_FORMS}").strip()
        self._options = options
        self._commits_max = options.integer("maxcommitspertrigger", STREAM_COMMITS)
        if self._commits_max < 1:
            raise UsageError("`maxCommitsPerTrigger` must be >= 1", option="maxCommitsPerTrigger")
        if "type" not in options.values and schema.simpleString() != stream_schema(None).simpleString():
            raise UsageError("a stream of changes has fixed columns; omit the schema and select columns instead")
        self._schema = schema
        self._target: CommitId | None = None
        self._planned: dict[CommitId, list[TypeChange]] = {}
        # Opened on demand: Spark pickles this reader for the tasks, and an open graph cannot be pickled.
        self._session: GraphSession | None = None

    @spark_errors()
    def initialOffset(self) -> dict[str, str]:
        feed = self._feed()
        return feed.offset(feed.start(self._start))

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark has no limit by commits; a file means a commit here.
        return ReadMaxFiles(self._commits_max)

    @spark_errors()
    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._feed().head

    @spark_errors()
    def reportLatestOffset(self) -> dict[str, str]:
        feed = self._feed()
        return feed.offset(feed.head)

    @spark_errors()
    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        feed = self._feed()
        reached = first = feed.commit(start)
        most = sys.maxsize if isinstance(limit, ReadAllAvailable) else self._commits_max
        for step in feed.steps(first, self._target or feed.head, most):
            try:
                self._changes(feed, step)
            except (ChangeFeedGap, SchemaBoundary) as error:
                # Deliver the commits before the gap first.
                if reached == first:
                    error.message = f"{error.message}: {_RESTART_HINT}"
                    error.args = (error.message,)
                    raise
                break
            reached = step.commit.commit_id
        return feed.offset(reached)

    @spark_errors()
    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[Any]:
        feed = self._feed()
        steps = feed.steps(feed.commit(start), feed.commit(end), sys.maxsize)
        changes = [change for step in steps for change in self._changes(feed, step)]
        self._planned.clear()
        return [InputPartition(change) for change in changes]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        with spark_errors(is_planning=False):
            yield from read_change(partition.value, self._schema)

    def stop(self) -> None:
        if self._session is not None:
            self._session.kernel.close()

    def _feed(self) -> Feed:
        if self._session is None:
            self._session = self._options.open()
        return Feed(self._session, self._session.view(self._options.branch), self._options, self._schema)

    def _changes(self, feed: Feed, step: Step) -> list[TypeChange]:
        """Plan the tasks of a commit once: `latestOffset` needs them before `partitions` does."""
        commit_id = step.commit.commit_id
        if commit_id not in self._planned:
            self._planned[commit_id] = feed.changes(step)
        return self._planned[commit_id]
