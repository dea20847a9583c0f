"""Runs a declared pipeline: read what is new, transform, judge, load to a branch, judge there, and merge.

Progress is part of the data: the commit of a load holds the watermarks that the next run starts from, so they cannot
disagree. The job id of a load names the commit before, so of two runs that start from the same progress one loads and
the other finds that it is done; a run that was killed is run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import orjson

from omnigraph import clock
from omnigraph.engine.tasks import Progress, report_progress, reporting_to
from omnigraph.errors import BranchNotFound, ConflictError, PolicyDenied, UsageError
from omnigraph.graph import Graph, session_of
from omnigraph.ids import new_ulid
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.limits import SCHEDULE_AHEAD_SECONDS_MAX
from omnigraph.manifest.model import MESSAGE, Commit
from omnigraph.pipeline.bulk_load.api import load
from omnigraph.pipeline.bulk_load.report import LoadReport, prepare_folder
from omnigraph.pipeline.declared import progress as record
from omnigraph.pipeline.declared.check import (
    Pipelines,
    Queries,
    find_ignored_settings,
    find_pipeline,
    find_ui,
    prepare_session,
    read_expected_queries,
    require_target,
)
from omnigraph.pipeline.declared.config import PipelineDeclaration
from omnigraph.pipeline.declared.deletes import delete_rows, deletes_message
from omnigraph.pipeline.declared.expectations import Verdict, is_stopped, judge_answers, judge_view
from omnigraph.pipeline.declared.lineage import Lineage
from omnigraph.pipeline.declared.patches import complete_rows
from omnigraph.pipeline.declared.redaction import redact_errors
from omnigraph.pipeline.declared.schedule import moment_of
from omnigraph.pipeline.declared.sources import OpenSource, Watermark, Window, is_ahead, open_source, read_source
from omnigraph.pipeline.declared.transform import map_deletions, map_types, run_statement
from omnigraph.pipeline.spark.session import JobInput, describing_jobs, measuring_jobs, run_job
from omnigraph.public_values import PublicValue

Status = Literal["published", "awaiting_review", "stopped", "nothing_new", "dry_run", "already_done"]


@dataclass(frozen=True, slots=True)
class RunReport(PublicValue):
    """What a run did, with the seconds of every stage, and the rows and bytes that Spark has read in it.

    `deleted` counts entities, without edges of deleted nodes. `spark_ui` is the address of Spark's pages, if on.
    """

    pipeline: str
    run_id: str
    status: Status
    branch: str
    nodes: Mapping[str, int] = field(default_factory=dict)
    edges: Mapping[str, int] = field(default_factory=dict)
    deleted: Mapping[str, int] = field(default_factory=dict)
    rejected: int = 0
    expectations: tuple[Verdict, ...] = ()
    watermarks: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    rows_read: Mapping[str, int] = field(default_factory=dict)
    bytes_read: Mapping[str, int] = field(default_factory=dict)
    spark_ui: str | None = None
    commit_id: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Which rows a run reads: new ones, all (`is_full`), a range of a source (`backfill`), or a few (`sample`).

    A run for a due time (`scheduled_for`) is done once.
    """

    is_dry: bool = False
    is_full: bool = False
    backfill: Window | None = None
    backfill_source: str = ""
    sample: int | None = None
    scheduled_for: datetime | None = None


def run(
    graph: Graph,
    pipelines: Pipelines,
    name: str | None = None,
    *,
    spark: Any = None,
    dry_run: bool = False,
    full_refresh: bool = False,
    backfill: tuple[str | None, str | None] | None = None,
    source: str | None = None,
    sample: int | None = None,
    report: str | Path | None = None,
    queries: Queries | None = None,
    scheduled_for: datetime | None = None,
    progress: Progress | None = None,
) -> RunReport:
    """Run a declared pipeline once.

    Args:
        graph: The graph to load into.
        pipelines: A YAML file, or a declaration that `read_pipelines` returned.
        name: Which pipeline of the file to run; may be omitted if it has only one.
        spark: A Spark session to use; by default the running one, or one that is started as the declaration says.
        dry_run: Do everything but load and publish.
        full_refresh: Read every source from its beginning.
        backfill: Read the rows of an incremental source above the first value, up to the second; None is unbounded.
            Other incremental sources are not read, and the watermarks stay as they are.
        source: The source of a backfill; may be omitted if only one is incremental.
        sample: Read at most this many rows of each source; implies `dry_run`.
        report: Directory for the report of the run, and for rejected and quarantined rows.
        queries: Directory of the `.gq` files of expectations; by default that of the declaration.
        scheduled_for: The time for which a scheduler starts this run; its commit keeps it, and a run for this time or
            an earlier one is then `already_done`.
        progress: Called with each stage and how much of it is done.

    Returns:
        What was read, judged, loaded and published. `status` is `stopped` if an expectation failed.

    Raises:
        UsageError: The declaration or an argument cannot be used; nothing was written.
        DataError: The rows break a rule of the schema; nothing was published.
        MergeConflict: The target branch has changed the same entities; the load stays on its branch.
        PipelineError: A Spark job failed; nothing was published.

    Example:
        >>> from omnigraph import pipeline
        >>> pipeline.run(graph, "pipelines.yaml", "crm").status  # doctest: +SKIP
        'published'
    """
    pipeline = find_pipeline(pipelines, name)
    is_dry = dry_run or sample is not None
    options = RunOptions(is_dry, full_refresh, sample=sample, scheduled_for=scheduled_for)
    if backfill == (None, None):
        raise UsageError("a backfill needs a range; give a lower bound, an upper bound, or both")
    if source is not None and backfill is None:
        raise UsageError("`source` is that of a backfill; give its range, or leave out `source`", source=source)
    if backfill is not None:
        options = replace(
            options, backfill=Window(*backfill), backfill_source=_find_incremental_source(pipeline, source)
        )
    _check_options(pipeline, options, report)
    folder = None if report is None else prepare_folder(report)
    views = {item.type_name: item.from_view for item in (*pipeline.nodes.values(), *pipeline.edges.values())}
    with reporting_to(progress), redact_errors(pipeline), describing_jobs(pipeline.name, views):
        return _Run(graph, pipeline, spark, folder, queries).execute_with_lineage(options)


def _check_options(pipeline: PipelineDeclaration, options: RunOptions, report: object) -> None:
    if options.is_full and options.backfill is not None:
        raise UsageError("a full refresh reads everything, a backfill a range; choose one of them")
    if pipeline.mode == "append" and (options.is_full or options.backfill is not None) and not options.is_dry:
        raise UsageError(
            f"`{pipeline.name}` appends, so rows that were loaded before would be there twice; use `mode: merge`"
        )
    if options.scheduled_for is not None and options.scheduled_for.tzinfo is None:
        raise UsageError(f"`scheduled_for` needs a time zone, and {options.scheduled_for.isoformat()} has none")
    latest = moment_of(clock.now_us()) + timedelta(seconds=SCHEDULE_AHEAD_SECONDS_MAX)
    if options.scheduled_for is not None and options.scheduled_for > latest:
        raise UsageError(
            f"`scheduled_for` {options.scheduled_for.isoformat()} is in the future; all runs until then would count as"
            " done. Nothing was written; give the time that this run was due"
        )
    if options.scheduled_for is not None and options.backfill is not None:
        raise UsageError("a backfill is not part of a schedule; leave out `scheduled_for`")
    if options.sample is not None and options.sample < 1:
        raise UsageError(f"`sample` is a number of rows, 1 or more; got {options.sample}", sample=options.sample)
    is_quarantining = pipeline.is_rejecting or any(item.outcome == "quarantine" for item in pipeline.expectations)
    if is_quarantining and report is None and not options.is_dry:
        raise UsageError(f"`{pipeline.name}` leaves rows out; give `report`, a directory to write them to")


def _find_incremental_source(pipeline: PipelineDeclaration, name: str | None) -> str:
    names = [source.name for source in pipeline.sources.values() if source.incremental is not None]
    if not names:
        raise UsageError(f"`{pipeline.name}` has no incremental source, so a range selects nothing; run it without one")
    if name is None and len(names) > 1:
        raise UsageError(
            f"name the `source` of the backfill; {', '.join(f'`{item}`' for item in names)} are incremental"
        )
    if name is not None and name not in names:
        hint = did_you_mean(name, names) or f"there are {', '.join(names)}"
        raise UsageError(f"`{pipeline.name}` has no incremental source `{name}`; {hint}", source=name)
    return name or names[0]


class _Run:
    def __init__(
        self,
        graph: Graph,
        pipeline: PipelineDeclaration,
        spark: Any,
        folder: Path | None,
        queries: Queries | None,
    ) -> None:
        self.graph = graph
        self.pipeline = pipeline
        self.folder = folder
        self.queries = queries
        self.seconds: dict[str, float] = {}
        self.inputs: dict[str, JobInput] = {}
        self._began: tuple[str, float] | None = None
        self.started_us = clock.now_us()
        self.has_deletes = self.is_empty_committed = False
        self._spark = spark
        self.report = RunReport(pipeline.name, new_ulid(), "published", pipeline.publication.branch)
        self.lineage = Lineage(pipeline, graph.uri, self.report.run_id)

    def execute_with_lineage(self, options: RunOptions) -> RunReport:
        """Run all stages, and tell a lineage service, if there is one; dry runs write nothing to tell of."""
        self.lineage.scheduled_for = options.scheduled_for
        if options.is_dry or not self.lineage.is_on:
            return self.execute(options)
        warning = self.lineage.emit("START")
        try:
            report = self.execute(options)
        except BaseException as error:
            self.lineage.emit("FAIL", error=str(error))
            raise
        counts = {**report.nodes, **report.edges}
        if report.status == "stopped":
            warning = self.lineage.emit("FAIL", error=report.message) or warning
        else:
            warning = self.lineage.emit("COMPLETE", counts, report.commit_id) or warning
        return report if warning is None else self._warn("lineage", warning)

    def _warn(self, label: str, message: str, failed: int = 0) -> RunReport:
        verdict = Verdict(label, False, 0, failed, "warn", message)
        self.report = replace(self.report, expectations=(*self.report.expectations, verdict))
        return self.report

    def execute(self, options: RunOptions) -> RunReport:
        """Run all stages, from the point at which an interrupted run stopped."""
        # A missing query is better noticed before the load.
        self.expected = read_expected_queries(self.graph, self.pipeline, self.queries)
        if not options.is_dry:
            finished = self._finish_unfinished()
            is_more_wanted = options.is_full or options.backfill is not None or options.scheduled_for is not None
            if finished is not None and not (finished.status == "published" and is_more_wanted):
                return finished
            self._delete_leftover_branch()
        before = record.find_progress(self.graph, self.pipeline)
        # Read after the progress: a run for the same time that is published later starts from the same progress.
        done = options.scheduled_for and record.find_scheduled(self.graph, self.pipeline, options.scheduled_for)
        if done:
            self.report = replace(self.report, commit_id=done.commit_id)
            return self._finish("already_done", f"commit {done.commit_id} was made for this time, or a later one")
        watermarks = {} if before is None or options.is_full else record.read_watermarks(before)
        compared = {} if before is None or options.is_full else record.read_compared(before)
        with self._stage("start"):
            spark = prepare_session(self.pipeline, self._spark)
        self._describe_session(spark)
        with self._stage("read"):
            sources = self._open_sources(spark, options, watermarks, compared)
        self.compared = {name: item.compared for name, item in sources.items() if item.compared is not None}
        reached = {
            name: source.window.high
            for name, source in sources.items()
            if source.window is not None and source.window.high is not None
        }
        advanced = watermarks if options.backfill is not None else {**watermarks, **reached}
        self.report = replace(self.report, watermarks=advanced)
        if before is not None and all(source.is_empty for source in sources.values()):
            return self._finish("nothing_new", "no source has rows above its watermark")
        with self._stage("judge"):
            frames = self._build_views(spark, sources)
        if frames is None:
            return self._finish("stopped", "an expectation about the rows failed; nothing was loaded")
        nodes, edges = map_types(self.pipeline, frames, self.graph.schema.catalog)
        deletions = map_deletions(self.pipeline, frames, self.graph.schema.catalog)
        if self.lineage.is_on:
            described = {name: source.frame for name, source in sources.items()}
            described |= {name: columns.data for name, columns in {**nodes, **edges}.items()}
            self.lineage.columns |= {name: dict(frame.dtypes) for name, frame in described.items()}
        if options.is_dry:
            return self._count(spark, nodes, edges)
        try:
            is_begun = self._remove_merged_branch()
            with self._stage("delete"):
                deleted, is_deleting = delete_rows(self.graph, self.pipeline, spark, deletions)
            self.report = replace(self.report, deleted=deleted)
            # A branch with deletes must not be made again without them, and deletes alone are progress as well.
            self.has_deletes = is_begun or any(deleted.values())
            self.is_empty_committed = self.has_deletes or is_deleting
            nodes, edges = (complete_rows(self.graph, self.pipeline, spark, rows) for rows in (nodes, edges))
            loaded = self._load(nodes, edges, before, options)
        except BranchNotFound:
            # Another run has merged and deleted the branch meanwhile.
            newest = record.find_progress(self.graph, self.pipeline)
            if newest is None or (before is not None and newest.commit_id == before.commit_id):
                require_target(self.graph, self.pipeline)
                raise ConflictError(
                    f"another run of `{self.pipeline.name}` works on `{self.report.branch}`; this one has published"
                    " nothing. Retry when that one has ended",
                    branch=self.report.branch,
                ) from None
            self.report = replace(self.report, commit_id=newest.commit_id)
            return self._finish("already_done", "another run has loaded and published the same rows")
        return self._publish_loaded(loaded)

    def _describe_session(self, spark: Any) -> None:
        ignored = find_ignored_settings(self.pipeline, spark)
        if ignored:
            message = (
                f"this Spark was running already, so it keeps its own {', '.join(f'`{name}`' for name in ignored)}"
            )
            self._warn("spark (conf)", message)
        self.report = replace(self.report, spark_ui=find_ui(spark))

    # -- rows --------------------------------------------------------------------------------------------------

    def _open_sources(
        self, spark: Any, options: RunOptions, watermarks: Mapping[str, str], compared: Mapping[str, str]
    ) -> dict[str, OpenSource]:
        opened = {}
        for name, source in self.pipeline.sources.items():
            if options.backfill is not None and source.incremental is not None and name != options.backfill_source:
                item = OpenSource(read_source(spark, source, self.pipeline.folder).limit(0))
            else:
                watermark = Watermark(watermarks.get(name), compared.get(name))
                item = open_source(spark, source, self.pipeline, watermark, options.backfill)
            if options.sample is not None:
                item = replace(item, frame=item.frame.limit(options.sample))
            opened[name] = item
            if item.rows_without_value:
                message = f"{item.rows_without_value} rows have no `{source.incremental}` and are never read"
                self._warn(f"{name} (incremental)", message, item.rows_without_value)
            if options.backfill is None and item.window is not None and is_ahead(item):
                message = (
                    f"`{source.incremental}` is {item.window.high}, in the future; no row below it is read any more"
                )
                self._warn(f"{name} (incremental)", message)
        return opened

    def _build_views(self, spark: Any, sources: Mapping[str, OpenSource]) -> dict[str, Any] | None:
        """Return sources and transforms without quarantined rows; None if an expectation forbids going on.

        Each view is judged before later ones read it, so what is left out of a source is in no transform of it.
        """
        frames: dict[str, Any] = {}
        for name in (*sources, *self.pipeline.transforms):
            frame = (
                sources[name].frame if name in sources else run_statement(spark, name, self.pipeline.transforms[name])
            )
            # A folder for each run: a run that is repeated adds nothing to the rows of another one.
            quarantine = None if self.folder is None else self.folder / "quarantine" / self.report.run_id
            verdicts, frame = judge_view(frame, name, self.pipeline.expectations, quarantine)
            self.report = replace(self.report, expectations=(*self.report.expectations, *verdicts))
            if is_stopped(verdicts):
                return None
            frame.createOrReplaceTempView(name)
            frames[name] = frame
        return frames

    def _count(self, spark: Any, nodes: Mapping[str, Any], edges: Mapping[str, Any]) -> RunReport:
        def count(columns: Any) -> int:
            return int(run_job(spark, "counting", columns.data.count, lambda done: None))

        with self._stage("count"):
            self.report = replace(
                self.report,
                nodes={name: count(columns) for name, columns in nodes.items()},
                edges={name: count(columns) for name, columns in edges.items()},
            )
        return self._finish("dry_run", "nothing was loaded")

    # -- load --------------------------------------------------------------------------------------------------

    def _publish_loaded(self, loaded: LoadReport) -> RunReport:
        self.report = replace(
            self.report,
            nodes=loaded.nodes,
            edges=loaded.edges,
            rejected=len(loaded.rejected),
            commit_id=loaded.commit_id,
        )
        for item in (*self.pipeline.nodes.values(), *self.pipeline.edges.values()):
            counts = loaded.edges if item.source is not None else loaded.nodes
            if (item.is_snapshot or item.mode == "overwrite") and not counts.get(item.type_name):
                message = (
                    f"`{item.from_view}` has no rows, so no `{item.type_name}` is left; `min_rows` would stop this"
                )
                self._warn(f"{item.from_view} (no rows)", message)
        if loaded.commit is None:
            if loaded.branch_created:
                self.graph.branches.delete(loaded.branch)
            return self._finish("nothing_new", "the sources have no rows to load")
        commit = session_of(self.graph).kernel.find_commit(loaded.commit.commit_id)
        if loaded.already_applied and record.is_reachable(self.graph, commit.commit_id, self.pipeline.target_branch):
            return self._finish("already_done", "another run has loaded and published the same rows")
        return self._publish(commit)

    def _load(
        self, nodes: Mapping[str, Any], edges: Mapping[str, Any], before: Commit | None, options: RunOptions
    ) -> LoadReport:
        target = self.pipeline.publication
        # Of runs that start from the same progress, one loads; a full refresh is wanted whatever was loaded.
        job_id = f"{self.pipeline.name}:{before.commit_id if before is not None else 'start'}"
        if options.backfill is not None:
            job_id += f":{options.backfill_source}:{options.backfill.low}:{options.backfill.high}"
        with self._stage("load"):
            return load(
                self.graph,
                nodes=nodes,
                edges=edges,
                mode=self.pipeline.mode,
                branch=target.branch,
                from_branch=None if self.has_deletes else target.merge_into,
                job_id=None if options.is_full else job_id,
                on_error="quarantine" if self.pipeline.is_rejecting else "fail",
                report=self.folder,
                embed=self.pipeline.embed,
                properties=self._properties(options),
                is_input_digested=False,
                commits_empty=self.is_empty_committed,
                late_properties=self._stages_property,
            )

    def _properties(self, options: RunOptions) -> dict[str, str]:
        quarantined = sum(item.failed for item in self.report.expectations if item.outcome == "quarantine")
        properties = {
            record.PIPELINE: self.pipeline.name,
            record.RUN: self.report.run_id,
            record.DIGEST: self.pipeline.digest,
            record.STARTED: str(self.started_us),
            record.QUARANTINED: str(quarantined),
            record.DELETED: orjson.dumps(dict(self.report.deleted)).decode(),
        }
        if options.scheduled_for is not None:
            properties[record.SCHEDULED_FOR] = options.scheduled_for.astimezone(UTC).isoformat()
        if options.backfill is not None:
            # It moves no watermark, also if another run has moved them meanwhile.
            bounds = f"{options.backfill.low or ''}..{options.backfill.high or ''}"
            return properties | {record.BACKFILL: f"{options.backfill_source} {bounds}"}
        watermarks = orjson.dumps(dict(self.report.watermarks), option=orjson.OPT_SORT_KEYS).decode()
        compared = orjson.dumps(self.compared, option=orjson.OPT_SORT_KEYS).decode()
        return properties | {record.WATERMARKS: watermarks, record.COMPARED: compared}

    def _find_unmerged_commits(self) -> list[Commit] | None:
        """Return the commits of the load's branch that its target lacks; None without a branch that has any commit."""
        target = self.pipeline.publication
        if target.merge_into is None or target.branch not in self.graph.branches.list():
            return None
        kernel = session_of(self.graph).kernel
        snapshot = kernel.snapshot(target.branch)
        # A branch without commits was just made, perhaps by another run. After a fast-forward it is at the head of its
        # target, too, but then it has made that commit.
        if snapshot.head is None or kernel.find_commit(snapshot.head).branch != snapshot.state.branch_id:
            return None
        published = {commit.commit_id for commit in kernel.history(target.merge_into)}
        return [commit for commit in kernel.history(target.branch) if commit.commit_id not in published]

    def _delete_leftover_branch(self) -> None:
        """Delete a branch that was merged by a run which was killed before it could delete it."""
        if self._find_unmerged_commits() == []:
            # Another run may delete it as well, and an actor who may not delete it can still run the pipeline.
            with suppress(BranchNotFound, PolicyDenied):
                self.graph.branches.delete(self.pipeline.publication.branch)

    def _remove_merged_branch(self) -> bool:
        """Delete a branch that was merged by hand, so that the load starts from the newest state of the target.

        So is one that has only deletes of a run that broke off: what they were read from may have changed since, or
        have been a mistake. Returns whether the branch has a load of this pipeline that is not published.
        """
        target, waiting = self.pipeline.publication, self._find_unmerged_commits()
        if waiting is None:
            return False
        is_own = [
            commit.properties.get(record.PIPELINE) == self.pipeline.name
            or commit.properties.get(MESSAGE) == deletes_message(self.pipeline.name)
            for commit in waiting
        ]
        if not all(is_own):
            raise UsageError(
                f"branch `{target.branch}` has commits that are not of pipeline `{self.pipeline.name}` and not in"
                f" `{target.merge_into}`; nothing was written. Merge or delete it, or name another `publish.branch`",
                branch=target.branch,
            )
        # What another run has just loaded stays: the load of this run finds that it is done.
        is_loaded = any(record.PIPELINE in commit.properties for commit in waiting)
        if not is_loaded:
            self.graph.branches.delete(target.branch)
        return is_loaded

    # -- publication -------------------------------------------------------------------------------------------

    def _finish_unfinished(self) -> RunReport | None:
        """Publish a load that an interrupted or stopped run has left on its branch; None if there is none."""
        commit = record.find_unfinished(self.graph, self.pipeline)
        if commit is None:
            return None
        self.report = replace(
            self.report,
            run_id=commit.properties.get(record.RUN, self.report.run_id),
            commit_id=commit.commit_id,
            nodes=record.read_counts(commit, "node"),
            edges=record.read_counts(commit, "edge"),
            watermarks=record.read_watermarks(commit),
        )
        return self._publish(commit)

    def _publish(self, commit: Commit) -> RunReport:
        target = self.pipeline.publication
        if target.merge_into is None:
            return self._finish("published", f"loaded to `{target.branch}`")
        try:
            return self._judge_and_merge(target.merge_into)
        except BranchNotFound:
            if not record.is_reachable(self.graph, commit.commit_id, target.merge_into):
                raise
            return self._finish("already_done", f"another run has merged it into `{target.merge_into}`")

    def _judge_and_merge(self, merge_into: str) -> RunReport:
        target = self.pipeline.publication
        with self._stage("ask"):
            verdicts = judge_answers(self.pipeline, self._ask)
        self.report = replace(self.report, expectations=(*self.report.expectations, *verdicts))
        if is_stopped(verdicts):
            return self._finish(
                "stopped",
                f"an expectation failed, and `{merge_into}` is unchanged; `{target.branch}` holds the load. Correct it"
                " there and run the pipeline again, or delete the branch",
            )
        if target.needs_review:
            message = f"`{target.branch}` waits for review; merge it into `{merge_into}` to publish"
            return self._finish("awaiting_review", message)
        with self._stage("merge"):
            self.graph.branches.merge(target.branch, merge_into, delete_branch=True)
        return self._finish("published", f"merged into `{merge_into}`")

    def _ask(self, name: str) -> int:
        return len(self.graph.query(self.expected[name], name=name, branch=self.pipeline.publication.branch))

    def _finish(self, status: Status, message: str) -> RunReport:
        self.report = replace(
            self.report,
            status=status,
            message=message,
            seconds={stage: round(seconds, 3) for stage, seconds in self.seconds.items()},
            rows_read={stage: measured.rows for stage, measured in self.inputs.items()},
            bytes_read={stage: measured.bytes for stage, measured in self.inputs.items()},
        )
        if self.folder is not None:
            text = orjson.dumps(self.report.to_json(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
            (self.folder / "run.json").write_bytes(text)
        return self.report

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        started = clock.elapsed()
        report_progress(name, 0, 1)
        try:
            with measuring_jobs() as measured:
                self._began = (name, started)
                self.inputs[name] = measured
                yield
        finally:
            self._began = None
            self.seconds[name] = self.seconds.get(name, 0.0) + clock.elapsed() - started
        report_progress(name, 1, 1)

    def _stages_property(self) -> dict[str, str]:
        """Return what the commit says about stages: all that are done, and the load, which is about to be."""
        seconds = dict(self.seconds)
        if self._began is not None:
            seconds[self._began[0]] = clock.elapsed() - self._began[1]
        stages = {
            name: {"seconds": round(elapsed, 3), "rows": self.inputs[name].rows, "bytes": self.inputs[name].bytes}
            for name, elapsed in seconds.items()
        }
        return {record.STAGES: orjson.dumps(stages).decode()}
