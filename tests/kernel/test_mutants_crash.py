"""The crash oracle under test: each broken variant of the product must show up as a violation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import crash_mutants
from tests.support.crash_campaign import Campaign, LocalPlace, Zygote, cut_power
from tests.support.crash_mutants import MUTANTS

# The broken work, and the moment of its death that shows the fault; none: no crash is needed.
AT_WORK = {
    "link_before_publish": ("insert_one", "publish.before"),
    "init_releases_its_claim_early": ("init", "durable.after"),
    "spill_forgets": ("spill", "publish.after"),
    "sweep_ignores_live_owners": ("sweep_beside_long_work", None),
    "sweep_ignores_intents": ("sweep_beside_long_work", None),
    "merge_publishes_half": ("merge", None),
    "cleanup_forgets_shared_files": ("cleanup", None),
}
# A sound crash, and then a broken sweep.
AT_SWEEP = {
    "sweep_ignores_links": ("insert_one", "link.before"),
    "sweep_ignores_forks": ("second_write_on_branch", "link.before"),
    "audit_repeats": ("sweep", "durable.after"),
}
AT_POWER_CUT = ("publish_skips_sync", "publish_syncs_afterwards", "publish_never_syncs_the_manifest")


def is_caught(campaign: Campaign, moment: str | None) -> bool:
    """Die at each moment of a kind until a fault shows; the work of a mutant may never get there, which is fine."""
    for number in range(1, campaign.moments[moment] + 1) if moment else (1,):
        campaign.kill_at(moment or "never", number)
        if campaign.violations:
            return True
    return False


def test_mutants_are_all_tried() -> None:
    # Other suites add mutants of their own to the table, and try them.
    own = {name for name, mutant in MUTANTS.items() if mutant.__module__ == crash_mutants.__name__}
    assert {*AT_WORK, *AT_SWEEP, *AT_POWER_CUT} == own


@pytest.mark.slow
@pytest.mark.parametrize("mutant", AT_WORK)
@pytest.mark.sampled(2)
def test_crash_oracle_catches_broken_work(zygote: Zygote, tmp_path: Path, mutant: str) -> None:
    scenario, moment = AT_WORK[mutant]
    campaign = Campaign(zygote, scenario, LocalPlace(tmp_path))
    campaign.prepare()
    campaign.mutant = mutant
    assert is_caught(campaign, moment)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", AT_SWEEP)
@pytest.mark.sampled(1)
def test_crash_oracle_catches_a_broken_sweep(zygote: Zygote, tmp_path: Path, mutant: str) -> None:
    scenario, moment = AT_SWEEP[mutant]
    campaign = Campaign(zygote, scenario, LocalPlace(tmp_path), sweep_mutant=mutant)
    campaign.prepare()
    assert is_caught(campaign, moment)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", AT_POWER_CUT)
@pytest.mark.sampled(1)
def test_power_oracle_catches_a_missing_sync(zygote: Zygote, tmp_path: Path, mutant: str) -> None:
    campaign = Campaign(zygote, "insert_one", LocalPlace(tmp_path))
    campaign.prepare()
    campaign.mutant = mutant
    cut_power(campaign, "asked", at_syncs=True)
    assert campaign.violations
