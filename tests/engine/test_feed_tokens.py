"""Positions in the feed: tokens that were tampered with or belong elsewhere are rejected, and so are bad requests."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import (
    CursorRejected,
    GraphError,
    LimitExceeded,
    UsageError,
)
from omnigraph.lang.catalog import TypeKey
from tests.support.change_fixtures import (
    copied_graph,
    edge,
    head,
    new_graph,
    node,
    pages,
    replay,
    write,
)


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return copied_graph(tmp_path)


def forge(token: str, **members: object) -> str:
    """Return a token with other members and a right digest."""
    body = json.loads(urlsafe_b64decode(token + "=" * (-len(token) % 4))[:-32])
    raw = json.dumps({**body, **members}, separators=(",", ":"), ensure_ascii=False).encode()
    return urlsafe_b64encode(raw + sha256(raw).digest()).rstrip(b"=").decode()


def rejected(graph: og.Graph, why: str, branch: str = "main", **options: Any) -> None:
    with pytest.raises(CursorRejected) as caught:
        graph.changes(branch, **options)
    assert caught.value.message.startswith("change cursor rejected: ")
    assert why in caught.value.message
    assert caught.value.kind.http_status == 400


@pytest.fixture
def cursor(graph: og.Graph) -> str:
    write(graph, node("a"), node("b"))
    found = graph.changes().cursor
    assert found is not None
    return found


def test_feed_forged_token_with_the_same_members_is_the_token_itself(graph: og.Graph, cursor: str) -> None:
    assert forge(cursor) == cursor
    assert graph.changes(cursor=cursor).caught_up


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda token: "", "damaged"),
        (lambda token: "§§", "not a change token"),
        (lambda token: token[:-4], "damaged"),
        (lambda token: token[:20] + ("A" if token[20] != "A" else "B") + token[21:], ""),
        (lambda token: token + "=", "not in canonical form"),
        (lambda token: token[:8] + "\n" + token[8:], ""),
        (lambda token: forge(token, v=2), "version 2"),
        (lambda token: forge(token, v="1"), 'version "1"'),
        (lambda token: forge(token, v=True), "version true"),
        (lambda token: forge(token, extra=1), "not in canonical form"),
        (lambda token: forge(token, kind="commit-page"), "a commit-page"),
        (lambda token: forge(token, kind="nonsense"), "a nonsense"),
        (lambda token: forge(token, commit="01ARZ3NDEKTSV4RRFFQ69G5FAV"), "not in the history"),
        (lambda token: forge(token, place=["node:x", "a", None]), "not in the commit"),
        (lambda token: forge(token, place=[1]), "not a change token"),
        (lambda token: forge(token, place=7), "not a change token"),
        (lambda token: forge(token, place=["node:x", 7, None]), "not a change token"),
    ],
)
def test_feed_tampered_cursor_is_rejected(graph: og.Graph, cursor: str, change: Any, why: str) -> None:
    rejected(graph, why, cursor=change(cursor))


def test_feed_token_of_another_kind_is_rejected(graph: og.Graph, cursor: str) -> None:
    token = graph.changes(start="beginning", limit=1).next_page_token
    assert token is not None
    rejected(graph, "it is a feed-page", cursor=token)
    rejected(graph, "it is a feed-cursor", page_token=cursor)
    commit_token = graph.commit_changes(head(graph), limit=1).next_page_token
    assert commit_token is not None
    rejected(graph, "it is a commit-page", page_token=commit_token)
    with pytest.raises(CursorRejected, match=r"it is a feed-page"):
        graph.commit_changes(head(graph), page_token=token)


def test_feed_cursor_of_another_graph_is_rejected(tmp_path: Path, graph: og.Graph, cursor: str) -> None:
    rejected(new_graph(tmp_path / "other"), "another graph", cursor=cursor)


def test_feed_cursor_of_another_branch_or_life_is_rejected(graph: og.Graph, cursor: str) -> None:
    graph.branches.create("x")
    rejected(graph, "another branch", "x", cursor=cursor)
    own = graph.changes("x").cursor
    graph.branches.delete("x")
    graph.branches.create("x")
    rejected(graph, "deleted and recreated", "x", cursor=own)


def test_feed_cursor_of_a_renamed_branch_is_still_good(graph: og.Graph) -> None:
    graph.branches.create("x")
    own = graph.changes("x").cursor
    graph.branches.rename("x", "y")
    made = write(graph, node("a"), branch="y")
    assert replay({}, pages(graph, "y", cursor=own)) == [made]


def test_feed_cursor_of_another_selection_is_rejected(graph: og.Graph) -> None:
    own = graph.changes(kinds=["node"], ops=["insert", "delete"]).cursor
    assert graph.changes(kinds=["node"], ops=["delete", "insert", "delete"], cursor=own).caught_up
    rejected(graph, "other kinds, types or ops", kinds=["edge"], ops=["insert", "delete"], cursor=own)
    rejected(graph, "other kinds, types or ops", cursor=own)


def test_feed_page_token_whose_place_is_gone_is_rejected(graph: og.Graph) -> None:
    write(graph, *(node("x" * 300 + str(number)) for number in range(2)))
    token = graph.changes(start="beginning", limit=1).next_page_token
    assert token is not None
    place = json.loads(urlsafe_b64decode(token + "=" * (-len(token) % 4))[:-32])["place"]
    rejected(graph, "not in the commit", page_token=forge(token, place=[place[0], place[1], "0" * 64]))


@pytest.mark.parametrize(
    "options",
    [
        {"start": "yesterday"},
        {"start": "now", "cursor": "x"},
        {"limit": 0},
        {"limit": True},
        {"limit": "5"},
        {"bytes_max": -1},
        {"commits_max": 0},
        {"kinds": ["vertex"]},
        {"types": ["Nope"]},
        {"ops": ["upsert"]},
        {"kinds": "node"},
    ],
)
def test_feed_bad_request_is_refused(graph: og.Graph, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        graph.changes(**options)


@pytest.mark.parametrize(
    ("options", "resource"),
    [
        ({"limit": 8_193}, "commit_changes_page_changes"),
        ({"bytes_max": (32 << 20) + 1}, "commit_changes_page_bytes"),
        ({"commits_max": 513}, "change_feed_commits_per_poll"),
        ({"cursor": "A" * 4_097}, "change_continuation_token_encoded_bytes"),
    ],
)
def test_feed_request_above_a_limit_names_it(graph: og.Graph, options: dict[str, Any], resource: str) -> None:
    with pytest.raises(LimitExceeded) as caught:
        graph.changes(**options)
    assert caught.value.context["resource"] == resource


def test_feed_after_a_commit_that_is_not_on_the_branch_is_refused(graph: og.Graph) -> None:
    graph.branches.create("x")
    made = write(graph, node("a"), branch="x")
    with pytest.raises(GraphError) as caught:
        graph.changes(start=f"after:{made}")
    assert caught.value.code == "commit.not_found"


def test_feed_of_a_branch_that_is_not_there_is_not_found(graph: og.Graph) -> None:
    with pytest.raises(GraphError) as caught:
        graph.changes("nope")
    assert caught.value.code == "branch.not_found"


PLACES: list[object] = [
    ["node:999999", "a", None],
    ["edge:1", "a", None],
    ["node:", "a", None],
    ["node:x", "a", "0" * 64],
    [None, None, None],
    ["node:1", None, "0" * 64],
    ["node:1", None, None],
    ["node:1", "a"],
    ["node:1", "a", None, None],
    [],
    "node:1",
    7,
]


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_forged_place_in_a_page_token_is_rejected(graph: og.Graph, cursor: str, place: object) -> None:
    write(graph, node("c"), node("d"))
    token = graph.changes(cursor=cursor, limit=1).next_page_token
    assert token is not None
    known = json.loads(urlsafe_b64decode(token + "=" * (-len(token) % 4))[:-32])["place"][0]
    place = [known if one == "node:1" else one for one in place] if isinstance(place, list) else place
    rejected(graph, "", page_token=forge(token, place=place))
    commit_token = graph.commit_changes(head(graph), limit=1).next_page_token
    assert commit_token is not None
    with pytest.raises(CursorRejected):
        graph.commit_changes(head(graph), page_token=forge(commit_token, place=place))


def test_place_in_the_first_commit_is_rejected(graph: og.Graph, cursor: str) -> None:
    write(graph, node("c"), node("d"))
    token = graph.changes(cursor=cursor, limit=1).next_page_token
    assert token is not None
    first = graph.commits()[-1].commit_id
    rejected(graph, "its place is not in the commit", page_token=forge(token, commit=first))


def test_feed_shows_no_type_numbers(tmp_path: Path, graph: og.Graph) -> None:
    """Numbers are given in the order of creation, so gaps would count the types that are hidden from a reader."""
    made = write(graph, node("a"), node("b"), node("q", "Q"), edge("e", "a", "b"), edge("f", "a", "q", "F"))
    received = ""
    token = None
    while token is not None or not received:
        page = graph.commit_changes(made, limit=1, page_token=token)
        token = page.next_page_token
        received += json.dumps(page.to_json())
        received += "" if token is None else str(urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    numbers = [pin.identity for pin in graph.snapshot().state.pins.values()]
    assert not [number for number in numbers if f"{number.type_id:016x}" in received]
    # What stands for them is the graph's own: numbers cannot be tried out in another graph.
    other = new_graph(tmp_path / "other")
    write(other, node("a"))
    type_ids = [one.commit_changes(head(one)).to_json()["changes"][0]["type"]["id"] for one in (graph, other)]  # type: ignore[index]
    assert type_ids[0] != type_ids[1]


def test_feed_page_token_with_a_type_number_is_rejected(graph: og.Graph) -> None:
    write(graph, node("a"), node("b"))
    token = graph.changes(start="beginning", limit=1).next_page_token
    assert token is not None
    number = graph.snapshot().state.pins[TypeKey("node:P")].identity
    rejected(graph, "poll again from the last cursor", page_token=forge(token, place=[f"node:{number}", "a", None]))


def test_feed_page_token_outlives_a_rename_of_its_type(graph: og.Graph) -> None:
    made = write(graph, node("a"), node("b"))
    first = graph.commit_changes(made, limit=1)
    graph.schema.apply(
        graph.schema.source.replace("node P {", 'node Person @rename_from("P") {')
        .replace("P ->", "Person ->")
        .replace("-> P ", "-> Person ")
    )
    rest = graph.commit_changes(made, page_token=first.next_page_token)
    shown = [page.to_json()["changes"][0] for page in (first, rest)]  # type: ignore[index]
    assert [change["type"]["name"] for change in shown] == ["P", "Person"]
    assert shown[0]["type"]["id"] == shown[1]["type"]["id"]
