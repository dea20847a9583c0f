"""Export: its order, its spelling, its filter, and that it holds one snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import orjson
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine import export as exporting
from omnigraph.engine.authorization import on_branch
from omnigraph.errors import GraphError, UsageError
from omnigraph.graph import session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest.model import MAIN, Snapshot
from omnigraph.manifest.plan import CommitPolicy, Effect, Plan
from omnigraph.store.read import lookup
from omnigraph.store.write.transaction import append
from tests.support.kernel_fixtures import CITY, KNOWS, PERSON, SCHEMA, insert
from tests.support.policy_recorder import Recorder

pytestmark = pytest.mark.slow

RICH = """
node Doc { code: String @key  n: I32?  big: U64?  f: F32?  d: Date?  t: DateTime?  ok: Bool?  tags: [String]?
           body: Blob?  vec: Vector(2)? }
"""


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "graph.omni", SCHEMA)
    insert(session_of(graph).kernel, {PERSON: ["bob", "ann"], CITY: ["rome"], KNOWS: ["k2", "k1"]})
    return graph


def lines(graph: og.Graph, **options: Any) -> list[str]:
    return b"".join(graph.export(**options)).decode().splitlines()


def add_docs(graph: og.Graph, rows: list[dict[str, Any]]) -> None:
    def prepare(snapshot: Snapshot) -> Plan:
        dataset = session_of(graph).kernel.writable(snapshot, TypeKey("node:Doc"))
        columns: list[Any] = [
            lance.blob_array([row.get("body") for row in rows])
            if one.name == "body"
            else pa.array([row.get(one.name) for row in rows], one.type)
            for one in dataset.schema
        ]
        change = append(dataset, pa.Table.from_arrays(columns, schema=dataset.schema))
        return Plan("insert", (Effect(TypeKey("node:Doc"), dataset, (change,)),))

    session_of(graph).kernel.commit(MAIN, prepare, CommitPolicy.INSERT)


def test_export_is_edges_then_nodes_by_id(graph: og.Graph) -> None:
    assert lines(graph) == [
        '{"edge":"Knows","from":"k1","to":"k1","data":{"id":"k1"}}',
        '{"edge":"Knows","from":"k2","to":"k2","data":{"id":"k2"}}',
        '{"type":"City","data":{"id":"rome","name":"rome"}}',
        '{"type":"Person","data":{"id":"ann","age":null,"name":"ann"}}',
        '{"type":"Person","data":{"id":"bob","age":null,"name":"bob"}}',
    ]


def test_export_ids_sort_by_their_bytes(graph: og.Graph) -> None:
    insert(session_of(graph).kernel, {CITY: ["Zürich", "zz", "Ä", "a", "𝄞", "\uffee"]})
    found = [orjson.loads(line)["data"]["id"] for line in lines(graph, types=["City"])]
    assert found == sorted(found, key=lambda one: one.encode())
    assert len(found) == 7


def test_export_every_type_has_its_spelling(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "graph.omni", RICH)
    row = {"id": "a", "code": "a", "n": -1, "big": 2**64 - 1, "f": 0.1, "d": 18262, "t": 5, "ok": True}
    add_docs(graph, [{**row, "tags": ["x", 'y"'], "body": b"\x00\xff", "vec": [1.0, 0.5]}, {"id": "b", "code": "b"}])
    add_docs(graph, [{"id": "c", "code": "c", "body": b""}])
    first, second, third = lines(graph)
    assert first == (
        '{"type":"Doc","data":{"id":"a","big":18446744073709551615,"body":"base64:AP8=","code":"a","d":"2020-01-01",'
        '"f":0.10000000149011612,"n":-1,"ok":true,"t":"1970-01-01T00:00:00.005Z","tags":["x","y\\""],"vec":[1.0,0.5]}}'
    )
    assert second == (
        '{"type":"Doc","data":{"id":"b","big":null,"body":null,"code":"b","d":null,"f":null,"n":null,"ok":null,'
        '"t":null,"tags":null,"vec":null}}'
    )
    assert '"body":"base64:"' in third


def test_export_columns_follow_the_catalog_after_a_schema_change(graph: og.Graph) -> None:
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  aaa: String?"))
    assert (
        lines(graph, types=["Person"])[0] == '{"type":"Person","data":{"id":"ann","aaa":null,"age":null,"name":"ann"}}'
    )


def test_export_type_filter_takes_nodes_and_edges_of_a_name(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "graph.omni", "node A { x: I32? }\nnode B {}\nedge A: A -> A")
    insert(session_of(graph).kernel, {"node:A": ["1"], "node:B": ["2"], "edge:A": ["3"]})
    assert [orjson.loads(line)["data"]["id"] for line in lines(graph, types=["A"])] == ["3", "1"]


def test_export_unknown_type_is_refused_before_any_output(graph: og.Graph) -> None:
    with pytest.raises(UsageError) as caught:
        graph.export(types=["City", "Cty"])
    assert "`Cty`" in caught.value.message
    assert "City" in caught.value.message


def test_export_unknown_branch_is_refused_before_any_output(graph: og.Graph) -> None:
    with pytest.raises(GraphError) as caught:
        graph.export("nope")
    assert caught.value.code == "branch.not_found"


def test_export_holds_the_snapshot_it_began_with(graph: og.Graph) -> None:
    before = lines(graph)
    running = graph.export()
    insert(session_of(graph).kernel, {CITY: ["oslo"], KNOWS: ["k0"]})
    assert b"".join(running).decode().splitlines() == before
    assert lines(graph, at=graph.commits()[1].commit_id) == before
    assert len(lines(graph)) == len(before) + 2


def test_export_policy_is_asked(graph: og.Graph) -> None:
    graph.branches.create("review")
    insert(session_of(graph).kernel, {CITY: ["oslo"]}, branch="review")
    head = graph.snapshot("review").head
    session_of(graph).actor, session_of(graph).policy = "ann", (policy := Recorder())
    graph.export(" main ")
    graph.export(at=head)
    assert policy.asked == [("export", on_branch(MAIN), "ann"), ("export", on_branch("review"), "ann")]


def test_export_large_type_gives_the_same_bytes(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    insert(session_of(graph).kernel, {CITY: [f"c{n * 7 % 100:02}" for n in range(100)]})
    whole = lines(graph)
    monkeypatch.setattr(lookup, "SORTED_BYTES_MAX", 10)
    monkeypatch.setattr(lookup, "_WINDOW_ROWS_MIN", 16)
    assert lines(graph) == whole


def test_export_chunks_are_bounded_and_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = og.init(tmp_path / "graph.omni", RICH)
    add_docs(graph, [{"id": f"{n:02}", "code": f"{n:02}", "body": bytes(3_000)} for n in range(20)])
    whole = b"".join(graph.export())
    monkeypatch.setattr(exporting, "EXPORT_CHUNK_BYTES", 10_000)
    chunks = list(graph.export())
    assert b"".join(chunks) == whole
    assert all(chunk.endswith(b"}}\n") for chunk in chunks)
    assert 6 <= len(chunks) <= 10


def test_export_empty_graph_is_empty(tmp_path: Path) -> None:
    assert lines(og.init(tmp_path / "graph.omni", SCHEMA)) == []


@pytest.mark.parametrize(("mode", "dialect"), [("append", "strict"), ("overwrite", "strict"), ("merge", "compatible")])
def test_export_ingested_elsewhere_exports_the_same_bytes(tmp_path: Path, mode: Any, dialect: Any) -> None:
    schema = RICH.replace("vec:", "x: F64?  nums: [F64]?  days: [Date]?  vec:") + (
        "node Free { note: String? }\n"
        "node Pair { a: Date  b: I64  @key(a, b) }\n"
        "edge Cites: Doc -> Pair { weight: F64?  scan: Blob? }\n"
    )
    full = {"code": 'q"\\\u0001é', "n": -5, "big": 2**63 - 1, "f": 0.1, "x": 1e300, "d": "2020-01-01"}
    full |= {"t": "2020-01-01T00:00:00.123Z", "ok": False, "tags": ["a", None, ""], "nums": [1.0, None, -2.5]}
    full |= {"days": ["2020-01-02"], "body": "base64:AAEC", "vec": [0.25, -1.0]}
    graph = og.init(tmp_path / "graph.omni", schema)
    graph.ingest(
        [
            {"type": "Doc", "data": full},
            {"type": "Doc", "data": {"code": "z"}},
            {"type": "Free", "data": {"note": "x\ny"}},
            {"type": "Pair", "data": {"a": "1969-12-31", "b": -7}},
            {"edge": "Cites", "from": "z", "to": '["-1","-7"]', "data": {"weight": 2.0, "scan": "base64:"}},
        ],
        mode="append",
    )
    exported = b"".join(graph.export())
    assert exported.count(b"\n") == 5
    copy = og.init(tmp_path / "copy.omni", schema)
    copy.ingest(exported, mode=mode, dialect=dialect)
    assert b"".join(copy.export()) == exported
