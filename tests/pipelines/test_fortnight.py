"""A pipeline over a database, Parquet on S3 and JSON lines that runs daily, and is killed, ends where one load ends.

The oracle is `fortnight_world`, which knows the definition of the sources and nothing of pipelines.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.pipelines import history as runs
from omnigraph.pipelines.sources import read as sources
from tests.spark.test_cluster import cluster, environment
from tests.support.fortnight_desk import SCHEMA, Desk, check, observe
from tests.support.fortnight_world import World
from tests.support.s3_server import Request, S3Server, s3_server

__all__ = ["s3_server"]

pytestmark = [pytest.mark.spark, pytest.mark.s3]

DAYS = 14
MODULE = "omnigraph.pipelines"


@pytest.fixture
def desk(tmp_path: Path, spark: Any, s3_server: S3Server) -> Desk:
    return Desk(tmp_path, spark, World(seed=19))


def run_day(desk: Desk, uri: str, monkeypatch: pytest.MonkeyPatch, *, loads_late: bool = True) -> None:
    """Let a day pass and run the pipeline in this process."""
    day = desk.world.next_day()
    for name, value in desk.environment(desk.deliver(day)).items():
        monkeypatch.setenv(name, value)
    finish_day(desk, uri, loads_late=loads_late)


def finish_day(desk: Desk, uri: str, *, loads_late: bool = True) -> None:
    options: dict[str, Any] = {"spark": desk.spark, "report": desk.folder / "report"}
    with og.open(uri) as graph:
        pipeline.run(graph, desk.file, **options)
        for row in desk.world.days[-1].late if loads_late else ():
            pipeline.run(graph, desk.file, backfill=(str(row.seq - 1), str(row.seq)), source="tickets", **options)


@pytest.mark.slow
def test_day_with_a_killed_driver_equals_one_load(
    desk: Desk, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = og.init(s3_server.uri("desk.omni"), SCHEMA).uri
    names = desk.environment(desk.deliver(desk.world.next_day()))
    child, operations = desk.start_driver([uri], names), set[str]()

    def kill_in_merge(request: Request) -> None:
        """The first operation of a run is the load on a branch, the second one its merge."""
        if "__recovery/" in request.key:
            operations.add(request.key)
        if len(operations) == 2:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)

    s3_server.fault = kill_in_merge
    _, said = child.communicate()
    assert child.returncode == -signal.SIGKILL, said
    s3_server.fault = None
    with og.open(uri) as graph:
        assert (graph.branches.list(), observe(graph).people) == (["load/desk", "main"], {})
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    finish_day(desk, uri)
    check(uri, desk)


class Fortnight:
    """Days of drivers of their own, for a graph on disk and one on S3."""

    def __init__(self, desk: Desk, server: S3Server) -> None:
        self.desk, self.server = desk, server
        self.graphs = [og.init(desk.folder / "disk.omni", SCHEMA).uri, og.init(server.uri("desk.omni"), SCHEMA).uri]
        self.random = random.Random(7)
        self.kills: list[str] = []
        self.reports = self.mutations = 0

    def pass_day(self, number: int) -> None:
        day = self.desk.world.next_day()
        names = self.desk.environment(self.desk.deliver(day))
        backfills = [(row.seq - 1, row.seq) for row in day.late]
        with ExitStack() as stack:
            if number % 5 == 3:
                folder = self.desk.folder / f"cluster-{number}"
                folder.mkdir()
                running = stack.enter_context(cluster(folder))
                names |= environment(self.desk.folder) | {"DESK_MASTER": running.master}
                self.attempt(names, backfills, kill_at=self.random.randint(1, self.reports), groups=running.workers[:1])
            for _ in range(self.random.randint(1, 2) if number else 0):
                if self.random.random() < 0.5:
                    self.attempt(names, backfills, kill_at=self.random.randint(1, self.reports))
                else:
                    self.attempt(names, backfills, mutation=self.random.randint(1, self.mutations))
            before = self.server.mutations
            self.reports = max(self.reports, self.attempt(names, backfills))
            self.mutations = max(self.mutations, self.server.mutations - before)
        for uri in self.graphs:
            check(uri, self.desk)

    def attempt(
        self,
        names: dict[str, str],
        backfills: list[tuple[int, int]],
        kill_at: int = 0,
        mutation: int = 0,
        groups: list[int] | None = None,
    ) -> int:
        """Run a driver that may be killed; return how often it has reported progress."""
        child = self.desk.start_driver(self.graphs, names, backfills, kill_at, groups or [])
        is_over = False

        def strike(request: Request) -> None:
            if not is_over:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)

        if mutation:
            self.server.on_mutation(mutation, self.random.choice(("before", "after")), strike)
        said, errors = child.communicate()
        is_over = True
        if child.returncode == -signal.SIGKILL:
            self.kills.append("driver")
            return 0
        assert child.returncode == 0, errors
        *others, last = said.splitlines()
        self.kills += ["worker" for line in others if line.startswith("kill")]
        return int(json.loads(last)["reports"])


@pytest.mark.long
@pytest.mark.timeout(5_400)
def test_fortnight_with_killed_drivers_and_workers_equals_one_load(desk: Desk, s3_server: S3Server) -> None:
    fortnight = Fortnight(desk, s3_server)
    for number in range(DAYS):
        fortnight.pass_day(number)
    assert fortnight.kills.count("driver") >= DAYS // 2
    assert "worker" in fortnight.kills


# -- mutants -----------------------------------------------------------------------------------------------------------


def lose_the_last_value(*arguments: Any) -> Any:
    """A window of tickets without its upper end: the watermark says more than was loaded."""
    frame, column, window = arguments
    found = WITHIN(frame, column, window)
    return found.filter(f"seq < {window.high}") if column == "seq" else found


WITHIN = sources._within


@pytest.fixture(params=["watermark ahead of the data", "unfinished load repeated", "late rows lost"])
def mutant(request: pytest.FixtureRequest) -> Iterator[str]:
    with ExitStack() as stack:
        if request.param == "watermark ahead of the data":
            stack.enter_context(patch.object(sources, "_within", lose_the_last_value))
        if request.param == "unfinished load repeated":
            stack.enter_context(patch.object(runs, "find_unfinished", lambda *_: None))
            # Loads are told apart by their job ids.
            load = pipeline.load
            repeated = lambda *arguments, **options: load(*arguments, **options | {"job_id": None})  # noqa: E731
            stack.enter_context(patch(f"{MODULE}.run.load", repeated))
        yield request.param


@pytest.mark.long
def test_mutant_is_caught(desk: Desk, tmp_path: Path, mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = og.init(tmp_path / "g.omni", SCHEMA).uri
    if mutant == "unfinished load repeated":
        merging = patch("omnigraph.engine.branches.Branches.merge", side_effect=KeyboardInterrupt)
        with merging, pytest.raises(KeyboardInterrupt):
            run_day(desk, uri, monkeypatch)
        finish_day(desk, uri)
    else:
        for _ in range(3):
            run_day(desk, uri, monkeypatch, loads_late=mutant != "late rows lost")
    with pytest.raises(AssertionError):
        check(uri, desk)
