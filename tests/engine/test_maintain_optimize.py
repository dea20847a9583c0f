"""Optimize: fewer fragments, covered indexes, the same graph; one commit, or none."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.failpoints import Point
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import OPTIMIZE_ATTEMPTS_MAX
from omnigraph.manifest.intents import pending
from omnigraph.store.index.index_build import coverage
from tests.support.maintenance_fixtures import elsewhere

pytestmark = pytest.mark.slow

SCHEMA = """
node Person { name: String @key  city: String? @index  photo: Blob? }
edge Knows: Person -> Person
"""
PERSON, KNOWS = TypeKey("node:Person"), TypeKey("edge:Knows")


def people(graph: Graph, *names: str, branch: str = "main") -> None:
    graph.ingest([{"type": "Person", "data": {"name": name, "city": "X"}} for name in names], branch=branch)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    for name in "abcde":
        people(graph, name)
    graph.ingest([{"edge": "Knows", "from": "a", "to": "b"}])
    return graph


def rows(graph: Graph, branch: str = "main") -> list[bytes]:
    return sorted(b"".join(graph.export(branch)).splitlines())


def drift(graph: Graph) -> None:
    """Delete a row behind the graph's back."""
    dataset = lance.dataset(f"{graph.uri}/{graph.snapshot().state.pins[PERSON].path}")
    dataset.delete("id = 'a'")


def test_optimize_small_fragments_become_one_with_all_indexes(graph: Graph) -> None:
    before, versions = rows(graph), graph.snapshot().state.pins[PERSON].version
    report = graph.maintenance.optimize()
    by_key = {one.type_key: one for one in report.types}
    assert (by_key[PERSON].fragments_removed, by_key[PERSON].fragments_added) == (5, 1)
    assert by_key[PERSON].committed
    assert by_key[KNOWS].indexes_built == 3
    dataset = session_of(graph).kernel.dataset(graph.snapshot(), PERSON)
    assert dataset.fragment_rows == [5]
    assert all(not one.uncovered for one in coverage(dataset).values())
    assert len(coverage(dataset)) == 5
    assert rows(graph) == before
    assert graph.commits()[0].kind == "optimize"
    assert session_of(graph).kernel.at_version("main", 2).state.pins[PERSON].version < versions
    assert graph.query("query q() { match { $p: Person } return { count($p) as n } }", at=2).rows() == [{"n": 1}]


def test_optimize_again_is_no_commit(graph: Graph) -> None:
    graph.maintenance.optimize()
    head = graph.snapshot().version
    report = graph.maintenance.optimize()
    assert report.commit is None
    assert not any(one.committed for one in report.types)
    assert graph.snapshot().version == head
    assert pending(session_of(graph).kernel.store) == ([], [])


def test_optimize_appended_fragments_are_folded_into_indexes(graph: Graph) -> None:
    graph.maintenance.optimize()
    people(graph, "f")
    graph.maintenance.optimize()
    found = coverage(session_of(graph).kernel.dataset(graph.snapshot(), PERSON))
    assert [len(one.uncovered) for one in found.values()] == [0] * 5


def test_optimize_then_strict_writes_and_schema_changes_work(graph: Graph) -> None:
    graph.maintenance.optimize()
    graph.mutate('query q() { update Person set { city: "Y" } where name = "a" }')
    graph.mutate('query q() { delete Person where name = "b" }')
    graph.schema.apply(SCHEMA.replace("photo", "age: I32?  photo"))
    assert len(rows(graph)) == 4


def test_optimize_drifted_type_is_skipped_and_reported(graph: Graph) -> None:
    drift(graph)
    report = graph.maintenance.optimize()
    by_key = {one.type_key: one for one in report.types}
    assert by_key[PERSON].skipped == "drift_needs_repair"
    assert by_key[PERSON].head_version == (by_key[PERSON].published_version or 0) + 1
    assert by_key[KNOWS].committed
    assert len(rows(graph)) == 6


def test_optimize_branch_leaves_main_alone(graph: Graph) -> None:
    graph.branches.create("review")
    main = graph.snapshot().version
    before = rows(graph, "review")
    assert graph.maintenance.optimize("review").commit is not None
    assert graph.snapshot().version == main
    assert rows(graph, "review") == before


def test_optimize_branch_that_main_has_left_behind_is_no_drift(graph: Graph) -> None:
    graph.branches.create("review")
    people(graph, "later")
    assert not any("foreign" in one.message for one in graph.maintenance.verify().findings)
    assert [
        one.error for one in graph.maintenance.cleanup(keep=1, confirm=True).datasets if one.type_key == PERSON
    ] == [None]
    assert [one.skipped for one in graph.maintenance.optimize("review").types] == [None, None]


@pytest.mark.parametrize("touched", [PERSON, KNOWS])
def test_optimize_writer_in_between_wins_and_neither_fails(graph: Graph, touched: str) -> None:
    other = elsewhere(graph)
    wrote: list[str] = []

    def write(_: str) -> None:
        if not wrote:
            wrote.append(touched)
            if touched == PERSON:
                people(other, "z")
            else:
                other.ingest([{"edge": "Knows", "from": "b", "to": "c"}])

    with failpoints.armed({Point.COMMIT_PREPARED: write}):
        report = graph.maintenance.optimize()
    assert all(one.committed for one in report.types)
    assert len(rows(graph)) == 7
    assert [one.kind for one in graph.commits()][:2] == ["optimize", "ingest"]


def test_optimize_gives_up_a_type_always_replaced_and_publishes_the_rest(graph: Graph) -> None:
    replaced: list[str] = []

    def replace(detail: str) -> None:
        if detail.startswith("index nodes/"):
            replaced.append(detail)
            everyone = [{"type": "Person", "data": {"name": name, "city": "Y"}} for name in "abcde"]
            graph.ingest(everyone, mode="overwrite")

    with failpoints.armed({Point.DURABLE_AFTER: replace}):
        report = graph.maintenance.optimize()
    assert len(replaced) >= OPTIMIZE_ATTEMPTS_MAX
    by_key = {one.type_key: one for one in report.types}
    assert by_key[PERSON].skipped == "writers_were_faster"
    assert by_key[KNOWS].committed
    assert len(rows(graph)) == 6
