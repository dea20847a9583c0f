"""Defaults: every writer gives a property that a new entity does not mention the same value."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph import clock, pipeline
from omnigraph.errors import DataError

SCHEMA = """
node Task {
  name: String @key
  state: enum(open, done) @default(open)
  weight: I32 @default(-7)
  rate: F32? @default(0.5)
  due: Date? @default("2024-02-29")
  made: DateTime @default(now())
  token: String @default(uuid())
  tags: [String] @default([])
  marks: [I64]? @default([1, 2])
}
edge Blocks: Task -> Task { since: DateTime @default(now())  hard: Bool @default(true) }
"""
NOW = 1_750_000_000_123_000
CONSTANT = {"state": "open", "weight": -7, "rate": 0.5, "due": "2024-02-29", "tags": [], "marks": [1, 2]}
MADE = "2025-06-15T15:06:40.123Z"


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> og.Graph:
    graph = og.init(tmp_path / "graph.omni", SCHEMA)
    monkeypatch.setattr(clock, "now_us", lambda: NOW)
    return graph


def tasks(graph: og.Graph, kind: str = "type") -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in b"".join(graph.export()).splitlines()]
    return {row["data"]["id"]: row["data"] for row in rows if kind in row}


def check(row: dict[str, Any]) -> None:
    assert {name: row[name] for name in CONSTANT} == CONSTANT
    assert row["made"] == MADE
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", row["token"])


def lines(*names: str, **data: Any) -> bytes:
    return b"".join(json.dumps({"type": "Task", "data": {"name": name, **data}}).encode() + b"\n" for name in names)


def test_insert_fills_what_it_does_not_mention(graph: og.Graph) -> None:
    graph.mutate('query q() { insert Task { name: "a" } insert Task { name: "b" weight: 3 } }')
    found = tasks(graph)
    check(found["a"])
    assert (found["b"]["weight"], found["b"]["state"]) == (3, "open")
    assert found["a"]["token"] != found["b"]["token"]


@pytest.mark.parametrize("count", [1, 300])
def test_ingest_fills_single_lines_and_many(graph: og.Graph, count: int) -> None:
    graph.ingest(lines(*(f"t{number}" for number in range(count))))
    found = tasks(graph)
    for row in found.values():
        check(row)
    assert len({row["token"] for row in found.values()}) == count


def test_ingest_of_records_and_compatible_lines_fill(graph: og.Graph) -> None:
    graph.ingest([{"type": "Task", "data": {"name": "a"}}])
    graph.ingest(lines("b"), dialect="compatible")
    for row in tasks(graph).values():
        check(row)


@pytest.mark.parametrize("count", [1, 300])
def test_explicit_null_is_kept(graph: og.Graph, count: int) -> None:
    names = [f"t{number}" for number in range(count)]
    graph.ingest(lines(*names[: count // 2], rate=None) + lines(*names[count // 2 :]))
    rates = [row.get("rate") for row in tasks(graph).values()]
    assert (rates.count(None), rates.count(0.5)) == (count // 2, count - count // 2)


@pytest.mark.parametrize("count", [1, 300])
def test_explicit_null_of_a_required_property_is_refused(graph: og.Graph, count: int) -> None:
    with pytest.raises(DataError) as refused:
        graph.ingest(lines(*(f"t{number}" for number in range(count)), weight=None))
    assert (refused.value.context["rule"], refused.value.context["property"]) == ("N10", "weight")


def test_load_fills_columns_that_a_file_does_not_have(graph: og.Graph, tmp_path: Path) -> None:
    path = tmp_path / "tasks.parquet"
    pq.write_table(pa.table({"name": ["a", "b"], "weight": pa.array([1, 2], pa.int32())}), path)
    (tmp_path / "rows.csv").write_text("name,rate\nc,\n")
    pipeline.load(graph, nodes={"Task": str(path)}, mode="merge", engine="local")
    pipeline.load(graph, nodes={"Task": str(tmp_path / "rows.csv")}, mode="merge", engine="local")
    found = tasks(graph)
    assert [found[name]["weight"] for name in "abc"] == [1, 2, -7]
    check({**found["a"], "weight": -7})
    # The file has the column, so its empty cell is a null.
    assert found["c"].get("rate") is None


def test_edges_have_defaults(graph: og.Graph) -> None:
    graph.ingest(lines("a", "b"))
    graph.ingest([{"edge": "Blocks", "from": "a", "to": "b", "data": {}}])
    graph.mutate('query q() { insert Blocks { from: "b" to: "a" hard: false } }')
    assert sorted(row["hard"] for row in tasks(graph, "edge").values()) == [False, True]
    assert {row["since"] for row in tasks(graph, "edge").values()} == {MADE}


def test_update_leaves_defaults_alone(graph: og.Graph) -> None:
    graph.mutate('query q() { insert Task { name: "a" weight: 1 } }')
    before = tasks(graph)["a"]
    graph.mutate('query q() { update Task set { rate: 1.5 } where name = "a" }')
    assert tasks(graph)["a"] == {**before, "rate": 1.5}


def test_schema_prints_defaults_as_they_are_written(graph: og.Graph) -> None:
    printed = str(graph.schema.nodes["Task"])
    for word in ("now()", "uuid()", "[]", "[1, 2]", '"open"', "-7", "0.5", '"2024-02-29"'):
        assert f"@default({word})" in printed
    reread = og.init(f"{graph.uri}-again", f"{printed}\n{graph.schema.edges['Blocks']}")
    assert reread.schema.nodes["Task"].properties == graph.schema.nodes["Task"].properties
