"""Every write with every single request of it failing: its answer and storage must tell the same story."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from omnigraph.ids import new_ulid
from omnigraph.manifest import branches, intents
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import Snapshot
from omnigraph.store.objects import uri
from omnigraph.store.store import Store
from tests.kernel import storage_fault_world
from tests.kernel.storage_fault_world import (
    OPERATIONS,
    TWO_STEPS,
    UPKEEP,
    Choose,
    DiskWorld,
    Place,
    Run,
    S3World,
    World,
)
from tests.support.s3_server import S3Server, s3_server

__all__ = ["s3_server"]


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> DiskWorld:
    return DiskWorld(tmp_path_factory.mktemp("disk"))


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3World:
    # The clients' own retries would only hide the fault, and take their time.
    monkeypatch.setattr(uri, "RETRIES_MAX", 0)
    return S3World(s3_server)


def every(places: Sequence[Place]) -> Sequence[Place]:
    return places


def some(count: int, seed: int) -> Choose:
    """Return a choice of a few places."""

    def choose(places: list[Place]) -> list[Place]:
        return random.Random(seed).sample(places, min(count, len(places)))

    return choose


def campaign(world: World, operations: dict[str, Run], choose: Choose) -> int:
    """Run all operations and return how many faults were injected."""
    tried = 0
    wrong: list[str] = []
    for name, run in operations.items():
        count, found = storage_fault_world.search(world, name, run, choose)
        tried, wrong = tried + count, wrong + found
    assert wrong == [], "\n".join(wrong)
    return tried


@pytest.mark.slow
def test_answers_hold_when_a_disk_fails(disk: DiskWorld) -> None:
    assert campaign(disk, OPERATIONS, some(2, 7)) >= 20


@pytest.mark.slow
@pytest.mark.s3
def test_answers_hold_when_s3_fails(bucket: S3World) -> None:
    names = ("insert", "tag create in the past", "merge", "load")
    assert campaign(bucket, {name: OPERATIONS[name] for name in names}, some(2, 7)) >= 6


@pytest.mark.long
def test_answers_hold_at_every_request_to_a_disk(disk: DiskWorld) -> None:
    assert campaign(disk, OPERATIONS, every) >= 600


@pytest.mark.long
@pytest.mark.s3
@pytest.mark.timeout(7200)
def test_answers_hold_at_every_request_to_s3(bucket: S3World) -> None:
    assert campaign(bucket, OPERATIONS, every) >= 2_000


# -- operations of two steps, and upkeep -----------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", TWO_STEPS)
def test_operation_of_two_steps_tells_what_was_asked_for(disk: DiskWorld, name: str) -> None:
    tried, wrong = storage_fault_world.search(disk, name, TWO_STEPS[name], every)
    assert (tried > 20, wrong) == (True, [])


@pytest.mark.long
@pytest.mark.parametrize("name", UPKEEP)
def test_upkeep_that_fails_changes_nothing_that_is_read(disk: DiskWorld, name: str) -> None:
    tried, wrong = storage_fault_world.search(disk, name, UPKEEP[name], every)
    assert (tried > 20, wrong) == (True, [])


# -- what the judge must see -----------------------------------------------------------------------------------


def _deleting(store: Store, one: intents.Intent) -> None:
    store.objects.delete(one.object_path)


@contextmanager
def _protecting_late(kernel: Kernel, snapshot: Snapshot, actor: str | None) -> Iterator[str]:
    yield new_ulid()
    intents.pending(kernel.store)


MUTANTS: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "the intent is deleted with the answer": ("merge", lambda patch: patch.setattr(intents, "finish", _deleting)),
    "a cleanup is looked for after the name was published": (
        "tag create in the past",
        lambda patch: patch.setattr(branches, "_protected", _protecting_late),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.sampled(1)
def test_mutant_is_caught(disk: DiskWorld, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    operation, mutate = MUTANTS[name]
    mutate(monkeypatch)
    _, wrong = storage_fault_world.search(disk, operation, OPERATIONS[operation], lambda places: places[-10:])
    assert any("told as `none`, but done" in one for one in wrong)
