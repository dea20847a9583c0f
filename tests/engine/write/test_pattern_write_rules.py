"""Rules of statements that share a pattern, of `upsert`, and of what a mutation may not say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.support.write_fixtures import refused, rows, run

pytestmark = pytest.mark.slow

SCHEMA = """
node Port { code: String @key  berths: I32 @default(1)  token: String @default(uuid())  land: String? @default("NL") }
node Note { text: String }
edge Route: Port -> Port { ref: String @key  days: I32? }
edge Ferry: Port -> Port { days: I32?  kind: enum(car, foot)?  @key(src, dst) }
"""
LINES = [
    *({"type": "Port", "data": {"code": code, "berths": 5, "token": code, "land": "BE"}} for code in "abc"),
    {"edge": "Route", "from": "a", "to": "b", "data": {"ref": "r1", "days": 3}},
    {"edge": "Ferry", "from": "a", "to": "b", "data": {"days": 1}},
]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[og.Graph]:
    with og.init(tmp_path / "g.omni", schema=SCHEMA) as graph:
        graph.ingest(LINES, mode="append")
        yield graph


def counts(receipt: Any) -> tuple[int, int]:
    return receipt.affected_nodes, receipt.affected_edges


def test_upsert_keeps_what_is_not_named_though_it_has_a_default(graph: og.Graph) -> None:
    run(graph, 'upsert Port { code: "a", land: "FR" }')
    assert rows(graph, "node:Port")["a"] == {"id": "a", "code": "a", "berths": 5, "token": "a", "land": "FR"}
    run(graph, 'match { $p: Port { code: "b" } } upsert Port { code: $p.code, land: "FR" }')
    assert rows(graph, "node:Port")["b"] == {"id": "b", "code": "b", "berths": 5, "token": "b", "land": "FR"}


def test_upsert_gives_defaults_to_a_new_entity(graph: og.Graph) -> None:
    run(graph, 'upsert Port { code: "z" }')
    new = rows(graph, "node:Port")["z"]
    assert (new["berths"], new["land"], len(new["token"])) == (1, "NL", 36)


@pytest.mark.parametrize("head", ["", 'match { $p: Port { code: "c" } }'])
def test_upsert_moves_an_edge_whose_key_has_no_ends(graph: og.Graph, head: str) -> None:
    run(graph, f'{head} upsert Route {{ ref: "r1", from: "b", to: "c" }}')
    assert rows(graph, "edge:Route") == {"r1": {"id": "r1", "src": "b", "dst": "c", "ref": "r1", "days": 3}}
    refused(graph, "E9", lambda: run(graph, f'{head} upsert Route {{ ref: "r1", from: "b", to: "x" }}'))


def test_insert_by_pattern_gives_one_random_default_to_an_entity(graph: og.Graph) -> None:
    assert counts(run(graph, 'match { $p: Port } insert Port { code: "z" }')) == (1, 0)
    assert len(rows(graph, "node:Port")["z"]["token"]) == 36


def test_statements_of_one_pattern_share_its_rows(graph: og.Graph) -> None:
    receipt = run(
        graph,
        "match { $p: Port  $p.berths = 5 } update $p set { berths: $p.berths + 1 }"
        " update $p set { land: cast($p.berths as String) } insert Note { text: $p.code }",
    )
    assert counts(receipt) == (9, 0)
    assert {(one["berths"], one["land"]) for one in rows(graph, "node:Port").values()} == {(6, "5")}
    assert sorted(one["text"] for one in rows(graph, "node:Note").values()) == ["a", "b", "c"]


def test_null_variable_of_an_optional_block_writes_nothing(graph: og.Graph) -> None:
    pattern = "match { $p: Port optional { $p $f:ferry $q } }"
    assert counts(run(graph, f"{pattern} update $f set {{ days: $p.berths }}")) == (0, 1)
    assert counts(run(graph, f"{pattern} update $q set {{ land: $p.code }}")) == (1, 0)
    assert counts(run(graph, f"{pattern} delete $f")) == (0, 1)
    assert counts(run(graph, f"{pattern} delete $q")) == (0, 0)


@pytest.mark.parametrize(
    "program",
    [
        'insert Port { code: "z" } match { $p: Port } update $p set { berths: 2 }',
        'delete Ferry where from = "a" match { $p: Port not { $p ferry $_ } } delete $p',
        'delete Port where code = "a" match { $p ferry $q } delete $q',
        'match { $p: Port { code: "a" } } delete $p match { $p route $q } delete $q',
    ],
)
def test_pattern_over_what_an_earlier_statement_changes_is_refused(graph: og.Graph, program: str) -> None:
    error = refused(graph, "E1", lambda: run(graph, program))
    assert "earlier statement" in str(error)


def test_conditions_of_deletes_may_follow_each_other(graph: og.Graph) -> None:
    body = (
        'delete Ferry where from = "a" delete Port where berths > 1 and code = "a"'
        ' delete Ferry where days > 0 or from = "a"'
    )
    assert counts(run(graph, body)) == (1, 2)


@pytest.mark.parametrize(
    "statement",
    [
        'update Port set { berths: 2 } where code = "a"',
        'delete Port where code = "a"',
        "delete Ferry where days > 0 and days < 9",
    ],
)
def test_statement_by_type_after_a_pattern_is_refused(graph: og.Graph, statement: str) -> None:
    error = refused(graph, "Q000", lambda: run(graph, f'match {{ $p: Port {{ code: "none" }} }} {statement}'))
    assert "for each row" in str(error)


def test_pattern_that_nothing_uses_is_refused(graph: og.Graph) -> None:
    refused(graph, "Q000", lambda: run(graph, "match { $p: Port } match { $q: Port } delete $q"))


def test_default_of_a_key_member_is_part_of_the_id(tmp_path: Path) -> None:
    schema = 'node P { k: String @key }\nedge E: P -> P { kind: String @default("x")  w: I32?  @key(src, dst, kind) }'
    with og.init(tmp_path / "k.omni", schema=schema) as graph:
        run(graph, 'insert P { k: "a" } insert P { k: "b" } insert E { from: "a", to: "b", w: 1 }')
        run(graph, 'match { $p: P { k: "a" } } insert E { from: $p, to: "b", w: 2 }')
        graph.ingest([{"edge": "E", "from": "b", "to": "a", "data": {}}], mode="merge")
        found = {key: row["w"] for key, row in rows(graph, "edge:E").items()}
    assert found == {'["a","b","x"]': 2, '["b","a","x"]': None}


@pytest.mark.parametrize(
    "body",
    [
        'update D set { b: $none } where k = "a"',
        'update D set { b: null } where k = "a"',
        "match { $d: D } update $d set { b: null }",
        'upsert D { k: "a", b: $none }',
    ],
)
def test_blob_is_set_to_null_and_kept_by_other_updates(tmp_path: Path, body: str) -> None:
    with og.init(tmp_path / "d.omni", schema="node D { k: String @key  n: I32?  b: Blob? }") as graph:
        graph.ingest([{"type": "D", "data": {"k": "a", "b": "base64:AAEC"}}], mode="append")
        run(graph, 'match { $d: D } update $d set { n: 1 } upsert D { k: "a", n: 2 }')
        assert rows(graph, "node:D")["a"]["b"] == b"\x00\x01\x02"
        run(graph, body, "$none: Blob?", none=None)
        assert rows(graph, "node:D")["a"] == {"id": "a", "k": "a", "n": 2, "b": None}
