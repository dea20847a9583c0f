"""Maintenance beside others: names for what cleanup removes, writers that were held up, owners that fell silent."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import clock, failpoints
from omnigraph.errors import ConflictError, Effect, GraphError, OmniGraphError, StorageError
from omnigraph.failpoints import Point
from omnigraph.graph import Graph, session_of
from omnigraph.ids import new_ulid
from omnigraph.limits import HEARTBEAT_LOST_SECONDS, STAGED_SECONDS_MAX
from omnigraph.manifest import branches, publish
from omnigraph.manifest.intents import CLEANUP, FOLDER, declared, exclusive_intent, pending
from omnigraph.manifest.plan import CommitPolicy, Plan
from omnigraph.store.objects import uri
from tests.support.failpoint_actions import Park
from tests.support.maintenance_fixtures import hours_later
from tests.support.orphan_sweep import sweep
from tests.support.s3_server import Fault, FaultKind, Request, S3Server, s3_server

__all__ = ["s3_server"]

pytestmark = pytest.mark.slow

SCHEMA = "node Person { name: String @key }"
NAMES = "query q() { match { $p: Person } return { $p.name as name } order { name asc } }"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    for name in "abcd":
        graph.ingest([{"type": "Person", "data": {"name": name}}])
    return graph


def age(graph: Graph) -> str:
    """Make all that is stored look old, and return a commit that a cleanup would remove."""
    before = clock.now_us() * 1_000 - 3 * 3_600 * 10**9
    for path in Path(graph.uri).rglob("*"):
        os.utime(path, ns=(before, before))
    return graph.commits()[-2].commit_id


class Beside:
    """Work in another thread, and the error it ended with."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.error: OmniGraphError | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except OmniGraphError as error:
            self.error = error

    def code(self) -> str | None:
        self._thread.join()
        return self.error.code if self.error else None


def tag(graph: Graph, at: str) -> None:
    graph.tags.create("old", at)


def branch(graph: Graph, at: str) -> None:
    graph.branches.create("old", at=at)


def named(graph: Graph) -> list[str]:
    state = og.open(graph.uri).snapshot().state
    return [*state.tags, *state.branches]


def people(graph: Graph, at: str) -> list[object]:
    return [row["name"] for row in og.open(graph.uri).query(NAMES, at=at).rows()]


def named_beside_cleanup(graph: Graph, name: Callable[[Graph, str], None], point: Point) -> tuple[str, str | None]:
    """Let a cleanup run while somebody who names an old commit is at a point; return it, and how the naming failed."""
    old, park = age(graph), Park()
    with failpoints.armed({point: park}):
        naming = Beside(lambda: name(og.open(graph.uri), old))
        assert park.arrived.wait(60)
        graph.maintenance.cleanup(keep=1, confirm=True)
        park.release()
        return old, naming.code()


NAMINGS = pytest.mark.parametrize("name", [tag, branch])


@NAMINGS
def test_name_for_a_commit_that_cleanup_is_removing_is_refused(
    graph: Graph, name: Callable[[Graph, str], None]
) -> None:
    old, park = age(graph), Park()
    with failpoints.armed({Point.CLEANUP_DECIDED: park}):
        cleaning = Beside(lambda: graph.maintenance.cleanup(keep=1, confirm=True))
        assert park.arrived.wait(60)
        with pytest.raises(ConflictError, match="cleanup"):
            name(og.open(graph.uri), old)
        park.release()
        assert cleaning.code() is None
    assert named(graph) == []


@NAMINGS
def test_name_is_given_although_a_cleanup_has_died(graph: Graph, name: Callable[[Graph, str], None]) -> None:
    old, store = age(graph), session_of(graph).kernel.store
    with declared(store, CLEANUP, session_of(graph).kernel.snapshot()):
        [intent] = pending(store)[0]
        dead = replace(intent, owner=replace(intent.owner, started="0"))
        store.objects.write(dead.object_path, dead.to_bytes())
        name(og.open(graph.uri), old)
    assert named(graph) == ["old"]
    assert people(graph, old) == ["a"]


@NAMINGS
def test_name_that_is_held_up_before_it_is_published_protects_its_commit(
    graph: Graph, name: Callable[[Graph, str], None]
) -> None:
    old, code = named_beside_cleanup(graph, name, Point.PUBLISH_BEFORE)
    assert code is None
    assert named(graph) == ["old"]
    assert people(graph, old) == ["a"]


@NAMINGS
def test_name_of_a_removed_commit_is_refused(graph: Graph, name: Callable[[Graph, str], None]) -> None:
    old = age(graph)
    graph.maintenance.cleanup(keep=1, confirm=True)
    with pytest.raises(GraphError) as caught:
        name(og.open(graph.uri), old)
    assert caught.value.code == "graph.version_reclaimed"
    assert named(graph) == []


@NAMINGS
def test_name_that_comes_before_cleanup_looks_protects_its_commit(
    graph: Graph, name: Callable[[Graph, str], None]
) -> None:
    old, code = named_beside_cleanup(graph, name, Point.PUBLISH_AFTER)
    assert code is None
    assert named(graph) == ["old"]
    assert people(graph, old) == ["a"]


@NAMINGS
@pytest.mark.sampled(1)
def test_name_that_is_given_without_an_intent_is_caught(
    graph: Graph, name: Callable[[Graph, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(branches, "_protected", lambda kernel, snapshot, actor: nullcontext(new_ulid()))
    old, code = named_beside_cleanup(graph, name, Point.PUBLISH_BEFORE)
    assert code is None
    # The name stands, and what it stands for is gone.
    assert named(graph) == ["old"]
    with pytest.raises(GraphError):
        people(graph, old)


def test_cleanup_beside_another_is_refused(graph: Graph) -> None:
    with (
        exclusive_intent(session_of(graph).kernel.store, "cleanup", graph.snapshot()),
        pytest.raises(ConflictError, match="another cleanup"),
    ):
        graph.maintenance.cleanup(keep=1, confirm=True)
    graph.maintenance.cleanup(keep=1, confirm=True)


@NAMINGS
def test_intent_that_cannot_be_judged_counts_as_a_live_one(graph: Graph, name: Callable[[Graph, str], None]) -> None:
    old, store = age(graph), session_of(graph).kernel.store
    path = f"{FOLDER}/{new_ulid()}.json"
    store.objects.write(path, b'{"format": 2}')
    works: list[Callable[[], object]] = [
        lambda: name(og.open(graph.uri), old),
        lambda: graph.maintenance.cleanup(keep=1, confirm=True),
        lambda: graph.maintenance.repair(confirm=True),
    ]
    for work in works:
        with pytest.raises(ConflictError) as caught:
            work()
        assert (caught.value.context["object"], caught.value.effect) == (path, Effect.NONE)
    round_ = graph.maintenance.reconcile()
    assert (round_.is_claimed, round_.unreadable) == (True, (path,))
    assert (named(graph), people(graph, old)) == ([], ["a"])
    assert store.objects.exists(path)
    store.objects.delete(path)
    name(og.open(graph.uri), old)
    graph.maintenance.cleanup(keep=1, confirm=True)
    assert people(graph, old) == ["a"]


@pytest.mark.s3
@pytest.mark.parametrize("kind", ["throttle_503", "deny_403", "drop_before"])
def test_intent_that_storage_does_not_give_out_stops_who_has_to_know(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, kind: FaultKind
) -> None:
    monkeypatch.setattr(uri, "RETRIES_MAX", 0)
    graph = og.init(s3_server.uri("g"), SCHEMA)
    first = graph.commits()[0].commit_id
    graph.ingest([{"type": "Person", "data": {"name": "a"}}])
    other = og.open(graph.uri)
    with exclusive_intent(session_of(graph).kernel.store, "cleanup", graph.snapshot()) as held:

        def fault(request: Request) -> Fault | None:
            is_intent = request.method == "GET" and request.key.endswith(held.intent.object_path)
            return Fault(kind) if is_intent else None

        s3_server.fault = fault
        for work in (
            lambda: other.tags.create("old", first),
            lambda: other.maintenance.cleanup(keep=1, confirm=True),
            other.maintenance.reconcile,
        ):
            with pytest.raises(StorageError) as caught:
                work()
            assert (caught.value.effect, caught.value.retryable) == (Effect.NONE, kind != "deny_403")
        s3_server.fault = None
        with pytest.raises(ConflictError, match="cleanup"):
            other.tags.create("old", first)
    other.tags.create("old", first)
    assert [one.name for one in other.tags.list()] == ["old"]
    other.close()
    graph.close()


def test_cleanup_read_only_is_refused(graph: Graph) -> None:
    reader = og.open(graph.uri, read_only=True)
    with pytest.raises(GraphError, match="read-only"):
        reader.maintenance.cleanup(keep=1, confirm=True)
    assert reader.maintenance.cleanup(keep=1, dry_run=True).dry_run


# -- writers that were held up ------------------------------------------------------------------------------------


def write_held_up(graph: Graph, seconds: float) -> None:
    """Let a write sleep between staging and publishing, while another process sweeps."""
    wall, elapsed = clock.now_us(), clock.elapsed()
    is_later = False

    def hold_up(_: str) -> None:
        nonlocal is_later
        if not is_later:
            is_later = True
            sweep(session_of(og.open(graph.uri)).kernel)

    with (
        clock.replaced(
            wall=lambda: wall + int(seconds * 1_000_000) * is_later,
            elapsed=lambda: elapsed + seconds * is_later,
            storage=lambda modified_us: modified_us + int(seconds * 1_000_000) * is_later,
        ),
        failpoints.armed({Point.COMMIT_SYNCED: hold_up}),
    ):
        graph.ingest([{"type": "Person", "data": {"name": "late"}}])


def test_write_held_up_too_long_is_refused(graph: Graph) -> None:
    with pytest.raises(ConflictError, match="held up") as refused:
        write_held_up(graph, 2 * 3_600)
    assert refused.value.effect == "none"
    graph.ingest([{"type": "Person", "data": {"name": "e"}}])
    assert people(graph, graph.commits()[0].commit_id) == [*"abcde"]


def test_write_held_up_a_little_is_published(graph: Graph) -> None:
    write_held_up(graph, STAGED_SECONDS_MAX - 60)
    assert people(graph, graph.commits()[0].commit_id) == [*"abcd", "late"]


def test_write_that_forgets_its_deadline_is_caught(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "STAGED_SECONDS_MAX", 1 << 40)
    # Its own catalog was staged too, and is gone; nobody can say what became of the write.
    with pytest.raises(OmniGraphError) as failed:
        write_held_up(graph, 2 * 3_600)
    assert failed.value.effect == "unknown"


def publish_under_intent(graph: Graph, *, is_rolled_back: bool) -> None:
    """Let long work be silent for too long, and try to publish."""
    kernel = session_of(graph).kernel
    with declared(kernel.store, "load", graph.snapshot()) as held:
        plan = Plan("load", operation_id=held.operation_id)
        if is_rolled_back:
            kernel.store.objects.delete(held.intent.object_path)
        with hours_later(2 * HEARTBEAT_LOST_SECONDS / 3_600):
            kernel.commit("main", lambda snapshot: plan, CommitPolicy.LONG_CHANGE)


def test_long_work_that_was_rolled_back_meanwhile_is_refused(graph: Graph) -> None:
    before = graph.snapshot().version
    with pytest.raises(ConflictError, match="sent no heartbeat"):
        publish_under_intent(graph, is_rolled_back=True)
    assert og.open(graph.uri).snapshot().version == before


def test_long_work_that_nobody_touched_is_published(graph: Graph) -> None:
    publish_under_intent(graph, is_rolled_back=False)
    assert graph.commits()[0].kind == "load"


# -- one at a time --------------------------------------------------------------------------------------------------


def test_alone_second_of_a_kind_stands_back_until_the_first_is_gone(graph: Graph) -> None:
    store, base = session_of(graph).kernel.store, graph.snapshot()
    with (
        exclusive_intent(store, "tidy", base),
        exclusive_intent(store, "other", base),
        pytest.raises(ConflictError, match="another tidy"),
        exclusive_intent(store, "tidy", base),
    ):
        pytest.fail("there are two of a kind")
    with exclusive_intent(store, "tidy", base) as again:
        dead = replace(again.intent, owner=replace(again.intent.owner, started="0"))
        store.objects.write(dead.object_path, dead.to_bytes())
        with exclusive_intent(store, "tidy", base) as next_one:
            assert next_one.intent.kind == "tidy"
