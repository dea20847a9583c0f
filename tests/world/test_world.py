"""The world: long random histories over all features at once, held against one model."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.world.campaign import run_campaign, shortest_script
from tests.world.generator import run_history
from tests.world.mutants import MUTANTS, hunt

# Another sample with every change of this number.
FIRST_SEED = 1
SAMPLE_HISTORIES = 2
SAMPLE_OPERATIONS = 160
LONG_SECONDS = float(os.environ.get("OMNIGRAPH_WORLD_SECONDS", "600"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SAMPLE_HISTORIES))
def test_history_agrees_with_the_model(tmp_path: Path, seed: int) -> None:
    result = run_history(seed, operations=SAMPLE_OPERATIONS, root=tmp_path)
    print(f"seed {seed}: {result.operations} operations, {dict(sorted(result.counts.items()))}")
    if result.failure is not None:
        pytest.fail(shortest_script(result.failure, root=tmp_path, seconds=30), pytrace=False)


@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_found(tmp_path: Path, name: str) -> None:
    assert hunt(name, root=tmp_path) is not None


@pytest.mark.long
def test_campaign_agrees_with_the_model(tmp_path: Path) -> None:
    summary = run_campaign(int.from_bytes(os.urandom(3), "big"), LONG_SECONDS, root=tmp_path, failures_max=3)
    print("\n".join(summary.lines()))
    assert not summary.failures, "\n\n".join(one.script() for one in summary.failures)
