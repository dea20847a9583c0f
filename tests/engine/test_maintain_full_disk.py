"""Cleanup where no byte is free: it begins, keeps all of its promises, and can be killed anywhere."""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.errors import ConflictError, Effect, OmniGraphError, StorageError, StorageKind
from omnigraph.failpoints import Point
from omnigraph.graph import Graph, session_of
from omnigraph.limits import RESERVE_BYTES
from omnigraph.manifest import intents, recovery
from omnigraph.manifest.intents import CLEANUP, Owner, declared, exclusive_intent, pending, this_process
from omnigraph.store.objects.control_objects import Objects
from omnigraph.store.objects.local_objects import RESERVE_PATH, LocalObjects
from omnigraph.store.objects.uri import Location
from tests.engine.full_disk import fill, free_bytes, small_disk
from tests.support.forked_python import run_forked
from tests.support.maintenance_fixtures import hours_later

NAMES = "query q() { match { $p: Person } return { $p.name } order { $p.name } }"


@pytest.fixture(params=["tmpfs", pytest.param("ext4", marks=pytest.mark.slow)])
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    with small_disk(tmp_path, request.param) as path:
        yield path


def make(folder: Path) -> Graph:
    graph = og.init(folder / "g.omni", "node Person { name: String @key }")
    for name in "abcd":
        graph.ingest([{"type": "Person", "data": {"name": name}}])
    return graph


def names(graph: Graph) -> list[str]:
    return [str(row["p.name"]) for row in graph.query(NAMES).rows()]


def check_whole(root: str, expected: str = "abcd") -> None:
    """Assert that a fresh handle reads all, and that the reserve is back and nothing else is left of cleanups."""
    graph = og.open(root)
    assert names(graph) == list(expected)
    assert graph.maintenance.verify().findings == ()
    assert [one.name for one in Path(root, "__recovery").iterdir()] == ["reserve"]
    assert Path(root, RESERVE_PATH).stat().st_size == RESERVE_BYTES
    graph.close()


def refused(work: Callable[[], object]) -> OmniGraphError:
    with pytest.raises(OmniGraphError) as caught:
        work()
    return caught.value


@pytest.mark.slow
def test_cleanup_on_a_full_disk_frees_room_and_restores_its_reserve(disk: Path) -> None:
    graph = make(disk)
    fill(disk)
    error = refused(lambda: graph.ingest([{"type": "Person", "data": {"name": "x"}}]))
    assert isinstance(error, StorageError)
    assert (error.storage_kind, error.effect) == (StorageKind.FULL, Effect.NONE)
    assert "omnigraph cleanup" in error.message
    with hours_later():
        report = graph.maintenance.cleanup(keep=1, confirm=True)
    assert report.bytes_removed > 0
    assert free_bytes(disk) > 0
    check_whole(graph.uri)
    graph.ingest([{"type": "Person", "data": {"name": "e"}}])
    check_whole(graph.uri, "abcde")


@pytest.mark.slow
def test_cleanup_that_may_remove_nothing_leaves_a_full_disk_as_it_is(disk: Path) -> None:
    graph = make(disk)
    fill(disk)
    for _ in range(2):
        assert graph.maintenance.cleanup(keep=1, confirm=True).bytes_removed == 0
    check_whole(graph.uri)
    assert graph.maintenance.cleanup(keep=1, dry_run=True).bytes_removed == 0


@pytest.mark.slow
def test_everything_that_only_reads_works_on_a_full_disk(disk: Path, tmp_path: Path) -> None:
    graph = make(disk)
    graph.branches.create("review")
    graph.ingest([{"type": "Person", "data": {"name": "r"}}], branch="review")
    fill(disk)
    assert names(graph) == list("abcd")
    assert graph.maintenance.verify(data=True).findings == ()
    assert len(graph.commits()) == 5
    exported = b"".join(graph.export())
    assert exported.count(b"\n") == 4
    for work in (
        lambda: graph.branches.create("b"),
        lambda: graph.branches.delete("review"),
        lambda: graph.maintenance.optimize(),
        lambda: graph.branches.merge("review"),
    ):
        error = refused(work)
        assert (error.effect, error.context["kind"]) == (Effect.NONE, StorageKind.FULL), error
    # What was refused has left nothing that a later cleanup could not take.
    with hours_later():
        graph.maintenance.cleanup(keep=1, confirm=True)
        graph.branches.delete("review")
        graph.maintenance.cleanup(keep=1, confirm=True)
    check_whole(graph.uri)


def test_cleanup_on_a_full_disk_stands_back_for_another(disk: Path) -> None:
    graph = make(disk)
    kernel = session_of(graph).kernel
    fill(disk)
    with exclusive_intent(kernel.store, CLEANUP, graph.snapshot()), hours_later():
        assert not Path(graph.uri, RESERVE_PATH).exists()
        assert [one.kind for one in pending(kernel.store)[0]] == [CLEANUP]
        assert refused(lambda: og.open(graph.uri).maintenance.cleanup(keep=1, confirm=True)).code == "conflict.busy"
        assert len(graph.query(NAMES, at=graph.commits()[-1].commit_id).rows()) == 0
    with hours_later():
        graph.maintenance.cleanup(keep=1, confirm=True)
    check_whole(graph.uri)


@pytest.mark.slow
def test_cleanup_on_a_full_disk_spares_live_work(disk: Path) -> None:
    graph = make(disk)
    base = graph.commits()[0].commit_id
    with declared(session_of(graph).kernel.store, "load", graph.snapshot()):
        graph.ingest([{"type": "Person", "data": {"name": "e"}}])
        fill(disk)
        with hours_later():
            assert graph.maintenance.cleanup(keep=1, confirm=True).bytes_removed > 0
        # What it began on is kept, though newer commits are enough for `keep`.
        assert len(graph.query(NAMES, at=base).rows()) == 4
    with hours_later():
        graph.maintenance.cleanup(keep=1, confirm=True)
    assert refused(lambda: graph.query(NAMES, at=base)).code == "graph.version_reclaimed"


def test_heartbeat_on_a_full_disk_needs_no_room(disk: Path) -> None:
    graph = make(disk)
    store = session_of(graph).kernel.store
    with exclusive_intent(store, CLEANUP, graph.snapshot()) as held:
        fill(disk)
        before = store.objects.info(held.intent.object_path)
        for _ in range(2):
            held.beat()
        after = store.objects.info(held.intent.object_path)
        assert before is not None
        assert after is not None
        assert after.modified_us > before.modified_us
        # After a long silence it looks whether it was taken for dead, and finds what it wrote.
        held._beaten_at -= 3_600
        held.reject_lost()
        store.objects.delete(held.intent.object_path)
        held._beaten_at -= 3_600
        assert isinstance(refused(held.beat), ConflictError)


class _Died(BaseException):
    """Stands for the end of the process."""


def die_in_cleanup(graph: Graph, place: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Let a cleanup end before a durable operation as if its process had died; return False when it has no such."""
    seen: list[str] = []

    def die(detail: str) -> None:
        seen.append(detail)
        if len(seen) == place:
            raise _Died

    dead = Owner(this_process().host, this_process().pid, "0")
    with monkeypatch.context() as patched, hours_later():
        patched.setattr(intents, "this_process", lambda: dead)
        patched.setattr(intents, "finish", lambda store, intent: None)
        try:
            with failpoints.armed({Point.DURABLE_BEFORE: die}):
                graph.maintenance.cleanup(keep=1, confirm=True)
        except _Died:
            return True
    return False


@pytest.mark.slow
def test_cleanup_dies_at_any_place_and_the_next_one_goes_on(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make(disk)
    objects = Objects(Location.parse(graph.uri))
    places = 0
    # Each cleanup dies one place later than the one before, on what that one has left of the graph.
    while True:
        ballast = fill(disk)
        if not die_in_cleanup(og.open(graph.uri), places + 1, monkeypatch):
            break
        places += 1
        assert names(og.open(graph.uri)) == list("abcd")
    assert places >= 6
    ballast.unlink()
    with hours_later():
        og.open(graph.uri).maintenance.cleanup(keep=1, confirm=True)
    check_whole(graph.uri)
    assert {row.kind for row in recovery.read_audit(session_of(graph).kernel.store)} == {CLEANUP}
    assert not [one for one in objects.list("") if "/.og-" in one.path]


@pytest.mark.slow
def test_cleanup_killed_on_a_full_disk_is_followed_by_another(disk: Path) -> None:
    graph = make(disk)
    fill(disk)
    # In the midst of what it does: with its intent in the room of the reserve, before it removes the first file.
    command = [sys.executable, "-m", "tests.engine.full_disk", graph.uri, "3"]
    ran = run_forked(command)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    assert not Path(graph.uri, RESERVE_PATH).exists()
    [left] = pending(session_of(graph).kernel.store)[0]
    assert (left.kind, left.is_dead) == (CLEANUP, True)
    fill(disk)
    with hours_later():
        assert og.open(graph.uri).maintenance.cleanup(keep=1, confirm=True).bytes_removed > 0
    check_whole(graph.uri)
    assert [(row.outcome, row.kind) for row in recovery.read_audit(session_of(graph).kernel.store)] == [
        ("RolledBack", CLEANUP)
    ]


# -- without a disk of our own ----------------------------------------------------------------------------------------


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a way to fill the disk for all who write objects."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    return lambda: monkeypatch.setattr(LocalObjects, "_temporary", refuse)


def test_object_in_the_reserve_is_whole_and_gives_its_room_back(tmp_path: Path, full: Callable[[], None]) -> None:
    objects = Objects(Location.parse(str(tmp_path)))
    objects.keep_reserve()
    full()
    objects.write_from_reserve("__recovery/a.json", b'{"a": 1}')
    assert objects.read("__recovery/a.json").rstrip() == b'{"a": 1}'
    assert not (tmp_path / RESERVE_PATH).exists()
    with pytest.raises(StorageError, match="disk is full"):
        objects.write_from_reserve("__recovery/b.json", b"{}")
    objects.delete_into_reserve("__recovery/a.json")
    assert not objects.exists("__recovery/a.json")
    objects.write_from_reserve("__recovery/b.json", b"{}")
    assert objects.read("__recovery/b.json").rstrip() == b"{}"


@pytest.mark.parametrize("size", [RESERVE_BYTES, RESERVE_BYTES + 1])
def test_object_that_does_not_fit_the_reserve_is_refused(tmp_path: Path, full: Callable[[], None], size: int) -> None:
    objects = Objects(Location.parse(str(tmp_path)))
    objects.keep_reserve()
    full()
    if size <= RESERVE_BYTES:
        objects.write_from_reserve("a", b"x" * size)
        assert objects.read("a") == b"x" * size
    else:
        assert isinstance(refused(lambda: objects.write_from_reserve("a", b"x" * size)), StorageError)
        assert objects.exists(RESERVE_PATH)


def test_graph_without_a_reserve_gets_one_with_its_next_write(tmp_path: Path) -> None:
    graph = make(tmp_path)
    for left in (None, b"cut short"):
        Path(graph.uri, RESERVE_PATH).unlink()
        if left is not None:
            Path(graph.uri, RESERVE_PATH).write_bytes(left)
        og.open(graph.uri).ingest([{"type": "Person", "data": {"name": f"{left!r}"}}])
        assert Path(graph.uri, RESERVE_PATH).stat().st_size == RESERVE_BYTES
