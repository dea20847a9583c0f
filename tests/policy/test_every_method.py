"""Every public method of a graph asks the policy before it reads data or leaves a trace, or this fails."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.engine.branches import Branches, Tags
from omnigraph.engine.maintain.maintenance import Maintenance
from omnigraph.engine.schema import Schema
from omnigraph.engine.session import GraphSession
from omnigraph.errors import GraphError, OmniGraphError, PolicyDenied
from omnigraph.graph import Graph
from omnigraph.graph_reads import GraphAt
from omnigraph.manifest.kernel import Kernel
from omnigraph.policy import load_bundle
from tests.support.merge_fixtures import SCHEMA, people
from tests.support.policy_recorder import Recorder

pytestmark = pytest.mark.slow

READ = "query q() { match { $p: Person } return { $p.name } }"
WRITE = 'query q() { insert Person { name: "Eve" } }'
NOBODY = "version: 1\n"
OUTSIDE = """
version: 1
groups: {team: [ann]}
protected_branches: [main]
rules:
  - {id: use, allow: {actors: {group: team}, actions: [read, change], branch_scope: unprotected}}
  - {id: make, allow: {actors: {group: team}, actions: [branch_create]}}
"""

# What a caller gets without asking anything: names, other views of the same handle, and its end.
FREE: Final = {
    Graph: {"acting_as", "on", "uri", "cache_bytes", "close"},
    GraphAt: {"commit_id"},
    Branches: set[str](),
    Tags: set[str](),
    Schema: set[str](),
    Maintenance: frozenset(),
}


def calls(graph: Graph, past: GraphAt, commit: str) -> dict[type, dict[str, Callable[[], object]]]:
    """Return one call of every method that asks."""
    return {
        Graph: {
            "snapshot": lambda: graph.snapshot(),
            "query": lambda: graph.query(READ),
            "explain": lambda: graph.explain(READ),
            "get": lambda: graph.get("Person", "Eve"),
            "to_networkx": lambda: graph.to_networkx(),
            "mutate": lambda: graph.mutate(WRITE),
            "ingest": lambda: graph.ingest(b'{"type":"Person","data":{"name":"Eve"}}'),
            "load": lambda: graph.load(b'{"type":"Person","data":{"name":"Eve"}}'),
            "show": lambda: graph.show(),
            "embed": lambda: graph.embed(),
            "export_files": lambda: graph.export_files(f"{graph.uri}-exported"),
            "commits": lambda: graph.commits(),
            "commit": lambda: graph.commit(commit),
            "log": lambda: graph.log("Person", "Alice"),
            "blame": lambda: graph.blame("Person", "Alice"),
            "operation": lambda: graph.operation(commit),
            "at": lambda: graph.at(commit),
            "revert": lambda: graph.revert(commit),
            "cherry_pick": lambda: graph.cherry_pick(commit),
            "export": lambda: graph.export(),
            "diff": lambda: graph.diff(commit, "main"),
            "commit_changes": lambda: graph.commit_changes(commit),
            "changes": lambda: graph.changes(),
            "baseline": lambda: graph.baseline(),
            "blob": lambda: graph.blob("Person", "Alice", "name"),
            "clone": lambda: graph.clone(f"{graph.uri}-clone"),
        },
        Maintenance: {
            "ensure_indices": lambda: graph.maintenance.ensure_indices(),
            "list_indices": lambda: graph.maintenance.list_indices(),
            "optimize": lambda: graph.maintenance.optimize(),
            "repair": lambda: graph.maintenance.repair(confirm=True, discard=True),
            "audit": lambda: graph.maintenance.audit(),
            "verify": lambda: graph.maintenance.verify(),
            "cleanup": lambda: graph.maintenance.cleanup(keep=1, confirm=True),
            "reconcile": lambda: graph.maintenance.reconcile(),
            "reconciler": lambda: graph.maintenance.reconciler(timedelta(seconds=1)),
        },
        GraphAt: {
            "query": lambda: past.query(READ),
            "explain": lambda: past.explain(READ),
            "export": lambda: past.export(),
            "get": lambda: past.get("Person", "Eve"),
            "to_networkx": lambda: past.to_networkx(),
            "blob": lambda: past.blob("Person", "Alice", "name"),
            "snapshot": lambda: past.snapshot(),
        },
        Branches: {
            "create": lambda: graph.branches.create("new"),
            "list": lambda: graph.branches.list(),
            "rename": lambda: graph.branches.rename("review", "other"),
            "delete": lambda: graph.branches.delete("review"),
            "merge": lambda: graph.branches.merge("review"),
        },
        Tags: {
            "create": lambda: graph.tags.create("v2"),
            "list": lambda: graph.tags.list(),
            "delete": lambda: graph.tags.delete("v1"),
        },
        Schema: {
            "source": lambda: graph.schema.source,
            "read": lambda: graph.schema.read(),
            "catalog": lambda: graph.schema.catalog,
            "nodes": lambda: graph.schema.nodes,
            "edges": lambda: graph.schema.edges,
            "types": lambda: graph.schema.types,
            "plan": lambda: graph.schema.plan(SCHEMA),
            "to_mermaid": lambda: graph.schema.to_mermaid(),
            "apply": lambda: graph.schema.apply(SCHEMA),
        },
    }


def surface(part: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(part) if not name.startswith("_")}


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    made = people(tmp_path)
    made.branches.create("review")
    made.mutate(WRITE, branch="review")
    made.tags.create("v1")
    with made:
        yield made


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make whoever opens a dataset, or begins to commit, fail in a way that no refusal looks like."""

    def touched(*_: object, **__: object) -> Any:
        raise AssertionError("data was touched before the policy was asked")

    def arm() -> None:
        for name in ("dataset", "writable", "commit", "finish_links"):
            monkeypatch.setattr(Kernel, name, touched)

    return arm


def files(graph: Graph) -> set[str]:
    root = Path(graph.uri.removeprefix("file://"))
    return {str(path) for path in root.rglob("*")}


def test_every_public_method_is_known_here() -> None:
    listed = calls(*[None] * 3)  # type: ignore[arg-type]
    for part, free in FREE.items():
        assert surface(part) - free <= listed[part].keys(), "say in `calls` how the new method is called, or why not"


@pytest.mark.parametrize("actor", ["bob", None])
def test_every_method_under_a_policy_that_allows_nothing_is_denied(
    graph: Graph, no_data: Callable[[], None], actor: str | None
) -> None:
    commit = str(graph.snapshot().head)
    policy = load_bundle(NOBODY)
    past = graph.at(commit)
    denied = og.open(graph.uri, actor=actor, policy=policy)
    past = GraphAt(denied, past.commit_id, "main", "now")
    before, stored = graph.commits(), files(graph)
    no_data()
    for part, methods in calls(denied, past, commit).items():
        for name in sorted(surface(part) - FREE[part]):
            with pytest.raises(PolicyDenied) as caught:
                methods[name]()
            assert caught.value.code == "policy.denied", name
    assert (graph.commits(), files(graph)) == (before, stored)


@pytest.mark.parametrize(
    "call",
    [
        lambda graph, out: pipeline.load(graph, nodes={"Person": "missing.parquet"}),
        lambda graph, out: pipeline.export(graph, out),
        lambda graph, out: pipeline.query(graph, READ),
        lambda graph, out: pipeline.algo.degree(graph),
        lambda graph, out: pipeline.optimize(graph),
        lambda graph, out: pipeline.verify(graph),
    ],
)
def test_pipeline_under_a_policy_that_allows_nothing_is_denied(
    graph: Graph, no_data: Callable[[], None], tmp_path: Path, call: Callable[[Graph, Path], object]
) -> None:
    denied = og.open(graph.uri, actor="bob", policy=load_bundle(NOBODY))
    no_data()
    with pytest.raises(PolicyDenied):
        call(denied, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "branch_off",
    [
        lambda graph: graph.branches.create("x"),
        lambda graph: graph.branches.create("x", from_="v1"),
        lambda graph: graph.ingest([{"type": "Person", "data": {"name": "Eve"}}], branch="x", from_branch="main"),
        lambda graph: pipeline.load(graph, nodes={"Person": "missing.parquet"}, branch="x", from_branch="main"),
    ],
)
def test_branch_off_one_that_may_not_be_read_is_denied(graph: Graph, branch_off: Callable[[Graph], object]) -> None:
    ann = og.open(graph.uri, actor="ann", policy=load_bundle(OUTSIDE))
    with pytest.raises(PolicyDenied, match="`read` on branch `main`"):
        branch_off(ann)
    assert graph.branches.list() == ["main", "review"]
    ann.branches.create("x", from_="review")


def test_branch_off_a_commit_that_may_not_be_read_is_not_found(graph: Graph) -> None:
    ann = og.open(graph.uri, actor="ann", policy=load_bundle(OUTSIDE))
    with pytest.raises(GraphError, match="no branch, tag or commit `v1`"):
        ann.branches.create("x", from_="review", at="v1")
    assert graph.branches.list() == ["main", "review"]


def test_core_that_never_asks_is_caught(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = str(graph.snapshot().head)
    never = og.open(graph.uri, actor="bob", policy=Recorder(actors=()))
    monkeypatch.setattr(GraphSession, "require", lambda *_: None)
    for part, methods in calls(never, GraphAt(never, commit, "main", "now"), commit).items():
        for name in sorted(surface(part) - FREE[part]):
            assert not is_denied(methods[name]), name


def asked_by(graph: Graph, call: Callable[[Graph], object]) -> list[str]:
    """Return what a call asks, as `action branch`, `action -> target` or `action branch -> target`."""
    policy = Recorder()
    with suppress(OmniGraphError):
        call(og.open(graph.uri, actor="ann", policy=policy))
    found = []
    for action, scope, _ in policy.asked:
        target = "" if scope.target is None else f" -> {scope.target}"
        found.append(f"{action}{'' if scope.branch is None else f' {scope.branch}'}{target}")
    return found


# What moves data from one branch to another asks at both ends; see "Nothing flows" in docs/policy.md.
FLOWS: Final[dict[str, tuple[Callable[[Graph, str], object], list[str]]]] = {
    "branches.create": (lambda graph, _: graph.branches.create("x"), ["branch_create main -> x", "read main"]),
    "branches.create at": (
        lambda graph, commit: graph.branches.create("x", "main", at=commit),
        ["branch_create main -> x", "read review"],
    ),
    "branches.rename": (
        lambda graph, _: graph.branches.rename("review", "y"),
        ["branch_delete -> review", "branch_create review -> y"],
    ),
    "branches.delete": (lambda graph, _: graph.branches.delete("review"), ["branch_delete -> review"]),
    "branches.merge": (
        lambda graph, _: graph.branches.merge("review", dry_run=True),
        ["branch_merge review -> main", "read review"],
    ),
    "ingest from": (
        lambda graph, _: graph.ingest([{"type": "Person", "data": {"name": "Z"}}], branch="x", from_branch="review"),
        ["change x", "branch_create review -> x", "read review"],
    ),
    "load from": (
        lambda graph, _: pipeline.load(graph, nodes={"Person": "missing.parquet"}, branch="x", from_branch="review"),
        ["change x", "branch_create review -> x", "read review"],
    ),
    "revert": (
        lambda graph, commit: graph.revert(commit, "review", dry_run=True),
        ["change review", "read review", "read review"],
    ),
    "cherry_pick": (
        lambda graph, commit: graph.cherry_pick(commit, dry_run=True),
        ["change main", "read main", "read review"],
    ),
    "tags.create": (
        lambda graph, commit: graph.tags.create("v9", commit),
        ["tag_create -> main", "read review", "tag_create -> review"],
    ),
    "export at": (lambda graph, commit: list(graph.export(at=commit)), ["export review"]),
    "clone": (lambda graph, _: graph.clone(f"{graph.uri}-copy"), ["export", "export main", "export review"]),
}


@pytest.mark.parametrize("name", FLOWS)
def test_what_moves_data_asks_at_both_ends_and_once(graph: Graph, name: str) -> None:
    call, expected = FLOWS[name]
    commit = graph.commits("review")[0].commit_id
    assert asked_by(graph, lambda ann: call(ann, commit)) == expected


def is_denied(call: Callable[[], object]) -> bool:
    try:
        call()
    except PolicyDenied:
        return True
    except OmniGraphError:
        return False
    return False
