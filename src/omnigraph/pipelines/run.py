"""Runs a declared pipeline: read what is new, transform, judge, load to a branch, judge there, and merge.

Progress is part of the data: the commit of a load holds the watermarks that the next run starts from, so they cannot
disagree. The job id of a load names the commit before, so of two runs that start from the same progress one loads and
the other finds that it is done; a run that was killed is run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from omnigraph.docstrings import complete_docs
from omnigraph.engine.input.frame_rows import ORIGIN
from omnigraph.engine.input.splits import Columns
from omnigraph.engine.load.load import load
from omnigraph.engine.load.report import LoadReport, RejectedLine, prepare_folder
from omnigraph.engine.tasks import Progress, describing_stages, reporting_to
from omnigraph.errors import BranchNotFound, ConflictError
from omnigraph.graph import Graph, session_of
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import LOAD_ERRORS_MAX, PIPELINE_PENDING_ROWS_MAX
from omnigraph.manifest.model import Commit
from omnigraph.pipelines import history as record
from omnigraph.pipelines.check import (
    Pipelines,
    Queries,
    check,
    find_ignored_settings,
    find_pipeline,
    find_ui,
    is_stopped,
    judge_operations,
    judge_view,
    prepare_session,
    read_expected_queries,
    require_target,
)
from omnigraph.pipelines.declaration.config import PipelineDeclaration
from omnigraph.pipelines.history import RunRecorder, RunReport
from omnigraph.pipelines.identity import (
    continue_sources,
    describe_places,
    require_no_doubles,
    require_own_progress,
)
from omnigraph.pipelines.ledger_objects import read_ledgers, write_ledgers
from omnigraph.pipelines.lineage import Lineage
from omnigraph.pipelines.load_branch import (
    Publisher,
    complete_rows,
    delete_leftover_branch,
    delete_rows,
    remove_merged_branch,
)
from omnigraph.pipelines.redaction import redact_errors
from omnigraph.pipelines.rejected_rows import (
    add_pending,
    choose_rejected,
    collect_rows,
    is_pending_due,
    keep_rows,
    remove_old_rows,
)
from omnigraph.pipelines.selection import RunOptions, check_options, find_backfill
from omnigraph.pipelines.sources.file_ledger import FileLedger
from omnigraph.pipelines.sources.read import OpenSource, Watermark, is_ahead, open_source, read_source
from omnigraph.pipelines.transform import Deletion, map_deletions, map_types, run_traced_statement
from omnigraph.spark.session import run_job


@complete_docs(check)
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
        name: Which pipeline of the file to run; may be omitted if it has only one.
        dry_run: Do everything but load and publish.
        full_refresh: Read every source from its beginning.
        backfill: Read the rows of an incremental source above the first value, up to the second; None is unbounded.
            Other incremental sources are not read, and the watermarks stay as they are.
        source: The source of a backfill; may be omitted if only one is incremental.
        sample: Read at most this many rows of each source; implies `dry_run`.
        report: Directory for the report of the run, and for rejected and quarantined rows.
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
    return _run(graph, pipeline, options, spark, report, queries, progress)


@complete_docs(run)
def retry_rejected(
    graph: Graph,
    pipelines: Pipelines,
    name: str | None = None,
    *,
    run_id: str | None = None,
    report: str | Path | None = None,
    queries: Queries | None = None,
    progress: Progress | None = None,
) -> RunReport:
    """Load the rows again that runs of a pipeline have rejected, after the schema or the graph was corrected.

    Reads no source, and needs no Spark. Rows that are rejected once more wait for the next retry.

    Args:
        run_id: The run whose rows are loaded; by default those of all runs whose rows wait.
        report: Directory for the report, and for rows that are rejected again.

    Returns:
        What was loaded and published; `nothing_new` if no rows wait.

    Raises:
        UsageError: There is no such run, or its rows are gone.

    Example:
        >>> from omnigraph import pipeline
        >>> pipeline.retry_rejected(graph, "pipelines.yaml", "crm").rejected  # doctest: +SKIP
        0
    """
    pipeline = find_pipeline(pipelines, name)
    options = RunOptions(is_retry=True, retried_run=run_id)
    return _run(graph, pipeline, options, None, report, queries, progress)


def _run(
    graph: Graph,
    pipeline: PipelineDeclaration,
    options: RunOptions,
    spark: Any,
    report: str | Path | None,
    queries: Queries | None,
    progress: Progress | None,
) -> RunReport:
    check_options(pipeline, options, report)
    folder = None if report is None else prepare_folder(report)
    views = {item.type_name: item.from_view for item in pipeline.mappings}
    redaction = redact_errors(pipeline, uses_spark=not options.is_retry)
    with reporting_to(progress), redaction, describing_stages(pipeline.name, views):
        return _Run(graph, pipeline, options, folder).execute_with_lineage(spark, queries)


class _Run:
    def __init__(self, graph: Graph, pipeline: PipelineDeclaration, options: RunOptions, folder: Path | None) -> None:
        self.graph = graph
        self.pipeline = pipeline
        self.options = options
        report = RunReport(pipeline.name, new_ulid(), "published", pipeline.publication.branch)
        self.recorder = RunRecorder(report, folder)
        self.lineage = Lineage(pipeline, graph.uri, report.run_id, options.scheduled_for)
        # What the commit notes of sources: how their watermarks are compared, and where they are.
        self._compared: dict[str, str] = {}
        self._places: dict[str, str] = {}
        self._ledgers: dict[str, FileLedger] = {}

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
        if self.options.is_retry:
            return self._retry(publisher)
        if not self.options.is_full and self.options.backfill is None:
            require_own_progress(self.graph, self.pipeline, before)
            if before is not None:
                require_no_doubles(self.pipeline, self.graph.schema.catalog)
        return self._load_new_rows(spark, publisher, before)

    def _load_new_rows(self, spark: Any, publisher: Publisher, before: Commit | None) -> RunReport:
        known = None if self.options.is_full else before
        watermarks = self._continued(known, record.WATERMARKS)
        self._compared = compared = self._continued(known, record.COMPARED)
        self._places = describe_places(self.pipeline, before)
        self._ledgers = read_ledgers(self.graph, self.pipeline, known)
        with self.recorder.stage("start"):
            spark = prepare_session(self.pipeline, spark)
        self._describe_session(spark)
        with self.recorder.stage("read"):
            sources = self._open_sources(spark, watermarks, compared)
        self.recorder.set(watermarks=self._advance(watermarks, sources))
        self._ledgers |= {name: item.ledger for name, item in sources.items() if item.ledger is not None}
        is_waiting = before is not None and is_pending_due(self.graph, self.pipeline, before)
        if before is not None and not is_waiting and all(source.is_empty for source in sources.values()):
            return self.recorder.finish("nothing_new", "no source has rows above its watermark")
        with self.recorder.stage("judge"):
            frames = self._build_views(spark, sources)
        if frames is None:
            return self.recorder.finish("stopped", "an expectation about the rows failed; nothing was loaded")
        nodes, edges = map_types(self.pipeline, frames, self.graph.schema.catalog)
        deletions = map_deletions(self.pipeline, frames, self.graph.schema.catalog)
        if not self._judge_operations(frames):
            return self.recorder.finish("stopped", "rows have operations that are not declared; nothing was loaded")
        if self.options.backfill is None:
            edges = add_pending(self.graph, spark, before, edges, deletions)
        if self.lineage.is_on:
            described = {name: source.frame for name, source in sources.items()}
            described |= {name: columns.data for name, columns in {**nodes, **edges}.items()}
            self.lineage.columns |= {name: dict(frame.drop(ORIGIN).dtypes) for name, frame in described.items()}
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

    def _continued(self, commit: Commit | None, name: str) -> dict[str, str]:
        return {} if commit is None else continue_sources(self.pipeline, record.read_json(commit, name))

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
                ledger = self._ledgers.get(name)
                item = open_source(spark, source, self.pipeline, watermark, options.backfill, ledger)
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
            if item.is_coarse and options.backfill is None:
                message = (
                    f"`{source.incremental}` has no more than days or seconds, so a row may come later with the value"
                    " that was read last, and is not read then; add `lookback: 1 day`, or `lookback: 0` if none can"
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
        for name in (*sources, *self.pipeline.transforms):
            frame = (
                sources[name].frame
                if name in sources
                else run_traced_statement(spark, name, self.pipeline.transforms[name], frames)
            )
            verdicts, frame = judge_view(frame, name, self.pipeline.expectations, self._quarantine_folder)
            self.recorder.add_verdicts(verdicts)
            if is_stopped(verdicts):
                return None
            frame.drop(ORIGIN).createOrReplaceTempView(name)
            frames[name] = frame
        return frames

    def _judge_operations(self, frames: Mapping[str, Any]) -> bool:
        """Return False if a row has an operation that is not declared, and this forbids going on."""
        for mapping in (item for item in self.pipeline.mappings if item.delete_when is not None):
            with self.recorder.stage(f"judge {mapping.type_name}"):
                verdict = judge_operations(frames[mapping.from_view], mapping, self.pipeline, self._quarantine_folder)
            if verdict.failed:
                self.recorder.add_verdicts([verdict])
            if is_stopped([verdict]):
                return False
        return True

    @property
    def _quarantine_folder(self) -> Path | None:
        """A folder for each run: a run that is repeated adds nothing to the rows of another one."""
        folder = self.recorder.folder
        return None if folder is None else folder / "quarantine" / self.recorder.report.run_id

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
        may_wait = self.options.backfill is None and any(item.is_pending for item in self.pipeline.edges.values())
        return self._load(
            nodes,
            edges,
            {**properties, record.DELETED: orjson.dumps(deleted).decode()},
            may_wait=may_wait,
            from_branch=None if has_deletes else target.merge_into,
            job_id=self._job_id(before),
            on_error="quarantine" if self.pipeline.is_rejecting or may_wait else "fail",
            max_errors=PIPELINE_PENDING_ROWS_MAX if may_wait else LOAD_ERRORS_MAX,
            commits_empty=has_deletes or is_deleting,
        )

    def _load(
        self,
        nodes: Mapping[str, Columns],
        edges: Mapping[str, Columns],
        properties: Mapping[str, str],
        *,
        may_wait: bool,
        **options: Any,
    ) -> LoadReport:
        with self.recorder.stage("load"), self._load_folder() as folder:
            return load(
                session_of(self.graph.on()),
                nodes=nodes,
                edges=edges,
                mode=self.pipeline.mode,
                branch=self.pipeline.publication.branch,
                report=folder,
                embed=self.pipeline.embed,
                properties={**self._run_properties, **properties},
                is_input_digested=False,
                late_properties=partial(self._late_properties, may_wait=may_wait),
                **options,
            )

    @property
    def _run_properties(self) -> dict[str, str]:
        """What every load of a run says about it."""
        return {
            record.PIPELINE: self.pipeline.name,
            record.RUN: self.recorder.report.run_id,
            record.DIGEST: self.pipeline.digest,
            record.STARTED: str(self.recorder.started_us),
        }

    def _late_properties(self, rejected: Sequence[RejectedLine], *, may_wait: bool) -> dict[str, str]:
        kept = keep_rows(self.graph, self.pipeline, self.recorder.report.run_id, rejected, may_wait=may_wait)
        self.recorder.set(rejected=int(kept[record.REJECTED]), pending=int(kept.get(record.PENDING_ROWS, "0")))
        if self.options.backfill is None and not self.options.is_retry:
            kept |= write_ledgers(self.graph, self.pipeline.name, self.recorder.report.run_id, self._ledgers)
        return {record.STAGES: self.recorder.describe_stages(), **kept}

    def _retry(self, publisher: Publisher) -> RunReport:
        """Load rejected rows of earlier runs again; what is rejected once more waits for the next retry."""
        chosen = choose_rejected(self.graph, self.pipeline, self.options.retried_run)
        if not chosen:
            return self.recorder.finish("nothing_new", "no rejected rows wait")
        rows = collect_rows(self.graph, self.pipeline, chosen)
        run_ids = [item.run_id for item in chosen]
        self.recorder.set(watermarks={})
        by_kind: dict[str, dict[str, Columns]] = {"node": {}, "edge": {}}
        for key, columns in rows.items():
            by_kind[TypeKey(key).kind][TypeKey(key).name] = columns
        remove_merged_branch(self.graph, self.pipeline)
        loaded = self._load(
            by_kind["node"],
            by_kind["edge"],
            {record.RETRIED: orjson.dumps(dict.fromkeys(run_ids, True)).decode()},
            may_wait=False,
            from_branch=self.pipeline.publication.merge_into,
            job_id=f"{self.pipeline.name}:retry:{','.join(run_ids)}",
            on_error="quarantine",
        )
        return self._publish_loaded(publisher, loaded)

    @contextmanager
    def _load_folder(self) -> Iterator[Path]:
        """Yield a folder for each run, so that a later one does not replace the rejected rows of this one."""
        folder = self.recorder.folder
        if folder is None:
            with TemporaryDirectory(prefix="omnigraph-run-") as temporary:
                yield Path(temporary)
        else:
            yield prepare_folder(folder / "rejected" / self.recorder.report.run_id)

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
        properties = {record.QUARANTINED: str(quarantined)}
        if options.scheduled_for is not None:
            properties[record.SCHEDULED_FOR] = options.scheduled_for.astimezone(UTC).isoformat()
        if options.backfill is not None:
            # It moves no watermark, also if another run has moved them meanwhile.
            bounds = f"{options.backfill.low or ''}..{options.backfill.high or ''}"
            return properties | {record.BACKFILL: f"{options.backfill_source} {bounds}"}
        compared = {name: item.compared for name, item in sources.items() if item.compared is not None}
        noted = {
            record.WATERMARKS: report.watermarks,
            # Of sources that are no longer declared as well, because they may come back.
            record.COMPARED: self._compared | compared,
            record.PLACES: self._places,
        }
        return properties | {
            name: orjson.dumps(dict(values), option=orjson.OPT_SORT_KEYS).decode() for name, values in noted.items()
        }

    def _publish_loaded(self, publisher: Publisher, loaded: LoadReport) -> RunReport:
        self.recorder.set(nodes=dict(loaded.nodes), edges=dict(loaded.edges), commit_id=loaded.commit_id)
        remove_old_rows(self.graph, self.pipeline)
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
