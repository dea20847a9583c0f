"""Lines of a buffer: cut as `split` cuts them, whatever their length, in memory that does not grow with a line."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest

from omnigraph.engine.input.ndjson import blocks
from omnigraph.engine.input.ndjson.blocks import blocks_of


@pytest.mark.parametrize("seed", range(40))
def test_lines_are_those_of_split(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "DECODE_BLOCK_BYTES", 8)
    random = Random(seed)
    texts = [b"x" * random.choice([0, 1, 3, 7, 8, 9, 16, 50]) for _ in range(random.randrange(1, 12))]
    data = b"\n".join(texts) + random.choice([b"", b"\n"])
    expected = data.removesuffix(b"\n").split(b"\n") if data else []
    found = [pair for block in blocks_of(data, 5) for pair in block.each()]
    assert found == list(enumerate(expected, start=5))


def test_line_longer_than_a_block_takes_no_memory_of_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "DECODE_BLOCK_BYTES", 1_000)
    data = b"x" * 1_000_000 + b"\nshort\n"
    tracemalloc.start()
    try:
        numbers = [block.numbers.tolist() for block in blocks_of(data, 1)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert numbers == [[1], [2]]
    assert peak < 100_000
