"""Broken kernels that the oracles of this folder must catch; each mutant is one wrong line in the product."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from omnigraph import failpoints
from omnigraph.errors import OmniGraphError
from omnigraph.failpoints import Point
from omnigraph.limits import RESIDUE_AGE_SECONDS
from omnigraph.manifest import publish, requirements
from omnigraph.manifest.commit_loop import Prepare
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import Snapshot
from omnigraph.manifest.plan import CommitPolicy, Plan, Receipt
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.store import Store, Strict
from tests.kernel import test_conflicts, test_kernel
from tests.support.fleet import Ledger, Write, carry_out, choose_write, violations
from tests.support.fleet_operations import ParkFirst, in_thread, stranger
from tests.support.kernel_fixtures import PERSON, create, open_graph
from tests.support.orphan_sweep import sweep

pytestmark = pytest.mark.slow

# Not collected from here: they are run by hand, with a mutant in place.
CHECKS = {name: check for module in (test_conflicts, test_kernel) for name, check in vars(module).items()}


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "graph.omni")


def verdict(check: Callable[[], object]) -> str:
    """Return how a check judges the product: an empty string is a pass."""
    try:
        check()
    except (AssertionError, OmniGraphError, pytest.fail.Exception) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def race(root: str) -> list[str]:
    """Let two handles that share no queue write twenty times each, and judge what they leave."""
    ledger = Ledger()
    handles = [create(root), stranger(root)]
    barrier = threading.Barrier(2)

    def work(number: int) -> None:
        random = Random(number)
        barrier.wait()
        for turn in range(20):
            write = choose_write(random, ("main",), f"w{number}-{turn:02d}")
            ledger.attempted.append(write)
            try:
                carry_out(handles[number], write)
            except OmniGraphError:
                continue
            ledger.acknowledged.append(write)

    for future in [in_thread(lambda number=number: work(number)) for number in (0, 1)]:  # type: ignore[misc]
        future.exception(120)
    return violations(open_graph(root), ledger)


def test_race_of_the_right_kernel_has_no_violations(root: str) -> None:
    assert race(root) == []


def test_lost_race_taken_for_a_success_is_caught(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def always_ours(store: Store, strict: Strict, _: Plan) -> Dataset:
        return store.open(strict.ref)

    monkeypatch.setattr(publish, "_winner", always_ours)
    # Whether two writers meet at all is a matter of scheduling: a quiet race is run again.
    races = (race(f"{root}-{number}") for number in range(6))
    assert any(finding.startswith("lost") for findings in races for finding in findings)


@pytest.mark.parametrize("name", test_conflicts.BROKEN)
@pytest.mark.sampled(2)
def test_publish_without_its_requirements_is_caught(root: str, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    kind = type(test_conflicts.BROKEN[name][0])
    assert kind.__module__ == requirements.__name__
    monkeypatch.setattr(kind, "check", lambda *_: None)
    check = CHECKS["test_requirement_broken_is_a_typed_refusal_before_any_effect"]
    assert "DID NOT RAISE" in verdict(lambda: check(root, name))


@pytest.mark.parametrize("removal", test_conflicts.REMOVALS)
@pytest.mark.sampled(1)
def test_acknowledgement_without_the_live_chain_check_is_caught(
    root: str, monkeypatch: pytest.MonkeyPatch, removal: str
) -> None:
    monkeypatch.setattr(publish, "_check_live", lambda *_: None)
    check = CHECKS["test_insert_published_beside_the_live_chain_is_done_again"]
    assert "late" in verdict(lambda: check(root, removal))


def test_probe_that_never_finds_anything_new_is_caught(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "has_version", lambda *_: False)
    assert verdict(lambda: CHECKS["test_other_handle_sees_a_commit_at_its_next_read"](root))


def test_insert_that_is_never_prepared_again_is_caught(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CommitPolicy.INSERT, "attempts", 0)
    check = CHECKS["test_insert_that_lost_is_prepared_again_and_lands"]
    assert "ReadSetChanged" in verdict(lambda: check(root, PERSON))


def test_insert_that_publishes_its_first_plan_again_is_caught(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Kernel.commit

    def stubborn(
        kernel: Kernel, branch: str, prepare: Prepare, work: CommitPolicy = CommitPolicy.INSERT
    ) -> Receipt | None:
        first: list[Plan | None] = []

        def once(snapshot: Snapshot) -> Plan | None:
            first.append(first[0] if first else prepare(snapshot))
            return first[0]

        return original(kernel, branch, once, work)

    monkeypatch.setattr(Kernel, "commit", stubborn)
    check = CHECKS["test_insert_that_lost_is_prepared_again_and_lands"]
    assert verdict(lambda: check(root, PERSON))


def sweep_beside_a_commit(root: str, age_seconds: float) -> list[str]:
    """Hold a commit right before its publish, sweep with the given age, let it go, and judge the graph."""
    kernel = create(root)
    write = Write("main", (PERSON,), "p")
    ledger = Ledger([write])
    park = ParkFirst()
    with failpoints.armed({Point.PUBLISH_BEFORE: park}):
        committing = in_thread(lambda: carry_out(kernel, write))
        assert park.park.arrived.wait(30)
        sweep(open_graph(root), age_seconds)
        park.park.release()
        error = committing.exception(30)
    if error is not None:
        return [f"the sweep made a commit fail: {error}"]
    ledger.acknowledged.append(write)
    return violations(open_graph(root), ledger)


def test_sweep_that_removes_young_files_is_caught(root: str, tmp_path: Path) -> None:
    assert sweep_beside_a_commit(str(tmp_path / "right"), RESIDUE_AGE_SECONDS) == []
    assert sweep_beside_a_commit(root, -1.0)
