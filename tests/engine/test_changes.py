"""Diffs of two states and pages of one commit: what they say, in which order, and what they refuse."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

import omnigraph as og
from omnigraph.engine.changes import state_diff
from omnigraph.engine.past_schemas import Naming
from omnigraph.errors import ChangeFeedGap, CursorRejected, GraphError, LimitExceeded, UsageError
from omnigraph.graph import session_of
from omnigraph.lang.catalog import TypeKey
from tests.engine.test_baseline import reclaim
from tests.engine.test_feed import HISTORY, STEPS, run
from tests.engine.test_feed_tokens import forge
from tests.support.change_fixtures import (
    SCHEMA,
    World,
    apply,
    copied_graph,
    delete,
    edge,
    exported,
    head,
    image,
    node,
    order,
    write,
)
from tests.support.examples import examples

pytestmark = pytest.mark.slow


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return copied_graph(tmp_path)


# -- diff --------------------------------------------------------------------------------------------------------------


def expected(before: World, after: World) -> dict[tuple[str, str, str], str]:
    ops = dict.fromkeys(after.keys() - before.keys(), "insert")
    ops |= dict.fromkeys(before.keys() - after.keys(), "delete")
    return ops | {key: "update" for key in before.keys() & after.keys() if repr(before[key]) != repr(after[key])}


def told(graph: og.Graph, a: str, b: str) -> dict[tuple[str, str, str], str]:
    found = graph.diff(a, b).to_json()["changes"]
    assert isinstance(found, list)
    ops = {(one["kind"], one["type_name"], one["id"]): one["op"] for one in found}
    assert len(ops) == len(found), "one entity twice"
    return ops


def check(graph: og.Graph, branch: str) -> None:
    """Hold the diff of any two commits to what their exports say."""
    commits = [one.commit_id for one in graph.commits(branch)]
    worlds = {one: exported(graph, branch, one) for one in commits}
    for a in commits[:4]:
        for b in (commits[0], commits[-1], *commits[1:3]):
            assert told(graph, a, b) == expected(worlds[a], worlds[b]), (a, b)


@settings(max_examples=examples(15))
@given(STEPS)
def test_diff_of_any_two_commits_says_what_their_exports_say(steps: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        graph, branch = run(directory, steps)
        check(graph, branch)
        graph.close()


def test_diff_that_confuses_its_operations_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, branch = run(str(tmp_path), HISTORY)
    check(graph, branch)
    monkeypatch.setattr(state_diff, "BEFORE", "after")
    with pytest.raises(AssertionError):
        check(graph, branch)


def test_diff_names_states_by_branch_tag_commit_or_version(graph: og.Graph) -> None:
    first = write(graph, node("a"), node("b"), edge("1", "a", "b"))
    version = graph.snapshot().version
    graph.branches.create("x")
    write(graph, node("c"), edge("1", "b", "b"), branch="x")
    delete(graph, "a", branch="x")
    assert told(graph, "main", " x ") == told(graph, first, "x") == told(graph, version, "x")  # type: ignore[arg-type]
    shown = graph.diff("main", "x").to_json()
    x_version = graph.snapshot("x").state.pins[TypeKey("edge:E")].version
    assert shown == {
        "from_graph_manifest_version": graph.snapshot().version,
        "to_graph_manifest_version": graph.snapshot("x").version,
        "changes": [
            {
                "kind": "edge",
                "type_name": "E",
                "id": "1",
                "op": "update",
                "published_dataset_version": x_version,
                "endpoints": {"from": "b", "to": "b"},
            },
            *(
                {
                    "kind": "node",
                    "type_name": "P",
                    "id": key,
                    "op": op,
                    "published_dataset_version": graph.snapshot("x").state.pins[TypeKey("node:P")].version,
                }
                for key, op in (("a", "delete"), ("c", "insert"))
            ),
        ],
        "stats": {"inserts": 1, "updates": 1, "deletes": 1, "types_affected": 2},
    }
    assert graph.diff(1, version).to_json()["graph_branch"] == "main"


def test_diff_of_a_deleted_edge_shows_the_ends_it_had(graph: og.Graph) -> None:
    before = write(graph, node("a"), node("b"), edge("1", "a", "b"), edge("2", "a", "a"))
    delete(graph, "b")
    changes = graph.diff(before, "main", kinds=["edge"]).changes.to_pylist()
    assert [(one["id"], one["op"], one["from"], one["to"]) for one in changes] == [("1", "delete", "a", "b")]


def test_diff_selection_keeps_what_is_asked_for(graph: og.Graph) -> None:
    before = write(graph, node("a"), node("b"), node("q", "Q"))
    write(graph, node("a", v=1.0), node("c"), node("r", "Q"))
    delete(graph, "b")
    ops = {
        op: graph.diff(before, "main", ops=[op]).changes.column("id").to_pylist()
        for op in ("insert", "update", "delete")
    }
    assert ops == {"insert": ["c", "r"], "update": ["a"], "delete": ["b"]}
    assert graph.diff(before, "main", types=["Q"]).changes.column("id").to_pylist() == ["r"]
    assert graph.diff(before, "main", kinds=["edge"]).changes.num_rows == 0
    assert graph.diff(before, "main", kinds=[]).changes == graph.diff(before, "main").changes
    with pytest.raises(UsageError, match="unknown type `Nope`"):
        graph.diff(before, "main", types=["Nope"])


def test_diff_follows_a_type_through_its_rename(graph: og.Graph) -> None:
    before = write(graph, node("q", "Q"), node("a", v=1.0))
    renamed = SCHEMA.replace("node Q {", 'node R @rename_from("Q") {').replace("-> Q", "-> R")
    graph.schema.apply(renamed.replace("v: F64?", 'u: F64? @rename_from("v")'))
    assert graph.diff(before, "main").changes.num_rows == 0
    write(graph, node("q2", "R"))
    assert told(graph, before, "main") == {("node", "R", "q2"): "insert"}


def test_diff_of_a_type_dropped_and_recreated_deletes_and_inserts(graph: og.Graph) -> None:
    def found(names: Naming) -> list[tuple[str, str, str]]:
        changes = graph.diff(before, "main", names=names).changes.to_pylist()
        return sorted((one["op"], one["type_name"], one["id"]) for one in changes)

    before = write(graph, node("q", "Q"))
    without = SCHEMA.replace("node Q { k: String @key }", "").replace("edge F: P -> Q", "")
    graph.schema.apply(without)
    assert (found("now"), found("then")) == ([], [("delete", "Q", "q")])
    graph.schema.apply(SCHEMA)
    write(graph, node("q", "Q"))
    assert found("now") == [("insert", "Q", "q")]
    assert found("then") == [("delete", "Q", "q"), ("insert", "Q", "q")]


def test_diff_of_a_state_that_is_not_there_is_not_found(graph: og.Graph) -> None:
    with pytest.raises(GraphError) as caught:
        graph.diff("main", "nope")
    assert caught.value.code == "commit.not_found"


# -- one commit --------------------------------------------------------------------------------------------------------


def test_commit_changes_have_images_of_both_sides(graph: og.Graph) -> None:
    parent = write(graph, node("a", v=1.0, tags=["x"]), node("b", image=image(b"one")), edge("1", "a", "b"))
    made = write(graph, node("a", v=None, tags=[]), edge("1", "b", "b", w=7))
    page = graph.commit_changes(made)
    types = {
        f"{pair.kind}:{pair.known.type_.name}": pair.type_id
        for pair in state_diff.pairs(*[session_of(graph).view()] * 2)
    }
    assert page.to_json() == {
        "cause": {
            "graph_commit_id": made,
            "parent_commit_id": parent,
            "authored_branch": "main",
            "actor_id": "ada",
            "authored_at": graph.commit(made).created_at_us,
        },
        "changes": [
            {
                "kind": "node",
                "type": {"id": types["node:P"], "name": "P"},
                "id": "a",
                "op": "update",
                "before": {"properties": {"image": None, "k": "a", "tags": ["x"], "v": 1.0}},
                "after": {"properties": {"image": None, "k": "a", "tags": [], "v": None}},
            },
            {
                "kind": "edge",
                "type": {"id": types["edge:E"], "name": "E"},
                "id": "1",
                "op": "update",
                "before": {"properties": {"w": None}, "endpoints": {"from": "a", "to": "b"}},
                "after": {"properties": {"w": 7}, "endpoints": {"from": "b", "to": "b"}},
            },
        ],
    }


def test_commit_changes_are_in_order_and_in_pages_as_a_whole(graph: og.Graph) -> None:
    write(graph, node("a"), node("b"), node("q", "Q"), edge("1", "a", "b"))
    before = exported(graph)
    records = [*(node(f"n{number:02}") for number in range(20)), node("a", v=1.0), node("r", "Q"), edge("2", "a", "a")]
    made = write(graph, *records)
    whole = [order(one) for one in _all(graph, made)]
    assert whole == sorted(whole)
    for options in ({"limit": 1}, {"limit": 7}, {"bytes_max": 400}):
        state = dict(before)
        for change in _all(graph, made, **options):
            apply(state, change)
        assert state == exported(graph)


def _all(graph: og.Graph, commit: str, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    token: str | None = None
    while True:
        page = graph.commit_changes(commit, page_token=token, **options)
        assert page.block.count > 0
        assert page.block.count <= options.get("limit", 1_000)
        shown = page.to_json()
        found += shown["changes"]  # type: ignore[arg-type]
        token = page.next_page_token
        assert shown.get("next_page_token") == token
        if token is None:
            return found


def test_commit_changes_page_that_is_just_full_is_the_last(graph: og.Graph) -> None:
    made = write(graph, node("a"), node("b"))
    assert graph.commit_changes(made, limit=2).next_page_token is None
    assert graph.commit_changes(made, limit=1).next_page_token is not None


def test_commit_changes_of_a_branch_are_told_against_its_own_parent(graph: og.Graph) -> None:
    first = write(graph, node("a"))
    graph.branches.create("x")
    write(graph, node("b"))
    made = write(graph, node("a", v=2.0), branch="x")
    shown = graph.commit_changes(made).to_json()
    assert shown["cause"]["authored_branch"] == "x"  # type: ignore[index]
    assert shown["cause"]["parent_commit_id"] == first  # type: ignore[index]
    assert [one["id"] for one in shown["changes"]] == ["a"]  # type: ignore[attr-defined]


def test_commit_changes_of_the_first_commit_are_refused(graph: og.Graph) -> None:
    with pytest.raises(GraphError) as caught:
        graph.commit_changes(head(graph))
    assert caught.value.code == "commit.parentless"
    assert caught.value.context == {"reason": "parentless_commit", "graph_commit_id": head(graph)}
    assert caught.value.kind.http_status == 409


@pytest.mark.parametrize("names", ["now", "then"])
def test_commit_changes_of_a_schema_change_are_its_steps(graph: og.Graph, names: Any) -> None:
    write(graph, node("a"))
    graph.schema.apply(SCHEMA.replace("v: F64?", 'w: F64? @rename_from("v")'))
    page = graph.commit_changes(head(graph), types=["Q"], names=names)
    assert [step.render() for step in page.block.schema_steps] == ["~ rename P.v to w"]
    assert page.block.count == 0


def test_commit_changes_over_a_reclaimed_version_are_a_gap_without_cursor(graph: og.Graph) -> None:
    first = write(graph, node("a"))
    second = write(graph, node("b"))
    graph = reclaim(graph, first, TypeKey("node:P"))
    with pytest.raises(ChangeFeedGap) as caught:
        graph.commit_changes(second)
    assert caught.value.context == {"first_unreadable_commit_id": second}


def test_commit_changes_of_a_reclaimed_but_open_version_are_a_gap(graph: og.Graph) -> None:
    write(graph, node("a"), *(node(f"n{number}") for number in range(40)))
    made = write(graph, node("a", v=1.0))
    pin = graph.snapshot().state.pins[TypeKey("node:P")]
    dataset = session_of(graph).view().dataset(TypeKey("node:P"))
    (fragment,) = [one for one in dataset.lance.get_fragments() if one.metadata.num_rows == 1]
    Path(graph.uri, pin.path, "data", fragment.metadata.files[0].path).unlink()
    Path(graph.uri, pin.ref.manifest_path).unlink()
    with pytest.raises(ChangeFeedGap):
        graph.commit_changes(made)


def test_commit_changes_token_of_another_commit_or_selection_is_rejected(graph: og.Graph) -> None:
    first, second = write(graph, node("a"), node("b")), write(graph, node("c"), node("d"))
    token = graph.commit_changes(first, limit=1).next_page_token
    assert token is not None
    requests: list[tuple[str, dict[str, Any], str]] = [
        (second, {"page_token": token}, "another commit"),
        (first, {"page_token": token, "ops": ["insert"]}, "other kinds, types or ops"),
        (first, {"page_token": forge(token, graph="0" * 32)}, "another graph"),
        (first, {"page_token": token[:-1]}, "damaged"),
    ]
    for commit, options, why in requests:
        with pytest.raises(CursorRejected) as caught:
            graph.commit_changes(commit, **options)
        assert caught.value.message.startswith("change cursor rejected: ")
        assert why in caught.value.message


@pytest.mark.parametrize("options", [{"limit": 0}, {"bytes_max": 0}, {"ops": ["x"]}, {"types": ["x"]}])
def test_commit_changes_bad_request_is_refused(graph: og.Graph, options: dict[str, Any]) -> None:
    made = write(graph, node("a"))
    with pytest.raises(UsageError):
        graph.commit_changes(made, **options)


def test_commit_changes_above_a_limit_are_refused(graph: og.Graph) -> None:
    with pytest.raises(LimitExceeded):
        graph.commit_changes(write(graph, node("a")), limit=8_193)


def test_commit_changes_of_an_unknown_commit_are_not_found(graph: og.Graph) -> None:
    with pytest.raises(GraphError) as caught:
        graph.commit_changes("nope")
    assert caught.value.code == "commit.not_found"


def test_commit_changes_are_json_whatever_the_values(graph: og.Graph) -> None:
    odd = 'say "hi"\n\\ \u0001 é'
    made = write(graph, node(odd, tags=[odd, ""], v=1e300, image=image(bytes(range(256)))))
    (change,) = _all(graph, made)
    assert change["id"] == odd
    state: World = {}
    apply(state, change)
    assert state == exported(graph)
