"""Crashes on local storage: a real process dies at every durable operation and every failpoint of its work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.crash_campaign import Campaign, LocalPlace, Zygote
from tests.support.crash_scenarios import PARTS, SCENARIOS

pytestmark = pytest.mark.slow

WRITES = (
    "insert_one",
    "insert_three",
    "first_write_on_branch",
    "first_write_of_two_types_on_branch",
    "second_write_on_branch",
    "overwrite",
    "delete",
    "index",
    "compact",
)
MERGES = ("merge", "merge_adopting", "revert", "schema_merge")
MAINTENANCE = ("optimize", "cleanup", "repair", "repair_discarding", "reconcile")
CONTROL = tuple(name for name in SCENARIOS if name not in (*WRITES, *MERGES, *MAINTENANCE))
# Of each kind of moment, drawn for each scenario; the long campaign dies at all of them.
MOMENTS_MAX = 1
# Where files are written side by side; elsewhere what one operation leaves is what the next one finds, so that only the
# long campaign dies on both sides of each.
SIDE_BY_SIDE = ("insert_three", "first_write_of_two_types_on_branch")
# What every commit passes in the same way; one scenario dies there, and the long campaign all of them.
COMMON = ("sync", "commit.staged", "commit.synced", "link.before")


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote() as one:
        yield one


def crash_everywhere(zygote: Zygote, name: str, folder: Path, *passed_by: str, most: int | None = None) -> None:
    campaign = Campaign(zygote, name, LocalPlace(folder))
    campaign.prepare()
    for moment, number in campaign.all_moments(most):
        if moment not in passed_by:
            campaign.kill_at(moment, number)
    print(f"{campaign.states} crash states, {len(campaign.violations)} violations")
    assert campaign.violations == []
    # One side of four durable operations, at the very least, or the counting went wrong.
    assert sum(count for moment, count in campaign.moments.items() if moment not in passed_by) >= 4


def test_crash_around_the_commit_point_leaves_before_or_after(zygote: Zygote, tmp_path: Path) -> None:
    campaign = Campaign(zygote, "insert_three", LocalPlace(tmp_path))
    campaign.prepare()
    for moment in ("commit.staged", "commit.synced", "publish.before", "publish.after", "link.before"):
        campaign.kill_at(moment, 1)
    campaign.kill_at("link.before", campaign.moments["link.before"])
    assert campaign.violations == []


@pytest.mark.parametrize("name", [name for name in (*WRITES, *CONTROL, *MERGES) if name not in PARTS])
def test_crash_anywhere_leaves_before_or_after(zygote: Zygote, tmp_path: Path, name: str) -> None:
    passed_by = () if name in SIDE_BY_SIDE else ("durable.after",)
    crash_everywhere(zygote, name, tmp_path, *COMMON, *passed_by, most=MOMENTS_MAX)


@pytest.mark.parametrize("name", MAINTENANCE)
def test_crash_anywhere_in_maintenance_leaves_before_or_after(zygote: Zygote, tmp_path: Path, name: str) -> None:
    # Temporary files of control objects are a matter of other scenarios, and what a reconcile does step by step is done
    # by `sweep` and `optimize` as well.
    known = ("durable.before",) if name == "reconcile" else ()
    crash_everywhere(zygote, name, tmp_path, *COMMON, "sync.temporary", "durable.after", *known, most=MOMENTS_MAX)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", SCENARIOS)
def test_crash_at_every_sync_leaves_before_or_after(zygote: Zygote, tmp_path: Path, name: str) -> None:
    crash_everywhere(zygote, name, tmp_path)
