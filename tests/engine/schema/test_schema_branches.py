"""Schemas of branches: each branch has its own, merges merge them by identity, and data follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import GraphError, MergeConflict
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from tests.support.kernel_fixtures import check_invariants
from tests.support.merge_fixtures import PERSON, SCHEMA, age, change, content, people, put
from tests.support.write_fixtures import rows

pytestmark = pytest.mark.slow

WITH_ZIP = SCHEMA.replace("city: String?", "city: String?\n  zip: String?")
RENAMED = SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")')
WITHOUT_CITY = SCHEMA.replace("  city: String?\n", "")
HUMAN = SCHEMA.replace("node Person {", 'node Human @rename_from("Person") {').replace(
    "Person -> Person", "Human -> Human"
)
TOWNS = SCHEMA + "\nnode Town { name: String @key }\nedge In: Person -> Town\n"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = people(tmp_path)
    graph.branches.create("review")
    return graph


def set_age(graph: Graph, name: str, value: int, branch: str = "main") -> Any:
    return change(graph, f'update Person set {{ age: {value} }} where name = "{name}"', branch).commit.commit_id


def conflicts(graph: Graph, source: str = "review", into: str = "main") -> list[tuple[str, str]]:
    """Merge, expect conflicts, and return them; a dry run must list the same, and nothing may be written."""
    before = graph.snapshot(into).version
    dry = graph.branches.merge(source, into, dry_run=True)
    with pytest.raises(MergeConflict) as caught:
        graph.branches.merge(source, into)
    listed = caught.value.context["conflicts"]
    assert [one.to_json() for one in dry.conflicts] == listed
    assert graph.snapshot(into).version == before
    return [(one["kind"], one["message"]) for one in listed]


# -- a schema change on main, with open branches -----------------------------------------------------------------------


def test_apply_on_main_leaves_branches_with_their_schema(graph: Graph) -> None:
    graph.schema.apply(WITH_ZIP)
    change(graph, 'update Person set { zip: "1" } where name = "Alice"')
    assert rows(graph, PERSON)["Alice"]["zip"] == "1"
    assert "zip" not in rows(graph, PERSON, "review")["Alice"]
    set_age(graph, "Bob", 26, "review")
    put(graph, '{"type":"Person","data":{"name":"Dan","city":"Rome"}}', branch="review")
    assert (age(graph, "Bob", "review"), age(graph, "Bob")) == (26, 25)
    with pytest.raises(og.OmniGraphError):
        change(graph, 'update Person set { zip: "1" } where name = "Alice"', "review")
    check_invariants(session_of(graph).kernel)


def test_apply_hard_drop_names_the_branches_that_still_have_it(graph: Graph) -> None:
    graph.branches.create("other")
    graph.schema.apply(WITHOUT_CITY, branch="other")
    with pytest.raises(GraphError) as caught:
        graph.schema.apply(WITHOUT_CITY, allow_data_loss=True)
    assert (caught.value.code, caught.value.context["branches"]) == ("schema.branches_exist", ["review"])
    graph.schema.apply(WITHOUT_CITY, branch="review")
    assert graph.schema.apply(WITHOUT_CITY, allow_data_loss=True).purge_pending == ("node:Person.city",)


def test_apply_hard_drop_on_a_branch_is_refused(graph: Graph) -> None:
    with pytest.raises(GraphError) as caught:
        graph.schema.apply(WITHOUT_CITY, allow_data_loss=True, branch="review")
    assert caught.value.code == "schema.branches_exist"
    assert "city" in rows(graph, PERSON, "review")["Alice"]


# -- a schema change on a branch ---------------------------------------------------------------------------------------


def test_apply_on_a_branch_leaves_main_as_it_is(graph: Graph) -> None:
    receipt = graph.schema.apply(TOWNS, branch="review")
    assert [step.kind for step in receipt.steps] == ["add_type", "add_type"]
    assert receipt.commit is not None
    assert receipt.commit.branch == "review"
    put(graph, '{"type":"Town","data":{"name":"Rome"}}', branch="review")
    assert rows(graph, "node:Town", "review").keys() == {"Rome"}
    assert TypeKey("node:Town") not in graph.snapshot().state.pins
    assert graph.schema.plan(TOWNS).steps
    assert not graph.schema.plan(TOWNS, branch="review").steps
    assert Path(graph.uri, "_schema.pg").read_text() == SCHEMA


def test_identities_of_two_branches_never_meet(graph: Graph) -> None:
    graph.branches.create("other")
    for branch in ("main", "review", "other", "review"):
        source = graph.snapshot(branch).state.schema.source
        extra = f"node T{len(source)} {{ name: String @key }}\n"
        graph.schema.apply(source + extra, branch=branch)
    graph.branches.create("deeper", from_="review")
    graph.schema.apply(
        graph.snapshot("deeper").state.schema.source + "node Deep { name: String @key }", branch="deeper"
    )
    seen: dict[tuple[int, int], set[str]] = {}
    for branch in ("main", "review", "other", "deeper"):
        state = graph.snapshot(branch).state
        for key, pin in state.pins.items():
            seen.setdefault((pin.identity.type_id, pin.identity.incarnation_id), set()).add(f"{pin.path} {key.name}")
    assert all(len(things) == 1 for things in seen.values()), seen


# -- merges ------------------------------------------------------------------------------------------------------------


def test_merge_of_an_older_schema_lands_under_the_new_one(graph: Graph) -> None:
    graph.schema.apply(WITH_ZIP)
    change(graph, 'update Person set { zip: "1" } where name = "Alice"')
    set_age(graph, "Alice", 31, "review")
    put(graph, '{"type":"Person","data":{"name":"Dan","age":1}}', branch="review")
    receipt = graph.branches.merge("review")
    assert (receipt.outcome, [(one.inserted, one.updated) for one in receipt.types]) == ("merged", [(1, 1)])
    assert rows(graph, PERSON)["Alice"] == {**rows(graph, PERSON)["Alice"], "age": 31, "zip": "1"}
    assert rows(graph, PERSON)["Dan"]["zip"] is None
    check_invariants(session_of(graph).kernel)


def test_branch_catches_up_by_merging_main(graph: Graph) -> None:
    graph.schema.apply(RENAMED)
    set_age(graph, "Bob", 26, "review")
    change(graph, 'update Person set { years: 31 } where name = "Alice"')
    graph.branches.merge("main", into="review")
    merged = rows(graph, PERSON, "review")
    assert {name: row["years"] for name, row in merged.items()} == {"Alice": 31, "Bob": 26, "Carol": 20}
    assert graph.snapshot("review").state.schema.source == RENAMED
    assert graph.branches.merge("review").outcome == "fast_forward"
    assert content(graph) == content(graph, "review")


def test_merge_brings_schema_and_data_of_a_branch(graph: Graph) -> None:
    graph.schema.apply(TOWNS.replace("city: String?", "city: String?\n  zip: String?"), branch="review")
    put(
        graph,
        '{"type":"Town","data":{"name":"Rome"}}',
        '{"edge":"In","from":"Bob","to":"Rome","data":{"id":"br"}}',
        branch="review",
    )
    change(graph, 'update Person set { zip: "2" } where name = "Bob"', "review")
    set_age(graph, "Alice", 31)
    graph.branches.merge("review")
    assert rows(graph, PERSON)["Bob"]["zip"] == "2"
    assert age(graph, "Alice") == 31
    assert rows(graph, "edge:In")["br"]["dst"] == "Rome"
    # What came with the branch is written to like anything else, on both sides, and merges again.
    put(graph, '{"type":"Town","data":{"name":"Oslo"}}')
    put(graph, '{"type":"Town","data":{"name":"Bern"}}', branch="review")
    graph.branches.merge("review")
    graph.branches.delete("review")
    assert rows(graph, "node:Town").keys() == {"Rome", "Oslo", "Bern"}
    check_invariants(session_of(graph).kernel)
    graph.maintenance.cleanup(keep=1, confirm=True)
    assert rows(graph, "node:Town").keys() == {"Rome", "Oslo", "Bern"}
    assert graph.maintenance.verify().is_sound


def test_merge_fast_forward_takes_the_schema_along(graph: Graph) -> None:
    graph.schema.apply(RENAMED + "\nnode Town { name: String @key }", branch="review")
    change(graph, 'update Person set { years: 31 } where name = "Alice"', "review")
    assert graph.branches.merge("review").outcome == "fast_forward"
    assert content(graph) == content(graph, "review")
    graph.schema.apply(graph.schema.source + "\nnode Lake { name: String @key }")
    put(graph, '{"type":"Lake","data":{"name":"Como"}}')
    check_invariants(session_of(graph).kernel)


def test_merge_renames_and_additions_of_both_sides(graph: Graph) -> None:
    graph.schema.apply(HUMAN.replace("since: I32?", "since: I32?\n  note: String?"))
    graph.schema.apply(RENAMED.replace("city: String?", "city: String?\n  zip: String?"), branch="review")
    change(graph, 'update Human set { city: "Rome" } where name = "Alice"')
    change(graph, 'update Person set { years: 31, zip: "3" } where name = "Alice"', "review")
    graph.branches.merge("review")
    alice = rows(graph, "node:Human")["Alice"]
    assert (alice["years"], alice["zip"], alice["city"]) == (31, "3", "Rome")
    assert list(graph.schema.edges["Knows"].properties) == ["note", "since"]
    # The written schema is the accepted one.
    assert not graph.schema.plan(graph.schema.source).steps


def test_merge_with_crossing_schema_changes_settles(graph: Graph) -> None:
    graph.schema.apply(WITH_ZIP)
    graph.schema.apply(RENAMED, branch="review")
    graph.branches.create("mirror")
    graph.branches.merge("review")
    graph.branches.merge("mirror", into="review")
    set_main = 'update Person set { zip: "4" } where name = "Bob"'
    change(graph, set_main)
    change(graph, 'update Person set { years: 1 } where name = "Carol"', "review")
    graph.branches.merge("review")
    graph.branches.merge("main", into="review")
    assert content(graph) == content(graph, "review")
    assert rows(graph, PERSON)["Carol"]["years"] == 1


def test_merge_dropped_type_goes_and_its_data_with_it(graph: Graph) -> None:
    graph.schema.apply(SCHEMA.replace("edge Knows: Person -> Person { since: I32? }", ""), branch="review")
    set_age(graph, "Bob", 26)
    graph.branches.merge("review")
    assert [key.name for key in graph.snapshot().state.pins] == ["Person"]


# -- conflicts ---------------------------------------------------------------------------------------------------------


def test_merge_two_renames_of_one_property_conflict(graph: Graph) -> None:
    graph.schema.apply(RENAMED)
    graph.schema.apply(RENAMED.replace("years", "winters"), branch="review")
    [(kind, message)] = conflicts(graph)
    assert (kind, message) == (
        "DivergentSchema",
        "`Person.years`: both sides changed its name, to `years` and `winters`",
    )


def test_merge_additions_of_one_name_conflict_until_one_is_renamed(graph: Graph) -> None:
    graph.schema.apply(WITH_ZIP)
    graph.schema.apply(WITH_ZIP, branch="review")
    [(kind, message)] = conflicts(graph)
    assert kind == "DivergentSchema"
    assert "`Person.zip`: each side has a property of this name" in message
    graph.schema.apply(WITH_ZIP.replace("zip: String?", 'code: String? @rename_from("zip")'), branch="review")
    graph.branches.merge("review")
    assert {"zip", "code"} <= graph.schema.nodes["Person"].properties.keys()


def test_merge_drop_of_what_the_other_side_changed_conflicts(graph: Graph) -> None:
    graph.schema.apply(WITHOUT_CITY, branch="review")
    graph.schema.apply(SCHEMA.replace("city: String?", 'town: String? @rename_from("city")'))
    assert conflicts(graph) == [("DivergentSchema", "`Person.town`: they dropped it, we changed it")]


def test_merge_drop_of_a_property_with_new_values_conflicts(graph: Graph) -> None:
    graph.schema.apply(WITHOUT_CITY)
    change(graph, 'update Person set { city: "Rome" } where name = "Bob"', "review")
    put(graph, '{"type":"Person","data":{"name":"Dan","city":"Bern"}}', branch="review")
    message = "`Person.city`: we dropped the property, they set it on 2 entities"
    assert conflicts(graph) == [("DropVsUpdate", message)]
    graph.schema.apply(WITHOUT_CITY, branch="review")
    graph.branches.merge("review")
    assert "Dan" in rows(graph, PERSON)


def test_merge_drop_of_a_type_with_new_entities_conflicts(graph: Graph) -> None:
    graph.schema.apply(SCHEMA.replace("edge Knows: Person -> Person { since: I32? }", ""), branch="review")
    put(graph, '{"edge":"Knows","from":"Alice","to":"Bob","data":{"id":"ab"}}')
    assert conflicts(graph) == [("DropVsUpdate", "`Knows`: they dropped the type, we changed 1 entity of it")]


def test_merge_edge_to_a_dropped_type_conflicts(tmp_path: Path) -> None:
    graph = people(tmp_path, TOWNS)
    graph.branches.create("review")
    graph.schema.apply(TOWNS + "edge Near: Town -> Town\n", branch="review")
    graph.schema.apply(SCHEMA)
    [(kind, message), *_] = conflicts(graph)
    assert kind == "DivergentSchema"
    assert "refers to a type that the other side dropped" in message


def test_merge_data_conflicts_are_told_with_the_merged_names(graph: Graph) -> None:
    graph.schema.apply(RENAMED)
    change(graph, 'update Person set { years: 1 } where name = "Bob"')
    set_age(graph, "Bob", 2, "review")
    assert conflicts(graph) == [("DivergentUpdate", "`Bob` of `Person`: both sides changed it, with different `years`")]
    choice = {"type_key": "node:Person", "entity_id": "Bob", "take": "theirs"}
    graph.branches.merge("review", resolutions=[choice])
    assert rows(graph, PERSON)["Bob"]["years"] == 2


def test_additions_through_a_third_branch_reuse_no_identity(tmp_path: Path) -> None:
    """`late` still counts as `early` did when it began, and gets what `early` added since by way of `other`."""
    graph = og.init(tmp_path / "graph.omni", "node P { k: String @key }\nnode Q { k: String @key }")
    graph.branches.create("early")
    graph.schema.apply("node P { k: String @key }\nnode Q { k: String @key  a: I32? }", branch="early")
    graph.branches.create("late", "early")
    graph.branches.create("other")
    wider = "node P { k: String @key  b: I32? }\nnode Q { k: String @key  a: I32?  c: I32? }"
    graph.schema.apply(wider, branch="early")
    graph.branches.merge("early", into="other")
    assert graph.branches.merge("other", into="late").outcome == "fast_forward"
    graph.schema.apply(wider.replace("c: I32?", "c: I32?  d: I32?"), branch="late")
    graph.load([{"type": "Q", "data": {"k": "q", "a": 1, "c": 2, "d": 3}}], branch="late")
    graph.branches.merge("late", into="early")
    graph.branches.merge("early")
    assert graph.get("Q", "q") == {"id": "q", "k": "q", "a": 1, "c": 2, "d": 3}
    assert graph.maintenance.verify().is_sound
