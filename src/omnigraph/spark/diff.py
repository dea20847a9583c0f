"""`Graph.diff` as a Spark DataFrame; each task compares a share of the rows of one type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from omnigraph.docstrings import complete_docs
from omnigraph.engine.changes.cursor import ChangeFilter
from omnigraph.engine.changes.row_diff import candidates
from omnigraph.engine.changes.state_diff import CHANGE_SCHEMA, Pair, changes_of, compared, of_ops, selected
from omnigraph.engine.past_schemas import NOW, Naming
from omnigraph.engine.revisions import AsOf
from omnigraph.engine.session import HasSession, session_of
from omnigraph.engine.tasks import GraphAccess, Progress, graph_access, reporting_to
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import STREAM_TASK_ROWS, STREAM_WINDOW_ROWS
from omnigraph.manifest.model import MAIN
from omnigraph.protocol import GraphProtocol
from omnigraph.spark.executors import ENGINE_DOCS, Engine, RunnerChoice, map_tasks
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.read.version_diff import moved_estimate

_SCHEMA: Final = (
    "kind string, type_name string, id string, op string, published_dataset_version long, `from` string, `to` string"
)


@dataclass(frozen=True, slots=True)
class DiffTask:
    """One of several shares of the rows that may differ in a type; a version is None where the type does not exist."""

    access: GraphAccess
    table_key: TypeKey
    version: int
    before: DatasetRef | None
    after: DatasetRef | None
    selection: ChangeFilter
    number: int
    shares: int


@complete_docs(GraphProtocol.diff, ENGINE_DOCS)
def diff(
    graph: HasSession,
    a: AsOf,
    b: AsOf,
    *,
    kinds: Sequence[str] | None = None,
    types: Sequence[str] | None = None,
    ops: Sequence[str] | None = None,
    branch: str = MAIN,
    names: Naming = NOW,
    engine: Engine = "auto",
    spark: Any = None,
    master: str | None = None,
    progress: Progress | None = None,
) -> Any:
    """Return the differences between two states as an unordered Spark DataFrame, computed lazily.

    Args:
        engine: `auto` or `spark`; a DataFrame cannot be made in process.
        progress: Called while the call waits for Spark; the jobs of the DataFrame report to Spark.

    Returns:
        A DataFrame with the columns of `Graph.diff(...).changes`.

    Raises:
        CommitNotFound: There is no such branch, tag or commit.
        UsageError: A filter has an unknown word, or `engine` is `local`.
        PipelineUnavailable: Spark is not installed.

    Example:
        >>> from omnigraph import pipeline
        >>> pipeline.diff(graph, 1, 2).count()  # doctest: +SKIP
        3
    """
    choice = RunnerChoice(engine, master, spark)
    with reporting_to(progress):
        running = choice.start_session("`pipeline.diff`", "`graph.diff`")
    session = session_of(graph)
    before, after, selection = compared(session, a, b, ChangeFilter(kinds, types, ops), branch, names)
    for view in (before, after):
        # Tasks open versions by path, so links of recent commits must be finished first.
        session.kernel.finish_links(view.snapshot)
    access = graph_access(session.kernel.store.root.uri, new_ulid())
    tasks = [task for pair in selected(before, after, selection) for task in _plan_tasks(access, pair, selection)]
    return map_tasks(running, read_diff_task, tasks, _SCHEMA)


def _plan_tasks(access: GraphAccess, pair: Pair, selection: ChangeFilter) -> list[DiffTask]:
    if pair.before is not None and pair.after is not None:
        size = moved_estimate(pair.before.dataset, pair.after.dataset).rows
    else:
        size = pair.known.pin.row_count
    count = max(1, -(-size // STREAM_TASK_ROWS))
    before, after = (side.pin.ref if side else None for side in (pair.before, pair.after))
    pin = pair.known.pin
    return [
        DiffTask(access, pin.table_key, pin.version, before, after, selection, number, count) for number in range(count)
    ]


def read_diff_task(task: DiffTask) -> Iterator[pa.RecordBatch]:
    """Yield the changes of a share, one window of entities at a time."""
    before, after = (None if ref is None else task.access.open(ref) for ref in (task.before, task.after))
    rows = of_ops(candidates(before, after), task.selection)
    first, last = (rows.num_rows * number // task.shares for number in (task.number, task.number + 1))
    for offset in range(first, last, STREAM_WINDOW_ROWS):
        window = rows.slice(offset, min(STREAM_WINDOW_ROWS, last - offset))
        changes = changes_of(task.table_key, task.version, before, after, window)
        yield from changes.cast(CHANGE_SCHEMA).combine_chunks().to_batches()
