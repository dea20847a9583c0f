"""Crashes on local storage: a real process dies at every durable operation and every failpoint of its work.

And power loss: what a disk that forgets everything unsynced leaves of a graph, at every step of a commit.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.crash_campaign import Campaign, LocalPlace, Zygote, cut_power
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
# Of each kind of moment, and of power cuts, drawn for each scenario; the long campaign dies at all of them.
MOMENTS_MAX = 1
CUTS_MAX = 1
# Where files are written side by side; elsewhere what one operation leaves is what the next one finds, so that only the
# long campaign dies on both sides of each.
SIDE_BY_SIDE = ("insert_three", "first_write_of_two_types_on_branch")
# What every commit passes in the same way; one scenario dies there, and the long campaign all of them.
COMMON = ("sync", "commit.prepared", "commit.staged", "commit.synced", "link.before")
# One for each kind of version that Lance itself puts in place by path: of a branch's manifest, the first one, of logs.
BY_PATH = ("insert_one", "first_write_on_branch", "init", "spill", "spill_folding")


def prepared(zygote: Zygote, name: str, folder: Path, environment: dict[str, str] | None = None) -> Campaign:
    campaign = Campaign(zygote, name, LocalPlace(folder), environment or {})
    campaign.prepare()
    return campaign


def crash_everywhere(zygote: Zygote, name: str, folder: Path, *passed_by: str, most: int | None = None) -> Campaign:
    campaign = prepared(zygote, name, folder)
    for moment, number in campaign.all_moments(most):
        if moment not in passed_by:
            campaign.kill_at(moment, number)
    print(f"{campaign.states} crash states, {len(campaign.violations)} violations")
    assert campaign.violations == []
    # Four durable operations, at the very least, or the counting went wrong.
    assert campaign.moments["durable.before"] >= 4
    return campaign


def lose_power(campaign: Campaign) -> None:
    crashes = campaign.states
    cut_power(campaign, "asked", most=CUTS_MAX)
    assert campaign.violations == []
    assert campaign.states > crashes


def test_crash_around_the_commit_point_leaves_before_or_after(zygote: Zygote, tmp_path: Path) -> None:
    campaign = prepared(zygote, "insert_three", tmp_path)
    for moment in (
        "commit.prepared",
        "commit.staged",
        "commit.synced",
        "publish.before",
        "publish.after",
        "link.before",
    ):
        campaign.kill_at(moment, 1)
    campaign.kill_at("link.before", campaign.moments["link.before"])
    assert campaign.violations == []


@pytest.mark.parametrize("name", [name for name in (*WRITES, *CONTROL, *MERGES) if name not in PARTS])
def test_crash_or_power_cut_anywhere_leaves_before_or_after(zygote: Zygote, tmp_path: Path, name: str) -> None:
    passed_by = () if name in SIDE_BY_SIDE else ("durable.after",)
    lose_power(crash_everywhere(zygote, name, tmp_path, *COMMON, *passed_by, most=MOMENTS_MAX))


@pytest.mark.parametrize("name", MAINTENANCE)
def test_crash_or_power_cut_in_maintenance_leaves_before_or_after(zygote: Zygote, tmp_path: Path, name: str) -> None:
    # Temporary files of control objects are a matter of other scenarios, and what a reconcile does step by step is done
    # by `sweep` and `optimize` as well.
    known = ("durable.before",) if name == "reconcile" else ()
    passed_by = (*COMMON, "sync.temporary", "durable.after", *known)
    lose_power(crash_everywhere(zygote, name, tmp_path, *passed_by, most=MOMENTS_MAX))


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", SCENARIOS)
def test_crash_at_every_sync_leaves_before_or_after(zygote: Zygote, tmp_path: Path, name: str) -> None:
    crash_everywhere(zygote, name, tmp_path)


# -- power loss alone ----------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", SCENARIOS)
def test_power_cut_between_any_two_syncs_leaves_before_or_after(zygote: Zygote, tmp_path: Path, name: str) -> None:
    campaign = prepared(zygote, name, tmp_path)
    cut_power(campaign, "asked", at_syncs=True)
    assert campaign.violations == []


@pytest.mark.parametrize("name", BY_PATH)
def test_power_cut_with_names_stored_first_leaves_before_or_after(zygote: Zygote, tmp_path: Path, name: str) -> None:
    campaign = prepared(zygote, name, tmp_path)
    cut_power(campaign, "names", most=2)
    assert campaign.violations == []


@pytest.mark.long
@pytest.mark.parametrize("name", [*BY_PATH, "sweep"])
def test_power_cut_anywhere_with_names_stored_first(zygote: Zygote, tmp_path: Path, name: str) -> None:
    campaign = prepared(zygote, name, tmp_path)
    cut_power(campaign, "names")
    assert campaign.violations == []


def test_power_cut_loses_acknowledged_work_without_durability(zygote: Zygote, tmp_path: Path) -> None:
    campaign = prepared(zygote, "insert_one", tmp_path, {"OMNIGRAPH_DURABILITY": "process"})
    cut_power(campaign, "asked", most=2)
    assert any("acknowledged, and yet" in one for one in campaign.violations)
