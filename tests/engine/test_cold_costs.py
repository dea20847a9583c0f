"""What a cold read and a cold insert ask of an object store: no more after many commits than after a few.

Counts of requests, never seconds. Nothing maintains the graph; a window of commits shows the dearest moment of a cycle.
"""

from __future__ import annotations

import pytest

import omnigraph as og
from omnigraph.limits import TAIL_FRAGMENTS_MAX
from omnigraph.store.write import compaction
from tests.support.s3_server import S3Server, s3_server

__all__ = ["s3_server"]

pytestmark = [pytest.mark.slow, pytest.mark.s3, pytest.mark.timeout(900)]

SCHEMA = "node Person { name: String @key  age: I32? }"
FIRST = 'query q() { match { $p: Person { name: "first" } } return { $p.age } }'
WINDOW = 6
# Requests that a cold call may ask for after many commits beyond those after a few.
GROWTH_MAX = 3


def add(graph: og.Graph, name: str) -> None:
    graph.mutate(f'query q() {{ insert Person {{ name: "{name}" }} }}')


def requests_of_cold(server: S3Server, uri: str, name: str | None) -> int:
    """Return the requests of a handle that has just been opened: of an insert, or of a read by key."""
    server.forget()
    with og.open(uri) as graph:
        if name is not None:
            add(graph, name)
        else:
            assert len(graph.query(FIRST).rows()) == 1
    return len(server.requests)


def dearest(server: S3Server, uri: str, label: str) -> tuple[int, int]:
    """Return the most requests of a cold read and of a cold insert within some commits."""
    reads, inserts = [], []
    for number in range(WINDOW):
        reads.append(requests_of_cold(server, uri, None))
        inserts.append(requests_of_cold(server, uri, f"{label}-{number}"))
    return max(reads), max(inserts)


def growth(server: S3Server, commits: int) -> tuple[int, int]:
    """Return how many requests a cold read and a cold insert cost more after some commits."""
    uri = server.uri("g")
    with og.init(uri, SCHEMA) as graph:
        add(graph, "first")
    early = dearest(server, uri, "early")
    # Closed before requests are counted: what a handle finishes in the background is not the work of the next one.
    with og.open(uri) as graph:
        for number in range(commits):
            add(graph, f"p{number}")
    late = dearest(server, uri, "late")
    return late[0] - early[0], late[1] - early[1]


@pytest.mark.parametrize("commits", [30, pytest.param(400, marks=pytest.mark.long)])
def test_cold_calls_cost_the_same_after_many_commits(s3_server: S3Server, commits: int) -> None:
    assert max(growth(s3_server, commits)) <= GROWTH_MAX


def test_cold_calls_over_many_small_files_are_caught(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "REMOTE_TAIL_FRAGMENTS_MAX", TAIL_FRAGMENTS_MAX)
    assert max(growth(s3_server, 8)) > GROWTH_MAX
