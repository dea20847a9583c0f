"""The oracle catches every defect that it is shown, so its silence about the engine means something."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from zlib import crc32

import pytest

from omnigraph.engine.query.context import Caches
from omnigraph.errors import OmniGraphError
from tests.oracle.evaluate import TooManyRows
from tests.oracle.mutants import CONSTRUCTS, MUTANTS
from tests.oracle.queries import Made, Maker
from tests.oracle.test_reads import disagreement
from tests.oracle.worlds import World, create

QUERIES_MAX = 40_000
# A short query has few conditions that hide what it should tell, and the reference answers it soon.
CHARACTERS_MAX = 250


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> list[World]:
    path = tmp_path_factory.mktemp("worlds")
    return [create(path, seed) for seed in (3, 4, 6, 7)]


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.sampled(5)
def test_mutant_is_caught(name: str, worlds: list[World], monkeypatch: pytest.MonkeyPatch) -> None:
    for world in worlds:
        # Plans made by the sound engine must not serve the broken one, nor the reverse.
        monkeypatch.setattr(world.graph, "_caches", Caches())
    MUTANTS[name](monkeypatch)
    assert any(is_caught(world, made) for world, made in telling_queries(name, worlds))


def test_constructs_belong_to_mutants() -> None:
    assert CONSTRUCTS.keys() <= MUTANTS.keys()


def telling_queries(name: str, worlds: list[World]) -> Iterator[tuple[World, Made]]:
    """Yield short random queries with the construct that a mutant breaks."""
    construct = re.compile(CONSTRUCTS.get(name, ""))
    first = crc32(name.encode())
    for seed in range(first, first + QUERIES_MAX):
        world = worlds[seed % len(worlds)]
        made = Maker(Random(seed).randrange, world.catalog).make()
        if len(made.source) <= CHARACTERS_MAX and construct.search(made.source):
            yield world, made


def is_caught(world: World, made: Made) -> bool:
    try:
        return disagreement(world, made) is not None
    except (TooManyRows, OmniGraphError, KeyError, IndexError, ValueError, AssertionError):
        # A defect that makes the engine stumble would be noticed without an oracle; wait for a wrong answer.
        return False
