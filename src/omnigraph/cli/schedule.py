"""`omnigraph pipeline schedule`: run pipelines when they are due."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from omnigraph.cli.app import WritesUri
from omnigraph.cli.config import read_config
from omnigraph.cli.options import DryRun, Json
from omnigraph.cli.output import echo, echo_bytes, print_json, print_table
from omnigraph.cli.pipeline import DEFAULT_FILE, ClusterRoot, File, ReportDir
from omnigraph.limits import SCHEDULE_RUNS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnigraph.cli.target import Target
    from omnigraph.pipeline.scheduler.book import ScheduleBook
    from omnigraph.pipeline.scheduler.runner import ReadPipelines, ScheduleEvent

Once = Annotated[bool, typer.Option("--once", help="Do what is due now, with its retries, and exit.")]
Parallel = Annotated[int, typer.Option("--parallel", metavar="N", help="Pipelines that may run at once.")]

MetricsPort = Annotated[
    int | None,
    typer.Option("--metrics-port", metavar="PORT", help="Serve Prometheus metrics at this port; 0 picks a free one."),
]
MetricsHost = Annotated[str, typer.Option("--metrics-host", metavar="HOST", help="Address that metrics are served at.")]

_RUNS_SHOWN = 3


def schedule(
    target: WritesUri,
    file: File = DEFAULT_FILE,
    cluster: ClusterRoot = None,
    once: Once = False,
    dry_run: DryRun = False,
    parallel: Parallel = SCHEDULE_RUNS_MAX,
    report: ReportDir = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    as_json: Json = False,
) -> int:
    from omnigraph.pipeline.declared.metrics import PipelineMetrics, serving_metrics
    from omnigraph.pipeline.scheduler.api import run_schedule

    book, read = _locate(target, file, cluster)
    if dry_run:
        return _show_upcoming(book, read, as_json=as_json)
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
    from omnigraph.pipeline.scheduler.api import follow_file
    from omnigraph.pipeline.scheduler.book import ScheduleBook

    actor = target.flags.actor or read_config().actor
    if cluster is not None:
        from omnigraph.cluster.applied_pipelines import follow_applied_pipelines, schedule_book

        return schedule_book(cluster), follow_applied_pipelines(cluster, actor)
    # Opened here, so that a missing graph is reported at once.
    with target.store_to_read() as graph:
        return ScheduleBook(graph.uri), follow_file(file, graph.uri, actor)


def _show_upcoming(book: ScheduleBook, read: ReadPipelines, *, as_json: bool) -> int:
    from omnigraph.pipeline.scheduler.runner import list_upcoming

    upcoming = list_upcoming(book, (read() or {}).values(), _RUNS_SHOWN)
    if as_json:
        print_json({"pipelines": [item.to_json() for item in upcoming]})
        return 0
    rows = (
        [item.pipeline, item.schedule, _times(item.due_now) or "nothing", _times(item.next_runs)] for item in upcoming
    )
    print_table(["pipeline", "schedule", "due now", "next runs"], rows)
    return 0


def _printer(as_json: bool) -> Callable[[ScheduleEvent], None]:
    def show(event: ScheduleEvent) -> None:
        if as_json:
            echo_bytes([orjson.dumps(event.to_json(), option=orjson.OPT_APPEND_NEWLINE)])
            return
        due = f" (due {_time(event.due)})" if event.due is not None else ""
        echo(f"{_time(event.at)} {event.pipeline or 'schedule'}{due}: {event.message}")

    return show


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _times(moments: tuple[datetime, ...]) -> str:
    return ", ".join(map(_time, moments))
