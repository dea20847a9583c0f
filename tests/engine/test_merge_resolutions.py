"""Dry runs and resolutions: what a conflict says, how it is settled, and which resolutions are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from omnigraph.errors import GraphError, MergeConflict, UsageError
from omnigraph.graph import Graph
from tests.support.merge_fixtures import KNOWS, PERSON, age, change, content, files, knows, people, put
from tests.support.write_fixtures import rows

pytestmark = pytest.mark.slow


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return clashing(tmp_path)


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A graph for tests that prove that they change nothing."""
    return clashing(tmp_path_factory.mktemp("still"))


def clashing(root: Path) -> Graph:
    """Alice clashes in age and city, Bob was deleted there and changed here, Eve was inserted on both sides."""
    graph = people(root)
    graph.branches.create("review")
    change(graph, 'update Person set { age: 31 city: "Rome" } where name = "Alice"')
    change(graph, 'update Person set { age: 26 } where name = "Bob"')
    change(graph, 'insert Person { name: "Eve" age: 1 }')
    put(graph, '{"type":"Person","data":{"name":"Alice","age":32,"city":"Oslo","tags":["a","b"]}}', branch="review")
    change(graph, 'delete Person where name = "Bob"', "review")
    change(graph, 'insert Person { name: "Eve" age: 2 }', "review")
    return graph


def decide(entity_id: str, take: str, **more: object) -> dict[str, object]:
    return {"type_key": PERSON, "entity_id": entity_id, "take": take, **more}


EVERYONE = (decide("Bob", "ours"), decide("Eve", "theirs"))


def refused(graph: Graph, resolutions: Any) -> GraphError:
    before = graph.snapshot()
    with pytest.raises(GraphError) as caught:
        graph.branches.merge("review", resolutions=resolutions)
    assert caught.value.code == "merge.resolution"
    assert graph.snapshot() == before
    return caught.value


def test_merge_dry_run_tells_all_and_writes_nothing(still: Graph) -> None:
    graph = still
    before, stored = graph.snapshot(), files(graph)
    receipt = graph.branches.merge("review", dry_run=True)
    assert (receipt.outcome, receipt.dry_run, receipt.commit) == ("conflicted", True, None)
    told = [(one.entity_id, one.kind.value, one.properties) for one in receipt.conflicts]
    assert told == [
        ("Alice", "DivergentUpdate", ("age", "city")),
        ("Bob", "DeleteVsUpdate", ()),
        ("Eve", "DivergentInsert", ("age",)),
    ]
    images: Any = receipt.to_json()["conflicts"]
    alice, bob, eve = images
    assert alice["base"] == {"id": "Alice", "age": 30, "city": None, "name": "Alice", "tags": ["a"]}
    assert (alice["ours"]["age"], alice["theirs"]["age"]) == (31, 32)
    assert (bob["ours"]["age"], bob["theirs"], eve["base"]) == (26, None, None)
    assert [one.to_json() for one in receipt.types] == [
        {"type_key": KNOWS, "inserted": 0, "updated": 0, "deleted": 1, "adopted": False}
    ]
    assert (graph.snapshot(), files(graph)) == (before, stored)


def test_merge_conflict_message_shows_three(graph: Graph) -> None:
    change(graph, 'update Person set { age: 7 } where name = "Carol"')
    change(graph, 'update Person set { age: 8 } where name = "Carol"', "review")
    with pytest.raises(MergeConflict, match=r"has 4 conflicts.*; and 1 more") as caught:
        graph.branches.merge("review")
    conflicts = caught.value.context["conflicts"]
    assert isinstance(conflicts, list)
    assert len(conflicts) == 4


def test_merge_resolutions_take_sides_and_keep_what_merged(graph: Graph) -> None:
    receipt = graph.branches.merge("review", resolutions=[decide("Alice", "ours"), *EVERYONE])
    assert receipt.outcome == "merged"
    alice = rows(graph, PERSON)["Alice"]
    assert (alice["age"], alice["city"], alice["tags"]) == (31, "Rome", ["a", "b"])
    assert (age(graph, "Bob"), age(graph, "Eve")) == (26, 2)


def test_merge_resolutions_take_base_or_properties_or_values(graph: Graph) -> None:
    by_property = [
        decide("Alice", "theirs", property="city"),
        {"type_key": PERSON, "entity_id": "Alice", "property": "age", "value": 99},
        decide("Bob", "base"),
        decide("Eve", "base"),
    ]
    graph.branches.merge("review", resolutions=by_property)
    alice = rows(graph, PERSON)["Alice"]
    assert (alice["age"], alice["city"]) == (99, "Oslo")
    assert age(graph, "Bob") == 25
    assert "Eve" not in rows(graph, PERSON)


def test_merge_resolutions_give_a_row(graph: Graph) -> None:
    given = {"type_key": PERSON, "entity_id": "Alice", "row": {"name": "Alice", "tags": ["z"]}}
    graph.branches.merge("review", resolutions=[given, *EVERYONE])
    alice = rows(graph, PERSON)["Alice"]
    assert (alice["age"], alice["city"], alice["tags"]) == (None, None, ["z"])


def test_merge_resolutions_delete_what_they_deleted(graph: Graph) -> None:
    graph.branches.merge("review", resolutions=[decide(name, "theirs") for name in ("Alice", "Bob", "Eve")])
    assert content(graph) == content(graph, "review")


@pytest.mark.parametrize("form", ["lines", "array", "file"])
def test_merge_resolutions_come_from_the_dry_run(graph: Graph, form: str, tmp_path: Path) -> None:
    told = graph.branches.merge("review", dry_run=True).to_json()["conflicts"]
    assert isinstance(told, list)
    decided = [one | {"take": "theirs"} for one in told]
    data = orjson.dumps(decided) if form == "array" else b"\n".join(map(orjson.dumps, decided))
    if form == "file":
        path = tmp_path / "decided.ndjson"
        path.write_bytes(data)
        graph.branches.merge("review", resolutions=str(path))
    else:
        graph.branches.merge("review", resolutions=data)
    assert age(graph, "Alice") == 32


def test_merge_resolutions_for_a_part_leave_the_rest_as_conflicts(graph: Graph) -> None:
    given = [decide("Alice", "ours", property="age"), decide("Eve", "ours")]
    with pytest.raises(MergeConflict) as caught:
        graph.branches.merge("review", resolutions=given)
    conflicts = caught.value.context["conflicts"]
    assert isinstance(conflicts, list)
    assert [(one["entity_id"], one["properties"]) for one in conflicts] == [("Alice", ["city"]), ("Bob", [])]


def test_merge_resolutions_for_an_older_state_are_refused(graph: Graph) -> None:
    told = graph.branches.merge("review", dry_run=True).to_json()["conflicts"]
    assert isinstance(told, list)
    change(graph, 'update Person set { age: 77 } where name = "Alice"')
    error = refused(graph, [one | {"take": "theirs"} for one in told])
    assert "has changed since" in error.message


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([decide("Carol", "ours")], "no conflict about `Carol`"),
        ([decide("Carol", "ours"), *EVERYONE], "repeat the dry run and leave the resolution out"),
        ([decide("Nobody", "ours"), decide("Nothing", "ours")], "`Nobody` of `node:Person`, `Nothing` of"),
        ([{"type_key": "Person", "entity_id": "Alice", "take": "ours"}], "expected `node:TYPE` or `edge:TYPE`"),
        (
            [{"type_key": "node:Prson", "entity_id": "Alice", "take": "ours"}],
            "no conflict about `Alice` of `node:Prson`",
        ),
        ([decide("Alice", "ours"), decide("Alice", "theirs")], "resolved twice"),
        ([decide("Alice", "ours"), decide("Alice", "theirs", property="age")], "resolved twice"),
        ([decide("Alice", "both")], "it can take ours, theirs, base"),
        ([decide("Alice", "ours", property="tags")], "`tags` of `Alice` has no conflict"),
        ([decide("Eve", "base", property="age")], "has no `base`"),
        ([{"type_key": PERSON, "entity_id": "Alice"}], "exactly one of"),
        ([{"type_key": PERSON, "entity_id": "Alice", "take": "ours", "row": {}}], "exactly one of"),
        ([{"type_key": PERSON, "entity_id": "Alice", "value": 1}], "no `property`"),
        ([{"type_key": PERSON, "entity_id": "Alice", "property": "age", "value": "x"}], "cannot be that"),
        ([{"type_key": PERSON, "entity_id": "Alice", "row": {"height": 1}}], "no property `height`"),
        ([{"type_key": PERSON, "entity_id": "Alice", "row": {"name": "Al"}}], "another key"),
        ([{"type_key": PERSON, "entity_id": "Alice", "row": {"id": "Al", "name": "Alice"}}], "another id"),
        ([{"type_key": PERSON, "entity_id": "Alice", "row": [1]}], "is not an object"),
        ([{"entity_id": "Alice", "take": "ours"}], "needs a `type_key`"),
        ([decide("Alice", "ours", shiny=1)], "unknown member `shiny`"),
        ([7], "is not an object"),
        (b"{", "not valid JSON"),
    ],
)
def test_merge_resolutions_that_fit_nothing_are_refused(still: Graph, given: Any, message: str) -> None:
    others = [*EVERYONE, decide("Alice", "ours")] if "Carol" in message else []
    error = refused(still, [*others, *given] if isinstance(given, list) else given)
    assert message in error.message


def test_merge_resolutions_missing_file_is_usage(still: Graph) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        still.branches.merge("review", resolutions="nowhere.json")


def test_merge_resolution_without_any_conflict_is_refused(tmp_path: Path) -> None:
    graph = people(tmp_path)
    graph.branches.create("review")
    change(graph, 'update Person set { age: 1 } where name = "Alice"', "review")
    refused(graph, [decide("Alice", "ours")])
    change(graph, 'update Person set { age: 1 } where name = "Bob"')
    refused(graph, [decide("Alice", "ours")])


def test_merge_resolutions_settle_broken_rules(tmp_path: Path) -> None:
    graph = people(tmp_path)
    graph.branches.create("review")
    put(graph, knows("Alice", "Carol", "ac"))
    change(graph, 'delete Person where name = "Alice"', "review")
    [told] = graph.branches.merge("review", dry_run=True).conflicts
    assert (told.kind, told.entity_id, told.theirs) == ("OrphanEdge", "ac", None)
    before = content(graph)
    # Either end of the trouble may be decided about: the edge, or the node that it needs.
    keep_node = graph.branches.merge("review", resolutions=[decide("Alice", "ours")], dry_run=True)
    assert (keep_node.outcome, keep_node.types) == ("merged", ())
    assert content(graph) == before
    graph.branches.merge("review", resolutions=[told.to_json() | {"take": "theirs"}])
    assert content(graph) == content(graph, "review")


@pytest.mark.parametrize("target", ["main", "target"])
@pytest.mark.parametrize("side", ["ours", "base", "theirs"])
def test_resolution_holds_for_a_type_that_only_the_source_changed(tmp_path: Path, target: str, side: str) -> None:
    """On a branch such a type is taken over as it is, unless something was decided about it."""
    graph = people(tmp_path)
    if target != "main":
        graph.branches.create(target)
    graph.branches.create("source")
    change(graph, 'delete Person where name = "Alice"', target)
    put(graph, knows("Bob", "Alice", "ba"), knows("Carol", "Bob", "cb"), branch="source")
    decided = [{"type_key": KNOWS, "entity_id": "ba", "take": side}]
    if side == "theirs":
        with pytest.raises(MergeConflict):
            graph.branches.merge("source", target, resolutions=decided)
        return
    dry = graph.branches.merge("source", target, resolutions=decided, dry_run=True)
    receipt = graph.branches.merge("source", target, resolutions=decided)
    assert receipt.types == dry.types
    assert sorted(rows(graph, KNOWS, target)) == ["bc", "cb"]
    assert graph.maintenance.verify().is_sound
