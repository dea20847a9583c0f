"""Applying a schema: what each step does to data, names and history, and what stops it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.engine.authorization import on_target
from omnigraph.errors import OmniGraphError, PolicyDenied, ReadSetChanged, StorageError
from omnigraph.failpoints import Point
from omnigraph.graph import session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.lang.diagnostic import LanguageError
from omnigraph.manifest.model import MAIN, Snapshot
from omnigraph.manifest.plan import CommitPolicy, Plan
from omnigraph.manifest.requirements import SchemaIs
from tests.support.failpoint_actions import fail_with
from tests.support.fleet_operations import stranger
from tests.support.graph_template import copy_built
from tests.support.kernel_fixtures import CITY, KNOWS, PERSON, SCHEMA, check_invariants, ids_of, insert
from tests.support.orphan_sweep import sweep
from tests.support.policy_recorder import Recorder

AGE_TO_YEARS = SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")')
WITH_EMAIL = SCHEMA.replace("age: I32?", "age: I32?  email: String?  photo: Blob?  mood: Vector(2)?")
WITHOUT_AGE = SCHEMA.replace("age: I32?", "")
WITHOUT_CITY = SCHEMA.replace("node City { name: String @key }", "")
TOWN = SCHEMA.replace("node City", 'node Town @rename_from("City")')
WITH_SHIP = SCHEMA + "node Ship { imo: String @key  log: Blob? }\nedge Sails: Person -> Ship { since: Date? }"


def build(path: Path) -> og.Graph:
    graph = og.init(path, SCHEMA)
    insert(session_of(graph).kernel, {PERSON: ["ann", "bob"], CITY: ["rome"], KNOWS: ["k1"]})
    return graph


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return copy_built(build, tmp_path / "graph.omni")


def columns(graph: og.Graph, table_key: TypeKey) -> list[str]:
    snapshot = graph.snapshot()
    return session_of(graph).kernel.dataset(snapshot, table_key).schema.names


def versions(graph: og.Graph) -> dict[str, int]:
    return {key: pin.version for key, pin in graph.snapshot().state.pins.items()}


def test_apply_added_properties_are_null_and_take_data(graph: og.Graph) -> None:
    receipt = graph.schema.apply(WITH_EMAIL)
    assert (receipt.supported, receipt.applied) == (True, True)
    assert [step.kind for step in receipt.steps] == ["add_property"] * 3
    assert columns(graph, PERSON) == ["id", "age", "name", "email", "mood", "photo"]
    dataset = session_of(graph).kernel.dataset(graph.snapshot(), PERSON)
    assert dataset.read(["email"])["email"].to_pylist() == [None, None]
    insert(session_of(graph).kernel, {PERSON: ["cid"]})
    assert ids_of(session_of(graph).kernel, PERSON) == ["ann", "bob", "cid"]
    check_invariants(session_of(graph).kernel)


def test_apply_added_column_carries_its_property_id(graph: og.Graph) -> None:
    graph.schema.apply(WITH_EMAIL)
    property_id = graph.schema.catalog.nodes["Person"].properties["email"].property_id
    field = session_of(graph).kernel.dataset(graph.snapshot(), PERSON).schema.field("email")
    assert field.metadata == {b"omnigraph.stable_property_id": str(property_id).encode()}


def test_apply_renamed_property_keeps_values_and_field_id(graph: og.Graph) -> None:
    before = session_of(graph).kernel.dataset(graph.snapshot(), PERSON).schema.field("age").metadata
    graph.schema.apply(AGE_TO_YEARS)
    after = session_of(graph).kernel.dataset(graph.snapshot(), PERSON).schema.field("years").metadata
    assert before == after
    assert ids_of(session_of(graph).kernel, PERSON) == ["ann", "bob"]


def test_apply_dropped_property_stays_readable_in_the_past(graph: og.Graph) -> None:
    before = graph.snapshot().head
    graph.schema.apply(WITHOUT_AGE)
    assert "age" not in columns(graph, PERSON)
    then = session_of(graph).view(at=before, names="then")
    assert "age" in then.dataset(PERSON).schema.names
    assert "age" in then.catalog.nodes["Person"].properties


def test_apply_renamed_type_keeps_identity_path_and_version(graph: og.Graph) -> None:
    before = graph.snapshot().state.pins[CITY]
    graph.schema.apply(TOWN)
    after = graph.snapshot().state.pins[TypeKey("node:Town")]
    assert (after.identity, after.path, after.version) == (before.identity, before.path, before.version)
    assert CITY not in graph.snapshot().state.pins
    assert ids_of(session_of(graph).kernel, TypeKey("node:Town")) == ["rome"]


def test_apply_dropped_type_leaves_a_tombstone_and_its_past(graph: og.Graph) -> None:
    before = graph.snapshot().head
    receipt = graph.schema.apply(WITHOUT_CITY)
    assert CITY not in graph.snapshot().state.pins
    assert [one.table_key for one in graph.snapshot().state.tombstones] == [CITY]
    assert session_of(graph).view(at=before, names="then").dataset(CITY).count() == 1
    assert receipt.purge_pending == ()


def test_apply_readded_type_is_another_life(graph: og.Graph) -> None:
    first = graph.snapshot().state.pins[CITY]
    graph.schema.apply(WITHOUT_CITY)
    graph.schema.apply(SCHEMA)
    second = graph.snapshot().state.pins[CITY]
    assert (second.identity != first.identity, second.path != first.path) == (True, True)
    assert ids_of(session_of(graph).kernel, CITY) == []


def test_apply_added_types_are_empty_and_take_data(graph: og.Graph) -> None:
    receipt = graph.schema.apply(WITH_SHIP)
    assert {step.kind for step in receipt.steps} == {"add_type"}
    pin = graph.snapshot().state.pins[TypeKey("node:Ship")]
    assert pin.path == pin.identity.path(TypeKey("node:Ship"))
    insert(session_of(graph).kernel, {"edge:Sails": ["s1"]})
    assert ids_of(session_of(graph).kernel, TypeKey("edge:Sails")) == ["s1"]
    check_invariants(session_of(graph).kernel)


def test_apply_everything_at_once_is_one_commit(graph: og.Graph) -> None:
    before = graph.snapshot()
    text = WITH_SHIP.replace("age: I32?", "email: String?").replace("node City", 'node Town @rename_from("City")')
    receipt = graph.acting_as("ada").schema.apply(text)
    after = graph.snapshot()
    assert after.version == before.version + 1 == receipt.graph_manifest_version
    assert receipt.commit is not None
    assert (receipt.commit.kind, receipt.commit.actor, receipt.commit.parent) == ("schema_apply", "ada", before.head)
    assert receipt.to_json()["step_count"] == len(receipt.steps) == 5
    check_invariants(session_of(graph).kernel)


@pytest.mark.parametrize(
    "text",
    [
        SCHEMA.replace("age: I32?", "age: I32? @index"),
        SCHEMA.replace("node City", 'node City @description("a place")'),
        SCHEMA.replace("age: I32?", 'age: I32? @description("in years")'),
    ],
)
def test_apply_metadata_step_moves_no_data(graph: og.Graph, text: str) -> None:
    before = versions(graph)
    assert graph.schema.apply(text).applied
    assert versions(graph) == before
    assert graph.schema.source == text


def test_apply_wider_enum_moves_no_data(tmp_path: Path) -> None:
    text = "node Ship { kind: enum(tug, bulk) }"
    graph = og.init(tmp_path / "graph.omni", text)
    receipt = graph.schema.apply(text.replace("bulk", "bulk, ferry"))
    assert [step.kind for step in receipt.steps] == ["extend_enum"]
    assert versions(graph) == {"node:Ship": 1}
    assert graph.schema.catalog.nodes["Ship"].properties["kind"].type.enum_values == (
        "bulk",
        "ferry",
        "tug",
    )


@pytest.mark.parametrize("text", [SCHEMA, f"// a remark\n{SCHEMA}"])
def test_apply_same_schema_changes_nothing(graph: og.Graph, text: str) -> None:
    before = graph.snapshot().version
    receipt = graph.schema.apply(text)
    assert (receipt.applied, receipt.steps, receipt.commit) == (False, (), None)
    assert receipt.graph_manifest_version == graph.snapshot().version == before


def test_apply_unsupported_step_is_refused_with_its_place(graph: og.Graph) -> None:
    before = graph.snapshot().version
    with pytest.raises(LanguageError) as caught:
        graph.schema.apply(SCHEMA.replace("age: I32?", "age: String?  email: String?"))
    assert [one.code for one in caught.value.diagnostics] == ["OG-MF-106"]
    assert re.match(r"\[OG-MF-106\] .* at schema\.pg:\d+:\d+", str(caught.value))
    assert graph.snapshot().version == before


def test_apply_while_branches_exist_is_one_commit_of_main(graph: og.Graph) -> None:
    graph.branches.create("review/a")
    before = graph.snapshot("review/a")
    assert graph.schema.apply(SCHEMA).applied is False
    assert graph.schema.apply(WITH_EMAIL).applied is True
    assert graph.snapshot("review/a") == before


def test_apply_with_data_loss_marks_what_waits_for_cleanup(graph: og.Graph) -> None:
    text = WITHOUT_AGE.replace("node City { name: String @key }", "")
    receipt = graph.schema.apply(text, allow_data_loss=True)
    assert receipt.purge_pending == ("node:Person.age", "node:City")
    assert receipt.commit is not None
    assert receipt.commit.properties == {"hard_drops": "node:Person.age,node:City"}
    assert {step.mode for step in receipt.steps} == {"hard"}


def test_plan_shows_the_steps_and_changes_nothing(graph: og.Graph) -> None:
    before = graph.snapshot().version
    migration = graph.schema.plan(WITH_SHIP)
    assert [step.to_json()["kind"] for step in migration.steps] == ["add_type", "add_type"]
    assert graph.snapshot().version == before


def test_apply_policy_is_asked_first(graph: og.Graph) -> None:
    session_of(graph).policy = policy = Recorder(denies=("schema_apply",))
    session_of(graph).actor = "eve"
    for call in (graph.schema.apply, graph.schema.plan):
        with pytest.raises(PolicyDenied):
            call("not even a schema")
    assert policy.asked == [("schema_apply", on_target(MAIN), "eve")] * 2


def test_apply_refreshes_the_copy_for_people(graph: og.Graph) -> None:
    copy = Path(graph.uri.removeprefix("file://")) / "_schema.pg"
    graph.schema.apply(WITH_EMAIL)
    assert copy.read_text() == WITH_EMAIL
    copy.write_text("stale")
    assert graph.schema.source == WITH_EMAIL
    assert graph.schema.apply(WITH_EMAIL).applied is False
    assert copy.read_text() == WITH_EMAIL


def test_apply_other_handle_rebinds_by_itself(graph: og.Graph) -> None:
    other = og.open(graph.uri)
    assert "email" not in session_of(other).view().catalog.nodes["Person"].properties
    graph.schema.apply(WITH_EMAIL)
    assert "email" in session_of(other).view().catalog.nodes["Person"].properties
    assert "email" in columns(other, PERSON)


def test_apply_writer_of_the_old_schema_is_told(graph: og.Graph) -> None:
    """A write that was checked against the old schema may not land on the new one."""
    old = graph.snapshot().state.schema.ir_hash

    def prepare(_: Snapshot) -> Plan:
        if graph.snapshot().state.schema.ir_hash == old:
            og.open(graph.uri).schema.apply(WITH_EMAIL)
        return Plan("insert", requirements=(SchemaIs(old),))

    with pytest.raises(ReadSetChanged) as caught:
        session_of(graph).kernel.commit(MAIN, prepare, CommitPolicy.INSERT)
    assert caught.value.context["member"] == "schema_ir_hash"


def mutate_under_a_changing_schema(graph: og.Graph, text: str) -> None:
    """Run a mutation while another process drops `age` between its check and its publish."""
    other = og.open(graph.uri)
    session_of(other).kernel = stranger(graph.uri)
    once = iter([True])

    def change(_: str) -> None:
        if next(once, False):
            other.schema.apply(WITHOUT_AGE)

    with failpoints.armed({Point.COMMIT_STAGED: change}):
        graph.mutate(f"query q() {{ {text} }}")


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ('insert Person { name: "cid", age: 3 }', LanguageError),
        ('update Person set { age: 1 } where name = "ann"', ReadSetChanged),
    ],
)
def test_apply_mutation_of_the_old_schema_does_not_land(
    graph: og.Graph, text: str, refusal: type[OmniGraphError]
) -> None:
    with pytest.raises(refusal):
        mutate_under_a_changing_schema(graph, text)
    assert ids_of(session_of(graph).kernel, PERSON) == ["ann", "bob"]
    assert graph.commits()[0].kind == "schema_apply"


def test_apply_insert_that_fits_both_schemas_is_checked_again_and_lands(graph: og.Graph) -> None:
    mutate_under_a_changing_schema(graph, 'insert Person { name: "cid" }')
    assert [one.kind for one in graph.commits()[:2]] == ["mutation", "schema_apply"]
    assert ids_of(session_of(graph).kernel, PERSON) == ["ann", "bob", "cid"]
    check_invariants(session_of(graph).kernel)


@pytest.mark.slow
def test_apply_then_every_kind_of_write_works(graph: og.Graph) -> None:
    graph.schema.apply(WITH_EMAIL.replace("age: I32?", 'years: I32? @rename_from("age")'))
    graph.mutate('query q() { insert Person { name: "cid", email: "c@x", mood: [0.5, 1.0] } }')
    graph.mutate('query q() { update Person set { years: 4 } where name = "ann" }')
    graph.ingest([{"type": "Person", "data": {"name": "dov", "photo": "base64:AA=="}}], mode="merge")
    graph.mutate('query q() { delete Person where name = "bob" }')
    found = graph.query(
        "query q() { match { $p: Person } return { $p.name as name, $p.years as years, $p.email as email }"
        " order { name asc } }"
    ).rows()
    assert [tuple(row.values()) for row in found] == [("ann", 4, None), ("cid", None, "c@x"), ("dov", None, None)]
    graph.ingest([{"type": "Person", "data": {"name": "eve", "years": 2}}], mode="overwrite")
    assert ids_of(session_of(graph).kernel, PERSON) == ["eve"]
    check_invariants(session_of(graph).kernel)


def test_apply_write_of_another_process_in_between_is_no_conflict(graph: og.Graph) -> None:
    other = stranger(graph.uri)
    once = iter([True])

    def write(_: str) -> None:
        if next(once, False):
            insert(other, {PERSON: ["cid"]})

    with failpoints.armed({Point.COMMIT_STAGED: write}):
        receipt = graph.schema.apply(WITH_SHIP.replace("age: I32?", "email: String?"))
    assert receipt.applied
    # The dataset that the first attempt made served the second as well.
    pin = graph.snapshot().state.pins[TypeKey("node:Ship")]
    assert pin.path == pin.identity.path(TypeKey("node:Ship"))
    assert ids_of(session_of(graph).kernel, PERSON) == ["ann", "bob", "cid"]
    check_invariants(session_of(graph).kernel)


@pytest.mark.slow
@pytest.mark.parametrize("theirs", [WITH_EMAIL, WITH_SHIP, WITHOUT_CITY], ids=["other", "same", "opposite"])
def test_apply_schema_changed_by_another_process_in_between_is_a_conflict(graph: og.Graph, theirs: str) -> None:
    other = og.open(graph.uri)
    session_of(other).kernel = stranger(graph.uri)
    once = iter([True])

    def change(_: str) -> None:
        if next(once, False):
            other.schema.apply(theirs)

    with failpoints.armed({Point.COMMIT_STAGED: change}), pytest.raises(ReadSetChanged) as caught:
        graph.schema.apply(WITH_SHIP)
    assert caught.value.context["member"] == "schema_ir_hash"
    assert graph.schema.source == theirs


@pytest.mark.slow
def test_apply_path_taken_by_an_unfinished_apply_goes_elsewhere(graph: og.Graph) -> None:
    with (
        failpoints.armed({Point.PUBLISH_BEFORE: fail_with(StorageError("lost"))}),
        pytest.raises(OmniGraphError),
    ):
        graph.schema.apply(WITH_SHIP.replace("imo: String @key", "code: I64 @key"))
    receipt = graph.schema.apply(WITH_SHIP)
    pin = graph.snapshot().state.pins[TypeKey("node:Ship")]
    assert receipt.applied
    assert pin.path.startswith(f"{pin.identity.path(TypeKey('node:Ship'))}-")
    assert columns(graph, TypeKey("node:Ship")) == ["id", "imo", "log"]
    insert(session_of(graph).kernel, {"edge:Sails": ["s1"]})
    # What the unfinished apply left behind goes; what stands beside it stays.
    assert sweep(session_of(graph).kernel, older_than_seconds=0).files_removed > 0
    assert session_of(graph).kernel.store.objects.list(pin.identity.path(TypeKey("node:Ship"))) == []
    check_invariants(session_of(graph).kernel)
