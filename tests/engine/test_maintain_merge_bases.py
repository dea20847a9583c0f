"""After a cleanup every two live branches can be merged, whatever branches were deleted before."""

from __future__ import annotations

import random
from itertools import permutations
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.engine.maintain import retention
from omnigraph.errors import GraphError, ReachabilityDisputed
from omnigraph.graph import Graph
from tests.support.cleanup_world import unless
from tests.support.maintenance_fixtures import hours_later
from tests.support.merge_fixtures import change

pytestmark = pytest.mark.slow
SCHEMA = "node Item { name: String @key  size: I32? }"


def put(graph: Graph, branch: str, name: str) -> None:
    change(graph, f'insert Item {{ name: "{name}" }}', branch)


def clean(graph: Graph) -> Graph:
    with hours_later():
        og.open(graph.uri).maintenance.cleanup(keep=1, confirm=True)
    return og.open(graph.uri)


def merge_hotfix(graph: Graph, name: str) -> None:
    """Merge a branch into main and dev, then delete it: its head is a merge base of the two."""
    graph.branches.create(name)
    put(graph, name, name)
    graph.branches.merge(name)
    graph.branches.merge(name, into="dev")
    graph.branches.delete(name)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "graph.omni", SCHEMA)
    put(graph, "main", "first")
    graph.branches.create("dev")
    put(graph, "main", "on-main")
    put(graph, "dev", "on-dev")
    return graph


@pytest.mark.parametrize("hotfixes", [1, 2])
@pytest.mark.parametrize(("source", "into"), [("dev", "main"), ("main", "dev")])
def test_cleanup_keeps_a_merge_base_on_a_deleted_branch(graph: Graph, hotfixes: int, source: str, into: str) -> None:
    for number in range(hotfixes):
        merge_hotfix(graph, f"fix{number}")
    put(graph, "main", "more-main")
    put(graph, "dev", "more-dev")
    graph = clean(graph)
    graph.branches.merge(source, into)
    names = graph.query("match { $i: Item } return { $i.name as n }", branch=into).rows()
    fixes = {f"fix{number}" for number in range(hotfixes)}
    assert {row["n"] for row in names} == {"first", "on-main", "on-dev", "more-main", "more-dev"} | fixes


def test_cleanup_forgets_a_deleted_branch_once_no_merge_needs_it(graph: Graph) -> None:
    merge_hotfix(graph, "fix")
    before = {path.name for path in Path(graph.uri, "__manifest", "tree").iterdir()}
    graph = clean(graph)
    assert {path.name for path in Path(graph.uri, "__manifest", "tree").iterdir()} == before
    graph.branches.merge("dev")
    graph.branches.merge("main", into="dev")
    clean(clean(graph))
    [left] = [path for path in Path(graph.uri, "__manifest", "tree").iterdir() if any(path.rglob("*.manifest"))]
    assert left.name == graph.snapshot("dev").state.branch_id


def test_cleanup_that_would_remove_a_merge_base_is_refused(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    merge_hotfix(graph, "fix")
    put(graph, "main", "more-main")
    monkeypatch.setattr(retention.KeptStates, "_keep_deleted_branches", lambda *_: {})
    with pytest.raises(ReachabilityDisputed, match="merges of `main` and `dev` start from commit"):
        clean(graph)
    monkeypatch.setattr(retention, "check_mergeable", lambda *_: None)
    with pytest.raises(GraphError) as caught:
        clean(graph).branches.merge("dev")
    assert caught.value.code == "graph.version_reclaimed"


def test_cleanup_goes_on_where_an_earlier_one_removed_half_a_state(graph: Graph) -> None:
    merge_hotfix(graph, "fix")
    put(graph, "main", "more-main")
    fork = graph.snapshot("main").state.pins["node:Item"].path  # type: ignore[index]
    for path in Path(graph.uri, fork).rglob("*.manifest"):
        if "/tree/" in str(path) and str(graph.snapshot("dev").state.branch_id) not in str(path):
            path.unlink()
    assert clean(graph).query("match { $i: Item } return { count(*) as n }").rows() == [{"n": 4}]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(24))
def test_cleanup_leaves_every_pair_of_branches_mergeable(tmp_path: Path, seed: int) -> None:
    pick = random.Random(seed)
    graph = og.init(tmp_path / "graph.omni", SCHEMA)
    for number in range(30):
        branches = graph.branches.list()
        source, target = pick.choice(branches), pick.choice(branches)
        move = pick.choices(("put", "branch", "merge", "delete", "clean"), (6, 4, 6, 3, 1))[0]
        with unless("branch.in_use"):
            if move == "put":
                put(graph, source, f"i{number}")
            elif move == "branch" and len(branches) < 5:
                graph.branches.create(f"b{number}", source)
            elif move == "merge" and source != target:
                graph.branches.merge(source, target)
            elif move == "delete" and source != "main":
                graph.branches.delete(source)
            elif move == "clean":
                graph = clean(graph)
    graph = clean(graph)
    for source, target in permutations(graph.branches.list(), 2):
        graph.branches.merge(source, target, dry_run=True)
