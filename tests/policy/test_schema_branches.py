"""Policies where branches have schemas of their own: hidden types stay hidden, and merges need what an apply needs."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.engine import session as session_module
from omnigraph.errors import PolicyDenied
from omnigraph.graph import Graph
from omnigraph.policy import load_bundle

SCHEMA = "node Person { name: String @key }\nnode Notes { name: String @key }\n"
RENAMED = SCHEMA.replace("node Notes {", 'node Private @rename_from("Notes") {') + "node Other { name: String @key }\n"
RULES = """
version: 1
groups: {root: [root], some: [ann], branchers: [ben]}
protected_branches: [main]
rules:
  - id: root-all
    allow: {actors: {group: root}, actions: [read, export, change]}
  - id: root-control
    allow: {actors: {group: root}, actions: [schema_apply, branch_create, branch_delete, branch_merge]}
  - id: some-read
    allow: {actors: {group: some}, actions: [read, change], types: [Person, Notes]}
  - id: branchers-all
    allow: {actors: {group: branchers}, actions: [read, change]}
  - id: branchers-control
    allow: {actors: {group: branchers}, actions: [branch_create, branch_merge]}
  - id: branchers-schema
    allow: {actors: {group: branchers}, actions: [schema_apply], target_branch_scope: unprotected}
"""


@pytest.fixture
def uri(tmp_path: Path) -> str:
    with og.init(tmp_path / "graph.omni", SCHEMA) as graph:
        graph.ingest([{"type": "Notes", "data": {"name": "n"}}], mode="append")
        graph.branches.create("review")
    (tmp_path / "policy.yaml").write_text(RULES)
    return graph.uri


def opened(uri: str, actor: str) -> Graph:
    return og.open(uri, actor=actor, policy=load_bundle(Path(uri).parent / "policy.yaml"))


def seen(graph: Graph, branch: str = "review") -> set[str]:
    return {key.name for key in graph.snapshot(branch).state.pins}


def test_type_hidden_by_its_name_on_main_is_hidden_on_branches(uri: str) -> None:
    assert seen(opened(uri, "ann")) == {"Person", "Notes"}
    opened(uri, "root").schema.apply(RENAMED)
    ann = opened(uri, "ann")
    # The branch still calls it by a name that the rules allow.
    assert seen(ann) == {"Person"}
    assert "Notes" not in ann.schema.read("review")
    with pytest.raises(og.OmniGraphError):
        ann.query("query q() { match { $n: Notes } return { $n.name } }", branch="review")
    with pytest.raises(og.OmniGraphError):
        ann.mutate('query q() { insert Notes { name: "x" } }', branch="review")
    assert seen(opened(uri, "root")) == {"Person", "Notes"}


def test_check_of_names_on_main_is_what_hides_them(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(uri, "root").schema.apply(RENAMED)
    monkeypatch.setattr(session_module.GraphSession, "_names_on_main", lambda self, catalog: {})
    assert seen(opened(uri, "ann")) == {"Person", "Notes"}


def test_schema_apply_is_judged_by_its_branch(uri: str) -> None:
    ben = opened(uri, "ben")
    for call in (ben.schema.apply, ben.schema.plan):
        with pytest.raises(PolicyDenied):
            call(RENAMED)
    assert ben.schema.apply(RENAMED, branch="review").applied


def test_merge_that_changes_the_schema_needs_schema_apply(uri: str) -> None:
    ben = opened(uri, "ben")
    ben.mutate('query q() { insert Person { name: "a" } }', branch="review")
    ben.branches.merge("review")
    ben.schema.apply(RENAMED, branch="review")
    for dry_run in (True, False):
        with pytest.raises(PolicyDenied) as caught:
            ben.branches.merge("review", dry_run=dry_run)
        assert caught.value.context["action"] == "schema_apply"
    opened(uri, "root").branches.merge("review")
    assert "Private" in opened(uri, "root").schema.nodes
