"""Random worlds of blobs, indexes, forks, tags and ages: after every cleanup all that is kept reads back whole."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from omnigraph.engine.maintain import cleanup as cleaning
from omnigraph.engine.maintain.retention import KeptStates
from omnigraph.errors import StorageError
from omnigraph.manifest import file_removal
from omnigraph.store.files import manifest_file, reachability
from omnigraph.store.files.manifest_file import NamedFile
from omnigraph.store.files.reachability import DatasetFork, TrackedFiles, list_tracked
from omnigraph.store.store import Store
from tests.support.cleanup_world import Broken, World

pytestmark = pytest.mark.slow

STEPS = 45


def play(root: Path, seed: int, steps: int = STEPS) -> None:
    world = World(root, seed)
    world.run(steps)
    world.check_garbage()


@pytest.mark.parametrize("seed", [0])
def test_cleanup_worlds_keep_every_kept_state(tmp_path: Path, seed: int) -> None:
    play(tmp_path / "g.omni", seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1_000, 1_240))
def test_cleanup_many_worlds_keep_every_kept_state(tmp_path: Path, seed: int) -> None:
    play(tmp_path / "g.omni", seed, STEPS + seed % 60)


def play_several(root: Path) -> None:
    """Play until an oracle speaks up; which seed shows a fault first is chance."""
    for seed in range(6):
        play(root / f"{seed}.omni", seed)


# -- the oracle has teeth ----------------------------------------------------------------------------------------


def blind_net(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Let Lance's list say nothing of one kind of files."""

    def broken(
        store: Store, path: str, fork: str | None, kept: Collection[int], gone: Collection[int]
    ) -> tuple[TrackedFiles, TrackedFiles, TrackedFiles]:
        stays, goes, newer = list_tracked(store, path, fork, kept, gone)
        if kind == "blobs":
            # What it really lists: data files, without the folders beside them.
            stays.tokens.clear()
        stays.paths = {one for one in stays.paths if kind not in one}
        stays.tokens = {one for one in stays.tokens if kind != "_indices/" or "-" not in one}
        return stays, goes, newer

    monkeypatch.setattr(file_removal, "list_tracked", broken)


def forget_blobs(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = manifest_file.decode_fragment

    def broken(fragment: bytes) -> list[NamedFile]:
        return [one for one in decode(fragment) if not one.path.endswith("/")]

    monkeypatch.setattr(reachability, "decode_fragment", broken)
    blind_net(monkeypatch, "blobs")


def forget_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_file, "_indexes", lambda section: iter(()))
    blind_net(monkeypatch, "_indices/")


def forget_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other forks read of a dataset does not count, and no fork is kept for its own sake."""
    keep = KeptStates._keep_type

    def broken(self: KeptStates, place: DatasetFork, wanted: set[int], live: Collection[str | None]) -> set[int]:
        return set() if place[1] else keep(self, place, wanted, live)  # type: ignore[arg-type]

    monkeypatch.setattr(KeptStates, "_keep_type", broken)


def forget_deletions(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = manifest_file.decode_fragment
    monkeypatch.setattr(
        reachability, "decode_fragment", lambda one: [file for file in decode(one) if "_deletions" not in file.path]
    )
    blind_net(monkeypatch, "_deletions/")


def delete_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "remove", lambda store, plan: None)


SHOWN_LATER = (forget_forks, forget_deletions, delete_nothing)


@pytest.mark.parametrize(
    "mutate", [forget_blobs, forget_indexes, *(pytest.param(one, marks=pytest.mark.long) for one in SHOWN_LATER)]
)
def test_cleanup_worlds_catch_a_cleanup_that_forgets(
    tmp_path: Path, mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    # A state that cannot be read shows when it is compared, or when the next write stands on it.
    with pytest.raises((Broken, StorageError)):
        play_several(tmp_path)
