"""Random schemas, graphs and writes: the engine against the model of mutations, and mutants of the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph.engine.write.pending_changes import PendingType
from omnigraph.rules.delta import without
from tests.engine.write.mutation_run import run_world

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


# Those of mutations that insert, update and delete.
MIXED_MUTANTS = {"deletes see what is stored": 12, "the deleted stay deleted": 6, "new edges stay": 3}


def run_worlds(folder: Path, seeds: range, *, is_mixed: bool = False) -> None:
    written = [run_world(folder / str(seed), seed, is_mixed=is_mixed)["written"] for seed in seeds]
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


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 24, 4))
@pytest.mark.sampled(1)
def test_engine_and_model_agree_on_mixed_mutations(tmp_path: Path, start: int) -> None:
    run_worlds(tmp_path, range(start, start + 4), is_mixed=True)


@pytest.mark.long
@pytest.mark.parametrize("start", range(5000, 6000, 100))
def test_engine_and_model_agree_on_many_mixed_mutations(tmp_path: Path, start: int) -> None:
    run_worlds(tmp_path, range(start, start + 100), is_mixed=True)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MIXED_MUTANTS)
def test_mutant_of_the_mixed_model_is_caught(tmp_path: Path, mutant: str) -> None:
    with pytest.raises(AssertionError, match="expected"):
        run_world(tmp_path, MIXED_MUTANTS[mutant], mutant=mutant, is_mixed=True)


@pytest.mark.slow
def test_engine_whose_deletes_miss_pending_rows_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ids_matching(self: Any, lookup: Any) -> Any:
        return without(self._committed.ids_passing(self.type, lookup), self.deleted)

    monkeypatch.setattr(PendingType, "ids_matching", ids_matching)
    with pytest.raises(AssertionError, match="expected"):
        run_world(tmp_path, 12, is_mixed=True)
