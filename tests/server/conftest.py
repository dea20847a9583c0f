"""Graphs and servers for tests of the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import graph as graphs
from tests.support.graph_template import copy_built
from tests.support.live_server import DATA, SCHEMA, TOKENS, Live, serving_graph

POLICY = """
version: 1
groups: {writers: [ada], readers: [bob], all: [ada, bob]}
protected_branches: [main]
rules:
  - id: all-read
    allow: {actors: {group: all}, actions: [read], branch_scope: any}
  - id: writers-change
    allow: {actors: {group: writers}, actions: [change, export], branch_scope: any}
  - id: writers-shape
    allow: {actors: {group: writers}, actions: [schema_apply, branch_create, branch_delete, branch_merge, tag_create,
      tag_delete], target_branch_scope: any}
  - id: readers-draft
    allow: {actors: {group: readers}, actions: [change], branch_scope: unprotected}
  - id: writers-invoke
    allow: {actors: {group: writers}, actions: [invoke_query]}
"""
QUERIES = """
query people() @description("Everybody.") { match { $p: Person } return { $p.name as name } order { name asc } }
query add($name: String) { insert Person { name: $name } }
"""


@pytest.fixture
def graph_uri(tmp_path: Path) -> str:
    """A small graph of people."""
    with copy_built(build, tmp_path / "secret-place" / "people.omni") as graph:
        return graph.uri


def build(path: Path) -> graphs.Graph:
    graph = graphs.init(path, SCHEMA)
    graph.ingest(DATA)
    return graph


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return path


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    folder = tmp_path / "queries"
    folder.mkdir()
    (folder / "all.gq").write_text(QUERIES, encoding="utf-8")
    return folder


@pytest.fixture
def live(graph_uri: str, queries: Path) -> Iterator[Live]:
    """A server that is open to everybody."""
    with serving_graph(graph_uri, queries=queries) as server:
        yield server


@pytest.fixture
def guarded(graph_uri: str, policy: Path, queries: Path) -> Iterator[Live]:
    """A server with tokens and a policy: ada does all, bob reads and changes drafts, eve has a token and no rule."""
    with serving_graph(graph_uri, tokens=TOKENS, policy=policy, queries=queries) as server:
        yield server
