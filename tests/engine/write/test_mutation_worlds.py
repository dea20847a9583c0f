"""Random schemas, graphs and writes: the engine against the model of mutations, and mutants of the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mutation_run import run_world

# Mutants of the model, each with a world that tells it from the engine.
MUTANTS = {
    "unknown is true": 0,
    "mixes": 10,
    "stale patterns": 2,
    "patterns see the mutation": 2,
    "last row wins": 3,
    "no defaults": 0,
    "create replaces": 0,
    "upsert forgets": 0,
    "keys do not count": 2,
    "no cascade": 2,
    "not unique": 2,
    "any number of edges": 8,
}


def run_worlds(folder: Path, seeds: range) -> None:
    written = [run_world(folder / str(seed), seed)["written"] for seed in seeds]
    # Worlds without a write, whose schemas refuse all that is drawn, show little.
    assert sum(count > 0 for count in written) > len(written) * 3 / 4


def test_engine_and_model_agree_on_a_few_worlds(tmp_path: Path) -> None:
    run_worlds(tmp_path, range(2))


@pytest.mark.slow
@pytest.mark.parametrize("start", range(2, 50, 4))
@pytest.mark.sampled(1)
def test_engine_and_model_agree_on_many_worlds(tmp_path: Path, start: int) -> None:
    run_worlds(tmp_path, range(start, start + 4))


@pytest.mark.long
@pytest.mark.parametrize("start", range(1000, 3000, 100))
def test_engine_and_model_agree_on_thousands_of_worlds(tmp_path: Path, start: int) -> None:
    run_worlds(tmp_path, range(start, start + 100))


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutant_of_the_model_is_caught(tmp_path: Path, mutant: str) -> None:
    with pytest.raises(AssertionError, match="expected"):
        run_world(tmp_path, MUTANTS[mutant], mutant=mutant)
