"""Power loss: what a disk that forgets everything unsynced leaves of a graph, at every step of a commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.crash_campaign import Campaign, LocalPlace, Zygote, cut_power
from tests.support.crash_scenarios import PARTS, SCENARIOS

pytestmark = pytest.mark.slow

# Of one piece of work; the long campaign cuts the power everywhere.
CUTS_MAX = 2
# One for each kind of version that Lance itself puts in place by path: of a branch's manifest, the first one, of logs.
BY_PATH = (
    "insert_one",
    "first_write_on_branch",
    "init",
    "spill",
    "spill_folding",
)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote() as one:
        yield one


def lose_power(
    zygote: Zygote,
    name: str,
    folder: Path,
    kind: str = "asked",
    environment: dict[str, str] | None = None,
    most: int | None = CUTS_MAX,
) -> Campaign:
    campaign = Campaign(zygote, name, LocalPlace(folder), environment or {})
    campaign.prepare()
    cut_power(campaign, kind, most=most)
    print(f"{name}: {campaign.states} power cuts, {len(campaign.violations)} violations")
    return campaign


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in PARTS])
def test_power_cut_anywhere_leaves_before_or_after(zygote: Zygote, tmp_path: Path, name: str) -> None:
    campaign = lose_power(zygote, name, tmp_path)
    assert campaign.violations == []
    assert campaign.states >= 2


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", SCENARIOS)
def test_power_cut_between_any_two_syncs_leaves_before_or_after(zygote: Zygote, tmp_path: Path, name: str) -> None:
    campaign = Campaign(zygote, name, LocalPlace(tmp_path))
    campaign.prepare()
    cut_power(campaign, "asked", at_syncs=True)
    assert campaign.violations == []


@pytest.mark.parametrize("name", BY_PATH)
def test_power_cut_with_names_stored_first_leaves_before_or_after(zygote: Zygote, tmp_path: Path, name: str) -> None:
    assert lose_power(zygote, name, tmp_path, "names").violations == []


@pytest.mark.long
@pytest.mark.parametrize("name", [*BY_PATH, "sweep"])
def test_power_cut_anywhere_with_names_stored_first(zygote: Zygote, tmp_path: Path, name: str) -> None:
    assert lose_power(zygote, name, tmp_path, "names", most=None).violations == []


def test_power_cut_loses_acknowledged_work_without_durability(zygote: Zygote, tmp_path: Path) -> None:
    campaign = lose_power(zygote, "insert_one", tmp_path, environment={"OMNIGRAPH_DURABILITY": "process"})
    assert any("acknowledged, and yet" in one for one in campaign.violations)
