"""Runs a declared pipeline: read what is new, transform, judge, load to a branch, judge there, and merge.

Progress is part of the data: the commit of a load holds the watermarks that the next run starts from, so they cannot
disagree. The job id of a load names the commit before, so of two runs that start from the same progress one loads and
the other finds that it is done; a run that was killed is run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from omnigraph import clock
from omnigraph.engine.tasks import Progress, reporting_to
from omnigraph.errors import BranchNotFound, ConflictError, UsageError
from omnigraph.graph import Graph
from omnigraph.ids import new_ulid
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.limits import SCHEDULE_AHEAD_SECONDS_MAX
from omnigraph.manifest.model import Commit
from omnigraph.pipeline.bulk_load.api import load
from omnigraph.pipeline.bulk_load.job import LoadReport, prepare_folder
from omnigraph.pipeline.bulk_load.splits import Columns
from omnigraph.pipeline.declared import runs as record
from omnigraph.pipeline.declared.check import (
    Pipelines,
    Queries,
    find_ignored_settings,
    find_pipeline,
    find_ui,
    is_stopped,
    judge_view,
    prepare_session,
    read_expected_queries,
    require_target,
)
from omnigraph.pipeline.declared.config import PipelineDeclaration
from omnigraph.pipeline.declared.lineage import Lineage
from omnigraph.pipeline.declared.load_branch import (
    Publisher,
    complete_rows,
    delete_leftover_branch,
    delete_rows,
    remove_merged_branch,
)
from omnigraph.pipeline.declared.redaction import redact_errors
from omnigraph.pipeline.declared.runs import RunRecorder, RunReport
from omnigraph.pipeline.declared.schedule import moment_of
from omnigraph.pipeline.declared.sources import OpenSource, Watermark, Window, is_ahead, open_source, read_source
from omnigraph.pipeline.declared.transform import Deletion, map_deletions, map_types, run_statement
from omnigraph.pipeline.spark.session import describing_jobs, run_job


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


def find_backfill(
    pipeline: PipelineDeclaration, bounds: tuple[str | None, str | None] | None, source: str | None
) -> tuple[Window | None, str]:
    """Return the range of a backfill and the source that it reads; None without a backfill."""
    if bounds == (None, None):
        raise UsageError("a backfill needs a range; give a lower bound, an upper bound, or both")
    if bounds is not None:
        return Window(*bounds), _find_incremental_source(pipeline, source)
    if source is not None:
        raise UsageError("`source` is that of a backfill; give its range, or leave out `source`", source=source)
    return None, ""


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


def check_options(pipeline: PipelineDeclaration, options: RunOptions, report: object) -> None:
    """Refuse options that contradict each other or the declaration."""
    if options.is_full and options.backfill is not None:
        raise UsageError("a full refresh reads everything, a backfill a range; choose one of them")
    if pipeline.mode == "append" and (options.is_full or options.backfill is not None) and not options.is_dry:
        raise UsageError(
            f"`{pipeline.name}` appends, so rows that were loaded before would be there twice; use `mode: merge`"
        )
    if options.scheduled_for is not None:
        _check_due_time(options.scheduled_for)
    if options.scheduled_for is not None and options.backfill is not None:
        raise UsageError("a backfill is not part of a schedule; leave out `scheduled_for`")
    if options.sample is not None and options.sample < 1:
        raise UsageError(f"`sample` is a number of rows, 1 or more; got {options.sample}", sample=options.sample)
    is_quarantining = pipeline.is_rejecting or any(item.outcome == "quarantine" for item in pipeline.expectations)
    if is_quarantining and report is None and not options.is_dry:
        raise UsageError(f"`{pipeline.name}` leaves rows out; give `report`, a directory to write them to")


def _check_due_time(due: datetime) -> None:
    if due.tzinfo is None:
        raise UsageError(f"`scheduled_for` needs a time zone, and {due.isoformat()} has none")
    if due > moment_of(clock.now_us()) + timedelta(seconds=SCHEDULE_AHEAD_SECONDS_MAX):
        raise UsageError(
            f"`scheduled_for` {due.isoformat()} is in the future; all runs until then would count as done. Nothing was"
            " written; give the time that this run was due"
        )


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
    window, backfill_source = find_backfill(pipeline, backfill, source)
    is_dry = dry_run or sample is not None
    options = RunOptions(is_dry, full_refresh, window, backfill_source, sample, scheduled_for)
    check_options(pipeline, options, report)
    folder = None if report is None else prepare_folder(report)
    views = {item.type_name: item.from_view for item in pipeline.mappings}
    with reporting_to(progress), redact_errors(pipeline), describing_jobs(pipeline.name, views):
        return _Run(graph, pipeline, options, folder).execute_with_lineage(spark, queries)


class _Run:
    def __init__(self, graph: Graph, pipeline: PipelineDeclaration, options: RunOptions, folder: Path | None) -> None:
        self.graph = graph
        self.pipeline = pipeline
        self.options = options
        report = RunReport(pipeline.name, new_ulid(), "published", pipeline.publication.branch)
        self.recorder = RunRecorder(report, folder)
        self.lineage = Lineage(pipeline, graph.uri, report.run_id, options.scheduled_for)

    def execute_with_lineage(self, spark: Any, queries: Queries | None) -> RunReport:
        """Run all stages, and tell a lineage service, if there is one; dry runs write nothing to tell of."""
        if self.options.is_dry or not self.lineage.is_on:
            return self.execute(spark, queries)
        warning = self.lineage.emit("START")
        try:
            report = self.execute(spark, queries)
        except BaseException as error:
            self.lineage.emit("FAIL", error=str(error))
            raise
        counts = {**report.nodes, **report.edges}
        if report.status == "stopped":
            warning = self.lineage.emit("FAIL", error=report.message) or warning
        else:
            warning = self.lineage.emit("COMPLETE", counts, report.commit_id) or warning
        if warning is not None:
            self.recorder.warn("lineage", warning)
        return self.recorder.report

    def execute(self, spark: Any, queries: Queries | None) -> RunReport:
        """Run all stages, from the point at which an interrupted run stopped."""
        # A missing query is better noticed before the load.
        expected = read_expected_queries(self.graph, self.pipeline, queries)
        publisher = Publisher(self.graph, self.pipeline, self.recorder, expected)
        due = self.options.scheduled_for
        if not self.options.is_dry:
            finished = publisher.publish_unfinished()
            is_more_wanted = self.options.is_full or self.options.backfill is not None or due is not None
            if finished is not None and not (finished.status == "published" and is_more_wanted):
                return finished
            self.recorder.reset()
            delete_leftover_branch(self.graph, self.pipeline)
        before = record.find_progress(self.graph, self.pipeline)
        # Read after the progress: a run for the same time that is published later starts from the same progress.
        done = due and record.find_scheduled(self.graph, self.pipeline, due)
        if done:
            return self._already_done(f"commit {done.commit_id} was made for this time, or a later one", done.commit_id)
        return self._load_new_rows(spark, publisher, before)

    def _load_new_rows(self, spark: Any, publisher: Publisher, before: Commit | None) -> RunReport:
        known = None if self.options.is_full else before
        watermarks = {} if known is None else record.read_json(known, record.WATERMARKS)
        compared = {} if known is None else record.read_json(known, record.COMPARED)
        with self.recorder.stage("start"):
            spark = prepare_session(self.pipeline, spark)
        self._describe_session(spark)
        with self.recorder.stage("read"):
            sources = self._open_sources(spark, watermarks, compared)
        self.recorder.set(watermarks=self._advance(watermarks, sources))
        if before is not None and all(source.is_empty for source in sources.values()):
            return self.recorder.finish("nothing_new", "no source has rows above its watermark")
        with self.recorder.stage("judge"):
            frames = self._build_views(spark, sources)
        if frames is None:
            return self.recorder.finish("stopped", "an expectation about the rows failed; nothing was loaded")
        nodes, edges = map_types(self.pipeline, frames, self.graph.schema.catalog)
        deletions = map_deletions(self.pipeline, frames, self.graph.schema.catalog)
        if self.lineage.is_on:
            described = {name: source.frame for name, source in sources.items()}
            described |= {name: columns.data for name, columns in {**nodes, **edges}.items()}
            self.lineage.columns |= {name: dict(frame.dtypes) for name, frame in described.items()}
        if self.options.is_dry:
            return self._count(spark, nodes, edges)
        try:
            loaded = self._delete_and_load(spark, nodes, edges, deletions, before, self._properties(sources))
        except BranchNotFound:
            # Another run has merged and deleted the branch meanwhile.
            newest = record.find_progress(self.graph, self.pipeline)
            if newest is None or (before is not None and newest.commit_id == before.commit_id):
                require_target(self.graph, self.pipeline)
                branch = self.pipeline.publication.branch
                raise ConflictError(
                    f"another run of `{self.pipeline.name}` works on `{branch}`; this one has published nothing. Retry"
                    " when that one has ended",
                    branch=branch,
                ) from None
            return self._already_done("another run has loaded and published the same rows", newest.commit_id)
        return self._publish_loaded(publisher, loaded)

    def _already_done(self, message: str, commit_id: str) -> RunReport:
        self.recorder.set(commit_id=commit_id)
        return self.recorder.finish("already_done", message)

    def _describe_session(self, spark: Any) -> None:
        ignored = find_ignored_settings(self.pipeline, spark)
        if ignored:
            message = (
                f"this Spark was running already, so it keeps its own {', '.join(f'`{name}`' for name in ignored)}"
            )
            self.recorder.warn("spark (conf)", message)
        self.recorder.set(spark_ui=find_ui(spark))

    # -- rows --------------------------------------------------------------------------------------------------

    def _open_sources(
        self, spark: Any, watermarks: Mapping[str, str], compared: Mapping[str, str]
    ) -> dict[str, OpenSource]:
        options, opened = self.options, {}
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
                self.recorder.warn(f"{name} (incremental)", message, item.rows_without_value)
            if options.backfill is None and item.window is not None and is_ahead(item):
                message = (
                    f"`{source.incremental}` is {item.window.high}, in the future; no row below it is read any more"
                )
                self.recorder.warn(f"{name} (incremental)", message)
        return opened

    def _advance(self, watermarks: Mapping[str, str], sources: Mapping[str, OpenSource]) -> dict[str, str]:
        """Return the watermarks after this run; a backfill moves none."""
        windows = {} if self.options.backfill is not None else {name: item.window for name, item in sources.items()}
        reached = {name: window.high for name, window in windows.items() if window is not None}
        return {**watermarks, **{name: high for name, high in reached.items() if high is not None}}

    def _build_views(self, spark: Any, sources: Mapping[str, OpenSource]) -> dict[str, Any] | None:
        """Return sources and transforms without quarantined rows; None if an expectation forbids going on.

        Each view is judged before later ones read it, so what is left out of a source is in no transform of it.
        """
        frames: dict[str, Any] = {}
        # A folder for each run: a run that is repeated adds nothing to the rows of another one.
        folder = self.recorder.folder
        quarantine = None if folder is None else folder / "quarantine" / self.recorder.report.run_id
        for name in (*sources, *self.pipeline.transforms):
            frame = (
                sources[name].frame if name in sources else run_statement(spark, name, self.pipeline.transforms[name])
            )
            verdicts, frame = judge_view(frame, name, self.pipeline.expectations, quarantine)
            self.recorder.add_verdicts(verdicts)
            if is_stopped(verdicts):
                return None
            frame.createOrReplaceTempView(name)
            frames[name] = frame
        return frames

    def _count(self, spark: Any, nodes: Mapping[str, Columns], edges: Mapping[str, Columns]) -> RunReport:
        def count(rows: Mapping[str, Columns]) -> dict[str, int]:
            return {name: int(run_job(spark, "counting", columns.data.count)) for name, columns in rows.items()}

        with self.recorder.stage("count"):
            self.recorder.set(nodes=count(nodes), edges=count(edges))
        return self.recorder.finish("dry_run", "nothing was loaded")

    # -- load --------------------------------------------------------------------------------------------------

    def _delete_and_load(
        self,
        spark: Any,
        nodes: Mapping[str, Columns],
        edges: Mapping[str, Columns],
        deletions: Iterable[Deletion],
        before: Commit | None,
        properties: Mapping[str, str],
    ) -> LoadReport:
        target = self.pipeline.publication
        is_begun = remove_merged_branch(self.graph, self.pipeline)
        with self.recorder.stage("delete"):
            deleted, is_deleting = delete_rows(self.graph, self.pipeline, spark, deletions)
        self.recorder.set(deleted=deleted)
        # A branch with deletes must not be made again without them, and deletes alone are progress as well.
        has_deletes = is_begun or any(deleted.values())
        nodes, edges = (complete_rows(self.graph, self.pipeline, spark, rows) for rows in (nodes, edges))
        with self.recorder.stage("load"):
            return load(
                self.graph,
                nodes=nodes,
                edges=edges,
                mode=self.pipeline.mode,
                branch=target.branch,
                from_branch=None if has_deletes else target.merge_into,
                job_id=self._job_id(before),
                on_error="quarantine" if self.pipeline.is_rejecting else "fail",
                report=self._load_folder(),
                embed=self.pipeline.embed,
                properties={**properties, record.DELETED: orjson.dumps(deleted).decode()},
                is_input_digested=False,
                commits_empty=has_deletes or is_deleting,
                late_properties=lambda: {record.STAGES: self.recorder.describe_stages()},
            )

    def _load_folder(self) -> Path | None:
        """Return a folder for each run, so that a later one does not replace the rejected rows of this one."""
        folder = self.recorder.folder
        return None if folder is None else prepare_folder(folder / "rejected" / self.recorder.report.run_id)

    def _job_id(self, before: Commit | None) -> str | None:
        """Return the same for runs that start from the same progress, of which one loads.

        A full refresh is wanted whatever was loaded, so it has none.
        """
        options = self.options
        if options.is_full:
            return None
        job_id = f"{self.pipeline.name}:{before.commit_id if before is not None else 'start'}"
        if options.backfill is not None:
            job_id += f":{options.backfill_source}:{options.backfill.low}:{options.backfill.high}"
        return job_id

    def _properties(self, sources: Mapping[str, OpenSource]) -> dict[str, str]:
        """Return what the commit of the load says about this run, without what it deletes."""
        options, report = self.options, self.recorder.report
        quarantined = sum(item.failed for item in report.expectations if item.outcome == "quarantine")
        properties = {
            record.PIPELINE: self.pipeline.name,
            record.RUN: report.run_id,
            record.DIGEST: self.pipeline.digest,
            record.STARTED: str(self.recorder.started_us),
            record.QUARANTINED: str(quarantined),
        }
        if options.scheduled_for is not None:
            properties[record.SCHEDULED_FOR] = options.scheduled_for.astimezone(UTC).isoformat()
        if options.backfill is not None:
            # It moves no watermark, also if another run has moved them meanwhile.
            bounds = f"{options.backfill.low or ''}..{options.backfill.high or ''}"
            return properties | {record.BACKFILL: f"{options.backfill_source} {bounds}"}
        compared = {name: item.compared for name, item in sources.items() if item.compared is not None}
        watermarks = orjson.dumps(dict(report.watermarks), option=orjson.OPT_SORT_KEYS).decode()
        return properties | {
            record.WATERMARKS: watermarks,
            record.COMPARED: orjson.dumps(compared, option=orjson.OPT_SORT_KEYS).decode(),
        }

    def _publish_loaded(self, publisher: Publisher, loaded: LoadReport) -> RunReport:
        self.recorder.set(
            nodes=loaded.nodes, edges=loaded.edges, rejected=len(loaded.rejected), commit_id=loaded.commit_id
        )
        self._warn_of_empty_types(loaded)
        if loaded.commit_id is None:
            if loaded.branch_created:
                self.graph.branches.delete(loaded.branch)
            return self.recorder.finish("nothing_new", "the sources have no rows to load")
        if loaded.already_applied and record.is_reachable(self.graph, loaded.commit_id, self.pipeline.target_branch):
            return self.recorder.finish("already_done", "another run has loaded and published the same rows")
        return publisher.publish(loaded.commit_id)

    def _warn_of_empty_types(self, loaded: LoadReport) -> None:
        for item in self.pipeline.mappings:
            counts = loaded.edges if item.kind == "edge" else loaded.nodes
            if (item.is_snapshot or item.mode == "overwrite") and not counts.get(item.type_name):
                message = (
                    f"`{item.from_view}` has no rows, so no `{item.type_name}` is left; `min_rows` would stop this"
                )
                self.recorder.warn(f"{item.from_view} (no rows)", message)
