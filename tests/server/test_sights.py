"""Types that are hidden from an actor are not there for it over HTTP either, whatever it asks; leaks are caught."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.engine import core as core_module
from omnigraph.engine import sight
from omnigraph.engine.changes.commit import States
from omnigraph.engine.core import Core
from omnigraph.graph import Graph
from omnigraph.server import app as app_module
from omnigraph.server import storedcalls
from omnigraph.server.envelope import error_body
from omnigraph.stored import StoredQueries
from tests.policy.sights import build
from tests.server.sights import HIDDEN, differences, reads, refused_writes, serving, told

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Graph, Graph, Path]]:
    root = tmp_path_factory.mktemp("sights")
    with build(root / "graph.omni") as whole, build(root / "other.omni", HIDDEN) as small:
        yield whole, small, root


def commits(graph: Graph) -> list[str]:
    return [one.commit_id for one in graph.commits()]


@pytest.fixture(scope="module")
def expected(pair: tuple[Graph, Graph, Path]) -> dict[str, object]:
    _, small, root = pair
    with serving(small, root, HIDDEN) as live:
        asked = reads(commits(small)) | refused_writes()
        return {name: told(live, "ann", request) for name, request in asked.items()}


def test_hidden_types_are_not_there_whatever_one_asks(
    pair: tuple[Graph, Graph, Path], expected: dict[str, object]
) -> None:
    whole, _, root = pair
    head = whole.snapshot().head
    with serving(whole, root) as live:
        asked = reads(commits(whole)) | refused_writes()
        assert list(differences(live, expected, asked, "ann")) == []
    assert whole.snapshot().head == head


def test_hidden_types_show_to_whoever_may_see_them(
    pair: tuple[Graph, Graph, Path], expected: dict[str, object]
) -> None:
    whole, _, root = pair
    with serving(whole, root) as live:
        found = set(differences(live, expected, reads(commits(whole)), "root"))
    assert {"snapshot", "schema", "export", "baseline", "feed", "diff", "commits", "GET Salary", "queries"} <= found


def _whole_export(self: Core, branch: str = "main", at: Any = None, action: str = "read") -> Any:
    return self.whole(branch, at) if action == "export" else VIEW(self, branch, at, action)


VIEW = Core.view


@pytest.mark.parametrize(
    ("place", "name", "mutant"),
    [
        (core_module, "with_their_edges", lambda catalog, hidden: frozenset(hidden)),
        (core_module, "without_drops", lambda commit: commit),
        (sight, "restrict_source", lambda text, hidden: text),
        (core_module, "restrict_snapshot", lambda snapshot, hidden, schema: snapshot),
        (States, "view", lambda self, commit: self.core.whole_of(self.core.kernel.snapshot_of(commit))),
        (Core, "view", _whole_export),
        (Core, "seen", lambda self, snapshot, *actions: self.whole_of(snapshot)),
        (StoredQueries, "list", lambda self, catalog: self.queries),
        (storedcalls, "_refuse_hidden", lambda stored, seen: None),
    ],
)
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


def test_place_of_a_graph_in_an_error_is_caught(
    pair: tuple[Graph, Graph, Path], expected: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that tells the address of its graph differs by that alone, which the comparison must not leave out."""
    whole, _, root = pair
    monkeypatch.setattr(app_module, "told", lambda error, hosted, is_change: error_body(error) | {"at": whole.uri})
    with serving(whole, root) as live:
        assert next(differences(live, expected, reads(commits(whole)), "ann"), None) is not None
