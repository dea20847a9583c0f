"""The runs of a pipeline, read from the commits that they made, and the report that a run collects while it goes on.

A load commit names its pipeline, run, watermarks and counts. After a merge it is reachable from the target branch, and
stays so when the branch of the load is deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from omnigraph import clock
from omnigraph.engine.authorization import on_branch
from omnigraph.engine.tasks import report_progress
from omnigraph.errors import PipelineError, PolicyDenied, UsageError
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest.model import Commit
from omnigraph.pipelines.check import Verdict
from omnigraph.pipelines.declaration.config import PipelineDeclaration
from omnigraph.pipelines.declaration.cron import moment_of
from omnigraph.public_values import PublicValue
from omnigraph.spark.session import JobInput, measuring_jobs

PIPELINE: Final = "pipeline"
WATERMARKS: Final = "pipeline_watermarks"
# The columns of the watermarks by source, with how their values are compared: `updated_at (time)`.
COMPARED: Final = "pipeline_compared"
# The path or table of each source, as it was declared.
PLACES: Final = "pipeline_places"
DIGEST: Final = "pipeline_digest"
RUN: Final = "pipeline_run"
STARTED: Final = "pipeline_started"
QUARANTINED: Final = "pipeline_quarantined"
BACKFILL: Final = "pipeline_backfill"
SCHEDULED_FOR: Final = "pipeline_scheduled_for"
DELETED: Final = "pipeline_deleted"
STAGES: Final = "pipeline_stages"
REJECTED: Final = "rejected"
# The objects with rows that were left out, by type: those that wait for a retry, and edges that the next run tries.
REJECTED_ROWS: Final = "pipeline_rejected_rows"
PENDING: Final = "pipeline_pending"
PENDING_ROWS: Final = "pipeline_pending_rows"
# The object that lists the files which incremental sources had.
LEDGER: Final = "pipeline_ledger"
# The runs whose rejected rows this load has tried again.
RETRIED: Final = "pipeline_retried"

Next = Literal["finish_load", "first_run", "new_rows", "all_rows"]


@dataclass(frozen=True, slots=True)
class RunRecord(PublicValue):
    """A run that loaded something; `seconds` until its commit. `backfill` is its range, if it was one.

    Attributes:
        scheduled_for: The time that it was due, if a schedule started it.
        deleted: How many entities of each type it has deleted.
        rejected: How many entities it has left out, because they break a rule of the schema.
        stages: By stage, its seconds until the commit, and the rows and bytes that Spark has read in it.
        pending: How many edges wait for a missing end.
        retried: The runs whose rejected rows it has tried again.
    """

    run_id: str
    commit_id: str
    created_at_us: int
    seconds: float
    nodes: Mapping[str, int]
    edges: Mapping[str, int]
    quarantined: int
    watermarks: Mapping[str, str]
    digest: str
    actor: str | None = None
    backfill: str | None = None
    scheduled_for: str | None = None
    deleted: Mapping[str, int] = field(default_factory=dict)
    rejected: int = 0
    stages: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    pending: int = 0
    retried: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunPlan(PublicValue):
    """What the next run of a pipeline will do.

    Attributes:
        pipeline: The name of the pipeline.
        next_step: Finish a load that was not merged, load everything for the first time, load what is above the
            watermarks, or load everything again.
        branch: The branch that it loads to.
        merge_into: The branch that it publishes to; None if it loads there directly.
        is_changed: Whether the declaration has changed since the last run.
        last_run: The last run that was published.
        unfinished_commit: The load that waits on its branch for expectations, review or a merge.
        schedule: Its cron expression, with the time zone unless that is UTC.
        next_run: When it is due next, in UTC; a schedule alone starts nothing.
    """

    pipeline: str
    next_step: Next
    branch: str
    merge_into: str | None
    is_changed: bool
    watermarks: Mapping[str, str] = field(default_factory=dict)
    last_run: RunRecord | None = None
    unfinished_commit: str | None = None
    schedule: str | None = None
    next_run: str | None = None


def list_runs(graph: Graph, pipeline: PipelineDeclaration, limit: int | None = None) -> list[RunRecord]:
    """Return the published runs of a pipeline, newest first.

    Args:
        graph: The graph that the pipeline loads into.
        pipeline: The declaration, as `read_pipelines` returns it.
        limit: Return at most this many runs.

    Returns:
        The runs, as their commits record them.

    Raises:
        UsageError: The limit is negative.
        BranchNotFound: The branch that the pipeline publishes to does not exist.
        PolicyDenied: The policy hides the runs of another actor.

    Example:
        >>> from omnigraph import pipeline
        >>> crm = pipeline.read_pipelines("pipelines.yaml")["crm"]  # doctest: +SKIP
        >>> [run.nodes for run in pipeline.list_runs(graph, crm)]  # doctest: +SKIP
        [{'Person': 2}]
    """
    if limit is not None and limit < 0:
        raise UsageError(f"`limit` is a number of runs, 0 or more; got {limit}", limit=limit)
    return list(islice(map(_record, load_commits(graph, pipeline.target_branch, pipeline.names)), limit))


def plan_run(graph: Graph, pipeline: PipelineDeclaration) -> RunPlan:
    """Return what the next run will do; reads the history of the graph, and no source.

    Args:
        graph: The graph that the pipeline loads into.
        pipeline: The declaration, as `read_pipelines` returns it.

    Returns:
        The next step, the watermarks that it starts from, and the last run.

    Raises:
        BranchNotFound: The branch that the pipeline publishes to does not exist.
        PolicyDenied: The policy hides the runs of another actor.

    Example:
        >>> from omnigraph import pipeline
        >>> crm = pipeline.read_pipelines("pipelines.yaml")["crm"]  # doctest: +SKIP
        >>> pipeline.plan_run(graph, crm).next_step  # doctest: +SKIP
        'new_rows'
    """
    last, unfinished = find_progress(graph, pipeline), find_unfinished(graph, pipeline)
    is_incremental = any(source.incremental for source in pipeline.sources.values())
    step: Next = "new_rows" if is_incremental else "all_rows"
    if unfinished is not None:
        step = "finish_load"
    elif last is None:
        step = "first_run"
    schedule = pipeline.schedule
    return RunPlan(
        pipeline.name,
        step,
        pipeline.publication.branch,
        pipeline.publication.merge_into,
        last is not None and last.properties.get(DIGEST) != pipeline.digest,
        {} if last is None else read_json(last, WATERMARKS),
        None if last is None else _record(last),
        None if unfinished is None else unfinished.commit_id,
        None if schedule is None else schedule.describe(),
        None if schedule is None else schedule.next_runs(moment_of(clock.now_us()), 1)[0].isoformat(),
    )


def find_progress(graph: Graph, pipeline: PipelineDeclaration) -> Commit | None:
    """Return the newest load that moved the watermarks, or None before the first run.

    A backfill and a retry of rejected rows move none.
    """
    # Exactly-once by atomicity: data and watermark are one commit, so neither is there without the other, and a run
    # that was cut off anywhere starts from what is really loaded.
    commits = load_commits(graph, pipeline.target_branch, pipeline.names)
    return next((commit for commit in commits if not {BACKFILL, RETRIED} & commit.properties.keys()), None)


def find_unfinished(graph: Graph, pipeline: PipelineDeclaration) -> Commit | None:
    """Return the newest load on the branch of a pipeline that was not merged yet."""
    target = pipeline.publication
    if target.merge_into is None or target.branch not in graph.branches.list():
        return None
    # A merged load is an ancestor of the target. One that is not was cut off between load and merge, or waits there.
    newest = next(load_commits(graph, target.branch, pipeline.names), None)
    return None if newest is None or is_reachable(graph, newest.commit_id, target.merge_into) else newest


def is_reachable(graph: Graph, commit_id: str | None, branch: str) -> bool:
    history = session_of(graph).kernel.history(branch)
    return any(commit.commit_id == commit_id for commit in history)


def read_counts(commit: Commit, kind: str) -> dict[str, int]:
    """Return the number of loaded entities by type."""
    keys = {TypeKey(key): count for key, count in read_json(commit, "counts").items()}
    return {key.name: count for key, count in keys.items() if key.kind == kind}


def find_scheduled(graph: Graph, pipeline: PipelineDeclaration, due: datetime) -> Commit | None:
    """Return the newest load that a schedule started, if it was for a due time or a later one."""
    commits = load_commits(graph, pipeline.target_branch, pipeline.names)
    # Due times grow along a branch, so the newest answers for all before it. This makes a due run idempotent: the book
    # may lose the end of a run, and the commit has it.
    newest = next((commit for commit in commits if SCHEDULED_FOR in commit.properties), None)
    is_done = newest is not None and datetime.fromisoformat(newest.properties[SCHEDULED_FOR]) >= due
    return newest if is_done else None


def load_commits(graph: Graph, branch: str, names: Collection[str]) -> Iterator[Commit]:
    """Yield the loads of a pipeline that a branch has; `names` are those that it has had.

    An actor who may not see the properties of another actor's commits must not start from the beginning, as if there
    was no progress: this is an error.
    """
    session = session_of(graph)
    session.require("read", on_branch(branch))
    for commit in session.kernel.history(branch):
        # Linear in the history of the branch; the newest loads are near its head, and callers take the first.
        name = commit.properties.get(PIPELINE)
        if name not in names:
            continue
        if session.redact_commits([commit])[0].properties.get(PIPELINE) != name:
            raise PolicyDenied(
                f"pipeline `{name}` was run by another actor, and the policy hides its progress from `{session.actor}`,"
                " who may not read all types; nothing was written. Run it as the same actor",
                action="read",
                actor=session.actor,
                branch=branch,
            )
        yield commit


def _record(commit: Commit) -> RunRecord:
    properties = commit.properties
    started = int(properties.get(STARTED, commit.created_at_us))
    return RunRecord(
        properties.get(RUN, ""),
        commit.commit_id,
        commit.created_at_us,
        round(max(commit.created_at_us - started, 0) / 1e6, 3),
        read_counts(commit, "node"),
        read_counts(commit, "edge"),
        int(properties.get(QUARANTINED, "0")),
        read_json(commit, WATERMARKS),
        properties.get(DIGEST, ""),
        commit.actor,
        properties.get(BACKFILL),
        properties.get(SCHEDULED_FOR),
        read_json(commit, DELETED),
        int(properties.get(REJECTED, "0")),
        read_json(commit, STAGES),
        int(properties.get(PENDING_ROWS, "0")),
        tuple(read_json(commit, RETRIED)),
    )


def read_json(commit: Commit, name: str) -> dict[str, Any]:
    """Return a property of a load that is a JSON object; empty if it has none."""
    try:
        return dict(orjson.loads(commit.properties.get(name, "{}")))
    except (ValueError, TypeError):
        raise PipelineError(
            f"`{name}` of commit {commit.commit_id} cannot be decoded; run the pipeline with a full refresh"
        ) from None


Status = Literal[
    "published", "awaiting_review", "blocked_by_review", "stopped", "nothing_new", "dry_run", "already_done"
]


@dataclass(frozen=True, slots=True)
class RunReport(PublicValue):
    """What a run did, with the seconds of every stage, and the rows and bytes that Spark has read in it.

    `deleted` counts entities, without edges of deleted nodes. `rejected` entities were left out, and `pending` edges
    wait for a missing end. `spark_ui` is the address of Spark's pages, if on.
    """

    pipeline: str
    run_id: str
    status: Status
    branch: str
    nodes: Mapping[str, int] = field(default_factory=dict)
    edges: Mapping[str, int] = field(default_factory=dict)
    deleted: Mapping[str, int] = field(default_factory=dict)
    rejected: int = 0
    pending: int = 0
    expectations: tuple[Verdict, ...] = ()
    watermarks: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    rows_read: Mapping[str, int] = field(default_factory=dict)
    bytes_read: Mapping[str, int] = field(default_factory=dict)
    spark_ui: str | None = None
    commit_id: str | None = None
    message: str = ""


class RunRecorder:
    """Collects the report of one run, and measures its stages."""

    def __init__(self, report: RunReport, folder: Path | None) -> None:
        self._empty = self.report = report
        self.folder = folder
        self.started_us = clock.now_us()
        self._seconds: dict[str, float] = {}
        self._inputs: dict[str, JobInput] = {}
        self._began: tuple[str, float] | None = None

    def reset(self) -> None:
        """Forget what was recorded: it was about another run, which this one has finished before it began."""
        self.report, self._seconds, self._inputs = self._empty, {}, {}

    def set(self, **members: Any) -> None:
        self.report = replace(self.report, **members)

    def add_verdicts(self, verdicts: Iterable[Verdict]) -> None:
        self.set(expectations=(*self.report.expectations, *verdicts))

    def warn(self, label: str, message: str, failed: int = 0) -> None:
        self.add_verdicts([Verdict(label, False, 0, failed, "warn", message)])

    def finish(self, status: Status, message: str) -> RunReport:
        """Complete the report, and write it to the directory of reports, if there is one."""
        self.set(
            status=status,
            message=message,
            seconds={stage: round(seconds, 3) for stage, seconds in self._seconds.items()},
            rows_read={stage: measured.rows for stage, measured in self._inputs.items()},
            bytes_read={stage: measured.bytes for stage, measured in self._inputs.items()},
        )
        if self.folder is not None:
            text = orjson.dumps(self.report.to_json(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
            (self.folder / "run.json").write_bytes(text)
        return self.report

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure a stage: its seconds, and what its Spark jobs read."""
        started = clock.elapsed()
        report_progress(name, 0, 1)
        try:
            with measuring_jobs() as measured:
                self._began = (name, started)
                self._inputs[name] = measured
                yield
        finally:
            self._began = None
            self._seconds[name] = self._seconds.get(name, 0.0) + clock.elapsed() - started
        report_progress(name, 1, 1)

    def describe_stages(self) -> str:
        """Return what the commit says about stages: all that are done, and the load, which is about to be."""
        seconds = dict(self._seconds)
        if self._began is not None:
            seconds[self._began[0]] = clock.elapsed() - self._began[1]
        stages = {
            name: {"seconds": round(elapsed, 3), "rows": self._inputs[name].rows, "bytes": self._inputs[name].bytes}
            for name, elapsed in seconds.items()
        }
        return orjson.dumps(stages).decode()
