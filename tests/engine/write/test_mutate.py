"""Mutations: what they write, what they see of themselves, what they refuse, and that a refusal changes nothing."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import clock
from omnigraph.engine.authorization import on_branch
from omnigraph.engine.write import staging
from omnigraph.errors import DataError, GraphError, LimitExceeded, PolicyDenied, PreconditionFailed
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import TAIL_FRAGMENTS_MAX, WRITE_ENTITIES_MAX
from tests.support.policy_recorder import Recorder
from tests.support.write_fixtures import create, fixture, refused, rows, run, unchanged

V, P, C, T = TypeKey("node:Vessel"), TypeKey("node:Port"), TypeKey("edge:CallsAt"), TypeKey("edge:TowedBy")


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return fixture(tmp_path / "g.omni")


def test_insert_of_a_key_replaces_the_whole_entity(graph: Graph) -> None:
    receipt = run(graph, 'insert Vessel { imo: "V1" kind: "tug" }')
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 0)
    found = rows(graph, V)
    assert len(found) == 4
    assert (found["V1"]["kind"], found["V1"]["label"], found["V1"]["teu"]) == ("tug", None, None)


def test_mutation_is_one_commit_and_the_receipt_names_it(graph: Graph) -> None:
    before = graph.snapshot()
    receipt = run(
        graph,
        'insert Vessel {imo: "V8" kind: "tug"} insert CallsAt {from: "V8" to: "P1"}'
        ' update Port set {berths: 3} where code = "P1"',
    )
    after = graph.snapshot()
    assert (after.version, len(graph.commits())) == (before.version + 1, len(after.state.commits))
    assert receipt.commit is not None
    assert (receipt.commit.commit_id, receipt.commit.parent, receipt.commit.kind) == (
        after.head,
        before.head,
        "mutation",
    )
    assert receipt.to_json()["commit"] == receipt.commit.to_json()
    assert (receipt.affected_nodes, receipt.affected_edges) == (2, 1)


def test_mutation_that_changes_nothing_makes_no_commit(graph: Graph) -> None:
    with unchanged(graph):
        for body in (
            'update Vessel set {teu: 1} where imo = "V9"',
            'delete Vessel where imo = "V9"',
            "delete Port where berths > 9",
        ):
            receipt = run(graph, body)
            assert (receipt.affected_nodes, receipt.affected_edges, receipt.commit) == (0, 0, None)


def test_statements_see_those_before_them(graph: Graph) -> None:
    receipt = run(
        graph,
        """insert Vessel { imo: "V9" kind: "tug" teu: 1 }
           update Vessel set { label: "mine" } where teu = 1
           update Vessel set { teu: 2 } where label = "mine"
           insert CallsAt { from: "V9" to: "P1" }""",
    )
    assert (receipt.affected_nodes, receipt.affected_edges) == (3, 1)
    assert (rows(graph, V)["V9"]["label"], rows(graph, V)["V9"]["teu"]) == ("mine", 2)


def test_update_does_not_see_a_committed_value_that_is_shadowed(graph: Graph) -> None:
    receipt = run(
        graph,
        """update Vessel set { teu: 77 } where imo = "V1"
           update Vessel set { label: "no" } where teu = 10
           update Vessel set { label: "yes" } where teu = 77""",
    )
    assert receipt.affected_nodes == 2
    assert rows(graph, V)["V1"]["label"] == "yes"


def test_last_write_of_an_id_wins(graph: Graph) -> None:
    run(graph, 'insert Port {code: "P9" country: "A"} insert Port {code: "P9" country: "B"}')
    assert rows(graph, P)["P9"]["country"] == "B"


def test_update_keeps_what_it_does_not_set(graph: Graph) -> None:
    before = rows(graph, V)["V1"]
    run(graph, 'update Vessel set { teu: 11 } where imo = "V1"')
    assert rows(graph, V)["V1"] == before | {"teu": 11}


def test_keyless_nodes_and_edges_are_always_new(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", "node Note { text: String } edge Next: Note -> Note")
    run(graph, 'insert Note {text: "a"} insert Note {text: "a"}')
    first, second = rows(graph, "node:Note")
    for _ in range(2):
        run(graph, "insert Next { from: $a to: $b }", "$a: String, $b: String", a=first, b=second)
    assert len(rows(graph, "node:Note")) == len(rows(graph, "edge:Next")) == 2


def test_delete_of_a_node_takes_edges_of_every_type_along(graph: Graph) -> None:
    receipt = run(graph, 'delete Vessel where imo = "V1"')
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 5)
    assert "V1" not in {row["src"] for row in rows(graph, C).values()}
    assert not {"V1"} & {row[end] for row in rows(graph, T).values() for end in ("src", "dst")}


def test_overlapping_deletes_count_an_entity_once(graph: Graph) -> None:
    receipt = run(graph, 'delete Vessel where teu > 4 delete Vessel where kind = "tug"')
    assert (receipt.affected_nodes, receipt.affected_edges) == (3, 6)


def test_delete_of_edges_by_end_and_by_property(graph: Graph) -> None:
    assert run(graph, 'delete CallsAt where from = "V2"').affected_edges == 1
    assert run(graph, "delete CallsAt where fee >= 2.0").affected_edges == 1
    assert set(rows(graph, C)) == {"c1", "c3"}


def test_delete_where_null_keeps_the_row(graph: Graph) -> None:
    assert run(graph, "delete Vessel where teu != 10").affected_nodes == 2
    assert set(rows(graph, V)) == {"V1", "V2"}


def test_null_parameter_matches_nothing_and_is_stored(graph: Graph) -> None:
    assert run(graph, "delete Vessel where teu = $t", "$t: I32?").commit is None
    run(graph, 'update Vessel set { teu: $t } where imo = "V1"', "$t: I32?", t=None)
    assert rows(graph, V)["V1"]["teu"] is None


def test_uniqueness_is_judged_on_the_final_image(tmp_path: Path) -> None:
    graph = create(
        tmp_path / "g",
        "node N { k: String @key  label: String? @unique }",
        '{"type":"N","data":{"k":"a","label":"x"}}',
    )
    run(
        graph,
        'update N set {label: "t"} where k = "a" update N set {label: "u"} where k = "a" insert N {k: "b" label: "t"}',
    )
    error = refused(graph, "E5", lambda: run(graph, 'insert N {k: "c" label: "u"}'))
    assert all(words in error.message for words in ("N.(label)", '"u"', "`a`", "`c`"))


@pytest.mark.parametrize(
    ("code", "body", "params", "values"),
    [
        ("E1", 'insert Vessel {imo: "V9" kind: "tug"} delete Vessel where imo = "V1"', "", {}),
        ("E2", "insert Port {code: $c country: \"X\"}", "$c: String", {}),
        ("E3", 'update Vessel set {imo: "X"} where imo = "V1"', "", {}),
        ("E4", 'insert Vessel {imo: "V9" kind: "tug" draft: 3}', "", {}),
        ("E4", 'insert Vessel {imo: "V9" kind: "tug" teu: 3000000000}', "", {}),
        ("E4", 'insert Vessel {imo: "V9" kind: "tug" teu: 1.5}', "", {}),
        ("E4", 'insert Vessel {imo: "V9" kind: "tug" built: date("2020-02-30")}', "", {}),
        ("E4", 'insert Vessel {imo: "V9" kind: "tug" draft: $d}', "$d: F64", {"d": float("inf")}),
        ("E4", 'insert Vessel {imo: "V9" kind: "tug" vec: $d}', "$d: Vector(3)", {"d": [1.0]}),
        ("E4", 'insert Vessel {imo: $d kind: "tug"}', "$d: String", {"d": None}),
        ("E4", 'insert Vessel {imo: $d kind: "tug"}', "$d: String?", {}),
        ("E4", 'insert Vessel {imo: "V9" kind: "tug" manual: $b}', "$b: Blob", {"b": "base64:?"}),
        ("E4", 'insert Vessel {imo: "V9" kind: "tug" manual: $b}', "$b: String", {"b": "s3://bucket/key"}),
        ("E4", "delete Vessel where built = $d", "$d: Date", {"d": "yesterday"}),
        ("E7", 'insert Vessel {imo: "V9" kind: $k}', "$k: String", {"k": "ferry"}),
        ("E8", 'insert Port {code: "P3" country: "FR" berths: 501}', "", {}),
        ("E9", 'insert CallsAt {from: "V1" to: "NOPE"}', "", {}),
        ("E9", 'insert CallsAt {from: "NOPE" to: "P1"}', "", {}),
    ],
)  # fmt: skip
def test_refused_mutation_changes_nothing(
    graph: Graph, code: str, body: str, params: str, values: dict[str, object]
) -> None:
    good = 'insert Port {code: "P7" country: "NL"} '
    prefix = good if body.startswith("insert Vessel") and code != "E1" else ""
    refused(graph, code, lambda: run(graph, prefix + body, params, **values))
    assert run(graph, good).affected_nodes == 1, "the next write works"


def test_non_finite_key_is_refused(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", "node N { k: F64 @key  u: F64? @unique }")
    refused(graph, "E6", lambda: run(graph, "insert N {k: $k}", "$k: F64", k=float("nan")))
    refused(graph, "E6", lambda: run(graph, "insert N {k: 1.0 u: $k}", "$k: F64", k=float("inf")))


def test_embedded_vector_that_nobody_gives_is_refused(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", "node N { k: String @key  v: Vector(2) @embed(k) }")
    refused(graph, "E4", lambda: run(graph, 'insert N {k: "a"}'))


def test_invalid_check_is_found_by_the_first_write(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", 'node N { k: String @key  @check(k, "(") }')
    error = refused(graph, "E8", lambda: run(graph, 'insert N {k: "a"}'))
    assert "regular expression" in error.message


def test_cardinality_counts_committed_and_pending_edges(tmp_path: Path) -> None:
    graph = create(
        tmp_path / "g",
        "node A { k: String @key } edge E: A -> A @card(1..2)",
        '{"type":"A","data":{"k":"a"}}',
        '{"type":"A","data":{"k":"b"}}',
        '{"edge":"E","from":"a","to":"b"}',
    )
    edge = 'insert E {from: "a" to: "a"} '
    error = refused(graph, "E10", lambda: run(graph, edge * 2))
    assert all(words in error.message for words in ("@card(1..2)", "`a`", "3 edges"))
    refused(graph, "E10", lambda: run(graph, 'delete E where to = "b"'))
    run(graph, 'insert A {k: "lonely"}')
    run(graph, edge)
    assert run(graph, 'delete A where k = "a"').affected_edges == 2


def test_writes_over_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = create(tmp_path / "g", "node N { k: I32 @key  t: String? }")
    graph.ingest([{"type": "N", "data": {"k": k}} for k in range(WRITE_ENTITIES_MAX)], mode="append")
    assert run(graph, 'update N set {t: "x"} where k >= 0').affected_nodes == WRITE_ENTITIES_MAX
    run(graph, "insert N {k: -1}")
    error = refused(graph, "E12", lambda: run(graph, 'update N set {t: "y"} where k >= -1'))
    assert isinstance(error, LimitExceeded)
    assert (error.context["limit"], error.context["resource"]) == (WRITE_ENTITIES_MAX, "keyed entities for node:N")
    monkeypatch.setattr("omnigraph.engine.write.staging.WRITE_BYTES_MAX", 1_000)
    refused(graph, "E12", lambda: run(graph, "insert N {k: -2 t: $t}", "$t: String", t="x" * 1_001))
    assert run(graph, "delete N where k >= 0").affected_nodes == WRITE_ENTITIES_MAX


def test_now_is_one_instant(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", "node N { k: String @key  at: DateTime }")
    ticks = iter(range(1_700_000_000_000_000, 1_800_000_000_000_000, 5_000_000))
    with clock.replaced(wall=lambda: next(ticks)):
        run(graph, 'insert N {k: "a" at: now()} insert N {k: "b" at: now()}')
    column = session_of(graph).view().dataset(TypeKey("node:N")).read(["at"]).column("at").cast(pa.int64()).to_pylist()
    assert len(set(column)) == 1


def test_dates_blobs_lists_and_vectors_are_stored_as_given(graph: Graph) -> None:
    run(
        graph,
        'insert Vessel {imo: "V9" kind: "tug" built: date("2020-02-29") seen: datetime("1969-12-31T23:59:59.9999Z")'
        ' tags: ["a", "b"] vec: [1.0, 2.0, 3.0] manual: $b}',
        "$b: Blob",
        b="base64:aGVsbG8=",
    )
    found = rows(graph, V)["V9"]
    assert (str(found["built"]), found["tags"], found["vec"], found["manual"]) == (
        "2020-02-29", ["a", "b"], [1.0, 2.0, 3.0], b"hello",
    )  # fmt: skip
    seen = session_of(graph).view().dataset(V).read(["seen"], "imo = 'V9'").column("seen").cast(pa.int64()).to_pylist()
    assert seen == [-1]
    run(graph, 'update Vessel set {teu: 5} where imo = "V9"')
    assert rows(graph, V)["V9"]["manual"] == b"hello"
    run(graph, 'update Vessel set {manual: $b} where imo = "V9"', "$b: Blob", b="base64:")
    assert rows(graph, V)["V9"]["manual"] == b""


def test_if_commit_holds_the_write_to_a_head(graph: Graph) -> None:
    head = graph.snapshot().head
    assert head is not None
    insert = 'query q() { insert Port {code: "P9" country: "NL"} }'
    nothing = 'query q() { delete Port where code = "none" }'
    assert graph.mutate(nothing, if_commit=head).commit is None
    assert graph.mutate(insert, if_commit=head).commit is not None
    for source in (insert, nothing):
        with unchanged(graph), pytest.raises(PreconditionFailed) as caught:
            graph.mutate(source, if_commit=head)
        assert (caught.value.context["expected"], caught.value.context["actual"]) == (head, graph.snapshot().head)


def test_actor_is_recorded_and_a_policy_is_asked_first(tmp_path: Path) -> None:
    root = tmp_path / "g"
    fixture(root).close()
    policy = Recorder(actors=("ann",))
    insert = 'insert Port {code: "P9" country: "NL"}'
    allowed = og.open(root, actor="ann", policy=policy)
    receipt = run(allowed, insert)
    assert receipt.commit is not None
    assert (receipt.commit.actor, receipt.actor, policy.asked[0]) == (
        "ann",
        "ann",
        ("change", on_branch("main"), "ann"),
    )
    for actor in ("bob", None):
        denied = og.open(root, actor=actor, policy=policy)
        with unchanged(allowed), pytest.raises(PolicyDenied):
            run(denied, "this is not even a query")
        with unchanged(allowed), pytest.raises(PolicyDenied):
            denied.ingest(b"neither is this NDJSON")


def test_mutation_on_a_branch_leaves_main_alone(graph: Graph) -> None:
    graph.branches.create("review", from_="main")
    with unchanged(graph):
        graph.mutate('query q() { delete Vessel where imo = "V1" }', branch=" review ")
    assert set(rows(graph, V, "review")) == {"V2", "V3", "V4"}
    assert set(rows(graph, V)) == {"V1", "V2", "V3", "V4"}
    with pytest.raises(GraphError) as caught:
        graph.mutate('query q() { delete Vessel where imo = "V1" }', branch="nope")
    assert caught.value.code == "branch.not_found"


@pytest.mark.slow
def test_small_commits_do_not_pile_up_fragments(graph: Graph) -> None:
    for number in range(3 * TAIL_FRAGMENTS_MAX):
        run(graph, 'insert Port {code: $c country: "NL"}', "$c: String", c=f"Q{number}")
        run(graph, "update Port set {berths: $n} where code = $c", "$n: I32, $c: String", c=f"Q{number // 2}", n=number)
    dataset = session_of(graph).view().dataset(P)
    assert len(dataset.fragment_rows) <= 2 * TAIL_FRAGMENTS_MAX
    assert len(rows(graph, P)) == 2 + 3 * TAIL_FRAGMENTS_MAX
    for number in range(0, 3 * TAIL_FRAGMENTS_MAX, 2):
        run(graph, "delete Port where code = $c", "$c: String", c=f"Q{number}")
    assert len(rows(graph, P)) == 2 + 3 * TAIL_FRAGMENTS_MAX // 2


def test_unknown_parameter_value_names_the_parameter(graph: Graph) -> None:
    with pytest.raises(DataError) as caught:
        run(graph, "delete Vessel where teu = $t", "$t: I32", t="many")
    assert caught.value.context["parameter"] == "t"
    assert run(graph, "delete Vessel where teu = $t", "$t: I32", t="10").affected_nodes == 1


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ('insert File { name: "a" n: null body: $b }', {"n": None, "body": b"hi"}),
        ('upsert File { name: "a" n: null body: $b }', {"n": None, "body": b"hi"}),
        ('update File set { n: null body: $b } where name = "a"', {"n": None, "body": b"hi"}),
        ('update File set { n: 2 body: null } where name = "a"', {"n": 2, "body": None}),
    ],
)
def test_blob_is_written_beside_a_null(tmp_path: Path, statement: str, expected: dict[str, object]) -> None:
    graph = og.init(tmp_path / "blobs.omni", "node File { name: String @key  n: I32?  body: Blob? }")
    graph.mutate('query q($b: Blob) { insert File { name: "a" n: 1 body: $b } }', params={"b": b"old"})
    graph.mutate(f"query q($b: Blob?) {{ {statement} }}", params={"b": b"hi"})
    [row] = rows(graph, "node:File").values()
    assert {name: row[name] for name in expected} == expected


def test_null_end_of_an_edge_is_refused_where_it_stands(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "edges.omni", "node N { name: String @key }  edge To: N -> N")
    with pytest.raises(og.LanguageError, match="`to` is null, but an edge has both ends") as caught:
        graph.mutate('query q() { insert To { from: "a" to: null } }')
    diagnostics: Any = caught.value.context["diagnostics"]
    assert [one.code for one in diagnostics] == ["T3"]


def test_update_of_an_entity_with_a_large_blob_counts_what_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = og.init(tmp_path / "blobs.omni", "node File { name: String @key  n: I32?  body: Blob? }")
    body = b64encode(bytes(range(256)) * 20).decode()
    for name in ("a", "b"):
        data = {"name": name, "body": f"base64:{body}"}
        graph.ingest([{"type": "File", "data": data}], mode="append")
    monkeypatch.setattr(staging, "WRITE_BYTES_MAX", 4_000)
    graph.mutate('query q() { update File set {n: 2} where name = "a" }')
    assert [(one["n"], len(one["body"])) for one in rows(graph, "node:File").values()] == [(None, 5_120), (2, 5_120)]
    with pytest.raises(LimitExceeded, match="has at least"):
        graph.mutate(
            'query q($b: Blob) { update File set {body: $b} where name = "a" }', params={"b": f"base64:{body}"}
        )
    graph.mutate('query q() { update File set {n: 3} where name != "z" }')
    assert [(one["n"], len(one["body"])) for one in rows(graph, "node:File").values()] == [
        (3, 5_120),
        (3, 5_120),
    ]
