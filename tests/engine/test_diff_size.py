"""Large differences: told in parts that are never held as rows, and refused beyond a size."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

from omnigraph.engine.changes import state_diff
from omnigraph.engine.changes.state_diff import CHANGE_SCHEMA, ChangeSet
from omnigraph.errors import LimitExceeded
from tests.support.change_fixtures import new_graph, node, write


def large(count: int) -> ChangeSet:
    """Return a change set of so many nodes, and of an edge."""
    columns = [["node"] * count, ["P"] * count, [f"p{n}" for n in range(count)], ["insert"] * count, [7] * count]
    nodes = pa.table([*columns, pa.nulls(count, pa.string()), pa.nulls(count, pa.string())], schema=CHANGE_SCHEMA)
    edge = pa.table([["edge"], ["E"], ["e"], ["delete"], [8], ["a"], ["b"]], schema=CHANGE_SCHEMA)
    return ChangeSet(1, 9, "main", pa.concat_tables([edge, nodes]))


@pytest.mark.parametrize("count", [0, 1, 1_023, 1_024, 5_000])
def test_parts_of_a_change_set_say_what_it_says(count: int) -> None:
    found = large(count)
    assert orjson.loads(b"".join(found.json_chunks())) == found.to_json()


@pytest.mark.slow
def test_parts_of_a_change_set_take_little_memory() -> None:
    found = large(100_000)
    tracemalloc.start()
    try:
        size = sum(len(part) for part in found.json_chunks())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > 8_000_000
    assert peak < 4_000_000, "all rows were held at once"


def test_diff_beyond_its_size_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = new_graph(tmp_path)
    start = graph.commits()[0].commit_id
    write(graph, *(node(f"n{number}") for number in range(40)))
    assert graph.diff(start, "main").stats()["inserts"] == 40
    monkeypatch.setattr(state_diff, "DIFF_BYTES_MAX", 1_000)
    with pytest.raises(LimitExceeded) as caught:
        graph.diff(start, "main")
    assert (caught.value.kind.http_status, caught.value.context["resource"]) == (413, "diff_bytes")
