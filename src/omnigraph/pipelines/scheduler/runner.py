"""The runner of a schedule: holds its lease, starts what is due, one run of a pipeline at a time, notes how it ended.

It decides by the clock, the declarations and the book alone, so a runner that was killed anywhere is replaced by a new
one: a due time that was loaded has a commit that says so, and its run is then `already_done`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import orjson

from omnigraph import clock
from omnigraph.display import count_of
from omnigraph.engine.arguments import check_type
from omnigraph.engine.load.report import prepare_folder
from omnigraph.errors import ConflictError, OmniGraphError, UsageError
from omnigraph.graph import Graph, session_of
from omnigraph.limits import SCHEDULE_FOLLOW_SECONDS, SCHEDULE_POLL_SECONDS, SCHEDULE_RUNS_MAX, SCHEDULE_STOP_SECONDS
from omnigraph.pipelines.declaration.config import read_pipelines
from omnigraph.pipelines.declaration.cron import Schedule, moment_of
from omnigraph.pipelines.metrics import PipelineMetrics
from omnigraph.pipelines.scheduler.book import BookEntry, ScheduleBook
from omnigraph.pipelines.scheduler.child import FAILED, Child, Outcome, RunningPipeline, ScheduledPipeline

EventKind = Literal["started", "finished", "failed", "skipped", "added", "removed", "invalid", "stopped", "blocked"]
# Returns the pipelines by name; None if nothing has changed since the last call.
ReadPipelines = Callable[[], Mapping[str, ScheduledPipeline] | None]
StartRun = Callable[[ScheduledPipeline, datetime], RunningPipeline]


@dataclass(frozen=True, slots=True)
class ScheduleEvent:
    """Something that a runner did, for its log; `due` is the time that a run was started for."""

    at: datetime
    kind: EventKind
    message: str
    pipeline: str | None = None
    due: datetime | None = None
    outcome: Outcome | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the event as a JSON object.

        Returns:
            The object, with the report of a run that has ended.

        Example:
            >>> ScheduleEvent(datetime(2026, 11, 17), "added", "scheduled: 0 2 * * *", "crm").to_json()["event"]
            'added'
        """
        return {
            "at": self.at.isoformat(),
            "event": self.kind,
            "pipeline": self.pipeline,
            "due": None if self.due is None else self.due.isoformat(),
            "status": None if self.outcome is None else self.outcome.status,
            "message": self.message,
            "report": None if self.outcome is None else self.outcome.report,
        }


@dataclass(slots=True)
class _Started:
    run: RunningPipeline
    due: datetime
    schedule: Schedule


@dataclass
class ScheduleRunner:
    """Starts the due runs of pipelines, up to `parallel` at once; `step` is called again and again.

    It stops once another runner has taken over, and the lease is lost.
    """

    book: ScheduleBook
    read: ReadPipelines
    start: StartRun
    parallel: int
    emit: Callable[[ScheduleEvent], None] = lambda event: None
    is_lease_lost: Callable[[], bool] = lambda: False
    metrics: PipelineMetrics = field(default_factory=PipelineMetrics)
    has_failed: bool = field(default=False, init=False)
    _pipelines: Mapping[str, ScheduledPipeline] = field(default_factory=dict, init=False)
    _entries: dict[str, BookEntry] = field(default_factory=dict, init=False)
    # Before this moment, a pipeline needs no look.
    _next_look: dict[str, datetime] = field(default_factory=dict, init=False)
    _running: dict[str, _Started] = field(default_factory=dict, init=False)
    _read_at: float | None = field(default=None, init=False)
    # Of a runner that works once: runs that are due later are left to the next one.
    _last_due: datetime | None = field(default=None, init=False)
    _is_stopping: bool = field(default=False, init=False)

    @property
    def is_idle(self) -> bool:
        """Whether no run goes on and no retry waits."""
        return not self._running and not any(
            entry.retry_at is not None for name, entry in self._entries.items() if name in self._pipelines
        )

    def request_stop(self) -> None:
        """Start no more runs; those that go on have a while to finish. May be called by a signal handler."""
        self._is_stopping = True

    def run_forever(self) -> None:
        """Run until `request_stop` is called."""
        while not self._is_stopping:
            self.step()
            if not self._is_stopping:
                clock.pause(SCHEDULE_POLL_SECONDS)
        self.drain()

    def run_once(self) -> None:
        """Start what is due now, and wait for it and its retries."""
        self._last_due = moment_of(clock.now_us())
        self.step()
        while not self.is_idle and not self._is_stopping:
            clock.pause(SCHEDULE_POLL_SECONDS)
            self.step()
        self._last_due = None
        self.drain()

    def step(self) -> None:
        """Note what has ended, follow the declarations, and start what is due."""
        self._finish_runs()
        self._follow()
        for name in sorted(self._pipelines):
            if name not in self._running and len(self._running) < self.parallel:
                self._start_if_due(name)

    def drain(self) -> None:
        """Wait for runs to finish, and end those that do not in time: the next runner does them again."""
        deadline = clock.elapsed() + SCHEDULE_STOP_SECONDS
        while self._running and clock.elapsed() < deadline:
            self._finish_runs()
            if self._running:
                clock.pause(SCHEDULE_POLL_SECONDS)
        self.stop_runs()

    def stop_runs(self) -> None:
        """End all runs at once."""
        for name, started in self._running.items():
            started.run.stop()
            self._tell("stopped", "it was cut off, and is done again by the next runner", name, started.due)
        self._running.clear()

    # -- declarations ------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        now = clock.elapsed()
        if self._read_at is not None and now - self._read_at < SCHEDULE_FOLLOW_SECONDS:
            return
        try:
            pipelines = self.read()
        except OmniGraphError as error:
            if self._read_at is None:
                raise
            # What was read before goes on.
            self._tell("invalid", f"the declarations cannot be read, so the earlier ones stay: {error.message}")
            pipelines = None
        self._read_at = now
        if pipelines is None:
            return
        scheduled = {name: item for name, item in pipelines.items() if item.declaration.schedule is not None}
        for name in sorted(scheduled.keys() ^ self._pipelines.keys()):
            if name in scheduled:
                self._tell("added", f"scheduled: {_schedule_of(scheduled[name]).describe()}", name)
            else:
                self.metrics.remove("next_run_timestamp_seconds", name)
                self._tell("removed", "it is no longer scheduled", name)
        self._pipelines = scheduled
        self._next_look.clear()

    # -- runs --------------------------------------------------------------------------------------------------

    def _start_if_due(self, name: str) -> None:
        now = moment_of(clock.now_us())
        if name in self._next_look and now < self._next_look[name]:
            return
        item, entry = self._pipelines[name], self._find_entry(name, now)
        schedule = _schedule_of(item)
        # A run that is tried again was not missed; a newer one takes its place, unless all are caught up.
        after = entry.settled_until
        if entry.retry_at is not None and entry.due is not None and schedule.catch_up != "all":
            after = max(after, entry.due)
        due_runs, skipped = schedule.due_runs(after, self._last_due or now)
        due = due_runs[0] if due_runs else entry.due if entry.retry_at is not None else None
        if due is not None and due == entry.due and entry.retry_at is not None and now < entry.retry_at:
            return
        if skipped:
            message = f"{count_of(len(skipped), 'missed run')} skipped, as `catch_up: {schedule.catch_up}` says"
            self._tell("skipped", message, name, skipped[-1])
            entry = replace(entry, settled_until=max(entry.settled_until, skipped[-1]))
            self._write(name, entry)
        if due is None:
            self._next_look[name] = schedule.next_runs(now, 1)[0]
            self.metrics.set("next_run_timestamp_seconds", name, self._next_look[name].timestamp())
            return
        failures = entry.failures if entry.retry_at is not None and entry.due == due else 0
        entry = replace(entry, due=due, status="running", message="", failures=failures, retry_at=None, started_at=now)
        self._write(name, entry)
        # Write-ahead: the book says `running` before the process starts, so a killed runner leaves a trace to look at.
        self._running[name] = _Started(self.start(item, due), due, schedule)
        self.metrics.set("running", name, 1)
        self._tell("started", "started", name, due)

    def _find_entry(self, name: str, now: datetime) -> BookEntry:
        entry = self._entries.get(name) or self.book.read(name)
        if entry is None:
            # Its first run is the next one that is due.
            entry = BookEntry(now)
            self._write(name, entry)
        if entry.status == "running":
            # The runner before was killed; whether its run was done, the commit says.
            entry = replace(entry, status=None, started_at=None, retry_at=now)
        self._entries[name] = entry
        return entry

    def _finish_runs(self) -> None:
        for name, started in list(self._running.items()):
            outcome = started.run.poll()
            if outcome is not None:
                del self._running[name]
                self._note(name, started, outcome)

    def _note(self, name: str, started: _Started, outcome: Outcome) -> None:
        now = moment_of(clock.now_us())
        self.metrics.set("running", name, 0)
        self.metrics.observe(name, outcome.status, now.timestamp(), outcome.report)
        entry = replace(self._entries[name], status=outcome.status, message=outcome.message, finished_at=now)
        if outcome.status == "blocked_by_review":
            # Not settled: the run has read nothing, so it stays due until the review is done.
            self._write(name, replace(entry, failures=0, retry_at=None))
            self._next_look[name] = started.schedule.next_runs(now, 1)[0]
            self._tell("blocked", f"{outcome.status}: {outcome.message}", name, started.due, outcome)
            return
        if outcome.status != FAILED:
            self._settle(name, replace(entry, failures=0), started.due)
            self.has_failed |= outcome.status == "stopped"
            self._tell("finished", f"{outcome.status}: {outcome.message}", name, started.due, outcome)
            return
        failures = entry.failures + 1
        retry_at = started.schedule.retry_at(failures, now)
        if retry_at is None:
            self.has_failed = True
            self._settle(name, replace(entry, failures=failures), started.due)
            advice = f"it has failed {count_of(failures, 'time')} and is not tried again before it is due again"
        else:
            self._write(name, replace(entry, failures=failures, retry_at=retry_at))
            advice = f"it is tried again at {retry_at.isoformat(timespec='seconds')}"
        self._tell("failed", f"{outcome.message}; {advice}", name, started.due, outcome)

    def _settle(self, name: str, entry: BookEntry, due: datetime) -> None:
        self._write(name, replace(entry, settled_until=max(entry.settled_until, due), retry_at=None))

    def _write(self, name: str, entry: BookEntry) -> None:
        # Fencing: checked before each write, so that a runner that was paused past its lease does not overwrite the
        # book of the next one. What slips through is harmless: a due time is loaded once, by its commit.
        if self.is_lease_lost():
            self.stop_runs()
            raise ConflictError("another runner has taken over the schedule; this one stops. Its runs are done again")
        self.book.write(name, entry)
        self._entries[name] = entry
        self._next_look.pop(name, None)

    def _tell(
        self,
        kind: EventKind,
        message: str,
        pipeline: str | None = None,
        due: datetime | None = None,
        outcome: Outcome | None = None,
    ) -> None:
        self.emit(ScheduleEvent(moment_of(clock.now_us()), kind, message, pipeline, due, outcome))


def _schedule_of(item: ScheduledPipeline) -> Schedule:
    schedule = item.declaration.schedule
    assert schedule is not None, "pipelines without a schedule are left out"
    return schedule


@dataclass(frozen=True, slots=True)
class Upcoming:
    """What a runner would do for a pipeline: runs that are due now, and the next ones."""

    pipeline: str
    schedule: str
    due_now: tuple[datetime, ...]
    skipped: int
    next_runs: tuple[datetime, ...]
    last: BookEntry | None

    def to_json(self) -> dict[str, Any]:
        members: dict[str, Any] = orjson.loads(orjson.dumps(self))
        return members


def list_upcoming(book: ScheduleBook, pipelines: Iterable[ScheduledPipeline], count: int) -> list[Upcoming]:
    """Return what is due now and next, by the book; writes nothing."""
    now, upcoming = moment_of(clock.now_us()), []
    for item in pipelines:
        schedule, name = item.declaration.schedule, item.declaration.name
        if schedule is None:
            continue
        entry = book.read(name)
        due, skipped = schedule.due_runs(entry.settled_until, now) if entry is not None else ([], [])
        next_runs = tuple(schedule.next_runs(now, count))
        upcoming.append(Upcoming(name, schedule.describe(), tuple(due), len(skipped), next_runs, entry))
    return upcoming


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

    with book.hold_lease(actor) as lease:
        runner = ScheduleRunner(
            book,
            read,
            lambda item, due: Child(item, due, folder),
            parallel=parallel,
            emit=on_event,
            is_lease_lost=lambda: lease.is_lost,
            metrics=metrics or PipelineMetrics(),
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
