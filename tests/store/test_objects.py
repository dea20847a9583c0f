"""Control objects behave alike on a disk and in each object store, also when many write at once and storage fails."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import tests.support.cloud_stores
import tests.support.s3_server
from omnigraph import clock, failpoints
from omnigraph.errors import Effect, StorageError, StorageKind, UsageError
from omnigraph.failpoints import Point
from omnigraph.ids import new_ulid
from omnigraph.limits import COPY_CHUNK_BYTES
from omnigraph.store.objects import durability
from omnigraph.store.objects.backend import Meter
from omnigraph.store.objects.control_objects import Objects
from omnigraph.store.objects.local_objects import TEMPORARY_PREFIX
from omnigraph.store.objects.uri import Location
from tests.support.cloud_stores import Cloud
from tests.support.s3_server import S3Server

s3_server = tests.support.s3_server.s3_server
azurite_server = tests.support.cloud_stores.azurite_server
azurite = tests.support.cloud_stores.azurite
gcs_server = tests.support.cloud_stores.gcs_server
BACKENDS = ["local", *(pytest.param(name, marks=pytest.mark.s3) for name in ("s3_server", "gcs_server", "azurite"))]


@pytest.fixture(params=BACKENDS)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """An address at which nothing exists yet."""
    if request.param == "local":
        return Location.parse(str(tmp_path / "not" / "yet"))
    server: S3Server | Cloud = request.getfixturevalue(request.param)
    return Location.parse(server.uri(f"{new_ulid()}/not/yet"))


@pytest.fixture
def meter() -> Meter:
    return Meter()


@pytest.fixture
def objects(root: Location, meter: Meter) -> Objects:
    if not root.has_paths:
        # The proof of a bucket leaves an object, which stays outside of what the tests list and count.
        Objects(Location.parse(f"{root.scheme}://{root.bucket}/proven")).require_conditional_puts()
    return Objects(root, meter)


def local(path: Path) -> Objects:
    return Objects(Location.parse(str(path)))


# -- every operation, on both ----------------------------------------------------------------------------------------


def test_write_then_read_returns_the_bytes(objects: Objects) -> None:
    objects.write("a/b.json", b"\x00bytes\xff")
    assert objects.read("a/b.json") == objects.read_if_exists("a/b.json") == b"\x00bytes\xff"


def test_write_existing_object_is_replaced(objects: Objects) -> None:
    objects.write("a", b"a long first version")
    objects.write("a", b"second")
    assert (objects.read("a"), objects.size("a")) == (b"second", 6)


def test_write_empty_object_exists(objects: Objects) -> None:
    objects.write("a", b"")
    assert (objects.exists("a"), objects.size("a"), objects.read("a")) == (True, 0, b"")


def test_read_absent_object_is_not_found(objects: Objects, root: Location) -> None:
    with pytest.raises(StorageError) as caught:
        objects.read("a/b")
    assert caught.value.storage_kind is StorageKind.NOT_FOUND
    assert root.child("a/b").uri in caught.value.message


def test_absent_object_is_none_and_false(objects: Objects) -> None:
    assert (objects.read_if_exists("a"), objects.size("a"), objects.exists("a")) == (None, None, False)


def test_directory_is_no_object(objects: Objects) -> None:
    objects.write("d/a", b"x")
    assert (objects.exists("d"), objects.size("d"), objects.read_if_exists("d")) == (False, None, None)
    objects.delete("d")
    assert objects.exists("d/a")


def test_write_if_absent_free_name_wins_and_taken_name_loses(objects: Objects) -> None:
    assert objects.write_if_absent("d/a", b"first") is True
    assert objects.write_if_absent("d/a", b"second") is False
    assert objects.write_if_absent("d/a", b"first") is False
    assert objects.read("d/a") == b"first"


def test_write_if_absent_after_delete_wins_again(objects: Objects) -> None:
    objects.write_if_absent("a", b"first")
    objects.delete("a")
    assert objects.write_if_absent("a", b"second") is True


def test_list_is_recursive_sorted_and_relative(objects: Objects) -> None:
    for path in ("b", "a/z", "a/b/c", "ab/x"):
        objects.write(path, path.encode())
    assert [(info.path, info.size_bytes) for info in objects.list("")] == [
        ("a/b/c", 5),
        ("a/z", 3),
        ("ab/x", 4),
        ("b", 1),
    ]
    assert [info.path for info in objects.list("a")] == ["a/b/c", "a/z"]
    assert objects.list("nothing") == []


def test_list_tells_when_an_object_was_modified(objects: Objects) -> None:
    before = clock.now_us()
    objects.write("a", b"x")
    [info] = objects.list("")
    # S3 rounds down to the second.
    assert before - 1_000_000 <= info.modified_us <= clock.now_us()


def test_list_absent_root_is_empty_and_creates_nothing(objects: Objects, root: Location) -> None:
    assert objects.list("") == []
    assert not (root.has_paths and os.path.exists(root.path))


def test_delete_is_idempotent(objects: Objects) -> None:
    objects.write("d/a", b"x")
    objects.delete("d/a")
    objects.delete("d/a")
    objects.delete("never/was")
    assert objects.list("") == []


def test_delete_prefix_takes_all_below_and_nothing_beside(objects: Objects) -> None:
    for path in ("d/a", "d/e/b", "da", "db/x"):
        objects.write(path, b"x")
    assert objects.delete_prefix("d") == 2
    assert [info.path for info in objects.list("")] == ["da", "db/x"]
    assert objects.delete_prefix("d") == 0


def test_drop_empty_leaves_every_object(objects: Objects) -> None:
    for path in ("a/gone/deep/x", "a/b/deep/y", "a/z"):
        objects.write(path, b"")
    objects.delete("a/gone/deep/x")
    objects.drop_empty("a", clock.now_us() + 1_000_000)
    objects.drop_empty("nowhere", clock.now_us())
    assert [one.path for one in objects.list("")] == ["a/b/deep/y", "a/z"]


def test_link_free_name_gets_the_bytes_and_staged_stays(objects: Objects) -> None:
    objects.write("staged", b"x")
    assert objects.link("staged", "d/final") is True
    assert (objects.read("staged"), objects.read("d/final")) == (b"x", b"x")


def test_link_taken_name_is_left_alone(objects: Objects) -> None:
    objects.write("staged", b"x")
    objects.write("final", b"other")
    assert objects.link("staged", "final") is False
    assert objects.read("final") == b"other"


def test_link_again_after_staged_is_gone_finds_it_done(objects: Objects) -> None:
    objects.write("staged", b"x")
    objects.link("staged", "final")
    objects.delete("staged")
    assert objects.link("staged", "final") is False


def test_link_missing_staged_is_not_found(objects: Objects, root: Location) -> None:
    with pytest.raises(StorageError) as caught:
        objects.link("staged", "final")
    assert caught.value.storage_kind is StorageKind.NOT_FOUND
    assert root.child("staged").uri in caught.value.message


def test_copy_within_a_store_is_whole_or_not_there(
    objects: Objects, root: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(COPY_CHUNK_BYTES + 100_000)
    objects.write("big", content)
    objects.write("empty", b"")
    target = Objects(Location.parse(f"{root.uri}-copy"))
    for path in ("big", "empty"):
        objects.copy_to(target, path)
    assert (target.read("big"), target.read("empty")) == (content, b"")
    whole = type(objects._backend).open_chunks

    @contextmanager
    def cut_off(backend: object, path: str) -> Iterator[Iterator[bytes]]:
        def chunks(read: Iterator[bytes]) -> Iterator[bytes]:
            yield next(read)
            raise StorageError("cut off")

        with whole(backend, path) as read:  # type: ignore[arg-type]
            assert read is not None
            yield chunks(read)

    monkeypatch.setattr(type(objects._backend), "open_chunks", cut_off)
    broken = Objects(Location.parse(f"{root.uri}-broken"))
    with pytest.raises(StorageError, match="cut off"):
        objects.copy_to(broken, "big")
    assert broken.read_if_exists("big") is None


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", ".", "..", "../a", "a/../../b", "a/./b", "a\0b"])
def test_path_outside_of_the_root_is_refused(objects: Objects, path: str) -> None:
    operations: list[Callable[[], object]] = [
        lambda: objects.read(path),
        lambda: objects.exists(path),
        lambda: objects.write(path, b""),
        lambda: objects.write_if_absent(path, b""),
        lambda: objects.link("a", path),
        lambda: objects.link(path, "a"),
        lambda: objects.delete(path),
        lambda: objects.delete_prefix(path),
    ]
    for operation in operations:
        with pytest.raises(UsageError, match="not the path of an object"):
            operation()


# -- failpoints and the meter ----------------------------------------------------------------------------------------

CHANGES: dict[str, Callable[[Objects], object]] = {
    "write a": lambda objects: objects.write("a", b"x"),
    "write_if_absent a": lambda objects: objects.write_if_absent("a", b"x"),
    "link a": lambda objects: objects.link("staged", "a"),
    "delete gone": lambda objects: objects.delete("gone"),
    "delete_prefix d": lambda objects: objects.delete_prefix("d"),
}


class Stop(Exception):
    """Raised by the tests at a failpoint."""


@pytest.mark.parametrize("detail", CHANGES)
def test_change_passes_a_failpoint_before_and_after(objects: Objects, detail: str) -> None:
    for path in ("staged", "gone", "d/a"):
        objects.write(path, b"x")
    paths = [info.path for info in objects.list("")]
    details: list[str] = []

    def stop(seen: str) -> None:
        details.append(seen)
        raise Stop

    with failpoints.armed({Point.DURABLE_BEFORE: stop}), pytest.raises(Stop):
        CHANGES[detail](objects)
    assert [info.path for info in objects.list("")] == paths
    with failpoints.armed({Point.DURABLE_AFTER: stop}), pytest.raises(Stop):
        CHANGES[detail](objects)
    assert [info.path for info in objects.list("")] != paths
    assert details == [detail, detail]


def test_operations_count_their_requests(objects: Objects, meter: Meter, root: Location) -> None:
    objects.write("a", b"x")
    objects.write_if_absent("b", b"x")
    objects.exists("a")
    objects.size("a")
    objects.read_if_exists("a")
    objects.list("")
    objects.delete("a")
    link = {"link c": 1} if root.has_paths else {"get b": 1, "put_if_absent c": 1}
    before = meter.snapshot()
    assert before == {
        "delete a": 1,
        "get a": 1,
        "head a": 2,
        "list ": 1,
        "put a": 1,
        "put_if_absent b": 1,
    }
    objects.link("b", "c")
    assert meter.since(before) == link


@pytest.mark.s3
def test_meter_agrees_with_what_the_server_saw(s3_server: S3Server) -> None:
    meter = Meter()
    objects = Objects(Location.parse(s3_server.uri("g")), meter)
    objects.write("d/a", b"x")
    objects.write_if_absent("d/a", b"y")
    objects.link("d/a", "d/b")
    objects.exists("d/a")
    objects.delete("d/a")
    objects.delete_prefix("d")
    assert sum(meter.snapshot().values()) == len(s3_server.requests)


# -- races -----------------------------------------------------------------------------------------------------------

RACERS = 8


def race(attempt: Callable[[int], bool]) -> list[int]:
    """Let all racers start at once; return who won."""
    start = threading.Barrier(RACERS, timeout=60)

    def run(racer: int) -> bool:
        start.wait()
        return attempt(racer)

    with ThreadPoolExecutor(RACERS) as pool:
        return [racer for racer, won in enumerate(pool.map(run, range(RACERS))) if won]


@pytest.mark.slow
def test_write_if_absent_race_has_one_winner(objects: Objects, root: Location) -> None:
    for number in range(50 if root.has_paths else 10):
        [winner] = race(lambda racer, name=f"d/{number}": objects.write_if_absent(name, bytes([racer])))  # type: ignore[misc]
        assert objects.read(f"d/{number}") == bytes([winner])


def test_link_race_has_one_winner(objects: Objects, root: Location) -> None:
    for racer in range(RACERS):
        objects.write(f"staged/{racer}", bytes([racer]))
    for number in range(50 if root.has_paths else 10):
        [winner] = race(lambda racer, name=f"d/{number}": objects.link(f"staged/{racer}", name))  # type: ignore[misc]
        assert objects.read(f"d/{number}") == bytes([winner])


def test_write_race_readers_see_whole_versions_only(objects: Objects, root: Location) -> None:
    versions = [bytes([racer]) * 50_000 for racer in range(RACERS)]
    objects.write("a", versions[0])

    def write_and_read(racer: int) -> bool:
        objects.write("a", versions[racer])
        return objects.read("a") in versions

    for _ in range(10 if root.has_paths else 2):
        assert len(race(write_and_read)) == RACERS


def test_delete_prefix_race_removes_all_and_counts_each_once(tmp_path: Path) -> None:
    objects = local(tmp_path)
    for number in range(60):
        objects.write(f"d/{number % 7}/{number}", b"x")
    counts = [0] * RACERS

    def delete(racer: int) -> bool:
        counts[racer] = objects.delete_prefix("d")
        return True

    race(delete)
    assert (sum(counts), os.listdir(tmp_path)) == (60, [])


# -- local failures --------------------------------------------------------------------------------------------------


def test_local_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    objects = local(tmp_path)
    objects.write("a", b"x")
    objects.write_if_absent("a", b"y")
    objects.write_if_absent("b", b"y")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_local_temporary_file_of_a_crash_is_listed_and_deleted(tmp_path: Path) -> None:
    objects = local(tmp_path)
    objects.write("d/a", b"x")
    (tmp_path / "d" / f"{TEMPORARY_PREFIX}01").write_bytes(b"half")
    assert [info.path for info in objects.list("")] == [f"d/{TEMPORARY_PREFIX}01", "d/a"]
    assert objects.delete_prefix("d") == 2
    assert os.listdir(tmp_path) == []


def test_local_drop_empty_takes_only_what_is_empty_for_long(tmp_path: Path) -> None:
    objects = local(tmp_path)
    for name in ("old", "young", "used"):
        (tmp_path / "a" / name / "deep").mkdir(parents=True)
    objects.write("a/used/x", b"")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "a" / "used")
    for folder in (tmp_path / "a").rglob("*"):
        os.utime(folder, (1_000, 1_000))
    # A folder is as old as the youngest below it.
    os.utime(tmp_path / "a" / "young" / "deep", (3_000, 3_000))
    objects.drop_empty("a", 2_000_000_000)
    assert sorted(one.name for one in (tmp_path / "a").iterdir()) == ["link", "used", "young"]
    assert (tmp_path / "a" / "used" / "deep").is_dir()


def test_local_path_through_a_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    objects = local(tmp_path / "file" / "graph")
    for operation in (lambda: objects.write("a", b""), lambda: objects.exists("a"), lambda: objects.list("")):
        with pytest.raises(StorageError, match="is a file, not a directory") as caught:
            operation()
        assert caught.value.storage_kind is StorageKind.CONFIGURATION


# The suite may run as root, whom no mode stops, so refusals of the system are simulated at its calls.
@pytest.mark.parametrize(
    ("call", "code", "kind", "words"),
    [
        ("replace", errno.EROFS, StorageKind.CONFIGURATION, "read-only"),
        ("replace", errno.EACCES, StorageKind.CONFIGURATION, "permission denied"),
        ("replace", errno.ENOSPC, StorageKind.FULL, "disk is full"),
        ("replace", errno.EDQUOT, StorageKind.FULL, "quota"),
        ("makedirs", errno.EROFS, StorageKind.CONFIGURATION, "read-only"),
        ("makedirs", errno.EMFILE, StorageKind.TRANSIENT, "open files"),
        ("makedirs", errno.EPROTO, StorageKind.UNKNOWN, "protocol error"),
    ],
)
def test_local_refused_write_names_object_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int, kind: StorageKind, words: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(StorageError, match=words) as caught:
        local(tmp_path).write("a", b"x")
    error = caught.value
    assert (error.storage_kind, error.effect, error.retryable) == (kind, Effect.NONE, kind is StorageKind.TRANSIENT)
    assert error.context["object"] == f"{tmp_path}/a"
    assert str(tmp_path) in error.message
    assert os.listdir(tmp_path) == []


def test_local_unreadable_object_is_an_error_not_absence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise PermissionError(errno.EACCES, "")

    monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(StorageError, match="permission denied"):
        local(tmp_path).exists("a")


def test_local_file_system_without_hard_links_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StorageError, match="needs hard links") as caught:
        local(tmp_path).write_if_absent("a", b"x")
    assert caught.value.storage_kind is StorageKind.CONFIGURATION
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("power_durability")
def test_local_failed_sync_before_the_name_has_no_effect(tmp_path: Path) -> None:
    def full(_: str) -> None:
        raise OSError(errno.ENOSPC, "")

    with durability.replaced(full), pytest.raises(StorageError) as caught:
        local(tmp_path).write("a", b"x")
    assert (caught.value.effect, os.listdir(tmp_path)) == (Effect.NONE, [])


@pytest.mark.usefixtures("power_durability")
def test_local_failed_sync_after_the_name_says_nothing_about_the_graph(tmp_path: Path) -> None:
    def fault_in_directories(path: str) -> None:
        if os.path.isdir(path):
            raise OSError(errno.EIO, "")

    with durability.replaced(fault_in_directories), pytest.raises(StorageError) as caught:
        local(tmp_path).write("a", b"x")
    assert caught.value.effect is Effect.NONE
