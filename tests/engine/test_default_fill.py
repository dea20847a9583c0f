"""A required property that is added with a default changes no entity: in merges, diffs, feeds, logs and blame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine.changes import row_diff
from omnigraph.errors import MergeConflict
from tests.engine.test_entity_history import check_against_model
from tests.support.merge_fixtures import change, content

pytestmark = pytest.mark.slow

SCHEMA = """
node Person { name: String @key  age: I32?  rank: F32? }
edge Knows: Person -> Person { since: I32? }
"""
FILLED = SCHEMA.replace(
    "age: I32?", 'age: I32?  score: F32 @default(0.1)  state: enum(new, old) @default("new")'
).replace("since: I32?", "since: I32?  weight: I64 @default(4)")
PEOPLE = [{"type": "Person", "data": {"name": name, "age": 1}} for name in ("ann", "bob", "cid")]
EDGES = [{"edge": "Knows", "from": "ann", "to": name, "data": {"id": name}} for name in ("bob", "cid")]


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    graph.load([*PEOPLE, *EDGES])
    return graph


def fill(graph: og.Graph, branch: str = "main") -> None:
    graph.schema.apply(FILLED, branch=branch)


def with_defaults(rows: dict[str, Any]) -> dict[str, Any]:
    """Return entities of the schema before, as the schema after gives them their defaults."""
    score = 0.10000000149011612  # 0.1 as the nearest F32
    people = {key: {**row, "score": score, "state": "new"} for key, row in rows["node:Person"].items()}
    return {"node:Person": people, "edge:Knows": {key: {**row, "weight": 4} for key, row in rows["edge:Knows"].items()}}


def edit_branch(graph: og.Graph, branch: str) -> None:
    change(graph, 'update Person set { age: 2 } where name = "ann"', branch)
    change(graph, 'delete Person where name = "cid"', branch)
    change(graph, 'insert Person { name: "dan" }', branch)
    change(graph, 'insert Knows { from: "dan", to: "bob" }', branch)


def test_merge_of_a_branch_without_the_property_has_no_conflict(graph: og.Graph) -> None:
    graph.branches.create("review")
    edit_branch(graph, "review")
    expected = with_defaults(content(graph, "review"))
    fill(graph)
    assert not graph.branches.merge("review", dry_run=True).conflicts
    graph.branches.merge("review")
    assert content(graph) == expected


def test_branch_that_fills_defaults_changes_nothing_that_main_deleted(graph: og.Graph) -> None:
    graph.branches.create("review")
    fill(graph, "review")
    fill_again = with_defaults(content(graph))
    graph.branches.merge("review")
    assert content(graph) == fill_again
    graph.branches.create("other")
    graph.schema.apply(FILLED.replace("rank: F32?", "rank: F32?  level: I32 @default(7)"), branch="other")
    change(graph, 'delete Person where name = "cid"')
    # Stored entities of main cannot be filled by a merge; the deleted one is in nobody's way.
    [conflict] = graph.branches.merge("other", dry_run=True).conflicts
    assert (conflict.entity_id, conflict.properties) == (None, ("level",))


def test_value_other_than_the_default_is_a_change(graph: og.Graph) -> None:
    graph.branches.create("review")
    change(graph, 'delete Person where name = "cid"', "review")
    fill(graph)
    change(graph, 'update Person set { score: 2.0 } where name = "cid"')
    with pytest.raises(MergeConflict, match="cid"):
        graph.branches.merge("review")


def test_dropped_type_that_only_got_defaults_has_no_conflict(graph: og.Graph) -> None:
    graph.branches.create("review")
    graph.schema.apply(SCHEMA.partition("edge")[0], branch="review")
    fill(graph)
    conflicts = graph.branches.merge("review", dry_run=True).conflicts
    # Both sides changed the type's definition, and no entity.
    assert "entit" not in " ".join(item.message for item in conflicts)


def test_diff_and_feed_show_no_update_and_can_be_replayed(graph: og.Graph) -> None:
    before = graph.commits()[0].commit_id
    fill(graph)
    applied = graph.commits()[0].commit_id
    assert graph.diff(before, applied).stats()["updates"] == 0
    assert graph.diff(applied, before).stats()["updates"] == 0
    assert graph.commit_changes(applied).to_json()["changes"] == []
    change(graph, 'update Person set { age: 5 } where name = "bob"')
    assert [row["id"] for row in graph.diff(before, "main").to_json()["changes"]] == ["bob"]  # type: ignore[attr-defined]
    replayed: dict[str, dict[str, Any]] = {"Person": {}, "Knows": {}}
    for block in graph.changes(start="beginning").blocks:
        for item in block.to_json()["changes"]:  # type: ignore[attr-defined]
            replayed[item["type"]["name"]][item["id"]] = item["after"]["properties"]
    stored = content(graph)
    for name, key in (("Person", "node:Person"), ("Knows", "edge:Knows")):
        rows = {entity: {part: row[part] for part in replayed[name][entity]} for entity, row in stored[key].items()}
        assert replayed[name] == rows


def test_log_and_blame_pass_over_the_default(graph: og.Graph) -> None:
    change(graph, 'update Person set { age: 3 } where name = "ann"')
    fill(graph)
    change(graph, 'update Person set { score: 9.0 } where name = "ann"')
    graph.maintenance.optimize()
    defaults = {"score": 0.10000000149011612, "state": "new"}
    check_against_model(graph, "Person", ["main"], defaults)
    assert [(item.commit.kind, item.changed) for item in graph.log("Person", "ann")][:2] == [
        ("mutation", ("score",)),
        ("mutation", ("age",)),
    ]


def test_instant_and_random_defaults_are_changes(graph: og.Graph) -> None:
    before = graph.commits()[0].commit_id
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  at: DateTime @default(now())"))
    assert graph.diff(before, "main").stats()["updates"] == 3


def test_checks_catch_a_comparison_with_nulls(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_diff, "fill_added", lambda dataset, rows: rows)
    graph.branches.create("review")
    edit_branch(graph, "review")
    fill(graph)
    with pytest.raises(MergeConflict, match="cid"):
        graph.branches.merge("review")
