"""What a cleanup asks of storage: bulk deletes, each kept version read once, linear in branches and kept versions."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.graph import Graph, session_of
from omnigraph.manifest import encoding
from omnigraph.store.objects.backend import own_requests
from omnigraph.store.objects.bucket_objects import BATCH_OBJECTS
from omnigraph.store.objects.control_objects import Objects
from tests.support.maintenance_fixtures import hours_later
from tests.support.s3_server import S3Server, s3_server

__all__ = ["s3_server"]
pytestmark = pytest.mark.slow
SCHEMA = "node Person { name: String @key }\nnode City { name: String @key }"


def fill(graph: Graph, commits: int, branches: int = 0) -> Graph:
    for number in range(commits):
        graph.ingest([{"type": "Person", "data": {"name": f"p{number}"}}])
        if number < branches:
            graph.branches.create(f"b{number}")
    return graph


@pytest.mark.s3
def test_cleanup_on_s3_deletes_in_bulk(s3_server: S3Server) -> None:
    graph = fill(og.init(s3_server.uri("g"), SCHEMA), 25)
    before = graph.maintenance.cleanup(keep=1, dry_run=True)
    s3_server.forget()
    with hours_later():
        report = graph.maintenance.cleanup(keep=1, confirm=True)
    deletes = [one for one in s3_server.requests if one.method == "DELETE" or one.query == "delete"]
    removed = sum(one.files_removed for one in report.datasets)
    assert before.bytes_removed == 0
    assert removed > 100
    # Manifests and files of the catalog and of a type, the cleanup's intent, and what nothing names.
    assert len(deletes) <= 10
    assert og.open(graph.uri).query("query q() { match { $p: Person } return { count($p) as n } }").rows() == [
        {"n": 25}
    ]


@pytest.mark.s3
def test_delete_many_on_s3_asks_once_for_a_thousand(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = og.init(s3_server.uri("g"), SCHEMA)
    names = [f"x/{number:04d}" for number in range(5)]
    for name in names[:-1]:
        session_of(graph).kernel.store.objects.write(name, b"1")
    s3_server.forget()
    # One of them is not there, which is fine.
    session_of(graph).kernel.store.objects.delete_many(names)
    assert [one.query for one in s3_server.requests] == ["delete"]
    assert session_of(graph).kernel.store.objects.list("x") == []
    monkeypatch.setattr("omnigraph.store.objects.bucket_objects.BATCH_OBJECTS", 2)
    s3_server.forget()
    session_of(graph).kernel.store.objects.delete_many(names)
    assert len(s3_server.requests) == 3
    assert BATCH_OBJECTS == 1_000


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what is read of storage by name, and how many catalogs are decoded whole."""
    counts: Counter[str] = Counter()
    read, decode = Objects.read, encoding.decode

    def counting(self: Objects, path: str) -> bytes:
        counts[path] += 1
        return read(self, path)

    def decoding(*given: object) -> object:
        counts["catalogs decoded"] += 1
        return decode(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(Objects, "read", counting)
    monkeypatch.setattr(encoding, "decode", decoding)
    return counts


def aged(graph: Graph) -> Graph:
    for path in Path(graph.uri).rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    return graph


def test_cleanup_reads_each_kept_version_once(tmp_path: Path, reads: Counter[str]) -> None:
    graph = aged(fill(og.init(tmp_path / "g.omni", SCHEMA), 20, branches=4))
    fresh = og.open(graph.uri)
    reads.clear()
    report = fresh.maintenance.cleanup(keep=12, confirm=True)
    decoded = reads.pop("catalogs decoded")
    assert sum(one.versions_removed for one in report.datasets) > 0
    assert max(reads.values()) == 1
    # The heads of main and of each branch; of all other states only the pins are looked at.
    assert decoded <= 5


def requests(graph: Graph, keep: int) -> int:
    fresh = og.open(graph.uri)
    with own_requests() as own:
        fresh.maintenance.cleanup(keep=keep, dry_run=True)
    return sum(own.snapshot().values())


def test_cleanup_requests_are_linear_in_branches_and_kept_versions(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    fill(graph, 4, branches=4)
    few = requests(aged(graph), 1)
    for number in range(4, 16):
        graph.branches.create(f"b{number}")
    many = requests(aged(graph), 1)
    per_branch = (many - few) / 12
    assert per_branch <= 10
    fill(graph, 10)
    short = requests(aged(graph), 1)
    fill(graph, 10)
    # What a commit left that is not kept costs no request of its own; Lance lists all of it at once.
    assert requests(aged(graph), 1) <= short
    # A kept commit costs its catalog's manifest and rows, and the manifest of the version that it made.
    assert requests(graph, 11) <= short + 10 * 3
