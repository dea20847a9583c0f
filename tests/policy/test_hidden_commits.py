"""Commits of branches that an actor may not read are in no list, feed or count, and no visible commit names them."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.engine.session import GraphSession
from omnigraph.errors import OmniGraphError
from omnigraph.policy import load_bundle

pytestmark = pytest.mark.slow

SCHEMA = "node Person { name: String @key  age: I32? }"
RULES = """
version: 1
groups: {all: [root], some: [ann]}
protected_branches: [secret]
rules:
  - {id: all, allow: {actors: {group: all}, actions: [read, change, branch_create, branch_merge, branch_delete]}}
  - {id: some, allow: {actors: {group: some}, actions: [read], branch_scope: unprotected}}
"""


def put(graph: og.Graph, name: str, branch: str = "main") -> str:
    commit = graph.ingest([{"type": "Person", "data": {"name": name}}], branch=branch).commit
    assert commit is not None
    return str(commit.commit_id)


@pytest.fixture
def root(tmp_path: Path) -> og.Graph:
    """A graph with a secret branch that is merged into main, and a branch that starts from it."""
    og.init(tmp_path / "g.omni", SCHEMA).close()
    root = og.open(tmp_path / "g.omni", actor="root", policy=load_bundle(RULES))
    put(root, "first")
    root.branches.create("secret")
    for number in range(3):
        put(root, f"hidden {number}", "secret")
    root.branches.create("review", "secret")
    put(root, "reviewed", "review")
    put(root, "second")
    root.branches.merge("secret")
    put(root, "third")
    return root


def all_texts(graph: og.Graph) -> str:
    texts: list[object] = []
    for branch in ("main", "review"):
        texts += [commit.to_json() for commit in graph.commits(branch)]
        texts += [graph.changes(branch, start="beginning").to_json()["blocks"]]
        texts += [graph.commit(f"{branch}~{steps}").to_json() for steps in range(2)]
        texts += [repr(graph.snapshot(branch).state.commits)]
        texts += [graph.log("Person", "hidden 1", branch=branch).to_json()]
        texts += [graph.blame("Person", "hidden 1", branch=branch).to_json()]
    return repr(texts)


def test_hidden_commits_are_named_nowhere(root: og.Graph) -> None:
    hidden = [commit.commit_id for commit in root.commits("secret") if commit.branch == "secret"]
    assert len(hidden) == 3
    assert all(commit_id in all_texts(root) for commit_id in hidden)
    seen = all_texts(root.acting_as("ann"))
    assert not [commit_id for commit_id in hidden if commit_id in seen]
    assert "secret" not in seen


def test_lists_and_pages_have_the_visible_commits(root: og.Graph) -> None:
    ann = root.acting_as("ann")
    visible = [commit.commit_id for commit in root.commits() if commit.branch == "main"]
    assert [commit.commit_id for commit in ann.commits()] == visible
    assert [commit.commit_id for commit in ann.commits(limit=2)] == visible[:2]
    assert [commit.commit_id for commit in ann.commits(before=visible[1])] == visible[2:]
    kinds = {commit.kind: (commit.parent, commit.merged_parent) for commit in ann.commits()}
    assert kinds["merge"] == (visible[2], None)


def test_steps_back_count_visible_commits(root: og.Graph) -> None:
    first = root.commits()[-2].commit_id
    assert root.commit("review~4").commit_id == first
    assert root.acting_as("ann").commit("review~1").commit_id == first
    with pytest.raises(OmniGraphError, match="only 2 earlier commits"):
        root.acting_as("ann").commit("review~3")


def test_feed_passes_over_hidden_commits_and_ends_at_the_head(root: og.Graph) -> None:
    page = root.acting_as("ann").changes("review", start="beginning")
    assert [block.cause["authored_branch"] for block in page.blocks] == ["main", "review"]
    assert "parent_commit_id" not in page.blocks[1].cause
    more = root.acting_as("ann").changes("review", cursor=page.cursor)
    assert more.blocks == ()


def test_check_catches_a_list_of_all_commits(root: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GraphSession, "visible_commits", lambda self, commits: iter(commits))
    with pytest.raises(AssertionError):
        test_hidden_commits_are_named_nowhere(root)
