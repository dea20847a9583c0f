"""Keyed edges, defaults and schema changes on Spark: the same ids, values and refusals as in process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.errors import DataError
from omnigraph.graph import Graph
from omnigraph.spark.datasource.tables import StagedPartition, StreamWriter, Writer

pytestmark = pytest.mark.slow

SCHEMA = """
node Person { name: String @key  open: Bool @default(true)  token: String @default(uuid()) }
edge Knows: Person -> Person { since: I32 @default(7)  made: DateTime @default(now())  @key(src, dst) }
"""
PLAIN = """
node Person { name: String @key  open: Bool?  token: String? }
edge Knows: Person -> Person { since: I32?  made: DateTime? }
"""


def rows(graph: Graph, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in b"".join(graph.export()).splitlines()]
    return sorted((line["data"] for line in lines if kind in line), key=lambda row: str(row["id"]))


def people(graph: Graph, count: int = 4) -> None:
    graph.ingest([{"type": "Person", "data": {"name": f"p{number}"}} for number in range(count)])


def edge_batch(count: int = 3) -> pa.Table:
    return pa.table({"src": [f"p{n}" for n in range(count)], "dst": [f"p{n + 1}" for n in range(count)]})


IDS = ['["p0","p1"]', '["p1","p2"]', '["p2","p3"]']


@pytest.mark.spark
def test_load_on_spark_is_idempotent_and_fills_defaults(spark: Any, tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    people(graph)
    pq.write_table(edge_batch().rename_columns(["from", "to"]), tmp_path / "knows.parquet")
    lines = [{"edge": "Knows", "from": f"p{n}", "to": f"p{n + 1}", "data": {}} for n in range(3)]
    (tmp_path / "knows.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    pipeline.load(graph, edges={"Knows": str(tmp_path / "knows.parquet")}, mode="merge", engine="spark")
    first = rows(graph, "edge")
    pipeline.load(graph, [str(tmp_path / "knows.ndjson")], mode="merge", engine="spark")
    again = rows(graph, "edge")
    assert [row["id"] for row in first] == [row["id"] for row in again] == IDS
    assert {row["since"] for row in again} == {7}
    assert len({row["made"] for row in first}) == len({row["made"] for row in again}) == 1
    graph.ingest(lines)
    assert [row["id"] for row in rows(graph, "edge")] == IDS
    assert pipeline.verify(graph, engine="spark").is_sound


@pytest.mark.parametrize("is_stream", [False, True])
def test_dataframe_and_stream_writers_are_idempotent(tmp_path: Path, is_stream: bool) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    people(graph)
    options = {"graph": graph.uri, "type": "Knows", "mode": "merge"}
    for batch in range(2):
        parts = [iter(edge_batch().slice(0, 2).to_batches()), iter(edge_batch().slice(2).to_batches())]
        if is_stream:
            # All tasks of a batch have the writer of the driver.
            tasks = StreamWriter(options, False)
            staged = [tasks.write(part) for part in parts]
            messages = [StagedPartition(one.write_plan, one.splits, "q") for one in staged]
            StreamWriter(options, False).commit(messages, batch)
        else:
            writer = Writer(options, False)
            writer.commit([writer.write(part) for part in parts])
    assert [(row["id"], row["since"]) for row in rows(graph, "edge")] == [(one, 7) for one in IDS]


@pytest.mark.spark
def test_apply_on_spark_checks_converts_and_rewrites(spark: Any, tmp_path: Path) -> None:
    here, there = (og.init(tmp_path / name, PLAIN) for name in ("here", "there"))
    for graph in (here, there):
        people(graph)
        for n in range(3):
            graph.ingest([{"edge": "Knows", "from": f"p{n}", "to": f"p{n + 1}", "data": {"since": n}}])
    # One schema converts, gives keys and fills; the other is refused by what is stored.
    wide = PLAIN.replace("since: I32?", "since: I64?  @key(src, dst)").replace(
        "open: Bool?", "open: Bool?  n: I32 @default(3)"
    )
    bounded = wide.replace("n: I32 @default(3)", "n: I32 @default(3)  @range(n, 5..9)")
    receipt = pipeline.apply_schema(there, wide, engine="spark")
    assert [step.to_json() for step in receipt.steps] == [step.to_json() for step in here.schema.apply(wide).steps]
    assert rows(here, "edge") == rows(there, "edge")
    assert rows(here, "type") == rows(there, "type")
    with pytest.raises(DataError) as refused:
        pipeline.apply_schema(there, bounded, engine="spark")
    assert refused.value.context["rule"] == "E8"
    assert there.maintenance.verify(data=True).is_sound


@pytest.mark.spark
def test_ids_of_keyed_edges_on_spark_are_those_of_a_mutation(spark: Any, tmp_path: Path) -> None:
    schema = """
    node Person { name: String @key }
    edge Paid: Person -> Person {
      at: DateTime  day: Date  rate: F64  part: F32  big: U64  small: I32  ok: Bool  kind: enum(cash, card)  ref: String
      @key(src, dst, at, day, rate, part, big, small, ok, kind, ref)
    }
    """
    values: dict[str, list[Any]] = {
        "at": ["1969-12-31T23:59:59.999Z", "2024-02-29T12:00:00+02:00", "2024-01-01T00:00:00Z"],
        "day": ["1969-12-31", "2024-02-29", "9999-12-31"],
        "rate": [-0.0, 1e21, 0.1],
        "part": [0.1, 1.5, 16777216.0],
        "big": [0, 2**64 - 1, 7],
        "small": [-(2**31), 0, 3],
        "ok": [True, False, True],
        "kind": ["cash", "card", "cash"],
        "ref": ['é "quoted" \\ \u2028', "", "日本\u0000x"],
    }
    lines: list[dict[str, Any]] = [
        {"edge": "Paid", "from": 'ä"', "to": "b", "data": {name: column[n] for name, column in values.items()}}
        for n in range(3)
    ]
    (tmp_path / "paid.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    graphs = [og.init(tmp_path / name, schema) for name in ("here", "there")]
    for graph in graphs:
        graph.ingest([{"type": "Person", "data": {"name": name}} for name in ('ä"', "b")])
    params = ", ".join(f"${name}: {base}" for name, base in zip(values, _KEY_BASES, strict=True))
    sets = ", ".join(f"{name}: ${name}" for name in values)
    for line in lines:
        insert = (
            f'query q({params}) {{ match {{ $a: Person {{ name: "b" }} }} insert Paid {{ from: $f, to: $a, {sets} }} }}'
        )
        graphs[0].mutate(insert.replace("q(", "q($f: String, "), params={"f": 'ä"', **line["data"]})
    for _ in range(2):
        pipeline.load(graphs[1], str(tmp_path / "paid.ndjson"), mode="merge", engine="spark")
    assert len(rows(graphs[0], "edge")) == 3
    assert rows(graphs[0], "edge") == rows(graphs[1], "edge")


_KEY_BASES = ("DateTime", "Date", "F64", "F32", "U64", "I32", "Bool", "String", "String")
