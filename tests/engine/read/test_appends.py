"""After an append only what was appended is read, and everything is as if all had been read at once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.query import adjacency
from omnigraph.engine.query.adjacency import Adjacency, build_adjacency, extend_adjacency
from omnigraph.graph import session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest.plan import CommitPolicy, Effect, Plan
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.read.version_diff import Beginning, read_after, shared_beginning
from tests.support.read_fixtures import create, knows, person, write
from tests.support.staged_fixtures import rewrite

QUERIES = [
    "match { $p: Person $p knows $q } return { $p, $q }",
    "match { $p: Person $q knows $p } return { $p, $q }",
    "match { $p: Person $p <knows> $q } return { $p, $q }",
    "match { $p: Person $p $w:knows $q } return { $p, $q, $w.weight }",
    "match { $p: Person $p $w:<knows> $q } return { $p, $q, $w.weight }",
    "match { $p: Person $p knows{1,3} $q as $h } return { $p, $q, $h }",
    "match { $p: Person } return { $p, $p.age, $p.city }",
]


def answers(graph: og.Graph, branch: str = "main") -> list[list[str]]:
    found = []
    for body in QUERIES:
        rows = graph.query(f"query q() {{ {body} }}", branch=branch).rows()
        found.append(sorted(str(sorted(row.items())) for row in rows))
    return found


def fold(graph: og.Graph, table_key: TypeKey) -> None:
    """Rewrite all fragments of a type as one, as maintenance does."""
    kernel = session_of(graph).kernel

    def prepare(snapshot: Any) -> Plan:
        dataset = kernel.writable(snapshot, table_key)
        change = rewrite(dataset)
        assert change is not None
        return Plan("optimize", (Effect(table_key, dataset, (change,)),))

    kernel.commit("main", prepare, CommitPolicy.MAINTENANCE)


class Reads:
    """How many rows of edges were read from storage."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.rows = 0
        whole = Dataset.read

        def read(dataset: Dataset, *arguments: Any, **named: Any) -> pa.Table:
            return self.counted(dataset, whole(dataset, *arguments, **named))

        def read_tail(dataset: Dataset, beginning: Beginning, columns: Any) -> pa.Table:
            return self.counted(dataset, read_after(dataset, beginning, columns))

        patch.setattr(Dataset, "read", read)
        patch.setattr(adjacency, "read_after", read_tail)

    def counted(self, dataset: Dataset, table: pa.Table) -> pa.Table:
        if dataset.ref.path.startswith("edges/") and "src" in table.column_names:
            self.rows += table.num_rows
        return table

    def take(self) -> int:
        taken, self.rows = self.rows, 0
        return taken


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
    return Reads(monkeypatch)


def some_edges(chance: random.Random, people: list[str], count: int) -> list[dict[str, Any]]:
    return [knows(chance.choice(people), chance.choice(people), weight=chance.random()) for _ in range(count)]


@pytest.mark.slow
def test_topology_after_an_append_reads_only_the_new_edges(tmp_path: Path, reads: Reads) -> None:
    chance, people = random.Random(1), [f"p{n}" for n in range(12)]
    graph = create(tmp_path, [person(name, age=n) for n, name in enumerate(people)] + some_edges(chance, people, 40))
    answers(graph)
    assert reads.take() == 40
    for step in range(4):
        people.append(f"n{step}")
        write(graph, [person(people[-1], city="new"), *some_edges(chance, people, 5)])
        warm = answers(graph)
        assert reads.take() == 5
        with og.open(graph.uri) as fresh:
            assert warm == answers(fresh)
        assert reads.take() == 40 + 5 * (step + 1)


@pytest.mark.slow
def test_topology_after_other_changes_reads_all_edges_again(tmp_path: Path, reads: Reads) -> None:
    chance, people = random.Random(2), [f"p{n}" for n in range(10)]
    graph = create(tmp_path, [person(name) for name in people] + some_edges(chance, people, 30))
    write(graph, some_edges(chance, people, 6))
    answers(graph)
    changes: list[tuple[int, Any]] = [
        (36, lambda: fold(graph, TypeKey("edge:Knows"))),
        (36, lambda: graph.mutate('query u() { update Person set { city: "x" } where name = "p1" }')),
        (30, lambda: graph.mutate('query d() { delete Person where name = "p2" }')),
        (0, lambda: graph.mutate("query d() { delete Knows where weight < 0.5 }")),
    ]
    for _, change in changes:
        reads.take()
        change()
        warm, read = answers(graph), reads.take()
        with og.open(graph.uri) as fresh:
            assert warm == answers(fresh)
        # What a fresh graph reads is everything there is.
        assert read == reads.take() > 0


@pytest.mark.slow
def test_topology_of_a_branch_adds_to_that_of_its_parent(tmp_path: Path, reads: Reads) -> None:
    chance, people = random.Random(3), [f"p{n}" for n in range(10)]
    graph = create(tmp_path, [person(name) for name in people] + some_edges(chance, people, 30))
    main = answers(graph)
    graph.branches.create("review")
    reads.take()
    assert answers(graph, "review") == main
    assert reads.take() == 0
    write(graph, [person("b"), *some_edges(chance, [*people, "b"], 7)], "review")
    write(graph, [person("m"), *some_edges(chance, [*people, "m"], 4)])
    warm = answers(graph, "review"), answers(graph)
    assert reads.take() <= 7 + 34
    with og.open(graph.uri) as fresh:
        assert warm == (answers(fresh, "review"), answers(fresh))


def test_column_that_took_the_name_of_another_is_read_anew(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "graph.omni", "node Person { name: String @key  note: String? }")
    graph.ingest([{"type": "Person", "data": {"name": "a", "note": "old"}}])
    source = "query q() { match { $p: Person } return { $p.note } }"
    assert graph.query(source).rows() == [{"p.note": "old"}]
    graph.schema.apply("node Person { name: String @key }", allow_data_loss=True)
    graph.schema.apply("node Person { name: String @key  note: String? }")
    assert graph.query(source).rows() == [{"p.note": None}]


@pytest.mark.parametrize("seed", range(12))
def test_adjacency_added_to_is_the_one_built_at_once(seed: int) -> None:
    chance = np.random.default_rng(seed)
    nodes, more, old, new = (int(chance.integers(low, high)) for low, high in ((1, 9), (0, 4), (0, 40), (0, 12)))
    near, far = chance.integers(0, nodes, old), chance.integers(0, nodes, old)
    source = np.concatenate([near, chance.integers(0, nodes + more, new)]).astype(np.int32)
    target = np.concatenate([far, chance.integers(0, nodes + more, new)]).astype(np.int32)
    edges = np.arange(old + new, dtype=np.int32)
    for edge in (None, edges):
        known = build_adjacency(source[:old], target[:old], None if edge is None else edge[:old], nodes, nodes)
        added = None if edge is None else edge[old:]
        made = extend_adjacency(known, source[old:], target[old:], added, nodes + more, nodes + more)
        assert_same(made, build_adjacency(source, target, edge, nodes + more, nodes + more))


def assert_same(one: Adjacency, other: Adjacency) -> None:
    assert one.target_count == other.target_count
    for name in ("starts", "neighbours", "edges"):
        left, right = getattr(one, name), getattr(other, name)
        assert (left is None) == (right is None)
        if left is not None:
            assert left.dtype == right.dtype
            assert np.array_equal(left, right), name


@pytest.mark.slow
def test_shared_beginning_ends_where_rows_were_deleted(tmp_path: Path) -> None:
    graph = create(tmp_path, [person("a", age=1), person("b", age=2)])
    write(graph, [person("c", age=3)])
    before = session_of(graph).view().dataset(TypeKey("node:Person"))
    write(graph, [person("d", age=4)])
    appended = session_of(graph).view().dataset(TypeKey("node:Person"))
    graph.mutate('query d() { delete Person where name = "c" }')
    deleted = session_of(graph).view().dataset(TypeKey("node:Person"))
    assert shared_beginning(appended, before) == Beginning(2, 3)
    assert read_after(appended, Beginning(2, 3), ["name"]).column("name").to_pylist() == ["d"]
    assert read_after(appended, Beginning(3, 4), ["name"]).num_rows == 0
    assert shared_beginning(deleted, appended) == Beginning(1, 2)
