"""What is synced survives a power cut, in the order that keeps names from outliving bytes."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.errors import StorageError, StorageKind, UsageError
from omnigraph.store.objects import durability
from omnigraph.store.objects.control_objects import Objects
from omnigraph.store.objects.durability import Disk
from omnigraph.store.objects.uri import Location
from tests.support.power_loss import PowerLoss

pytestmark = pytest.mark.usefixtures("power_durability")


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were synced, in order, instead of syncing them."""
    paths: list[str] = []
    monkeypatch.setattr(durability, "_sync_path", paths.append)
    return paths


def disk_at(path: Path) -> Disk:
    return Disk(Location.parse(str(path)))


def test_sync_many_paths_files_come_before_directories(tmp_path: Path, synced: list[str]) -> None:
    disk_at(tmp_path).sync(["a/f", "b/f"], ["a", "b"])
    assert set(synced[:2]) == {f"{tmp_path}/a/f", f"{tmp_path}/b/f"}
    assert {f"{tmp_path}/a", f"{tmp_path}/b", str(tmp_path)} <= set(synced[2:])


def test_sync_repeated_paths_are_synced_once(tmp_path: Path, synced: list[str]) -> None:
    disk_at(tmp_path).sync(["a/f", "a/f", f"{tmp_path}/a/f"], ["a", "a", "a/", ""])
    assert synced.count(f"{tmp_path}/a/f") == synced.count(f"{tmp_path}/a") == synced.count(str(tmp_path)) == 1


def test_sync_deep_directory_includes_its_parents_up_to_the_mount_point(tmp_path: Path, synced: list[str]) -> None:
    disk_at(tmp_path / "graph").sync([], ["nodes/x/data"])
    below = {f"{tmp_path}/graph{part}" for part in ("", "/nodes", "/nodes/x", "/nodes/x/data")}
    assert below | {str(tmp_path), str(tmp_path.parent)} <= set(synced)


def test_sync_second_time_leaves_out_what_is_above_the_root(tmp_path: Path, synced: list[str]) -> None:
    disk = disk_at(tmp_path / "graph")
    disk.sync([], ["a"])
    synced.clear()
    disk.sync([], ["b"])
    assert set(synced) == {f"{tmp_path}/graph", f"{tmp_path}/graph/b"}


def test_sync_failed_first_time_anchors_the_root_the_next_time(tmp_path: Path) -> None:
    def fail(path: str) -> None:
        raise OSError(errno.EIO, "")

    disk, seen = disk_at(tmp_path / "graph"), list[str]()
    with durability.replaced(fail), pytest.raises(StorageError, match="disk reports a fault"):
        disk.sync([], ["a"])
    with durability.replaced(seen.append):
        disk.sync([], ["a"])
    assert str(tmp_path) in seen


def test_sync_files_alone_touches_no_directory(tmp_path: Path, synced: list[str]) -> None:
    disk_at(tmp_path).sync(["f"], [])
    assert synced == [f"{tmp_path}/f"]


def test_sync_process_durability_does_nothing(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "process")
    disk = disk_at(tmp_path)
    disk.sync(["f"], [""])
    assert (synced, disk.active) == ([], False)


def test_sync_unknown_durability_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "hope")
    with pytest.raises(UsageError, match="power, process"):
        disk_at(tmp_path).sync(["f"], [])


def test_sync_object_store_does_nothing(synced: list[str]) -> None:
    disk = Disk(Location.parse("s3://bucket/g"))
    disk.sync(["f"], [""])
    assert (synced, disk.active) == ([], False)


@pytest.mark.parametrize("others", [0, 20])
def test_sync_missing_file_is_an_error(tmp_path: Path, others: int) -> None:
    names = [f"f{number}" for number in range(others)]
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(StorageError) as caught:
        disk_at(tmp_path).sync([*names, "missing"], [])
    assert caught.value.storage_kind is StorageKind.NOT_FOUND
    assert "missing" in caught.value.message


def test_sync_full_disk_is_named(tmp_path: Path) -> None:
    def full(_: str) -> None:
        raise OSError(errno.ENOSPC, "")

    with durability.replaced(full), pytest.raises(StorageError, match="disk is full") as caught:
        disk_at(tmp_path).sync(["f"], [])
    assert (caught.value.storage_kind, caught.value.context["errno"]) == (StorageKind.FULL, "ENOSPC")


def test_sync_several_files_run_side_by_side(tmp_path: Path) -> None:
    # Each waits for the other, so syncing them one after another would never end.
    meeting = threading.Barrier(4, timeout=30)

    def meet(_: str) -> None:
        meeting.wait()

    with durability.replaced(meet):
        disk_at(tmp_path).sync(["a", "b", "c", "d"], [])


def test_sync_real_disk_accepts_files_and_directories(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_bytes(b"x")
    disk_at(tmp_path).sync(["d/f"], ["d"])


def test_replaced_block_ends_seam_returns(tmp_path: Path) -> None:
    before = durability._sync_path
    with durability.replaced(print):
        assert durability._sync_path is print
    assert durability._sync_path is before


# -- the recorder itself ---------------------------------------------------------------------------------------------


def make(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def test_powerloss_synced_file_and_directory_survive(tmp_path: Path) -> None:
    with PowerLoss(tmp_path) as loss:
        make(tmp_path / "g" / "f", b"x")
        disk_at(tmp_path / "g").sync(["f"], [""])
        assert loss.surviving() == {"g/f": b"x"}


def test_powerloss_missing_directory_sync_loses_the_file(tmp_path: Path) -> None:
    with PowerLoss(tmp_path) as loss:
        make(tmp_path / "g" / "f", b"x")
        disk_at(tmp_path / "g").sync(["f"], [])
        assert loss.surviving() == {}


def test_powerloss_missing_parent_sync_loses_the_directory(tmp_path: Path) -> None:
    with PowerLoss(tmp_path) as loss:
        make(tmp_path / "g" / "d" / "f", b"x")
        for path in ("g/d/f", "g/d"):
            loss.sync(str(tmp_path / path))
        assert loss.surviving() == {}


def test_powerloss_name_synced_before_bytes_survives_empty(tmp_path: Path) -> None:
    with PowerLoss(tmp_path) as loss:
        make(tmp_path / "f", b"x")
        loss.sync(str(tmp_path))
        assert loss.surviving() == {"f": b""}


def test_powerloss_bytes_after_the_last_sync_are_lost(tmp_path: Path) -> None:
    make(tmp_path / "f", b"old")
    with PowerLoss(tmp_path) as loss:
        make(tmp_path / "f", b"new")
        assert loss.surviving() == {"f": b"old"}
        loss.sync(str(tmp_path / "f"))
        assert loss.surviving() == {"f": b"new"}


def test_powerloss_unsynced_delete_returns(tmp_path: Path) -> None:
    make(tmp_path / "f", b"x")
    with PowerLoss(tmp_path) as loss:
        (tmp_path / "f").unlink()
        assert loss.surviving() == {"f": b"x"}
        loss.sync(str(tmp_path))
        assert loss.surviving() == {}


def test_powerloss_renamed_file_keeps_its_synced_bytes(tmp_path: Path) -> None:
    with PowerLoss(tmp_path) as loss:
        make(tmp_path / "a", b"x")
        loss.sync(str(tmp_path / "a"))
        os.rename(tmp_path / "a", tmp_path / "b")
        loss.sync(str(tmp_path))
        assert loss.surviving() == {"b": b"x"}


def test_powerloss_recreated_file_does_not_inherit_old_bytes(tmp_path: Path) -> None:
    make(tmp_path / "f", b"old")
    with PowerLoss(tmp_path) as loss:
        (tmp_path / "f").unlink()
        make(tmp_path / "f", b"new")
        loss.sync(str(tmp_path))
        assert loss.surviving() == {"f": b""}


def test_powerloss_names_first_shows_unsynced_names_without_bytes(tmp_path: Path) -> None:
    with PowerLoss(tmp_path) as loss:
        make(tmp_path / "g" / "f", b"x")
        assert (loss.surviving(), loss.surviving_names_first()) == ({}, {"g/f": b""})


def test_powerloss_materialise_writes_the_surviving_tree(tmp_path: Path) -> None:
    watched = tmp_path / "disk"
    watched.mkdir()
    with PowerLoss(watched) as loss:
        make(watched / "g" / "f", b"x")
        make(watched / "g" / "lost", b"y")
        (watched / "g" / "empty").mkdir()
        (watched / "g" / "lost").unlink()
        disk_at(watched / "g").sync(["f"], ["empty"])
        make(watched / "g" / "late", b"z")
        loss.materialise(tmp_path / "after")
    after = tmp_path / "after"
    assert {str(path.relative_to(after)) for path in after.rglob("*")} == {"g", "g/f", "g/empty"}
    assert (after / "g" / "f").read_bytes() == b"x"


# -- control objects on that disk ------------------------------------------------------------------------------------

Step = Callable[[Objects], object]
CHANGES: dict[str, tuple[Step, bytes]] = {
    "write": (lambda objects: objects.write("d/f", b"new"), b"new"),
    "write_if_absent": (lambda objects: objects.write_if_absent("d/f", b"new"), b"new"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_objects_change_returned_survives(tmp_path: Path, change: str) -> None:
    (tmp_path / "g").mkdir()
    step, expected = CHANGES[change]
    with PowerLoss(tmp_path) as loss:
        make(tmp_path / "g" / "staged", b"staged")
        step(Objects(Location.parse(str(tmp_path / "g"))))
        assert loss.surviving()["g/d/f"] == expected


@pytest.mark.parametrize("change", CHANGES)
def test_objects_change_cut_at_any_sync_leaves_no_torn_file(tmp_path: Path, change: str) -> None:
    make(tmp_path / "g" / "staged", b"staged")
    step, expected = CHANGES[change]
    objects = Objects(Location.parse(str(tmp_path / "g")))
    seen: list[bytes | None] = []
    with PowerLoss(tmp_path) as loss:

        def sync(path: str) -> None:
            seen.append(loss.surviving_names_first().get("g/d/f"))
            loss.sync(path)
            seen.append(loss.surviving().get("g/d/f"))

        with durability.replaced(sync):
            step(objects)
    assert set(seen) == {None, expected}


def test_objects_replace_cut_at_any_sync_leaves_old_or_new(tmp_path: Path) -> None:
    make(tmp_path / "f", b"old")
    seen: list[bytes | None] = []
    with PowerLoss(tmp_path) as loss:

        def sync(path: str) -> None:
            seen.append(loss.surviving_names_first().get("f"))
            loss.sync(path)
            seen.append(loss.surviving().get("f"))

        with durability.replaced(sync):
            Objects(Location.parse(str(tmp_path))).write("f", b"new")
    assert set(seen) == {b"old", b"new"}
    assert seen[-1] == b"new"


def test_objects_delete_prefix_returned_stays_deleted(tmp_path: Path) -> None:
    make(tmp_path / "d" / "f", b"x")
    with PowerLoss(tmp_path) as loss:
        Objects(Location.parse(str(tmp_path))).delete_prefix("d")
        assert loss.surviving() == {}


def test_objects_link_survives_once_its_directory_is_synced(tmp_path: Path) -> None:
    make(tmp_path / "d" / "staged", b"x")
    root = Location.parse(str(tmp_path))
    with PowerLoss(tmp_path) as loss:
        Objects(root).link("d/staged", "d/f")
        assert loss.surviving() == {"d/staged": b"x"}
        Disk(root).sync([], ["d"])
        assert loss.surviving() == {"d/staged": b"x", "d/f": b"x"}


def test_objects_process_durability_survives_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "process")
    with PowerLoss(tmp_path) as loss:
        Objects(Location.parse(str(tmp_path))).write("f", b"x")
        assert loss.surviving() == {}
