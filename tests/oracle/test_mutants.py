"""The oracle catches every defect that it is shown, so its silence about the engine means something."""

from __future__ import annotations

from random import Random
from zlib import crc32

import pytest

from omnigraph.engine.query.context import Caches
from omnigraph.errors import OmniGraphError
from tests.oracle.mutants import MUTANTS
from tests.oracle.queries import Maker
from tests.oracle.test_reads import disagreement
from tests.oracle.worlds import World, create

QUERIES_MAX = 4_000


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> list[World]:
    path = tmp_path_factory.mktemp("worlds")
    return [create(path, seed) for seed in (3, 4, 6, 7)]


# It takes hundreds of random queries to meet one that tells these.
RARE = (
    "integers compare as floats",
    "starts_with means contains",
    "an end may be anywhere",
    "upper case is lower case",
    "a remainder has the sign of the divisor",
    "a match of the target is forgotten",
    "coalesce takes the last",
    "the last branch of a case wins",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.long) if one in RARE else one for one in MUTANTS])
@pytest.mark.sampled(8)
def test_mutant_is_caught(name: str, worlds: list[World], monkeypatch: pytest.MonkeyPatch) -> None:
    for world in worlds:
        # Plans made by the sound engine must not serve the broken one, nor the reverse.
        monkeypatch.setattr(world.graph, "_caches", Caches())
    MUTANTS[name](monkeypatch)
    first = crc32(name.encode())
    assert any(is_caught(worlds[seed % len(worlds)], seed) for seed in range(first, first + QUERIES_MAX))


def is_caught(world: World, seed: int) -> bool:
    made = Maker(Random(seed).randrange, world.catalog).make()
    try:
        return disagreement(world, made) is not None
    except (OmniGraphError, KeyError, IndexError, ValueError, AssertionError):
        # A defect that makes the engine stumble would be noticed without an oracle; wait for a wrong answer.
        return False
