"""How many Python functions small writes call: what a caller waits for beside the work of Arrow, Lance and the disk.

Counted are the calls that `sys.setprofile` sees in the thread of the caller, generators each time they go on, without
imports and without the inside of pyarrow and lance.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import omnigraph as og

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    city: String?
}
"""
CALLS_MAX = 1_600
INSIDES = ("importlib", "pyarrow", "lance")


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(str(tmp_path / "graph"), SCHEMA)
    # The first writes import, start threads and open what later ones find in caches.
    for first in (0, 1_000):
        graph.load(people(first, 1_000))
    graph.ingest(people(2_000, 1))
    return graph


def people(first: int, count: int) -> bytes:
    line = '{"type":"Person","data":{"name":"person %08d","age":%d,"city":"city %d"}}\n'
    return "".join(line % (number, number % 90, number % 100) for number in range(first, first + count)).encode()


def count_calls(write: Callable[[bytes], object], rows: bytes) -> int:
    """Return the calls of a write; of those inside pyarrow and lance only the ones of our own modules count."""
    calls = 0
    is_inside = [False]

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        if event == "call":
            module = frame.f_globals.get("__name__", "")
            is_ours = module.startswith("omnigraph")
            is_inside.append(not is_ours and (is_inside[-1] or module.startswith(INSIDES)))
            calls += not is_inside[-1]
        elif event == "return" and len(is_inside) > 1:
            is_inside.pop()

    sys.setprofile(profile)
    try:
        write(rows)
    finally:
        sys.setprofile(None)
    return calls


def test_load_of_10_000_rows_makes_few_calls(graph: og.Graph) -> None:
    assert 0 < count_calls(graph.load, people(10_000, 10_000)) <= CALLS_MAX


def test_writes_of_one_row_make_few_calls(graph: og.Graph) -> None:
    assert 0 < count_calls(graph.load, people(10_000, 1)) <= CALLS_MAX
    assert 0 < count_calls(graph.ingest, people(10_001, 1)) <= CALLS_MAX


def test_load_of_one_row_more_than_a_batch_makes_hardly_more_calls(graph: og.Graph) -> None:
    # Where small writes once ended, and a load began again with another writer.
    below, above = (
        count_calls(graph.load, people(first, count)) for first, count in ((10_000, 8_192), (20_000, 8_193))
    )
    assert above <= 1.1 * below
