"""Words within a few edits, held against the distance computed one word at a time."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from omnigraph.store.index.text_search import Words
from tests.oracle.truth import distance

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(20))
def test_words_within_equal_those_found_one_by_one(seed: int) -> None:
    chance = Random(seed)
    letters = "abcé😀"[: chance.randrange(1, 6)]
    words = sorted({"".join(chance.choices(letters, k=chance.randrange(1, 12))) for _ in range(60)})
    held = Words(pa.array(words))
    for _ in range(20):
        word, edits = "".join(chance.choices(letters, k=chance.randrange(1, 12))), chance.randrange(1, 9)
        assert sorted(held.within(word, edits)) == [one for one in words if distance(one, word) <= edits]


def test_words_of_any_length_are_compared() -> None:
    long = "abcdefghij" * 500
    held = Words(pa.array(["sea", long]))
    assert held.within(long[:-8], 8) == [long]
    assert held.within(long[:-9], 8) == []
    assert held.within(long * 10, 8) == []


def test_words_of_nothing_hold_nothing() -> None:
    assert Words(pa.array([], pa.string())).within("sea", 8) == []
