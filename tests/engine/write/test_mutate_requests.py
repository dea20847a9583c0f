"""What a mutation asks storage for its newest state: once; and that an answer from the past is never a refusal."""

from __future__ import annotations

from collections import Counter

import pytest

import omnigraph as og
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph, session_of
from omnigraph.manifest.commit_loop import prepare_first
from tests.support.fleet_log import requests_of, shape
from tests.support.maintenance_fixtures import elsewhere
from tests.support.s3_server import S3Server, s3_server

__all__ = ["s3_server"]

pytestmark = [pytest.mark.s3]
SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
MEET = 'query q() { insert Knows { from: "a" to: "z" } }'
INSERT = "query q($name: String) { insert Person { name: $name } }"
WRITES = {
    "insert": INSERT,
    "update": 'query q() { update Person set { age: 3 } where name = "a" }',
    "delete": 'query q() { delete Person where name = "b" }',
}


@pytest.fixture
def graph(s3_server: S3Server) -> Graph:
    graph = og.init(s3_server.uri("g"), SCHEMA)
    for name in ("a", "b"):
        graph.mutate(INSERT, params={"name": name})
    return graph


def probes(server: S3Server, graph: Graph, name: str, branch: str) -> list[int]:
    """Return how often a mutation asks for the head of main, and of other branches.

    At times it looks for claims of other writers, and an insert does so instead of asking; that counts as one.
    """
    params = {"name": f"new {name}"} if name == "insert" else {}
    work = lambda: graph.mutate(WRITES[name], params=params, branch=branch)  # noqa: E731
    found = Counter(map(shape, requests_of(server, session_of(graph).kernel, work)))
    heads = [found["HEAD __manifest/_versions"], found["HEAD __manifest/tree/_versions"]]
    if any(one.startswith("LIST __claims") for one in found):
        own = 0 if branch == "main" else 1
        heads[own] = max(heads[own], 1)
    return heads


@pytest.mark.parametrize("name", sorted(WRITES))
def test_mutation_asks_for_the_newest_state_once(s3_server: S3Server, graph: Graph, name: str) -> None:
    assert probes(s3_server, graph, name, "main") == [1, 0]


@pytest.mark.parametrize("name", sorted(WRITES))
def test_mutation_on_a_branch_asks_once_for_its_name_and_its_state(
    s3_server: S3Server, graph: Graph, name: str
) -> None:
    graph.branches.create("review")
    graph.mutate(INSERT, params={"name": "c"}, branch="review")
    assert probes(s3_server, graph, name, "review") == [1, 1]


def test_mutation_sees_a_type_and_a_row_that_another_process_just_added(graph: Graph) -> None:
    other = elsewhere(graph)
    other.mutate(INSERT, params={"name": "z"})
    assert graph.mutate(MEET).commit is not None
    other.schema.apply(f"{SCHEMA}\nnode City {{ name: String @key }}")
    assert graph.mutate('query q() { insert City { name: "Ulm" } }').commit is not None


def test_refusal_on_an_old_state_alone_is_caught(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "omnigraph.manifest.commit_loop.prepare_first",
        lambda base, prepare, work, read_newest: prepare_first(base, prepare, work, lambda: base),
    )
    elsewhere(graph).mutate(INSERT, params={"name": "z"})
    with pytest.raises(OmniGraphError, match="does not exist"):
        graph.mutate(MEET)
