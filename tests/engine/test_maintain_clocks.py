"""Storage's time decides what is old: a clock that is years off, here or elsewhere, removes nothing that lives."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import clock, failpoints
from omnigraph.failpoints import Point
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import HEARTBEAT_LOST_SECONDS
from omnigraph.manifest.intents import Intent, declared, pending
from omnigraph.store.write.transaction import append
from tests.support.maintenance_fixtures import hours_later
from tests.support.orphan_sweep import sweep
from tests.support.s3_server import S3Server, s3_server

__all__ = ["s3_server"]

pytestmark = pytest.mark.slow
SCHEMA = "node Person { name: String @key }"
YEARS = 10 * 365 * 24 * 3_600


@contextmanager
def skewed(seconds: float) -> Iterator[None]:
    """Let the clock of this machine be wrong, and storage's be right."""
    with clock.replaced(wall=lambda: now + int(seconds * 1_000_000)):
        yield


now = clock.now_us()


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return fill(og.init(tmp_path / "g.omni", SCHEMA))


def fill(graph: Graph) -> Graph:
    for name in "abc":
        graph.ingest([{"type": "Person", "data": {"name": name}}])
    return graph


def files(graph: Graph) -> set[str]:
    return {one.path for one in session_of(graph).kernel.store.objects.list("")}


def stage(graph: Graph) -> set[str]:
    before, dataset = files(graph), session_of(graph).view().dataset(TypeKey("node:Person"))
    append(dataset, dataset.read())
    return files(graph) - before


@pytest.mark.parametrize("seconds", [-YEARS, -7_200, 7_200, YEARS])
def test_cleanup_with_a_wrong_clock_removes_nothing_young(graph: Graph, seconds: float) -> None:
    staged = stage(graph)
    with skewed(seconds):
        report = graph.maintenance.cleanup(keep=1, confirm=True)
        sweep(session_of(graph).kernel)
    assert staged <= files(graph)
    assert sum(one.versions_removed for one in report.datasets) == 0


@pytest.mark.parametrize("seconds", [-YEARS, YEARS])
def test_cleanup_with_a_wrong_clock_removes_what_is_old(graph: Graph, seconds: float) -> None:
    staged = stage(graph)
    with hours_later(), skewed(seconds):
        graph.maintenance.cleanup(keep=1, confirm=True)
    assert not staged & files(graph)
    assert len(og.open(graph.uri).query("query q() { match { $p: Person } return { $p.name } }")) == 3


@pytest.mark.s3
@pytest.mark.parametrize("seconds", [YEARS])
def test_cleanup_on_s3_with_a_wrong_clock_removes_nothing_young(s3_server: S3Server, seconds: float) -> None:
    # A request that is signed ten years ahead would be refused, so the clock is wrong only where ages are judged.
    graph = fill(og.init(s3_server.uri("g"), SCHEMA))
    staged = stage(graph)
    with skewed(seconds):
        report = graph.maintenance.cleanup(keep=1, confirm=True)
    assert staged <= files(graph)
    assert sum(one.versions_removed for one in report.datasets) == 0


def test_write_held_up_while_a_fast_clock_cleans_is_whole(graph: Graph) -> None:
    """A writer stands still between staging and publishing, and a cleanup elsewhere runs with a clock ahead."""

    def clean(_: str) -> None:
        with failpoints.armed({Point.COMMIT_SYNCED: lambda _: None}), skewed(3 * 3_600):
            og.open(graph.uri).maintenance.cleanup(keep=1_000, confirm=True)

    with failpoints.armed({Point.COMMIT_SYNCED: clean}):
        graph.ingest([{"type": "Person", "data": {"name": "late"}}])
    fresh = og.open(graph.uri)
    assert len(fresh.query("query q() { match { $p: Person } return { $p.name } }")) == 4
    assert fresh.maintenance.verify().is_sound


# -- live work ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [-YEARS, 0, YEARS])
@pytest.mark.parametrize("beats", [1, 2])
def test_cleanup_spares_live_work_whose_clock_is_wrong(graph: Graph, seconds: float, beats: int) -> None:
    kernel = session_of(graph).kernel
    with skewed(seconds), declared(kernel.store, "load", graph.snapshot()) as held:
        staged = stage(graph)
        for _ in range(beats - 1):
            held.beat()
        with hours_later():
            og.open(graph.uri).maintenance.cleanup(keep=1, confirm=True)
        assert staged <= files(graph)


def elsewhere(graph: Graph, silent_seconds: float) -> Intent:
    """Write the intent of an owner on another machine, who was last heard of so long ago."""
    kernel = session_of(graph).kernel
    with declared(kernel.store, "load", graph.snapshot()) as held:
        intent = replace(held.intent, owner=replace(held.intent.owner, host="another"), paths=("nodes/x/",))
    kernel.store.objects.write(intent.object_path, intent.to_bytes())
    kernel.store.objects.write("nodes/x/data/staged.lance", b"rows")
    when = Path(graph.uri, intent.object_path).stat().st_mtime - silent_seconds
    os.utime(Path(graph.uri, intent.object_path), (when, when))
    return intent


@pytest.mark.parametrize("seconds", [-YEARS, 0, YEARS])
@pytest.mark.parametrize("is_silent", [False, True])
def test_owner_elsewhere_is_judged_by_storage(graph: Graph, seconds: float, is_silent: bool) -> None:
    intent = elsewhere(graph, HEARTBEAT_LOST_SECONDS * 2 if is_silent else 0)
    with skewed(seconds):
        [found], _ = pending(session_of(graph).kernel.store)
        report = sweep(session_of(graph).kernel)
    assert (found.operation_id, found.is_dead) == (intent.operation_id, is_silent)
    assert report.rolled_back == is_silent
    assert ("nodes/x/data/staged.lance" in files(graph)) is not is_silent


def test_files_from_the_future_stay(graph: Graph) -> None:
    staged = stage(graph)
    for name in files(graph):
        os.utime(Path(graph.uri, name), (now / 1e6 + YEARS, now / 1e6 + YEARS))
    graph.maintenance.cleanup(keep=1, confirm=True)
    assert staged <= files(graph)
    assert len(og.open(graph.uri).commits()) == 4
    assert all(og.open(graph.uri).at(one.commit_id) for one in graph.commits())


def test_intent_without_its_time_in_storage_began_when_it_was_written(graph: Graph) -> None:
    """The first beat cannot know storage's time yet, and older releases never wrote it."""
    intent = elsewhere(graph, 0)
    body = replace(intent, stored_at_us=None, started_at_us=now + YEARS * 1_000_000).to_bytes()
    assert Intent.from_bytes(body, 5).began_us == 5
    assert Intent.from_bytes(replace(intent, stored_at_us=None, started_at_us=3).to_bytes(), 5).began_us == 3
    assert Intent.from_bytes(intent.to_bytes(), 5).began_us == intent.stored_at_us


def test_dry_run_of_a_reader_asks_for_no_time(graph: Graph, tmp_path: Path) -> None:
    stage(graph)
    before = files(graph)
    report = og.open(graph.uri, read_only=True).maintenance.cleanup(keep=1, dry_run=True)
    assert report.bytes_removed == 0
    with skewed(YEARS):
        # A reader writes nothing whose time storage could tell, so its own clock counts: the graph may be idle.
        report = og.open(graph.uri, read_only=True).maintenance.cleanup(keep=1, dry_run=True)
    assert report.bytes_removed > 0
    assert files(graph) == before
