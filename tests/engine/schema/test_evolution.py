"""Schema changes that read or write stored rows: what they check, what they leave behind, and what they cost."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.schema_data import DataCheck, SchemaRewrite, TypeChange
from omnigraph.engine.tasks import TaskStore, Threads, graph_access
from omnigraph.errors import DataError, OmniGraphError
from omnigraph.graph import session_of
from omnigraph.lang.catalog import TypeKey
from tests.support.graph_template import copy_built

pytestmark = pytest.mark.slow

SCHEMA = """
node Person { name: String  age: I32?  photo: Blob?  tags: [I32]? }
node City { name: String @key  score: F32 }
edge Knows: Person -> Person { since: I32?  scan: Blob? }
edge Lives: Person -> City
"""
PERSON, KNOWS = TypeKey("node:Person"), TypeKey("edge:Knows")


def entities(graph: og.Graph, name: str, **options: Any) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in b"".join(graph.export(**options)).splitlines()]
    found = [row for row in rows if name in (row.get("edge"), row.get("type"))]
    return [
        {**row["data"], **({"from": row["from"], "to": row["to"]} if "edge" in row else {})}
        for row in sorted(found, key=lambda row: str(row["data"]["id"]))
    ]


def build(path: Path) -> og.Graph:
    graph = og.init(path, SCHEMA)
    people = [
        {"type": "Person", "data": {"id": f"p{n}", "name": name, "age": n, "tags": [n], "photo": "base64:aGk="}}
        for n, name in enumerate(("ann", "bob", "cid"))
    ]
    graph.ingest(people)
    graph.ingest([{"type": "City", "data": {"name": "rome", "score": 0.5}}])
    graph.ingest([{"edge": "Knows", "from": "p0", "to": "p1", "data": {"since": 1, "scan": "base64:aGE="}}])
    graph.ingest([{"edge": "Knows", "from": "p1", "to": "p2", "data": {"since": 2}}])
    graph.ingest([{"edge": "Lives", "from": "p0", "to": "rome", "data": {}}])
    return graph


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return copy_built(build, tmp_path / "graph.omni")


def versions(graph: og.Graph) -> dict[TypeKey, int]:
    return {key: pin.version for key, pin in graph.snapshot().state.pins.items()}


def head(graph: og.Graph) -> str:
    return str(graph.snapshot().head)


def sound(graph: og.Graph) -> bool:
    return graph.maintenance.verify(data=True).is_sound


# -- keys --------------------------------------------------------------------------------------------------------

EDGE_KEY = SCHEMA.replace("scan: Blob?", "scan: Blob?  @key(src, dst)")


def test_edge_key_is_adopted_by_rewriting_ids_in_one_commit(graph: og.Graph) -> None:
    plan = graph.schema.plan(EDGE_KEY)
    [step] = plan.steps
    assert (step.kind, step.effect, step.touches) == ("add_constraint", "rewrites", ("edge:Knows",))
    before, commits = versions(graph), len(list(graph.commits()))
    receipt = graph.schema.apply(EDGE_KEY)
    assert receipt.applied
    assert len(list(graph.commits())) == commits + 1
    assert [edge["id"] for edge in entities(graph, "Knows")] == ['["p0","p1"]', '["p1","p2"]']
    assert [edge.get("since") for edge in entities(graph, "Knows")] == [1, 2]
    assert [key for key, version in versions(graph).items() if version != before[key]] == [KNOWS]
    graph.ingest([{"edge": "Knows", "from": "p0", "to": "p1", "data": {"since": 9}}])
    assert [edge.get("since") for edge in entities(graph, "Knows")] == [9, 2]
    assert sound(graph)


def test_edge_key_keeps_blobs(graph: og.Graph) -> None:
    graph.schema.apply(EDGE_KEY)
    assert entities(graph, "Knows")[0]["scan"] == "base64:aGE="


def test_edge_key_with_duplicates_is_refused_with_samples(graph: og.Graph) -> None:
    graph.ingest([{"edge": "Knows", "from": "p0", "to": "p1", "data": {"id": "again"}}])
    before = head(graph)
    with pytest.raises(DataError, match="have the same key") as refused:
        graph.schema.apply(EDGE_KEY)
    assert refused.value.context["rule"] == "E5"
    assert "again" in str(refused.value)
    assert head(graph) == before
    assert sound(graph)


def test_node_key_moves_the_ends_of_edges_along(graph: og.Graph) -> None:
    plan = graph.schema.plan(SCHEMA.replace("name: String  age", "name: String @key  age"))
    assert plan.steps[0].touches == ("node:Person", "edge:Knows", "edge:Lives")
    graph.schema.apply(SCHEMA.replace("name: String  age", "name: String @key  age"))
    assert [row["id"] for row in entities(graph, "Person")] == ["ann", "bob", "cid"]
    assert {(row["from"], row["to"]) for row in entities(graph, "Knows")} == {("ann", "bob"), ("bob", "cid")}
    assert [(row["from"], row["to"]) for row in entities(graph, "Lives")] == [("ann", "rome")]
    assert entities(graph, "Person")[0]["photo"] == "base64:aGk="
    assert sound(graph)


def test_node_and_edge_key_at_once(graph: og.Graph) -> None:
    graph.schema.apply(EDGE_KEY.replace("name: String  age", "name: String @key  age"))
    assert [row["id"] for row in entities(graph, "Knows")] == ['["ann","bob"]', '["bob","cid"]']
    assert sound(graph)


def test_key_that_ids_follow_already_rewrites_nothing(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", "node A { name: String }")
    graph.ingest([{"type": "A", "data": {"id": "x", "name": "x"}}])
    before = versions(graph)
    graph.schema.apply("node A { name: String @key }")
    assert versions(graph) == before


def test_dropped_key_keeps_ids(graph: og.Graph) -> None:
    graph.schema.apply(EDGE_KEY)
    before = versions(graph)
    [step] = graph.schema.plan(SCHEMA).steps
    assert (step.kind, step.effect, step.constraint) == ("drop_constraint", "instant", "@key(dst, src)")
    graph.schema.apply(SCHEMA)
    assert versions(graph) == before
    graph.ingest([{"edge": "Knows", "from": "p0", "to": "p1", "data": {}}])
    assert len(entities(graph, "Knows")) == 3


def test_older_commits_keep_the_older_ids(graph: og.Graph) -> None:
    before = head(graph)
    old = entities(graph, "Knows")
    graph.schema.apply(EDGE_KEY)
    assert entities(graph, "Knows", at=before) == old
    assert session_of(graph).kernel.snapshot("main").head != before


# -- values ------------------------------------------------------------------------------------------------------

WIDE = (
    SCHEMA.replace("age: I32?", "age: I64?")
    .replace("tags: [I32]?", "tags: [I64]?")
    .replace("score: F32", "score: F64")
    .replace("since: I32?", 'from_year: F64? @rename_from("since")')
)


def test_numbers_are_widened_and_take_wide_values(graph: og.Graph) -> None:
    rows = {name: entities(graph, name) for name in ("Person", "City")}
    receipt = graph.schema.apply(WIDE)
    assert {step.kind for step in receipt.steps} == {"widen_property", "rename_property"}
    assert {name: entities(graph, name) for name in ("Person", "City")} == rows
    assert [edge["from_year"] for edge in entities(graph, "Knows")] == [1.0, 2.0]
    graph.ingest([{"type": "Person", "data": {"id": "p9", "name": "x", "age": 2**40, "tags": [2**41]}}])
    query = "query q($n: I64) { match { $p: Person { age: $n } } return { $p.name as name } }"
    assert graph.query(query, params={"n": 2**40}).rows() == [{"name": "x"}]
    assert graph.query(query, params={"n": 1}).rows() == [{"name": "bob"}]
    assert sound(graph)


def test_widened_rows_keep_their_row_ids_and_are_no_change(graph: og.Graph) -> None:
    before = head(graph)
    dataset = session_of(graph).kernel.dataset(graph.snapshot(), PERSON)
    row_ids = dataset.read(["id"], with_row_id=True)
    graph.schema.apply(WIDE)
    after = session_of(graph).kernel.dataset(graph.snapshot(), PERSON).read(["id"], with_row_id=True)
    assert after.equals(row_ids)
    assert graph.diff(before, "main").changes.num_rows == 0


def test_past_of_a_widened_property_reads_as_it_was(graph: og.Graph) -> None:
    before = head(graph)
    graph.schema.apply(WIDE)
    query = "query q() { match { $p: Person } return { $p.name as name, $p.age as age } order { name asc } }"
    assert [row["age"] for row in graph.query(query, at=before).rows()] == [0, 1, 2]
    counted = "query q() { match { $p: Person  $p.age > 0 } return { sum($p.age) as n } }"
    assert graph.query(counted, at=before).rows() == graph.query(counted).rows()
    assert entities(graph, "Person", at=before) == entities(graph, "Person")


def test_widened_column_survives_optimize_and_deletes(graph: og.Graph) -> None:
    graph.mutate('query q() { delete Person where name = "cid" }')
    graph.schema.apply(WIDE)
    graph.maintenance.optimize()
    graph.maintenance.cleanup(keep=1, confirm=True)
    assert [row["age"] for row in entities(graph, "Person")] == [0, 1]
    assert sound(graph)


def test_widened_type_without_rows(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", "node A { name: String @key  n: I32  f: F32? }")
    graph.schema.apply("node A { name: String @key  n: I64  f: F64? }")
    graph.ingest([{"type": "A", "data": {"name": "a", "n": 2**40, "f": 0.1}}])
    assert entities(graph, "A") == [{"id": "a", "name": "a", "n": 2**40, "f": 0.1}]


def test_required_becomes_optional_by_metadata(graph: og.Graph) -> None:
    graph.schema.apply(SCHEMA.replace("score: F32", "score: F32?"))
    graph.ingest([{"type": "City", "data": {"name": "oslo"}}])
    assert [row.get("score") for row in entities(graph, "City")] == [None, 0.5]
    assert sound(graph)


def test_optional_becomes_required_if_the_data_allows(graph: og.Graph) -> None:
    required = SCHEMA.replace("since: I32?", "since: I32")
    graph.schema.apply(required)
    with pytest.raises(DataError):
        graph.ingest([{"edge": "Knows", "from": "p0", "to": "p2", "data": {}}])
    graph.schema.apply(SCHEMA)
    graph.ingest([{"edge": "Knows", "from": "p0", "to": "p2", "data": {"id": "k"}}])
    with pytest.raises(DataError, match=r"`k`: `Knows\.since` is required") as refused:
        graph.schema.apply(required)
    assert (refused.value.context["rule"], refused.value.context["entity_id"]) == ("E4", "k")


def test_added_required_property_is_backfilled(graph: og.Graph) -> None:
    before = head(graph)
    filled = SCHEMA.replace("age: I32?", "age: I32?  open: Bool @default(true)  mark: String @default(uuid())")
    receipt = graph.schema.apply(filled)
    assert {step.effect for step in receipt.steps} == {"rewrites"}
    rows = entities(graph, "Person")
    assert [row["open"] for row in rows] == [True] * 3
    assert len({row["mark"] for row in rows}) == 3
    assert [row["photo"] for row in rows] == ["base64:aGk="] * 3
    assert [row.get("open") for row in entities(graph, "Person", at=before)] == [None] * 3
    graph.ingest([{"type": "Person", "data": {"name": "new"}}])
    assert sound(graph)


def test_backfilled_default_that_breaks_a_constraint_is_refused(graph: og.Graph) -> None:
    with pytest.raises(DataError) as refused:
        graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  n: I32 @default(5)  @unique(n)"))
    assert refused.value.context["rule"] == "E5"
    with pytest.raises(DataError) as refused:
        graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  n: I32 @default(5)  @range(n, 7..9)"))
    assert refused.value.context["rule"] == "E8"


# -- constraints -------------------------------------------------------------------------------------------------

ADDED: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "unique": ("name: String  age", "name: String @unique  age", {"type": "Person", "data": {"name": "ann"}}, "E5"),
    "unique ends": ("scan: Blob?", "scan: Blob?  @unique(src, dst)", {"edge": "Knows", "from": "p0", "to": "p1"}, "E5"),
    "range": ("age: I32?", "age: I32?  @range(age, 0..9)", {"type": "Person", "data": {"name": "x", "age": 10}}, "E8"),
    "check": ("age: I32?", 'age: I32?  @check(name, "^[a-z]+$")', {"type": "Person", "data": {"name": "X"}}, "E8"),
    "card": (
        "Knows: Person -> Person",
        "Knows: Person -> Person @card(0..1)",
        {"edge": "Knows", "from": "p0", "to": "p2"},
        "E10",
    ),
}


@pytest.mark.parametrize("constraint", ADDED)
def test_constraint_is_added_if_the_data_allows(graph: og.Graph, constraint: str) -> None:
    old, new, record, rule = ADDED[constraint]
    text = SCHEMA.replace(old, new)
    before = versions(graph)
    assert [step.effect for step in graph.schema.apply(text).steps] == ["validates"]
    assert versions(graph) == before
    entity = {"data": {}, **record}
    with pytest.raises(DataError) as refused:
        graph.ingest([entity])
    assert refused.value.context["rule"] == rule
    # Without the constraint the entity is welcome, and then the constraint is not.
    assert [(step.kind, step.effect) for step in graph.schema.apply(SCHEMA).steps] == [("drop_constraint", "instant")]
    graph.ingest([entity])
    with pytest.raises(DataError) as refused:
        graph.schema.apply(text)
    assert refused.value.context["rule"] == rule
    assert graph.schema.source == SCHEMA


def test_constraint_on_a_renamed_property_is_the_same(graph: og.Graph) -> None:
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  @range(age, 0..9)  @unique(age, name)"))
    renamed = SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")  @range(years, 0..9)  @unique(name, years)')
    receipt = graph.schema.apply(renamed)
    assert [step.kind for step in receipt.steps] == ["rename_property"]


def test_interface_leaves_and_returns(tmp_path: Path) -> None:
    with_interface = "interface Named { name: String @key }\nnode A implements Named { n: I32? }"
    graph = og.init(tmp_path / "g.omni", with_interface)
    graph.ingest([{"type": "A", "data": {"name": "a"}}])
    before = versions(graph)
    graph.schema.apply("node A { name: String @key  n: I32? }")
    graph.schema.apply(with_interface)
    assert versions(graph) == before
    assert [row["id"] for row in entities(graph, "A")] == ["a"]


def test_samples_of_unreadable_types_are_not_shown(graph: og.Graph) -> None:
    store = TaskStore(graph_access(graph.uri, "op"), session_of(graph).kernel.store)
    check = DataCheck(graph.schema.catalog, Threads(), store, {"Knows"})
    type_ = replace(graph.schema.edges["Knows"], key=("src", "dst"))
    with pytest.raises(DataError) as refused:
        check.check_key(type_, pa.array(["secret1", "secret2"]), pa.array(["same", "same"]))
    assert refused.value.context["rule"] == "E5"
    assert not {"secret1", "secret2", "same"} & set(re.findall(r"\w+", f"{refused.value} {refused.value.context}"))


# -- mutants -----------------------------------------------------------------------------------------------------

EVERYTHING = (
    EDGE_KEY.replace("name: String  age", "name: String @key  age")
    .replace("age: I32?", "age: I64?  open: Bool @default(true)")
    .replace("score: F32", "score: F32?")
    .replace("edge Lives: Person -> City", "edge Lives: Person -> City @card(0..1)")
)


def evolve_and_look(graph: og.Graph) -> None:
    """Apply every kind of rewrite at once and look at all that it should leave."""
    graph.schema.apply(EVERYTHING)
    assert [row["id"] for row in entities(graph, "Person")] == ["ann", "bob", "cid"]
    assert [row["open"] for row in entities(graph, "Person")] == [True] * 3
    assert [row["id"] for row in entities(graph, "Knows")] == ['["ann","bob"]', '["bob","cid"]']
    assert [(row["from"], row["to"]) for row in entities(graph, "Lives")] == [("ann", "rome")]
    graph.ingest(
        [{"type": "Person", "data": {"name": "dan", "age": 2**40}}, {"type": "City", "data": {"name": "oslo"}}]
    )
    assert sound(graph)
    graph.schema.apply(EVERYTHING.replace("@card(0..1)", ""))
    graph.ingest([{"edge": "Lives", "from": "ann", "to": "oslo", "data": {}}])
    with pytest.raises(DataError, match="@card"):
        graph.schema.apply(EVERYTHING)
    graph.ingest([{"type": "Person", "data": {"name": "eve", "age": 2**40}}])
    keyed = EVERYTHING.replace("@card(0..1)", "").replace(
        "name: String @key  age: I64?", "name: String  age: I64  @key(age)"
    )
    with pytest.raises(DataError, match="@key"):
        graph.schema.apply(keyed)


def test_everything_at_once_is_as_it_should_be(graph: og.Graph) -> None:
    evolve_and_look(graph)


MUTANTS = {
    "unchecked": (DataCheck, "run", lambda *_: None),
    "unchecked key": (DataCheck, "check_key", lambda *_: None),
    "old ids": (TypeChange, "is_rekeyed", False),
    "unfilled": (TypeChange, "filled", ()),
    "unconverted": (TypeChange, "retyped", {}),
    "strict nulls": (TypeChange, "relaxed", ()),
    "edges left behind": (SchemaRewrite, "_follow_nodes", lambda *_: {}),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_everything_at_once_without_a_part_is_not(name: str, graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[name])
    with pytest.raises((AssertionError, OmniGraphError, pytest.fail.Exception, pa.ArrowException)):
        evolve_and_look(graph)
