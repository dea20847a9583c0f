"""What history costs: not more with many branches, not more per page with a long past. Counts, never seconds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import clock
from omnigraph.engine.changes.feed import FeedPage
from omnigraph.errors import GraphError, UsageError
from omnigraph.graph import session_of
from omnigraph.ids import BranchId, new_operation_id, new_ulid
from omnigraph.limits import COMMIT_WINDOW_ROWS
from omnigraph.manifest import branches
from omnigraph.manifest.history import CommitSource, FirstParentLine
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN
from omnigraph.public_values import Commit
from omnigraph.store.objects.backend import Meter
from tests.support.kernel_fixtures import PERSON, SCHEMA, create, insert, open_graph

pytestmark = pytest.mark.slow
DEPTH = 2 * COMMIT_WINDOW_ROWS + 10


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A graph whose first commits have left the window, with a branch on an early commit, and a few others."""
    root = str(tmp_path_factory.mktemp("deep") / "graph.omni")
    kernel = create(root)
    for number in range(5):
        insert(kernel, {PERSON: [f"early{number}"]})
    branches.create_branch(kernel, "early", kernel.snapshot())
    insert(kernel, {PERSON: ["on early"]}, "early")
    for number in range(DEPTH):
        insert(kernel, {PERSON: [f"p{number}"]})
    for number in range(4):
        add_branch(kernel, number)
    kernel.close()
    return root


def add_branch(kernel: Kernel, number: int) -> None:
    branches.create_branch(kernel, f"b{number}", kernel.snapshot())
    if number % 4 == 0:
        insert(kernel, {PERSON: [f"of{number}"]}, f"b{number}")


def costs(root: str) -> dict[str, Counter[str]]:
    """Return the requests of each kind that cold handles make for a question about history."""
    found: dict[str, Counter[str]] = {}

    def measure(name: str, work: object) -> None:
        log: list[tuple[str, str]] = []
        graph = og.open(root, meter=Meter(log))
        log.clear()
        assert callable(work)
        work(graph)
        graph.close()
        found[name] = Counter(operation for operation, _ in log)

    with og.open(root) as graph:
        oldest, newest = graph.commits()[-1].commit_id, graph.commits("b0")[0].commit_id
    measure("list", lambda graph: graph.commits())
    measure("page", lambda graph: graph.commits(limit=10))
    measure("list of a branch", lambda graph: graph.commits("b0"))
    measure("find the oldest", lambda graph: graph.commit(oldest))
    measure("find one of a branch", lambda graph: graph.commit(newest))
    measure("merge", lambda graph: graph.branches.merge("early", dry_run=True))
    return found


@pytest.mark.parametrize("count", [24])
def test_history_costs_the_same_with_many_branches(deep: str, tmp_path: Path, count: int) -> None:
    few = costs(deep)
    kernel = open_graph(deep)
    known = len(kernel.snapshot().state.branches)
    for number in range(known, known + count):
        add_branch(kernel, number)
    kernel.close()
    many = costs(deep)
    for name, requests in few.items():
        assert many[name].total() <= 2 * requests.total(), (name, requests, many[name])
        assert many[name]["open"] <= requests["open"] + 1, (name, requests, many[name])


def test_lookup_everywhere_is_what_the_costs_would_show(deep: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few = costs(deep)
    monkeypatch.setattr(CommitSource, "_read_main", lambda self, _: self._read_all_branches(_))
    assert costs(deep)["find the oldest"]["open"] > few["find the oldest"]["open"] + 1


def test_history_of_nested_branches_needs_no_other_catalog(tmp_path: Path) -> None:
    """A branch of a branch is merged past its parent; the parent's commits are then part of main's history."""
    graph = og.init(tmp_path / "graph.omni", schema=SCHEMA)

    def put(name: str, branch: str) -> None:
        graph.ingest([{"type": "Person", "data": {"name": name}}], mode="append", branch=branch)

    graph.branches.create("outer")
    put("a", "outer")
    graph.branches.create("inner", "outer")
    put("b", "inner")
    put("c", MAIN)
    graph.branches.merge("inner")
    put("d", "outer")
    expected = graph.commits()
    assert len(expected) == 5
    log: list[tuple[str, str]] = []
    with og.open(graph.uri, meter=Meter(log)) as cold:
        assert cold.commits() == expected
    assert not [target for operation, target in log if operation == "open" and "tree/" in target]


# -- pages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 7, 64, 1_000])
def test_pages_of_commits_are_the_whole_list(deep: str, limit: int) -> None:
    with og.open(deep) as graph:
        whole, pages, before = graph.commits("early"), list[Commit](), None
        while page := graph.commits("early", limit=limit, before=before):
            assert len(page) <= limit
            pages += page
            before = page[-1].commit_id
        assert pages == whole
        assert graph.commits(limit=limit) == graph.commits()[:limit]


def test_page_with_a_bad_bound_is_refused(deep: str) -> None:
    with og.open(deep) as graph:
        for limit in (0, -1, True, 1.5):
            with pytest.raises(UsageError):
                graph.commits(limit=limit)  # type: ignore[arg-type]
        with pytest.raises(GraphError) as caught:
            graph.commits("early", before=graph.commits()[0].commit_id)
        assert caught.value.code == "commit.not_found"


# -- the feed ----------------------------------------------------------------------------------------------------


def causes(page: FeedPage) -> list[object]:
    blocks: Any = page.to_json()["blocks"]
    return [block["cause"]["graph_commit_id"] for block in blocks]


def test_feed_page_in_the_past_reads_only_its_part_of_the_log(deep: str) -> None:
    with og.open(deep) as graph:
        line = [one.commit_id for one in reversed(graph.commits()) if one.branch == MAIN]
        page = graph.changes(start="beginning", commits_max=3)
        seen = causes(page)
        assert seen == line[1:4]
        while not page.caught_up:
            page = graph.changes(cursor=page.cursor, commits_max=64)
            seen += causes(page)
        assert seen == line[1:]


def test_line_of_a_branch_is_its_first_parents_in_order(deep: str) -> None:
    with og.open(deep) as graph:
        for branch in ("early", "b0", MAIN):
            kernel, snapshot = session_of(graph).kernel, graph.snapshot(branch)
            expected = list(reversed(list(kernel.history(branch))))
            line = FirstParentLine(kernel, snapshot)
            assert line.first() == expected[0]
            for place in range(0, len(expected), 9):
                for until in (place, len(expected) - 1):
                    found = FirstParentLine(kernel, snapshot).after(expected[place], expected[until], 5)
                    assert found == expected[place + 1 : min(place + 6, until + 1)]


# -- operations ------------------------------------------------------------------------------------------------


def ask(root: str, operation_id: str) -> tuple[str, int]:
    """Return what a cold handle says became of an operation, and how many datasets it opened for that."""
    log: list[tuple[str, str]] = []
    with og.open(root, meter=Meter(log)) as graph:
        log.clear()
        outcome = graph.operation(operation_id).outcome
    return outcome, sum(operation == "open" for operation, _ in log)


def test_operation_costs_the_same_with_many_branches(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "graph.omni", schema=SCHEMA)

    def put(name: str, branch: str) -> str:
        receipt = graph.ingest([{"type": "Person", "data": {"name": name}}], branch=branch)
        assert receipt.commit is not None
        return str(receipt.commit.operation_id)

    for name in ("kept", "gone"):
        graph.branches.create(name)
    asked = {name: put(name, name) for name in (MAIN, "kept", "gone")}
    merged = graph.branches.merge("kept").commit
    assert merged is not None
    asked["merged"] = str(merged.operation_id)
    graph.branches.delete("gone")
    # Made long ago, and never published.
    with clock.replaced(lambda: 1_700_000_000_000_000):
        asked["absent"] = new_operation_id(BranchId(new_ulid()))
    few = {name: ask(graph.uri, one) for name, one in asked.items()}
    assert [outcome for outcome, _ in few.values()] == [*["applied"] * 4, "absent"]
    for number in range(12):
        graph.branches.create(f"b{number}")
        put(f"of {number}", f"b{number}")
    many = {name: ask(graph.uri, one) for name, one in asked.items()}
    assert many == few


def test_operation_under_an_id_of_the_caller_is_found_on_any_branch(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "graph.omni", schema=SCHEMA)
    chosen = {name: new_ulid() for name in ("kept", "gone")}
    for name, one in chosen.items():
        graph.branches.create(name)
        own = graph.acting_as(None, one)
        own.mutate('query q() { insert Person { name: "x" } }', branch=name)
    graph.branches.delete("gone")
    assert [ask(graph.uri, one)[0] for one in chosen.values()] == ["applied", "applied"]
