"""The change feed as a stream of Spark: positions are cursors of the feed, and each task reads one type of one commit.

The driver walks commits and never looks at entities. What is between two positions never changes, so a batch that runs
again after a crash brings the same rows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from omnigraph.engine.changes.commit_diff import Step
from omnigraph.engine.changes.cursor import Scope, Selection, Token, decode, encode, select
from omnigraph.engine.changes.feed import feed_scope, start_commit, steps_after
from omnigraph.engine.changes.state_diff import Pair
from omnigraph.engine.session import View
from omnigraph.engine.write.ndjson.blocks import Type
from omnigraph.errors import ChangeFeedGap, SchemaBoundary, UsageError
from omnigraph.graph import Graph
from omnigraph.ids import CommitId, new_ulid
from omnigraph.limits import STREAM_COMMITS, STREAM_TASK_ROWS
from omnigraph.pipeline.bulk_load.job import Place, place_of
from omnigraph.pipeline.datasource.options import STREAM, GivenOptions, coded, given_options
from omnigraph.pipeline.datasource.spark_types import find_type
from omnigraph.pipeline.datasource.stream_rows import Change, read_change, stream_schema
from omnigraph.pipeline.datasource.table_reader import Scan


@dataclass(frozen=True)
class Feed:
    """A branch's feed up to the head that was found."""

    graph: Graph
    view: View
    given: GivenOptions
    schema: Any

    @property
    def head(self) -> CommitId:
        head = self.view.snapshot.head
        assert head is not None, "a graph is born with a commit"
        return head

    @cached_property
    def selection(self) -> Selection:
        given, type_ = self.given, feed_type(self.given, self.view)
        if type_ is None:
            return select(given.names("kinds"), given.names("types"), given.names("ops"), [self.view.catalog])
        kind, _, name = type_.table_key.partition(":")
        return select([kind], [name], given.names("ops"), [self.view.catalog])

    @cached_property
    def scope(self) -> Scope:
        return feed_scope(self.view.snapshot, self.selection)

    @cached_property
    def place(self) -> Place:
        # One for all tasks of a batch, because a worker keeps what it has opened by it.
        return place_of(self.graph.uri, new_ulid())

    def start(self, start: str) -> CommitId:
        """Return the commit after which a stream begins."""
        # A cursor has digits, so a word that is none of ours is not taken for one.
        if start.isalpha() or start.startswith("after:"):
            return start_commit(self.graph.session, self.view.snapshot, start)
        return self.commit({"cursor": start})

    def offset(self, commit: CommitId) -> dict[str, str]:
        """Return the position after a commit: the commit for people, the cursor for us."""
        return {"commit": commit, "cursor": encode(Token("feed-cursor", self.scope, commit))}

    def commit(self, offset: Mapping[str, str]) -> CommitId:
        return decode(offset["cursor"], "feed-cursor", self.scope).commit

    def steps(self, first: CommitId, last: CommitId, most: int) -> list[Step]:
        """Return the commits after one up to another, oldest first."""
        token = Token("feed-cursor", self.scope, first, cut=last)
        return steps_after(self.graph.session, self.view.snapshot, token, most)[0]

    def changes(self, step: Step) -> list[Change]:
        """Return what tasks are to read of a commit; refuse one that cannot be told."""
        kernel = self.graph.session.kernel
        # Types without entities on one side come or go without a change.
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
            # Tasks open versions by path alone, so all that is published must be in its place.
            kernel.finish_links(view.snapshot)
        return [change for pair in pairs for change in self._shares(step, pair)]

    def _shares(self, step: Step, pair: Pair) -> list[Change]:
        assert pair.before is not None
        assert pair.after is not None
        self._refuse_other_shape(step, pair.after.type_)
        snapshot, pin = pair.after.view.snapshot, pair.after.pin
        session, commit = self.graph.session, step.commit
        # What a large load brought in is told from how many entities there are, without looking at any.
        shares = max(1, -(-(pin.row_count - pair.before.pin.row_count) // STREAM_TASK_ROWS))
        change = Change(
            commit.commit_id,
            commit.created_at_us,
            commit.actor,
            session.kernel.name_of(commit.branch),
            Scan(self.place, snapshot.state.schema.ir, pin.table_key, pin.ref),
            pair.before.pin.ref,
            self.selection,
        )
        return [replace(change, share=share, shares=shares) for share in range(shares)]

    def _refuse_other_shape(self, step: Step, type_: Type) -> None:
        """Refuse to go on when the type, whose past is read as it is today, has got other columns since the start."""
        if "type" not in self.given.values:
            return
        if stream_schema(type_).simpleString() != self.schema.simpleString():
            raise SchemaBoundary(
                f"`{type_.name}` has other columns today than when the stream was started, so commit"
                f" {step.commit.commit_id} does not fit; begin before it, or leave `type` away to get JSON",
                reason="schema_boundary",
                graph_commit_id=step.commit.commit_id,
                type_name=type_.name,
            )


def feed_type(given: GivenOptions, view: View) -> Type | None:
    """Return the one type that a stream is about, or None."""
    if "type" not in given.values:
        return None
    for name in ("kinds", "types"):
        if name in given.values:
            raise UsageError(f"`type` and `{name}` both say what to read; use one of them", option=name)
    return find_type(view.catalog, given.type)


_START: Final = "`beginning`, `now`, `after:<commit>` or a cursor of the feed"
_ANEW: Final = "a stream starts anew with the option `start` and a new checkpoint"


def is_stream(options: Mapping[str, str]) -> bool:
    """Tell whether options ask for the feed: they say where it begins."""
    return "start" in {name.lower() for name in options}


def schema_of(options: Mapping[str, str]) -> Any:
    """Return the Spark schema of a stream."""
    given = given_options(options, STREAM)
    with given.open() as graph:
        return stream_schema(feed_type(given, graph.session.view(given.branch)))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches in the driver, and reads changes in tasks."""

    def __init__(self, options: Mapping[str, str], schema: Any) -> None:
        given = given_options(options, STREAM)
        self._start = given.needed("start", f"a stream begins at {_START}").strip()
        self._given = given
        self._commits_max = given.number("maxcommitspertrigger", STREAM_COMMITS)
        if self._commits_max < 1:
            raise UsageError("`maxCommitsPerTrigger` takes a number of at least 1", option="maxCommitsPerTrigger")
        if "type" not in given.values and schema.simpleString() != stream_schema(None).simpleString():
            raise UsageError("the columns of a stream of changes are given; leave the schema away and select from them")
        self._schema = schema
        self._target: CommitId | None = None
        self._planned: dict[CommitId, list[Change]] = {}
        # Spark sends a copy of this to the tasks, and an opened graph stays where it is.
        self._graph: Graph | None = None

    @coded()
    def initialOffset(self) -> dict[str, str]:
        feed = self._feed()
        return feed.offset(feed.start(self._start))

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark has limits of its own kinds only; what counts as a file here is a commit.
        return ReadMaxFiles(self._commits_max)

    @coded()
    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._feed().head

    @coded()
    def reportLatestOffset(self) -> dict[str, str]:
        feed = self._feed()
        return feed.offset(feed.head)

    @coded()
    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        feed = self._feed()
        reached = first = feed.commit(start)
        most = sys.maxsize if isinstance(limit, ReadAllAvailable) else self._commits_max
        for step in feed.steps(first, self._target or feed.head, most):
            try:
                self._changes(feed, step)
            except (ChangeFeedGap, SchemaBoundary) as error:
                # What comes before it is delivered first.
                if reached == first:
                    error.message = f"{error.message}: {_ANEW}"
                    error.args = (error.message,)
                    raise
                break
            reached = step.commit.commit_id
        return feed.offset(reached)

    @coded()
    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[Any]:
        feed = self._feed()
        steps = feed.steps(feed.commit(start), feed.commit(end), sys.maxsize)
        found = [change for step in steps for change in self._changes(feed, step)]
        self._planned.clear()
        return [InputPartition(change) for change in found]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        with coded(is_planning=False):
            yield from read_change(partition.value, self._schema)

    def stop(self) -> None:
        if self._graph is not None:
            self._graph.close()

    def _feed(self) -> Feed:
        if self._graph is None:
            self._graph = self._given.open()
        session = self._graph.session
        return Feed(self._graph, session.view(self._given.branch), self._given, self._schema)

    def _changes(self, feed: Feed, step: Step) -> list[Change]:
        """Return what tasks are to read of a commit; a position is looked for first, and then its batch is planned."""
        commit_id = step.commit.commit_id
        if commit_id not in self._planned:
            self._planned[commit_id] = feed.changes(step)
        return self._planned[commit_id]
