"""Types that are hidden from an actor are not there for it over HTTP either, whatever it asks; leaks are caught."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.graph import Graph
from omnigraph.server.handlers import stored_queries
from omnigraph.stored_queries import StoredQueries
from tests.support.served_visibility import HIDDEN, Request, differences, reads, refused_writes, serving, told
from tests.support.visibility_oracle import LEAKS, build

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Graph, Graph, Path]]:
    root = tmp_path_factory.mktemp("sights")
    with build(root / "graph.omni") as whole, build(root / "other.omni", HIDDEN) as small:
        yield whole, small, root


def everything(graph: Graph) -> dict[str, Request]:
    """Return every request of which the answers are compared."""
    asked, refused = reads(commits(graph)), refused_writes()
    assert not asked.keys() & refused.keys(), "one would take the place of the other"
    return asked | refused


def commits(graph: Graph) -> list[str]:
    return [one.commit_id for one in graph.commits()]


@pytest.fixture(scope="module")
def expected(pair: tuple[Graph, Graph, Path]) -> dict[str, object]:
    _, small, root = pair
    with serving(small, root, HIDDEN) as live:
        return {name: told(live, "ann", request) for name, request in everything(small).items()}


def test_hidden_types_are_not_there_whatever_one_asks(
    pair: tuple[Graph, Graph, Path], expected: dict[str, object]
) -> None:
    whole, _, root = pair
    head = whole.snapshot().head
    with serving(whole, root) as live:
        assert list(differences(live, expected, everything(whole), "ann")) == []
    assert whole.snapshot().head == head


def test_hidden_types_show_to_whoever_may_see_them(
    pair: tuple[Graph, Graph, Path], expected: dict[str, object]
) -> None:
    whole, _, root = pair
    with serving(whole, root) as live:
        found = set(differences(live, expected, reads(commits(whole)), "root"))
    assert {"snapshot", "schema", "export", "baseline", "feed", "diff", "commits", "GET Salary", "queries"} <= found


@pytest.mark.parametrize(
    ("place", "name", "mutant"),
    [
        *LEAKS,
        (StoredQueries, "list", lambda self, catalog: self.queries),
        (stored_queries, "_visible_query", stored_queries.find_query),
    ],
)
@pytest.mark.sampled(2)
def test_hidden_types_leak_is_caught(
    pair: tuple[Graph, Graph, Path],
    expected: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
    place: Any,
    name: str,
    mutant: Any,
) -> None:
    whole, _, root = pair
    monkeypatch.setattr(place, name, mutant)
    with serving(whole, root) as live:
        assert next(differences(live, expected, reads(commits(whole)), "ann"), None) is not None
