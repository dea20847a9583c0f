"""Edges with a key: every writer gives the same edge the same id, so that a write that comes again changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.errors import DataError, KeyConflict
from tests.support.graph_template import copy_built

SCHEMA = """
node Person { name: String @key }
node Slot { day: Date  room: I32  @key(day, room) }
edge Knows: Person -> Person { since: I32?  @key(src, dst) }
edge Booked: Person -> Slot { seat: I32  note: String?  @key(src, dst, seat) }
edge Paid: Person -> Person { ref: String @key  amount: I64? }
"""
PEOPLE = [{"type": "Person", "data": {"name": name}} for name in ("ann", "bob", 'c"\\c')]
KNOWS: dict[str, Any] = {"edge": "Knows", "from": "ann", "to": "bob", "data": {"since": 1}}


def build(path: Path) -> og.Graph:
    graph = og.init(path, SCHEMA)
    graph.ingest(PEOPLE)
    return graph


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return copy_built(build, tmp_path / "graph.omni")


def edges(graph: og.Graph, name: str, branch: str = "main") -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in b"".join(graph.export(branch=branch)).splitlines()]
    return [{**row["data"], "from": row["from"], "to": row["to"]} for row in rows if row.get("edge") == name]


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def test_ingest_merge_again_updates_the_same_edge(graph: og.Graph) -> None:
    for since in (1, 2):
        graph.ingest(lines({**KNOWS, "data": {"since": since}}))
    assert edges(graph, "Knows") == [{"id": '["ann","bob"]', "since": 2, "from": "ann", "to": "bob"}]
    assert graph.maintenance.verify().is_sound


def test_key_spells_ends_first_and_escapes_them(graph: og.Graph) -> None:
    graph.ingest([{"type": "Slot", "data": {"day": "2026-01-02", "room": 7}}])
    slot = graph.query("query q() { match { $s: Slot } return { $s as id } }").rows()[0]["id"]
    record = {"edge": "Booked", "from": 'c"\\c', "to": slot, "data": {"seat": 3}}
    graph.ingest(lines(record))
    [edge] = edges(graph, "Booked")
    assert json.loads(edge["id"]) == ['c"\\c', slot, "3"]


def test_many_lines_and_single_lines_agree_on_ids(graph: og.Graph) -> None:
    names = [f"p{index}" for index in range(200)]
    graph.ingest(lines(*({"type": "Person", "data": {"name": name}} for name in names)))
    records = [{"edge": "Knows", "from": "ann", "to": name, "data": {}} for name in names]
    graph.ingest(lines(*records))
    before = edges(graph, "Knows")
    for record in records[:3]:
        graph.ingest(lines(record))
        graph.ingest([record])
    assert edges(graph, "Knows") == before
    assert {edge["id"] for edge in before} == {json.dumps(["ann", name], separators=(",", ":")) for name in names}


def test_insert_of_an_existing_edge_replaces_it(graph: og.Graph) -> None:
    for since in (1, 2):
        graph.mutate(f'query q() {{ insert Knows {{ from: "ann" to: "bob" since: {since} }} }}')
    assert [edge["since"] for edge in edges(graph, "Knows")] == [2]


def test_append_of_an_existing_edge_is_refused(graph: og.Graph) -> None:
    graph.ingest(lines(KNOWS), mode="append")
    with pytest.raises(KeyConflict):
        graph.ingest(lines(KNOWS), mode="append")
    assert len(edges(graph, "Knows")) == 1


def test_same_key_twice_in_one_input_is_refused(graph: og.Graph) -> None:
    with pytest.raises(DataError) as refused:
        graph.ingest(lines(KNOWS, KNOWS))
    assert (refused.value.context["rule"], refused.value.context["property"]) == ("E5", "src, dst")


@pytest.mark.parametrize("as_lines", [True, False])
def test_stated_id_must_be_that_of_the_key(graph: og.Graph, as_lines: bool) -> None:
    right = {**KNOWS, "data": {"id": '["ann","bob"]'}}
    graph.ingest(lines(right) if as_lines else [right])
    wrong = {**KNOWS, "data": {"id": "other"}}
    with pytest.raises(DataError) as refused:
        graph.ingest(lines(wrong) if as_lines else [wrong])
    assert refused.value.context["rule"] == "N8"


def test_key_of_a_property_alone_moves_the_edge(graph: og.Graph) -> None:
    for target in ("ann", "bob"):
        graph.ingest(lines({"edge": "Paid", "from": "ann", "to": target, "data": {"ref": "x1"}}))
    assert [(edge["id"], edge["to"]) for edge in edges(graph, "Paid")] == [("x1", "bob")]


def test_compatible_ids_follow_the_nodes_they_point_at(graph: og.Graph) -> None:
    records = [
        {"type": "Slot", "data": {"id": '["2026-01-02","7"]', "day": "2026-01-02", "room": 7}},
        {"edge": "Booked", "from": "ann", "to": '["2026-01-02","7"]', "data": {"id": "old", "seat": 1}},
    ]
    for _ in range(2):
        graph.ingest(records, dialect="compatible")
    [edge] = edges(graph, "Booked")
    assert json.loads(edge["id"]) == ["ann", edge["to"], "1"]
    assert graph.maintenance.verify().is_sound


def test_two_branches_add_the_same_edge_and_merge(graph: og.Graph) -> None:
    graph.branches.create("work")
    graph.ingest(lines(KNOWS), branch="work")
    graph.ingest(lines(KNOWS))
    graph.branches.merge("work", "main")
    assert [edge["id"] for edge in edges(graph, "Knows")] == ['["ann","bob"]']


def test_load_in_process_merges_by_key(graph: og.Graph, tmp_path: Path) -> None:
    path = tmp_path / "knows.parquet"
    table = pa.table({"from": ["ann", "bob"], "to": ["bob", "ann"], "since": pa.array([1, 2], pa.int32())})
    import pyarrow.parquet as pq

    pq.write_table(table, path)
    for job in ("one", "two"):
        pipeline.load(graph, edges={"Knows": str(path)}, mode="merge", engine="local", job_id=job)
    graph.ingest(lines(KNOWS))
    assert sorted(edge["id"] for edge in edges(graph, "Knows")) == ['["ann","bob"]', '["bob","ann"]']


def test_get_finds_an_edge_by_its_key(graph: og.Graph) -> None:
    graph.ingest(lines(KNOWS))
    for key in ({"from": "ann", "to": "bob"}, {"src": "ann", "dst": "bob"}, '["ann","bob"]'):
        found = graph.get("Knows", key)
        assert found is not None
        assert found["since"] == 1


def test_verify_finds_ids_that_do_not_follow_from_the_key(graph: og.Graph) -> None:
    from omnigraph.engine.maintain.verify_ids import find_wrong_ids

    type_ = graph.schema.edges["Knows"]
    rows = pa.table({"id": ['["ann","bob"]', "x", None], "src": ["ann"] * 3, "dst": ["bob"] * 3})
    assert find_wrong_ids(type_, rows).to_pylist() == ["x", None]
