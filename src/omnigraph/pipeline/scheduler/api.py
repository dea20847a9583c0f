"""The entry points of a schedule: hold its lease, follow its declarations, and run what is due until told to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from omnigraph.engine.arguments import check_type
from omnigraph.errors import UsageError
from omnigraph.graph import Graph, session_of
from omnigraph.limits import SCHEDULE_RUNS_MAX
from omnigraph.pipeline.bulk_load.report import prepare_folder
from omnigraph.pipeline.declared.config import read_pipelines
from omnigraph.pipeline.declared.metrics import PipelineMetrics
from omnigraph.pipeline.scheduler.book import ScheduleBook
from omnigraph.pipeline.scheduler.child import Child, RunningPipeline, ScheduledPipeline
from omnigraph.pipeline.scheduler.runner import ReadPipelines, ScheduleEvent, ScheduleRunner


def schedule(
    graph: Graph,
    pipelines: str | Path,
    *,
    once: bool = False,
    parallel: int = SCHEDULE_RUNS_MAX,
    report: str | Path | None = None,
    on_event: Callable[[ScheduleEvent], None] = lambda event: None,
) -> bool:
    """Run the scheduled pipelines of a file when they are due, each in a process of its own.

    One runner works for a graph at a time. It follows the file, so changed and added pipelines need no restart, and
    stops when the process gets SIGTERM or SIGINT. A runner that was killed is started again; each due run is done once.

    Args:
        graph: The graph to load into.
        pipelines: A YAML file.
        once: Do what is due now, with its retries, and return, instead of waiting for more.
        parallel: How many pipelines may run at once; one never runs twice at once.
        report: Directory for the reports of runs, and for rows that they leave out.
        on_event: Called when a run starts or ends, or a pipeline is added, removed or skipped.

    Returns:
        True if no run has failed for good or was stopped by an expectation.

    Raises:
        ConflictError: Another runner works for this graph.
        UsageError: The file or an argument cannot be used.

    Example:
        >>> from omnigraph import pipeline
        >>> pipeline.schedule(graph, "pipelines.yaml", once=True)  # doctest: +SKIP
        True
    """
    check_type("parallel", parallel, int)
    actor = session_of(graph).actor
    read = follow_file(Path(pipelines), graph.uri, actor)
    return run_schedule(
        ScheduleBook(graph.uri), read, once=once, parallel=parallel, report=report, on_event=on_event, actor=actor
    )


def follow_file(file: Path, graph_uri: str, actor: str | None) -> ReadPipelines:
    """Return a function that reads the pipelines of a file if they have changed."""
    last_read: dict[str, object] | None = None

    def read() -> Mapping[str, ScheduledPipeline] | None:
        nonlocal last_read
        declared = read_pipelines(file)
        # Errors of a run name positions in the file, so lines that moved count as well.
        content: dict[str, object] = {name: (item.text, item.positions) for name, item in declared.items()}
        if content == last_read:
            return None
        last_read = content
        return {name: ScheduledPipeline(item, graph_uri, None, actor) for name, item in declared.items()}

    return read


def run_schedule(
    book: ScheduleBook,
    read: ReadPipelines,
    *,
    once: bool = False,
    parallel: int = SCHEDULE_RUNS_MAX,
    report: str | Path | None = None,
    on_event: Callable[[ScheduleEvent], None] = lambda event: None,
    actor: str | None = None,
    metrics: PipelineMetrics | None = None,
) -> bool:
    """Run the pipelines that `read` returns, as `schedule` does, wherever their declarations are."""
    if parallel < 1:
        raise UsageError(f"`parallel` is a number of runs, 1 or more; got {parallel}", parallel=parallel)
    folder = None if report is None else prepare_folder(report)

    def start(item: ScheduledPipeline, due: datetime) -> RunningPipeline:
        return Child(item, due, folder)

    with book.hold_lease(actor) as lease:
        runner = ScheduleRunner(
            book,
            read,
            start,
            parallel=parallel,
            emit=on_event,
            is_lease_lost=lambda: lease.is_lost,
            metrics=metrics,
        )
        try:
            with _stopping_on_signals(runner):
                runner.run_once() if once else runner.run_forever()
        finally:
            runner.stop_runs()
    return not runner.has_failed


@contextmanager
def _stopping_on_signals(runner: ScheduleRunner) -> Iterator[None]:
    """Let the first SIGTERM or SIGINT end the runner when its runs are done; the second one ends them at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in signals]

    def stop(number: int, frame: object) -> None:
        runner.request_stop()
        for each in signals:
            signal.signal(each, signal.default_int_handler)

    for number in signals:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
