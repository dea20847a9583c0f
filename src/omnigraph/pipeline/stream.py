"""The change feed as a stream of Spark: positions are cursors of the feed, and each task reads one type of one commit.

The driver walks commits and never looks at entities. What is between two positions never changes, so a batch that runs
again after a crash brings the same rows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from omnigraph.engine.changes.commit import Step
from omnigraph.errors import ChangeFeedGap, SchemaBoundary, UsageError
from omnigraph.graph import Graph
from omnigraph.ids import CommitId
from omnigraph.limits import STREAM_COMMITS
from omnigraph.pipeline.options import STREAM, given_options
from omnigraph.pipeline.sourceerrors import coded
from omnigraph.pipeline.stream_feed import Feed, feed_type
from omnigraph.pipeline.stream_rows import Change, read_change, stream_schema

_START: Final = "`beginning`, `now`, `after:<commit>` or a cursor of the feed"
_ANEW: Final = "a stream starts anew with the option `start` and a new checkpoint"


def is_stream(options: Mapping[str, str]) -> bool:
    """Tell whether options ask for the feed: they say where it begins."""
    return "start" in {name.lower() for name in options}


def schema_of(options: Mapping[str, str]) -> Any:
    """Return the Spark schema of a stream."""
    given = given_options(options, STREAM)
    with given.open() as graph:
        return stream_schema(feed_type(given, graph.core.view(given.branch)))


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
        core = self._graph.core
        return Feed(self._graph, core.view(self._given.branch), self._given, self._schema)

    def _changes(self, feed: Feed, step: Step) -> list[Change]:
        """Return what tasks are to read of a commit; a position is looked for first, and then its batch is planned."""
        commit_id = step.commit.commit_id
        if commit_id not in self._planned:
            self._planned[commit_id] = feed.changes(step)
        return self._planned[commit_id]
