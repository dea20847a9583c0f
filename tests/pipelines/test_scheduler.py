"""The runner of a schedule with a clock that tests move, and runs that tests end: no process, no Spark, no sleeping."""

from __future__ import annotations

import json
import pickle
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from omnigraph import clock
from omnigraph.errors import ConflictError, StorageError, UsageError
from omnigraph.pipelines import metrics as metrics_module
from omnigraph.pipelines.declaration.config import parse_pipelines
from omnigraph.pipelines.metrics import PipelineMetrics, serving_metrics
from omnigraph.pipelines.scheduler.book import BookEntry, ScheduleBook
from omnigraph.pipelines.scheduler.child import (
    FAILED,
    Child,
    Job,
    Outcome,
    ScheduledPipeline,
)
from omnigraph.pipelines.scheduler.runner import ScheduleEvent, ScheduleRunner, follow_file, list_upcoming, run_schedule

START = datetime(2026, 11, 17, 0, 30, tzinfo=UTC)
PUBLISHED = Outcome("published", "merged")
FILE = """\
pipelines:
  NAME:
    schedule: { cron: "CRON", catch_up: RULE, retries: 2, retry_seconds: 60 }
    sources: { rows: { format: csv, path: rows } }
    nodes: { Person: { from: rows } }
"""


def declare(cron: str = "0 * * * *", rule: str = "last", name: str = "crm") -> ScheduledPipeline:
    text = FILE.replace("CRON", cron).replace("RULE", rule).replace("NAME", name)
    return ScheduledPipeline(parse_pipelines(text)[name], "graph.omni")


@dataclass
class FakeRun:
    """A run that a test ends."""

    name: str
    due: datetime
    outcome: Outcome | None = None
    is_stopped: bool = False

    def poll(self) -> Outcome | None:
        return self.outcome

    def stop(self) -> None:
        self.is_stopped = True


@dataclass
class World:
    """A folder with a book, a clock, pipelines, and the runs that were started; runners come and go."""

    root: Path
    now: datetime = START
    pipelines: Mapping[str, ScheduledPipeline] | None = None
    runs: list[FakeRun] = field(default_factory=list)
    events: list[ScheduleEvent] = field(default_factory=list)
    # How a run ends as soon as it is started; None leaves it running.
    outcome: Outcome | None = PUBLISHED
    parallel: int = 4

    @property
    def book(self) -> ScheduleBook:
        return ScheduleBook(str(self.root))

    def runner(self) -> ScheduleRunner:
        return ScheduleRunner(
            self.book, lambda: self.pipelines, self.start, parallel=self.parallel, emit=self.events.append
        )

    def start(self, item: ScheduledPipeline, due: datetime) -> FakeRun:
        self.runs.append(FakeRun(item.declaration.name, due, self.outcome))
        return self.runs[-1]

    def pass_time(self, **time: float) -> None:
        self.now += timedelta(**time)

    def due_hours(self) -> list[int]:
        return [round((run.due - START).total_seconds() / 3600 + 0.5) for run in self.runs]

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, pipelines={"crm": declare()})
    begun = world.now

    def pause(seconds: float) -> None:
        world.pass_time(seconds=seconds)

    with clock.replaced(
        wall=lambda: int(world.now.timestamp() * 1e6),
        elapsed=lambda: (world.now - begun).total_seconds(),
        pause=pause,
    ):
        yield world


def test_first_run_is_the_next_one_that_is_due(world: World) -> None:
    runner = world.runner()
    runner.step()
    assert (world.runs, world.kinds()) == ([], ["added"])
    for _ in range(150):
        world.pass_time(minutes=1)
        runner.step()
    runner.step()
    assert world.due_hours() == [1, 2, 3]
    entry = world.book.read("crm")
    assert entry is not None
    assert (entry.status, entry.due) == ("published", entry.settled_until)


@pytest.mark.parametrize(("rule", "hours", "skipped"), [("last", [5], 4), ("all", [1, 2, 3, 4, 5], 0), ("none", [], 5)])
def test_missed_runs_are_caught_up_by_rule(world: World, rule: str, hours: list[int], skipped: int) -> None:
    world.pipelines = {"crm": declare(rule=rule)}
    world.runner().step()
    world.pass_time(hours=5)
    [upcoming] = list_upcoming(world.book, world.pipelines.values(), 2)
    assert (len(upcoming.due_now), upcoming.skipped) == (len(hours), skipped)
    runner = world.runner()
    for _ in range(8):
        runner.step()
    assert world.due_hours() == hours
    messages = [event.message for event in world.events if event.kind == "skipped"]
    assert [message.split()[0] for message in messages] == ([str(skipped)] if skipped else [])
    # Nothing is skipped or started twice by the next runner.
    world.runner().step()
    assert (world.due_hours(), world.kinds().count("skipped")) == (hours, len(messages))
    world.pass_time(minutes=30)
    world.runner().step()
    assert world.due_hours() == [*hours, 6], "a run that is on time is never skipped"


def test_pipeline_never_overlaps_with_itself(world: World) -> None:
    world.outcome = None
    runner = world.runner()
    runner.step()
    for _ in range(10):
        world.pass_time(minutes=30)
        runner.step()
    assert world.due_hours() == [1]
    world.runs[0].outcome = Outcome("published", "")
    runner.step()
    assert world.due_hours() == [1, 5], "what was due meanwhile follows by the rule of missed runs"


def test_parallel_runs_are_bounded(world: World) -> None:
    world.parallel, world.outcome = 2, None
    world.pipelines = {name: declare(name=name) for name in ("a", "b", "c")}
    runner = world.runner()
    runner.step()
    world.pass_time(minutes=30)
    runner.step()
    assert [run.name for run in world.runs] == ["a", "b"]
    world.runs[0].outcome = Outcome("nothing_new", "")
    runner.step()
    assert [run.name for run in world.runs] == ["a", "b", "c"]


def test_failed_run_is_retried_with_growing_pauses(world: World) -> None:
    world.outcome = Outcome(FAILED, "the database is away")
    runner = world.runner()
    runner.step()
    world.pass_time(minutes=30)
    started = world.now
    runner.run_once()
    assert world.due_hours() == [1, 1, 1]
    assert world.now - started >= timedelta(seconds=180), "60 and then 120 seconds"
    entry = world.book.read("crm")
    assert entry is not None
    assert (entry.status, entry.failures, entry.retry_at, runner.has_failed) == ("failed", 3, None, True)
    assert "3 times" in world.events[-1].message
    world.outcome = Outcome("published", "")
    world.pass_time(hours=1)
    runner.step()
    runner.step()
    entry = world.book.read("crm")
    assert entry is not None
    assert (world.due_hours()[-1], entry.failures) == (2, 0)


def test_retries_survive_the_runner(world: World) -> None:
    world.outcome = Outcome(FAILED, "away")
    runner = world.runner()
    runner.step()
    world.pass_time(minutes=30)
    runner.step()
    runner.step()
    other = world.runner()
    other.step()
    assert len(world.runs) == 1, "its pause is not over"
    world.pass_time(seconds=61)
    other.step()
    other.step()
    entry = world.book.read("crm")
    assert entry is not None
    assert (len(world.runs), entry.failures) == (2, 2)


def test_stopped_expectation_is_not_retried(world: World) -> None:
    world.outcome = Outcome("stopped", "an expectation failed")
    runner = world.runner()
    runner.step()
    world.pass_time(minutes=30)
    runner.run_once()
    assert (len(world.runs), runner.has_failed) == (1, True)


@pytest.mark.parametrize("rule", ["last", "all", "none"])
def test_run_that_was_cut_off_with_its_runner_is_done_again(world: World, rule: str) -> None:
    world.pipelines, world.outcome = {"crm": declare(rule=rule)}, None
    runner = world.runner()
    runner.step()
    world.pass_time(minutes=30)
    runner.step()
    # The runner is killed here, and comes back later than any grace.
    world.pass_time(minutes=20)
    world.outcome = Outcome("already_done", "")
    again = world.runner()
    again.step()
    again.step()
    assert world.due_hours() == [1, 1]
    again.step()
    assert world.due_hours() == [1, 1]


def test_stop_lets_runs_finish_and_then_ends_them(world: World) -> None:
    world.outcome = None
    world.pipelines = {name: declare(name=name) for name in ("a", "b")}
    runner = world.runner()
    runner.step()
    world.pass_time(minutes=30)
    runner.step()
    world.runs[0].outcome = Outcome("published", "")
    runner.request_stop()
    stopped_at = world.now
    runner.run_forever()
    assert [(run.name, run.is_stopped) for run in world.runs] == [("a", False), ("b", True)]
    assert timedelta(seconds=20) < world.now - stopped_at < timedelta(seconds=30)
    # The next runner takes up what was ended.
    world.outcome = Outcome("published", "")
    world.runner().step()
    assert [run.name for run in world.runs] == ["a", "b", "b"]


def test_changed_declarations_are_followed(world: World, tmp_path: Path) -> None:
    file = tmp_path / "pipelines.yaml"
    file.write_text(FILE.replace("CRON", "0 5 * * *").replace("RULE", "last").replace("NAME", "crm"))
    read = follow_file(file, "graph.omni", None)
    runner = ScheduleRunner(world.book, read, world.start, parallel=1, emit=world.events.append)
    runner.step()
    file.write_text("pipelines: { crm: 7 }")
    world.pass_time(seconds=11)
    runner.step()
    assert world.kinds() == ["added", "invalid"]
    file.write_text(FILE.replace("CRON", "0 1 * * *").replace("RULE", "last").replace("NAME", "erp"))
    world.pass_time(seconds=11)
    runner.step()
    assert [(event.kind, event.pipeline) for event in world.events[2:]] == [("removed", "crm"), ("added", "erp")]
    world.pass_time(hours=1)
    runner.step()
    assert [run.name for run in world.runs] == ["erp"]


def test_second_runner_is_refused_until_the_first_ends(world: World) -> None:
    with world.book.hold_lease():
        with pytest.raises(ConflictError, match="another runner"), world.book.hold_lease():
            pass
        lock = next((world.root / "__schedule" / "locks").iterdir())
        body = json.loads(lock.read_bytes())
        # A process of this machine that does not exist any more.
        lock.write_text(json.dumps({**body, "owner": {**body["owner"], "started": "0"}}))
        with world.book.hold_lease() as taken:
            assert taken.taken_from is not None
    max((world.root / "__schedule" / "locks").iterdir()).write_text("{}")
    with pytest.raises(ConflictError, match="cannot be decoded"), world.book.hold_lease():
        pass


def test_runner_that_lost_its_lease_stops_its_runs(world: World) -> None:
    lost: list[bool] = []
    runner = ScheduleRunner(
        world.book, lambda: world.pipelines, world.start, parallel=4, is_lease_lost=lambda: bool(lost)
    )
    world.outcome = None
    world.pipelines = {name: declare(name=name) for name in ("a", "b")}
    world.parallel = 1
    runner.step()
    world.pass_time(minutes=30)
    runner.step()
    lost.append(True)
    world.runs[0].outcome = Outcome("published", "")
    with pytest.raises(ConflictError, match="taken over"):
        runner.step()
    assert world.runs[1].is_stopped


def test_runs_are_counted_as_metrics(world: World) -> None:
    report = {"nodes": {"Person": 2}, "edges": {"Knows": 1}, "deleted": {}, "rejected": 3, "expectations": []}
    report |= {"seconds": {"load": 1.5, "read": 0.5}, "rows_read": {"load": 7}, "bytes_read": {"load": 1234567}}
    world.outcome, metrics = Outcome("published", "", report), PipelineMetrics()
    runner = ScheduleRunner(world.book, lambda: world.pipelines, world.start, parallel=1, metrics=metrics)
    runner.step()
    world.pass_time(minutes=30)
    for _ in range(2):
        runner.step()
    world.outcome = Outcome(FAILED, "away")
    world.pass_time(hours=1)
    for _ in range(2):
        runner.step()
    lines = metrics.render().splitlines()
    for line in (
        'omnigraph_pipeline_runs_total{pipeline="crm",status="published"} 1',
        'omnigraph_pipeline_runs_total{pipeline="crm",status="failed"} 1',
        'omnigraph_pipeline_entities_written_total{pipeline="crm",type="Knows"} 1',
        'omnigraph_pipeline_entities_rejected_total{pipeline="crm"} 3',
        'omnigraph_pipeline_stage_bytes_read_total{pipeline="crm",stage="load"} 1234567',
        'omnigraph_pipeline_last_run_seconds{pipeline="crm"} 2',
        'omnigraph_pipeline_running{pipeline="crm"} 0',
        f'omnigraph_pipeline_last_success_timestamp_seconds{{pipeline="crm"}} {START.timestamp() + 1800:.0f}',
        f'omnigraph_pipeline_last_run_timestamp_seconds{{pipeline="crm"}} {START.timestamp() + 5400:.0f}',
        f'omnigraph_pipeline_next_run_timestamp_seconds{{pipeline="crm"}} {START.timestamp() + 5400:.0f}',
        "# TYPE omnigraph_pipeline_runs_total counter",
    ):
        assert line in lines
    assert len([line for line in lines if line.startswith("# HELP")]) == len(
        {line for line in lines if "# TYPE" in line}
    )


def test_once_starts_nothing_that_is_due_later(world: World) -> None:
    world.pipelines = {"crm": declare("* * * * *")}
    world.runner().step()
    world.pass_time(minutes=1)

    @dataclass
    class LongRun(FakeRun):
        """It fails after more time than there is between two due times."""

        ends: datetime = field(default_factory=lambda: world.now + timedelta(seconds=90))

        def poll(self) -> Outcome | None:
            return Outcome(FAILED, "away") if world.now >= self.ends else None

    def start(item: ScheduledPipeline, due: datetime) -> FakeRun:
        world.runs.append(LongRun("crm", due))
        assert len(world.runs) < 9, "it does not end"
        return world.runs[-1]

    runner = ScheduleRunner(world.book, lambda: world.pipelines, start, parallel=1, emit=world.events.append)
    runner.run_once()
    assert [run.due for run in world.runs] == [START + timedelta(minutes=1)] * 3
    assert runner.has_failed


def test_removed_pipeline_has_no_next_run_in_the_metrics(world: World) -> None:
    metrics = PipelineMetrics()
    runner = ScheduleRunner(world.book, lambda: world.pipelines, world.start, parallel=1, metrics=metrics)
    runner.step()
    assert "next_run" in metrics.render()
    world.pipelines = {}
    world.pass_time(minutes=1)
    runner.step()
    assert "next_run" not in metrics.render()


def test_schedule_counts_in_the_metrics_that_it_is_given(world: World) -> None:
    metrics = PipelineMetrics()
    run_schedule(world.book, lambda: world.pipelines, once=True, metrics=metrics)
    line = f'omnigraph_pipeline_next_run_timestamp_seconds{{pipeline="crm"}} {START.timestamp() + 1800:.0f}'
    assert line in metrics.render().splitlines()


def test_metrics_are_served_for_prometheus() -> None:
    with serving_metrics("127.0.0.1", 0, lambda: "a_total 1\n") as address:
        answer = httpx.get(f"http://{address}/metrics")
        assert (answer.status_code, answer.text) == (200, "a_total 1\n")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert httpx.get(f"http://{address}/other").status_code == 404
        port = int(address.rpartition(":")[2])
        with pytest.raises(UsageError, match="choose another port"), serving_metrics("127.0.0.1", port, str):
            pass


def test_silent_client_of_the_metrics_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_module, "METRICS_CLIENT_SECONDS_MAX", 0.05)
    with serving_metrics("127.0.0.1", 0, lambda: "a_total 1\n") as address:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost:")
            assert client.recv(1) == b""


def test_client_that_leaves_is_not_logged(capfd: pytest.CaptureFixture[str]) -> None:
    is_asked, is_gone = threading.Event(), threading.Event()

    def render() -> str:
        is_asked.set()
        is_gone.wait(10)
        return "a_total 1\n"

    with serving_metrics("127.0.0.1", 0, render) as address:
        host, _, port = address.rpartition(":")
        client = socket.create_connection((host, int(port)))
        # It resets the connection when it closes it.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        is_asked.wait(10)
        client.close()
        is_gone.set()
    assert capfd.readouterr() == ("", "")


def test_unreadable_book_is_an_error(world: World) -> None:
    world.book.write("crm", BookEntry(START))
    (world.root / "__schedule" / "crm.json").write_text('{"settled_until": 7}')
    with pytest.raises(StorageError, match="cannot be decoded; delete it"):
        world.book.read("crm")


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("{ cron: '0 2 * * *', timezone: Europe/Berlni }", "did you mean `Europe/Berlin`"),
        ("{ cron: '0 2 * * *', catch_up: some }", "`some` is not one of `last`, `all`, `none`"),
        ("{ cron: '0 2 * * *', retries: 1000 }", "from 0 to 100"),
        ("{ cron: '0 2 * * *', retry_seconds: 0 }", "from 1 to 3600"),
        ("{ timezone: UTC }", "the field `cron` is missing"),
        ("'0 25 * * *'", "`25` is not a valid hour"),
        ("nightly", "five fields"),
        ("7", "expected a string"),
    ],
)
def test_wrong_schedule_is_refused_with_its_position(schedule: str, message: str) -> None:
    line = '{ cron: "CRON", catch_up: RULE, retries: 2, retry_seconds: 60 }'
    with pytest.raises(UsageError) as caught:
        parse_pipelines(FILE.replace(line, schedule))
    assert message in str(caught.value)
    assert str(caught.value).startswith("pipelines.yaml:3:")


@pytest.mark.slow
def test_process_of_a_run_leaves_nothing_on_standard_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # There is no such graph, which a run notices before it starts Spark.
    child = Child(replace(declare(), graph_uri=str(tmp_path / "g.omni")), START, None)
    while (outcome := child.poll()) is None:
        time.sleep(0.05)
    assert (outcome.status, "there is no graph" in outcome.message) == (FAILED, True)
    assert capfd.readouterr() == ("", "")


def test_run_knows_where_its_pipeline_is_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text("# Every night.\n" + FILE.replace("CRON", "@daily").replace("RULE", "last"))
    read = follow_file(file, "graph.omni", None)
    for line in (5, 6):
        pipelines = read()
        assert pipelines is not None
        job = pickle.loads(pickle.dumps(Job(pipelines["NAME"], START, None)))
        assert job.item.declaration.positions["sources.rows"] == f"{file}:{line}:22"
        file.write_text("# And all others.\n" + file.read_text())


# -- a model ---------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """What ends a runner in the middle of things."""


@contextmanager
def killed_at_a_write(rng: random.Random) -> Iterator[None]:
    """Let a write of the book be the last thing that a runner does, or the first that it does not do."""
    writes, write = rng.randrange(1, 6), ScheduleBook.write

    def counted_write(book: ScheduleBook, name: str, entry: BookEntry) -> None:
        nonlocal writes
        writes -= 1
        if writes == 0 and rng.random() < 0.5:
            raise Killed
        write(book, name, entry)
        if writes == 0:
            raise Killed

    with pytest.MonkeyPatch.context() as patch, suppress(Killed):
        patch.setattr(ScheduleBook, "write", counted_write)
        yield


def simulate(world: World, rule: str, seed: int) -> None:
    """Let runners come, work for hours and be killed; then check what they have loaded against the definition.

    With `all`, every due time is loaded once and in order, unless it has failed too often; with `last`, the newest one
    is. A run is loaded when its commit is there, which is before a runner notes it.
    """
    rng = random.Random(seed)
    world.pipelines, loaded, failures = {"crm": declare(rule=rule)}, list[datetime](), Counter[datetime]()

    def load(item: ScheduledPipeline, due: datetime) -> FakeRun:
        if rng.random() < 0.2:
            failures[due] += 1
            return FakeRun("crm", due, Outcome(FAILED, "away"))
        # As a real run does, it finds out from the commits whether it was done.
        if not loaded or due > loaded[-1]:
            loaded.append(due)
        return FakeRun("crm", due, PUBLISHED)

    world.start = load  # type: ignore[method-assign]
    world.runner().step()
    for _ in range(20):
        with killed_at_a_write(rng):
            runner = world.runner()
            for _ in range(rng.randrange(1, 12)):
                runner.step()
                world.pass_time(minutes=rng.randrange(1, 40))
    world.runner().run_once()
    due = [START + timedelta(minutes=30, hours=number) for number in range(500)]
    due = [moment for moment in due if moment <= world.now]
    given_up = {moment for moment, count in failures.items() if count > 2}
    assert set(loaded) <= set(due)
    assert set(due if rule == "all" else due[-1:]) - set(loaded) <= given_up


@pytest.mark.parametrize("rule", ["last", "all"])
@pytest.mark.parametrize("seed", range(3))
def test_killed_runners_do_each_due_run_once(world: World, rule: str, seed: int) -> None:
    simulate(world, rule, seed)


def test_model_catches_a_runner_that_settles_too_early(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    write = ScheduleBook.write

    def write_early(book: ScheduleBook, name: str, entry: BookEntry) -> None:
        is_running = entry.status == "running" and entry.due is not None
        write(book, name, replace(entry, settled_until=entry.due, status=None) if is_running else entry)  # type: ignore[arg-type]

    monkeypatch.setattr(ScheduleBook, "write", write_early)
    with pytest.raises(AssertionError):
        simulate(world, "all", 0)
