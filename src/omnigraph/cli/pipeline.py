"""`omnigraph pipeline …`: pipelines declared in YAML, validated, planned, run on Spark, and run when they are due."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson

from omnigraph.cli.app import Reads, Writes
from omnigraph.cli.config import read_config
from omnigraph.cli.options import DryRun, Json, OptionGroup, argument, option, switch
from omnigraph.cli.output import Output, echo, echo_bytes, plural, progress_bar, table, write_atomically
from omnigraph.errors import UsageError
from omnigraph.limits import SCHEDULE_RUNS_MAX

if TYPE_CHECKING:
    from omnigraph.cli.target import Target
    from omnigraph.graph import Graph
    from omnigraph.lang.diagnostic import Source
    from omnigraph.pipeline import PipelineDeclaration, RunPlan, RunRecord, RunReport
    from omnigraph.pipelines.scheduler.book import BookEntry, ScheduleBook
    from omnigraph.pipelines.scheduler.runner import ReadPipelines, ScheduleEvent

File = Annotated[Path, option("-f --file", "FILE", "File with the pipelines.")]
Queries = Annotated[
    Path | None, option("--queries", "DIR", "`.gq` files of expectations; default: `queries` of the pipeline.")
]
ReportDir = Annotated[Path | None, option("--report", "DIR", "Directory for the report and rows that are left out.")]
RunId = Annotated[str | None, option("--run", "RUN", "Run whose rows are loaded; by default all that wait.")]
ClusterRoot = Annotated[
    str | None, option("--cluster", "DIR|URI", "Use the pipelines, graphs and queries that a cluster applied.")
]
Limit = Annotated[int, option("--limit", "N", "Number of runs to show.")]

DEFAULT_FILE = Path("pipelines.yaml")
# A run that waits for a person has not failed, and has not published either.
_EXIT_STATUS = {"stopped": 1, "awaiting_review": 3, "blocked_by_review": 3}
_STEPS = {
    "finish_load": "finish the load that waits on its branch",
    "first_run": "load everything for the first time",
    "new_rows": "load rows above the watermarks",
    "all_rows": "load everything again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineChoice(OptionGroup):
    """The pipelines of a file or a cluster, or one of them."""

    pipeline_name: Annotated[str | None, argument("NAME", "Pipeline; optional if the file has only one.")] = None
    file: File = DEFAULT_FILE
    cluster: ClusterRoot = None

    def select(self) -> list[Selected]:
        """Return all pipelines, or the named one."""
        from omnigraph.pipelines.check import find_pipeline
        from omnigraph.pipelines.declaration.config import read_pipelines

        if self.cluster is None:
            selected = {key: Selected(item) for key, item in read_pipelines(self.file).items()}
        else:
            from omnigraph.cluster.applied_state import read_applied_pipelines

            applied = read_applied_pipelines(self.cluster)
            selected = {key: Selected(item.declaration, item.graph_uri, item.queries) for key, item in applied.items()}
        if self.pipeline_name is None:
            return list(selected.values())
        declarations = {key: item.declaration for key, item in selected.items()}
        return [selected[find_pipeline(declarations, self.pipeline_name).name]]

    def select_one(self) -> Selected:
        """Return the only pipeline, or the named one."""
        selected = self.select()
        if len(selected) != 1:
            names = ", ".join(f"`{item.declaration.name}`" for item in selected) or "none"
            raise UsageError(f"name the pipeline; there are {names}")
        return selected[0]


def validate(target: Reads, choice: PipelineChoice, queries: Queries = None) -> Output:
    from omnigraph import pipeline

    reports = []
    for item in choice.select():
        with item.open(target) as graph:
            reports.append(pipeline.check(graph, item.declaration, queries=queries or item.queries))
    lines: list[str] = []
    for report in reports:
        rows = ([type_name, ", ".join(columns)] for type_name, columns in {**report.nodes, **report.edges}.items())
        lines += [*table(["type", "columns"], rows), f"{report.pipeline}: ok"]
    return Output({"ok": True, "pipelines": [report.to_json() for report in reports]}, lines)


def plan(target: Reads, choice: PipelineChoice) -> Output:
    plans = [plan for _, plan in _plans(target, choice)]
    lines = (line for item in plans for line in _plan_lines(item))
    return Output({"pipelines": [item.to_json() for item in plans]}, lines)


def status(target: Reads, choice: PipelineChoice) -> Output:
    shown, rows = [], []
    for item, plan in _plans(target, choice):
        entry = _read_book(target, item, choice.cluster)
        last = ["", ""] if plan.last_run is None else [_time(plan.last_run), plan.last_run.commit_id]
        rows.append([plan.pipeline, _status(plan, entry), *last, plan.schedule or "", plan.next_run or ""])
        shown.append({**plan.to_json(), "scheduled": None if entry is None else entry.to_json()})
    columns = ["pipeline", "status", "last run", "commit", "schedule", "next run"]
    return Output({"pipelines": shown}, table(columns, rows))


def _status(plan: RunPlan, entry: BookEntry | None) -> str:
    if entry is not None and entry.status in ("running", "failed"):
        return entry.status
    if plan.unfinished_commit:
        return "waiting on its branch"
    return "never run" if plan.last_run is None else "published"


def _read_book(target: Target, item: Selected, cluster: str | None) -> BookEntry | None:
    """Return what a schedule has noted about a pipeline."""
    from omnigraph.pipelines.scheduler.book import ScheduleBook

    if cluster is not None:
        from omnigraph.cluster.applied_state import schedule_book

        return schedule_book(cluster).read(item.declaration.name)
    with item.open(target) as graph:
        return ScheduleBook(graph.uri).read(item.declaration.name)


def run(
    target: Writes,
    choice: PipelineChoice,
    dry_run: DryRun = False,
    sample: Annotated[int | None, option("--sample", "N", "Read N rows of each source; implies `--dry-run`.")] = None,
    full_refresh: Annotated[bool, switch("--full-refresh", "Read every source from its beginning.")] = False,
    scheduled_for: Annotated[
        str | None, option("--scheduled-for", "TIME", "Time that a scheduler starts this run for; done once.")
    ] = None,
    metrics_file: Annotated[
        Path | None, option("--metrics-file", "FILE", "Write Prometheus metrics of the run to this file.")
    ] = None,
    report: ReportDir = None,
    queries: Queries = None,
) -> Output:
    from omnigraph import pipeline

    due = None if scheduled_for is None else _parse_time(scheduled_for)
    item = choice.select_one()
    options = {"dry_run": dry_run, "sample": sample, "full_refresh": full_refresh, "scheduled_for": due}
    with _writing_metrics(metrics_file, item.declaration.name) as reports:
        reports.append(_run(target, item, pipeline.run, report, queries, **options))
    return _run_output(reports[0])


def backfill(
    target: Writes,
    choice: PipelineChoice,
    after: Annotated[
        str | None, option("--after", "VALUE", "Read rows above this value of the incremental column.")
    ] = None,
    up_to: Annotated[str | None, option("--up-to", "VALUE", "Read rows up to this value, which is included.")] = None,
    source: Annotated[
        str | None, option("--source", "NAME", "Incremental source to read, if there are several.")
    ] = None,
    dry_run: DryRun = False,
    report: ReportDir = None,
    queries: Queries = None,
) -> Output:
    from omnigraph import pipeline

    if after is None and up_to is None:
        raise UsageError("a backfill needs a range; add `--after VALUE`, `--up-to VALUE` or both")
    options = {"backfill": (after, up_to), "source": source, "dry_run": dry_run}
    return _run_output(_run(target, choice.select_one(), pipeline.run, report, queries, **options))


def retry_rejected(
    target: Writes,
    choice: PipelineChoice,
    run_id: RunId = None,
    report: ReportDir = None,
    queries: Queries = None,
) -> Output:
    from omnigraph import pipeline

    result = _run(target, choice.select_one(), pipeline.retry_rejected, report, queries, run_id=run_id)
    return _run_output(result)


def history(target: Reads, choice: PipelineChoice, limit: Limit = 20) -> Output:
    from omnigraph import pipeline

    item = choice.select_one()
    with item.open(target) as graph:
        runs = pipeline.list_runs(graph, item.declaration, limit)
    columns = ["time", "seconds", "loaded", "deleted", "left out", "bytes read", "watermarks", "commit"]
    rows = (
        [
            _time(item),
            f"{item.seconds:.1f}",
            _counts({**item.nodes, **item.edges}),
            _counts(item.deleted),
            str(item.quarantined + item.rejected),
            f"{sum(stage['bytes'] for stage in item.stages.values()):,.0f}",
            _values(item.watermarks) or f"backfill {item.backfill}",
            item.commit_id,
        ]
        for item in runs
    )
    lines = (*table(columns, rows), plural(len(runs), "run"))
    return Output({"runs": [item.to_json() for item in runs]}, lines)


@dataclass(frozen=True, slots=True)
class Selected:
    """A pipeline, and if a cluster declares it, the graph that it loads into and its queries."""

    declaration: PipelineDeclaration
    graph_uri: str | None = None
    queries: tuple[Source, ...] | None = None

    def open(self, target: Target, *, writes: bool = False) -> Graph:
        """Open the graph of the pipeline: that of the cluster, or the target of the command."""
        if self.graph_uri is None:
            return target.store_to_write() if writes else target.store_to_read()
        from omnigraph.graph import open as open_graph

        return open_graph(self.graph_uri, read_only=not writes, actor=target.flags.actor or read_config().actor)


def _plans(target: Target, choice: PipelineChoice) -> Iterator[tuple[Selected, RunPlan]]:
    from omnigraph import pipeline

    for item in choice.select():
        with item.open(target) as graph:
            plan = pipeline.plan_run(graph, item.declaration)
        yield item, plan


def _run(
    target: Target,
    item: Selected,
    run: Callable[..., RunReport],
    report: Path | None,
    queries: Path | None,
    **options: Any,
) -> RunReport:
    target.announce(item.graph_uri)
    with item.open(target, writes=True) as graph, progress_bar():
        return run(graph, item.declaration, report=report, queries=queries or item.queries, **options)


@contextmanager
def _writing_metrics(file: Path | None, name: str) -> Iterator[list[RunReport]]:
    """Write the metrics of a run to a file, also if it fails; its report, if there is one, goes to the list."""
    reports: list[RunReport] = []
    try:
        yield reports
    finally:
        if file is not None:
            from omnigraph.clock import now_us
            from omnigraph.pipelines.metrics import PipelineMetrics

            metrics, at = PipelineMetrics(), now_us() / 1e6
            if reports:
                metrics.observe(name, reports[0].status, at, reports[0].to_json())
            else:
                metrics.observe(name, "failed", at, None)
            write_atomically(file, [metrics.render().encode()])


def _plan_lines(plan: RunPlan) -> Iterator[str]:
    yield f"{plan.pipeline}: {_STEPS[plan.next_step]}"
    if plan.watermarks:
        yield f"  watermarks: {_values(plan.watermarks)}"
    publication = f", then merge it into `{plan.merge_into}`" if plan.merge_into else ""
    yield f"  load to `{plan.branch}`{publication}"
    if plan.is_changed:
        yield "  the declaration has changed since the last run; `run --full-refresh` applies it to rows loaded before"


def _run_output(report: RunReport) -> Output:
    return Output(report.to_json(), _run_lines(report), _EXIT_STATUS.get(report.status, 0))


def _run_lines(report: RunReport) -> Iterator[str]:
    if report.expectations:
        rows = (
            [item.expectation, "holds" if item.passed else f"fails: {item.outcome}", item.message]
            for item in report.expectations
        )
        yield from table(["expectation", "result", "rows"], rows)
    yield f"{report.status}: {report.message}"
    if any(report.deleted.values()):
        yield f"deleted {_counts(report.deleted)}"
    if report.rejected:
        yield f"rejected {plural(report.rejected, 'entity')}; `pipeline retry-rejected` loads them again"
    if report.pending:
        yield f"{plural(report.pending, 'edge')} waiting for a missing end"
    if loaded := _counts({**report.nodes, **report.edges}):
        yield f"{loaded}{f', commit {report.commit_id}' if report.commit_id else ''}"


def _parse_time(text: str) -> datetime:
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment
    raise UsageError(f"`{text}` is not a time with a zone; write it as 2026-11-17T02:00:00Z", value=text)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def _values(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def _time(record: RunRecord) -> str:
    return datetime.fromtimestamp(record.created_at_us / 1e6, UTC).isoformat(timespec="seconds")


_RUNS_SHOWN = 3


def schedule(
    target: Writes,
    file: File = DEFAULT_FILE,
    cluster: ClusterRoot = None,
    once: Annotated[bool, switch("--once", "Do what is due now, with its retries, and exit.")] = False,
    dry_run: DryRun = False,
    parallel: Annotated[int, option("--parallel", "N", "Pipelines that may run at once.")] = SCHEDULE_RUNS_MAX,
    report: ReportDir = None,
    metrics_port: Annotated[
        int | None, option("--metrics-port", "PORT", "Serve Prometheus metrics at this port; 0 picks a free one.")
    ] = None,
    metrics_host: Annotated[str, option("--metrics-host", "HOST", "Address that metrics are served at.")] = "127.0.0.1",
    as_json: Json = False,
) -> int:
    from omnigraph.pipelines.metrics import PipelineMetrics, serving_metrics
    from omnigraph.pipelines.scheduler.runner import run_schedule

    book, read = _locate(target, file, cluster)
    if dry_run:
        return _upcoming_output(book, read).print(as_json=as_json)
    metrics = PipelineMetrics()
    with ExitStack() as stack:
        if metrics_port is not None:
            address = stack.enter_context(serving_metrics(metrics_host, metrics_port, metrics.render))
            echo(f"metrics at http://{address}/metrics", err=True)
        is_fine = run_schedule(
            book,
            read,
            once=once,
            parallel=parallel,
            report=report,
            on_event=_printer(as_json),
            actor=target.flags.actor,
            metrics=metrics,
        )
    # A runner that was asked to stop has done its work; its log and `pipeline status` show failures.
    return 0 if is_fine or not once else 1


def _locate(target: Target, file: Path, cluster: str | None) -> tuple[ScheduleBook, ReadPipelines]:
    """Return the book of a schedule, and how to read its pipelines: those of a cluster, or of a file for a graph."""
    from omnigraph.pipelines.scheduler.book import ScheduleBook
    from omnigraph.pipelines.scheduler.runner import follow_file

    actor = target.flags.actor or read_config().actor
    if cluster is not None:
        from omnigraph.cluster.applied_state import follow_applied_pipelines, schedule_book

        return schedule_book(cluster), follow_applied_pipelines(cluster, actor)
    # Opened here, so that a missing graph is reported at once.
    with target.store_to_read() as graph:
        return ScheduleBook(graph.uri), follow_file(file, graph.uri, actor)


def _upcoming_output(book: ScheduleBook, read: ReadPipelines) -> Output:
    from omnigraph.pipelines.scheduler.runner import list_upcoming

    upcoming = list_upcoming(book, (read() or {}).values(), _RUNS_SHOWN)
    rows = (
        [item.pipeline, item.schedule, _times(item.due_now) or "nothing", _times(item.next_runs)] for item in upcoming
    )
    lines = table(["pipeline", "schedule", "due now", "next runs"], rows)
    return Output({"pipelines": [item.to_json() for item in upcoming]}, lines)


def _printer(as_json: bool) -> Callable[[ScheduleEvent], None]:
    def show(event: ScheduleEvent) -> None:
        if as_json:
            echo_bytes([orjson.dumps(event.to_json(), option=orjson.OPT_APPEND_NEWLINE)])
            return
        due = f" (due {_format_time(event.due)})" if event.due is not None else ""
        echo(f"{_format_time(event.at)} {event.pipeline or 'schedule'}{due}: {event.message}")

    return show


def _format_time(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _times(moments: tuple[datetime, ...]) -> str:
    return ", ".join(map(_format_time, moments))
