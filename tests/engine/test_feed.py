"""The feed: replaying it gives the graph, from any position, and what it costs does not grow with history."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.engine.changes import commit_diff as page_module
from omnigraph.engine.changes import commit_diff as text_module
from omnigraph.engine.changes.row_diff import RowChanges
from omnigraph.errors import (
    CursorRejected,
    OmniGraphError,
)
from omnigraph.manifest import publish
from omnigraph.store.objects.backend import Meter
from tests.support.change_fixtures import (
    copied_graph,
    delete,
    edge,
    exported,
    image,
    new_graph,
    node,
    pages,
    replay,
    write,
)
from tests.support.examples import examples
from tests.support.s3_server import S3Server, s3_server

pytestmark = pytest.mark.slow

__all__ = ["s3_server"]


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return copied_graph(tmp_path)


# -- replay ------------------------------------------------------------------------------------------------------------

KEYS = st.sampled_from("abcdef")
PEOPLE = st.builds(
    node,
    KEYS,
    v=st.sampled_from([None, 0.0, -0.0, 1.5]),
    tags=st.sampled_from([None, [], [""], ["x", "y"]]),
    image=st.sampled_from([None, image(b""), image(b"one"), image(b"two")]),
)
EDGES = st.builds(edge, st.sampled_from("123"), KEYS, KEYS, w=st.sampled_from([None, 1, 2]))
OTHERS = st.builds(node, KEYS, st.just("Q"))
RECORDS = st.lists(st.one_of(PEOPLE, PEOPLE, EDGES, OTHERS), min_size=1, max_size=5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["merge", "merge", "append", "overwrite"]), RECORDS),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.sampled_from(["index", "branch", "hop", "join"]), st.none()),
    ),
    min_size=2,
    max_size=10,
)
SIZES = st.fixed_dictionaries(
    {
        "limit": st.sampled_from([1, 2, 1_000]),
        "bytes_max": st.sampled_from([1, 300, 1 << 22]),
        "commits_max": st.sampled_from([1, 2, 128]),
    }
)


def run(root: str, steps: list[tuple[str, Any]]) -> tuple[og.Graph, str]:
    """Carry out a history; what breaks a rule or conflicts is left out.

    A `branch` goes on on its own; `hop` leaves it for its parent for a while, and `join` merges it and ends there.
    """
    graph, line, branch = new_graph(root), ["main"], "main"
    for place, (step, value) in enumerate(steps):
        with suppress(OmniGraphError):
            if step == "branch":
                graph.branches.create(f"b{place}", from_=line[-1])
                line.append(f"b{place}")
                branch = line[-1]
            elif step == "hop":
                branch = line[-2] if branch == line[-1] and len(line) > 1 else line[-1]
            elif step == "join" and len(line) > 1:
                branch = line[-2]
                graph.branches.merge(line.pop(), into=branch)
            elif step == "index":
                graph.maintenance.ensure_indices(branch)
            elif step == "delete":
                delete(graph, value, branch=branch)
            elif step != "join":
                write(graph, *value, mode=step, branch=branch)
    return graph, branch


def check(graph: og.Graph, branch: str, sizes: dict[str, int]) -> None:
    state: dict[Any, Any] = {}
    commits = replay(state, pages(graph, branch, start="beginning", **sizes))
    # As text, zeros differ, as they do to a feed.
    assert repr(sorted(state.items())) == repr(sorted(exported(graph, branch).items()))
    known = {one.commit_id: one for one in graph.commits(branch)}
    line = [graph.snapshot(branch).head]
    while (parent := known[line[-1]].parent) is not None:  # type: ignore[index]
        line.append(parent)
    assert commits == [*reversed(line)][1:]


@settings(max_examples=examples(40))
@given(STEPS, SIZES)
def test_feed_replayed_from_the_beginning_gives_the_graph(steps: list[tuple[str, Any]], sizes: dict[str, int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        graph, branch = run(directory, steps)
        check(graph, branch, sizes)
        graph.close()


HISTORY: list[tuple[str, Any]] = [
    ("append", [node("a", v=0.0, image=image(b"one")), node("b", tags=[]), node("c"), edge("1", "a", "b", w=1)]),
    ("merge", [node("a", v=-0.0, image=image(b"two")), node("d"), edge("1", "a", "c", w=1), edge("2", "b", "b")]),
    ("index", None),
    ("delete", "b"),
    ("branch", None),
    ("merge", [node("c", v=2.5), node("a", "Q")]),
    ("hop", None),
    ("merge", [node("d", v=9.0)]),
    ("join", None),
    ("branch", None),
    ("overwrite", [node("a", v=-0.0, image=image(b"two")), node("e"), edge("3", "a", "e")]),
]
SMALL = {"limit": 1, "bytes_max": 1, "commits_max": 1}


@pytest.mark.parametrize("sizes", [{}, SMALL, {"limit": 2}, {"commits_max": 2}, {"bytes_max": 250}])
def test_feed_of_one_history_is_the_same_in_pages_of_any_size(tmp_path: Path, sizes: dict[str, int]) -> None:
    check(*run(str(tmp_path), HISTORY), sizes)


def _without_deletes(changes: RowChanges) -> RowChanges:
    return RowChanges(changes.inserted, changes.deleted.slice(0, 0), changes.before, changes.after)


def _as_inserts(changes: RowChanges) -> RowChanges:
    none = changes.before.slice(0, 0)
    return RowChanges(pa.concat_tables([changes.inserted, changes.after]), changes.deleted, none, none)


@pytest.mark.parametrize("mutant", [_without_deletes, _as_inserts], ids=["no deletes", "updates as inserts"])
def test_feed_that_tells_lies_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: Any) -> None:
    texts = text_module.change_texts
    monkeypatch.setattr(page_module, "change_texts", lambda pair, changes: texts(pair, mutant(changes)))
    with pytest.raises(AssertionError):
        check(*run(str(tmp_path), HISTORY), {})


def test_feed_that_skips_or_repeats_a_change_at_a_page_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, branch = run(str(tmp_path), HISTORY)
    start = page_module._start
    for shift in (-1, 1):
        with monkeypatch.context() as patch:
            patch.setattr(page_module, "_start", lambda ids, after, shift=shift: max(0, start(ids, after) + shift))
            with pytest.raises((AssertionError, CursorRejected)):
                check(graph, branch, {"limit": 2})


# -- positions ---------------------------------------------------------------------------------------------------------


def test_feed_without_a_position_starts_now(graph: og.Graph) -> None:
    write(graph, node("a"))
    page = graph.changes()
    assert (page.blocks, page.caught_up, page.next_page_token) == ((), True, None)
    made = write(graph, node("b"))
    (block,) = graph.changes(cursor=page.cursor).blocks
    assert block.to_json()["cause"]["graph_commit_id"] == made  # type: ignore[index]


def test_feed_after_a_commit_starts_with_the_next_one(graph: og.Graph) -> None:
    first, second = write(graph, node("a")), write(graph, node("b"))
    found = pages(graph, start=f"after:{first}")
    assert replay({}, found) == [second]
    assert found[0].to_json()["blocks"][0]["cause"] == {  # type: ignore[index]
        "graph_commit_id": second,
        "parent_commit_id": first,
        "authored_branch": "main",
        "actor_id": "ada",
        "authored_at": graph.commit(second).created_at_us,
    }


def test_feed_page_token_keeps_the_cut_of_its_poll(graph: og.Graph) -> None:
    write(graph, node("a"), node("b"))
    page = graph.changes(start="beginning", limit=1)
    late = write(graph, node("c"))
    assert page.next_page_token is not None
    rest = graph.changes(page_token=page.next_page_token)
    assert ([block.count for block in rest.blocks], rest.caught_up) == ([1], True)
    assert replay({}, pages(graph, cursor=rest.cursor)) == [late]


def test_feed_tells_a_merge_as_one_block_against_its_first_parent(graph: og.Graph) -> None:
    write(graph, node("a"), node("b"))
    graph.branches.create("x")
    source = write(graph, node("a", v=1.0), node("c"), branch="x")
    write(graph, node("b", v=2.0))
    cursor = graph.changes().cursor
    graph.branches.merge("x")
    (block,) = (one.to_json() for one in graph.changes(cursor=cursor).blocks)
    changes: Any = block["changes"]
    assert [(one["id"], one["op"]) for one in changes] == [("a", "update"), ("c", "insert")]
    assert graph.changes(cursor=cursor).blocks[0].cause["merged_parent_commit_id"] == source


def test_feed_includes_commits_that_changed_nothing_selected(graph: og.Graph) -> None:
    write(graph, node("a"), edge("1", "a", "a"))
    graph.maintenance.ensure_indices()
    write(graph, node("a", v=2.0))
    found = pages(graph, start="beginning", kinds=["node"], types=["P"], ops=["update"])
    assert [block.count for page in found for block in page.blocks] == [0, 0, 1]


def test_feed_rewrite_of_equal_values_gives_an_empty_block(graph: og.Graph) -> None:
    write(graph, node("a", v=1.0, image=image(b"x")))
    cursor = graph.changes().cursor
    write(graph, node("a", v=1.0, image=image(b"x")))
    assert [block.count for block in graph.changes(cursor=cursor).blocks] == [0]


def test_feed_oversized_change_travels_alone(graph: og.Graph) -> None:
    write(graph, node("a", image=image(b"x" * 500)), node("b"), node("c", image=image(b"y" * 500)))
    found = pages(graph, start="beginning", bytes_max=300)
    assert [block.count for page in found for block in page.blocks] == [1, 1, 1]


@pytest.mark.parametrize(
    "long", ["x" * 300, "é" * 200, "€" * 100 + "z" * 10], ids=["one byte", "two bytes", "three bytes"]
)
def test_feed_goes_on_after_a_long_id(graph: og.Graph, long: str) -> None:
    write(graph, *(node(f"{long}{number}") for number in range(3)))
    found = pages(graph, start="beginning", limit=1)
    state: dict[Any, Any] = {}
    replay(state, found)
    assert state == exported(graph)
    assert all(len(page.next_page_token or "") < 1_000 for page in found)


# -- on S3 -------------------------------------------------------------------------------------------------------------


@pytest.mark.s3
def test_feed_and_blobs_on_s3_are_as_on_disk(s3_server: S3Server) -> None:
    graph, branch = run(s3_server.uri("root"), HISTORY)
    check(graph, branch, {"limit": 2})
    assert graph.blob("P", "a", "image", branch=branch).read(1, 3) == b"wo"
    assert graph.diff("main", branch, ops=["delete"]).changes.column("id").to_pylist() == ["1", "c", "d"]
    graph.close()


# -- cost --------------------------------------------------------------------------------------------------------------


def requests(uri: str, cursor: str | None, **options: Any) -> tuple[dict[str, int], int]:
    """Return what a poll of a warm handle asks storage for, and how many commits it delivered."""
    meter = Meter()
    graph = og.open(uri, meter=meter)
    before = meter.snapshot()
    page = graph.changes(cursor=cursor, **options)
    graph.close()
    return meter.since(before), len(page.blocks)


def test_feed_poll_is_flat_in_the_length_of_history(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    window = 12
    monkeypatch.setattr(publish, "COMMIT_WINDOW_ROWS", window)
    # Enough entities that what changes is always the smaller part of them.
    write(graph, *(node(f"n{number}") for number in range(40)))
    found = []
    for depth in (3, 3 * window):
        for number in range(len(graph.commits()), depth):
            write(graph, node("n0", v=float(number)))
        caught_up, _ = requests(graph.uri, graph.changes().cursor)
        cursor = graph.changes().cursor
        write(graph, node("n0", v=-float(depth)), node(f"a{depth}"))
        write(graph, node(f"b{depth}"))
        found.append((caught_up, requests(graph.uri, cursor), requests(graph.uri, cursor, commits_max=1)))
    assert found[0] == found[1]
    caught_up, (two, commits), (one, _) = found[0]
    assert not [key for key in caught_up if not key.endswith("__manifest")]
    assert commits == 2
    # A commit needs two states, and two versions of each type that it changed; the next one shares the first of them.
    assert (one["open nodes"], two["open nodes"]) == (2, 3)
    assert (one["scan __manifest"], two["scan __manifest"]) == (2, 3)
    # Most of this history has left the window of the catalog for the log.
    check(graph, "main", {})
