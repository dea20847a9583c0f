"""Conflicts between schemas that resolutions settle: which side counts, and what becomes of the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import GraphError, MergeConflict
from omnigraph.graph import Graph
from tests.support.merge_fixtures import SCHEMA, change, people, put
from tests.support.write_fixtures import rows

pytestmark = pytest.mark.slow

PERSON = "node:Person"
YEARS = SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")')
WINTERS = YEARS.replace("years", "winters")
WITH_ZIP = SCHEMA.replace("  city: String?\n", "  city: String?\n  zip: String?\n")
WITHOUT_CITY = SCHEMA.replace("  city: String?\n", "")
WITHOUT_KNOWS = SCHEMA.replace("edge Knows: Person -> Person { since: I32? }", "")


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = people(tmp_path)
    graph.branches.create("review")
    return graph


def merge_taking(graph: Graph, *sides: str, **options: Any) -> Any:
    """Merge with a side for each conflict that the dry run lists, as a person would: the conflict and the decision."""
    found = graph.branches.merge("review", dry_run=True).conflicts
    decisions = [one.to_json() | {"take": side} for one, side in zip(found, sides, strict=True)]
    return graph.branches.merge("review", resolutions=decisions, **options)


def refusal(graph: Graph, *resolutions: dict[str, Any]) -> str:
    before = graph.snapshot().version
    with pytest.raises(GraphError) as caught:
        graph.branches.merge("review", resolutions=resolutions)
    assert caught.value.code == "merge.resolution"
    assert graph.snapshot().version == before
    return caught.value.message


def of_schema(name: str | None, take: str, type_key: str = PERSON) -> dict[str, Any]:
    return {"type_key": type_key, "entity_id": None, "property": name, "take": take}


@pytest.mark.parametrize(("side", "name"), [("ours", "years"), ("theirs", "winters")])
def test_two_names_of_a_property_are_settled_by_a_side(graph: Graph, side: str, name: str) -> None:
    graph.schema.apply(YEARS)
    graph.schema.apply(WINTERS, branch="review")
    change(graph, 'update Person set { winters: 77 } where name = "Bob"', "review")
    receipt = merge_taking(graph, side)
    assert bool(receipt.schema_changes) == (side == "theirs")
    assert rows(graph, PERSON)["Bob"][name] == 77
    assert graph.maintenance.verify(data=True).is_sound


@pytest.mark.parametrize("side", ["ours", "theirs"])
def test_two_additions_of_one_name_are_settled_by_a_side(graph: Graph, side: str) -> None:
    graph.schema.apply(WITH_ZIP)
    graph.schema.apply(WITH_ZIP, branch="review")
    change(graph, 'update Person set { zip: "ours" } where name = "Bob"')
    change(graph, 'update Person set { zip: "theirs", age: 9 } where name = "Bob"', "review")
    merge_taking(graph, side)
    found = rows(graph, PERSON)["Bob"]
    assert (found["zip"], found["age"]) == (side, 9)
    assert graph.maintenance.verify(data=True).is_sound


def test_drop_of_a_property_is_taken_with_its_values(graph: Graph) -> None:
    graph.schema.apply(WITHOUT_CITY, branch="review")
    graph.schema.apply(SCHEMA.replace("city: String?", 'town: String? @rename_from("city")'))
    change(graph, 'update Person set { town: "Rome", age: 5 } where name = "Bob"')
    merge_taking(graph, "theirs")
    found = rows(graph, PERSON)["Bob"]
    assert "town" not in found
    assert found["age"] == 5


def test_drop_of_a_type_is_taken_with_its_entities(graph: Graph) -> None:
    graph.schema.apply(WITHOUT_KNOWS, branch="review")
    put(graph, '{"edge":"Knows","from":"Alice","to":"Bob","data":{"id":"ab"}}')
    assert "we changed 1 entity" in graph.branches.merge("review", dry_run=True).conflicts[0].message
    merge_taking(graph, "theirs")
    assert "Knows" not in graph.schema.edges


def test_dropped_data_is_not_brought_back(graph: Graph) -> None:
    graph.schema.apply(WITHOUT_CITY)
    change(graph, 'update Person set { city: "Rome" } where name = "Bob"', "review")
    message = refusal(graph, of_schema("city", "theirs"))
    assert "would bring back what was dropped" in message
    assert "Take `ours`" in message
    graph.branches.merge("review", resolutions=[of_schema("city", "ours")])
    assert "city" not in rows(graph, PERSON)["Bob"]


def test_schema_and_data_are_resolved_together(graph: Graph) -> None:
    graph.schema.apply(YEARS)
    graph.schema.apply(WINTERS, branch="review")
    change(graph, 'update Person set { years: 1 } where name = "Bob"')
    change(graph, 'update Person set { winters: 2 } where name = "Bob"', "review")
    with pytest.raises(MergeConflict) as caught:
        graph.branches.merge("review", resolutions=[of_schema("years", "ours")])
    listed: Any = caught.value.context["conflicts"]
    assert [one["kind"] for one in listed] == ["DivergentUpdate"]
    entity = {"type_key": PERSON, "entity_id": "Bob", "take": "theirs"}
    graph.branches.merge("review", resolutions=[of_schema("years", "ours"), entity])
    assert rows(graph, PERSON)["Bob"]["years"] == 2


def test_constraint_that_both_sides_changed_is_settled_by_a_side(graph: Graph) -> None:
    def bounded(high: int) -> str:
        return SCHEMA.replace("  city: String?\n", f"  city: String?\n  @range(age, 0..{high})\n")

    graph.schema.apply(bounded(200))
    graph.schema.apply(bounded(300), branch="review")
    merge_taking(graph, "theirs")
    assert "@range(age, 0..300)" in graph.schema.read()


def test_resolutions_that_settle_nothing_are_refused(graph: Graph) -> None:
    change(graph, 'update Person set { age: 9 } where name = "Bob"', "review")
    assert "no conflict about the schema of `Person.age`" in refusal(graph, of_schema("age", "ours"))
    graph.schema.apply(YEARS)
    graph.schema.apply(WINTERS, branch="review")
    years = of_schema("years", "ours")
    assert "no conflict about the schema of `Person.city`" in refusal(graph, years, of_schema("city", "ours"))
    assert "resolved twice" in refusal(graph, years, of_schema("years", "theirs"))
    assert "needs a `take` of `ours` or `theirs`" in refusal(graph, of_schema("years", "base"))
    assert "needs a `take`" in refusal(graph, {**years, "value": 1})
