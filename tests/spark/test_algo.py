"""Graph analytics in process, held against networkx and a plain reference on random graphs, with mutants."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import omnigraph as og
from omnigraph.engine import algo as measures
from omnigraph.engine.algo import LocalGraph, write_values
from omnigraph.errors import ConflictError, GraphError, UsageError
from omnigraph.graph import session_of
from omnigraph.pipeline import algo as pipeline_algo

SIZES = (0, 1, 2, 7, 30, 120)


def random_graph(seed: int) -> LocalGraph:
    chance = random.Random(seed)
    size = chance.choice(SIZES)
    count = chance.choice((0, size // 2, size, 3 * size)) if size else 0
    ends = [[chance.randrange(size) for _ in range(count)] for _ in range(2)]
    return LocalGraph(size, np.array(ends[0], np.int32), np.array(ends[1], np.int32))


def as_networkx(graph: LocalGraph) -> Any:
    made = nx.MultiDiGraph()
    made.add_nodes_from(range(graph.size))
    made.add_edges_from(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    return made


def degrees_differ(graph: LocalGraph) -> bool:
    peer, found = as_networkx(graph), measures.degrees(graph)
    wanted = {"degree": peer.degree, "in_degree": peer.in_degree, "out_degree": peer.out_degree}
    return any(found[name].tolist() != [of[node] for node in range(graph.size)] for name, of in wanted.items())


def components_differ(graph: LocalGraph) -> bool:
    found = measures.components(graph).tolist()
    groups: dict[int, set[int]] = {}
    for node, number in enumerate(found):
        groups.setdefault(number, set()).add(node)
    wanted = list(nx.weakly_connected_components(as_networkx(graph)))
    sizes = [len(groups[number]) for number in sorted(groups)]
    return sorted(map(sorted, groups.values())) != sorted(map(sorted, wanted)) or sizes != sorted(sizes, reverse=True)


def pagerank_differs(graph: LocalGraph) -> bool:
    """Compare with where networkx' matrix of all steps leads in the end."""
    found = measures.pagerank(graph, tolerance=1e-13, iterations=500)
    if graph.size == 0:
        return len(found) != 0
    steps = np.linalg.matrix_power(nx.google_matrix(as_networkx(graph)), 256)
    return not np.allclose(found, steps[0], rtol=0, atol=1e-9)


def communities_differ(graph: LocalGraph) -> bool:
    """Compare with the rule in plain words: all at once take the most frequent label around, then renumber."""
    around: dict[int, list[int]] = {node: [node] for node in range(graph.size)}
    for source, target in zip(graph.source.tolist(), graph.target.tolist(), strict=True):
        around[source].append(target)
        if source != target:
            around[target].append(source)
    labels = list(range(graph.size))
    for _ in range(20):
        votes = [Counter(labels[other] for other in around[node]) for node in range(graph.size)]
        labels = [min(vote, key=lambda label: (-vote[label], label)) for vote in votes]
    sizes = Counter(labels)
    order = {label: place for place, label in enumerate(sorted(sizes, key=lambda one: (-sizes[one], one)))}
    return bool(measures.label_propagation(graph).tolist() != [order[label] for label in labels])


CHECKS: Mapping[str, Callable[[LocalGraph], bool]] = {
    "degrees": degrees_differ,
    "components": components_differ,
    "pagerank": pagerank_differs,
    "communities": communities_differ,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_measure_random_graphs_equal_the_peer(name: str) -> None:
    assert [seed for seed in range(40) if CHECKS[name](random_graph(seed))] == []


def one_way(source: Any, target: Any) -> Any:
    return source, target


favourite_labels = measures.vote_labels


def no_own_vote(given: measures.AdjacencyBlock, state: Any) -> Any:
    votes = favourite_labels(given, state)
    return np.where(np.diff(given.starts) > 0, votes, votes + 1)


def first_only(given: measures.AdjacencyBlock, state: Any) -> Any:
    sums = np.zeros(given.size)
    sums[given.filled] = state[given.neighbours][given.starts[given.filled]]
    return sums


MUTANTS: Mapping[str, tuple[str, Any, str, Any]] = {
    "edges are followed one way only": ("components", measures, "symmetrize_edges", one_way),
    "labels are not shortened and rounds run out": ("components", measures, "ALGO_ROUNDS_MAX", 1),
    "components keep their labels": ("components", measures, "renumber_by_size", lambda labels: labels),
    "communities keep their labels": ("communities", measures, "renumber_by_size", lambda labels: labels),
    "lonely nodes get a label of others": ("communities", measures, "vote_labels", no_own_vote),
    "one neighbour alone counts": ("pagerank", measures, "sum_neighbours", first_only),
    "loops count twice": (
        "communities",
        measures,
        "symmetrize_edges",
        lambda source, target: (np.concatenate([source, target]), np.concatenate([target, source])),
    ),
    "degrees are swapped": ("degrees", LocalGraph, "degrees", lambda graph: _swapped(graph)),
}


def _swapped(graph: LocalGraph) -> Any:
    return np.bincount(graph.target, minlength=graph.size), np.bincount(graph.source, minlength=graph.size)


@pytest.mark.parametrize("name", MUTANTS)
def test_measure_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check, owner, attribute, defect = MUTANTS[name]
    monkeypatch.setattr(owner, attribute, defect)
    assert any(CHECKS[check](random_graph(seed)) for seed in range(200))


def test_components_long_path_takes_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(5)
    names = chance.permutation(20_000).astype(np.int32)
    graph, rounds = LocalGraph(20_000, names[:-1], names[1:]), Counter[str]()
    sweep = LocalGraph.sweep

    def counted(*given: Any) -> Any:
        rounds["swept"] += 1
        return sweep(*given)

    monkeypatch.setattr(LocalGraph, "sweep", counted)
    assert set(measures.components(graph).tolist()) == {0}
    assert rounds["swept"] < 20


def test_measure_wrong_options_are_refused() -> None:
    graph = random_graph(3)
    with pytest.raises(UsageError, match=r"`damping` is 1\.0"):
        measures.pagerank(graph, damping=1.0)
    with pytest.raises(UsageError, match="`iterations` is 0"):
        measures.label_propagation(graph, iterations=0)


# -- on a graph ------------------------------------------------------------------------------------------------

SCHEMA = """
node Person {
  name: String @key
  level: I64?
  score: F32?
  small: I32?
  note: String?
}
node Town { title: String @key level: I64? }
edge Knows: Person -> Person
edge LivesIn: Person -> Town
"""


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    made = og.init(tmp_path / "g.omni", SCHEMA)
    records: list[dict[str, Any]] = [{"type": "Person", "data": {"name": name, "note": name * 2}} for name in "abcde"]
    records += [{"type": "Town", "data": {"title": "x"}}, {"type": "Town", "data": {"title": "a"}}]
    records += [{"edge": "Knows", "from": one[0], "to": one[1]} for one in ("ab", "ab", "bc", "dd")]
    records += [{"edge": "LivesIn", "from": "c", "to": "a"}, {"edge": "LivesIn", "from": "e", "to": "x"}]
    made.ingest(records, mode="append")
    return made


def told(measured: pipeline_algo.Measured, name: str) -> dict[str, Any]:
    rows = measured.to_arrow().to_pylist()
    return {f"{row['type']}:{row['id']}": row[name] for row in rows}


def test_degree_counts_stored_edges_of_the_named_types(graph: og.Graph) -> None:
    found = pipeline_algo.degree(graph, ["knows"])
    assert found.engine == "local"
    assert told(found, "degree") == {"Person:a": 2, "Person:b": 3, "Person:c": 1, "Person:d": 2, "Person:e": 0}
    assert told(found, "in_degree") == {"Person:a": 0, "Person:b": 2, "Person:c": 1, "Person:d": 1, "Person:e": 0}
    assert told(pipeline_algo.degree(graph), "degree")["Town:a"] == 1


def test_components_join_types_whose_ids_are_equal(graph: og.Graph) -> None:
    found = told(pipeline_algo.components(graph), "component")
    assert found["Person:a"] == found["Person:c"] == found["Town:a"] == 0
    assert found["Person:e"] == found["Town:x"] == 1
    assert found["Person:d"] == 2


@pytest.mark.slow
def test_write_to_puts_values_into_one_commit_and_changes_nothing_else(graph: og.Graph) -> None:
    before = len(graph.commits())
    written = pipeline_algo.components(graph, write_to="level")
    assert written.commit is not None
    assert len(graph.commits()) == before + 1
    rows = graph.query("query q() { match { $p: Person } return { $p.name, $p.level, $p.note } }").rows()
    found = told(written, "component")
    assert {row["p.name"]: row["p.level"] for row in rows} == {name: found[f"Person:{name}"] for name in "abcde"}
    assert {row["p.note"] for row in rows} == {name * 2 for name in "abcde"}
    towns = graph.query("query q() { match { $t: Town } return { $t.title, $t.level } }").rows()
    assert {row["t.title"]: row["t.level"] for row in towns} == {"a": 0, "x": 1}
    assert pipeline_algo.components(graph, write_to="level").commit is None
    graph.mutate('query m() { update Person set { level: 9 } where name = "a" }')
    assert pipeline_algo.components(graph, write_to="level").commit is not None
    assert len(graph.commits()) == before + 3


@pytest.mark.slow
def test_write_to_branch_leaves_main_alone(graph: og.Graph) -> None:
    graph.branches.create("review")
    pipeline_algo.pagerank(graph, ["Knows"], write_to="score", branch="review")
    count = "query q() { match { $p: Person $p.score is not null } return { count($p) as n } }"
    assert graph.query(count, branch="review").rows() == [{"n": 5}]
    assert graph.query(count).rows() == [{"n": 0}]


def test_write_to_nodes_that_moved_is_a_conflict(graph: og.Graph) -> None:
    values = pipeline_algo.degree(graph, ["Knows"]).values
    graph.mutate('query m() { insert Person { name: "z" } }')
    with pytest.raises(ConflictError):
        write_values(session_of(graph), values, "level", "main")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"edges": ["Know"]}, "did you mean `Knows`"),
        ({"edges": []}, "at least one edge type"),
        ({"write_to": "levl"}, "did you mean `level`"),
        ({"write_to": "note"}, "must be a number"),
        ({"write_to": "title"}, "must be a number"),
        ({"write_to": "level", "at": 1}, "a past state cannot be written"),
        ({"engine": "abacus"}, "unknown engine `abacus`"),
    ],
)
def test_degree_wrong_calls_say_what_to_do(graph: og.Graph, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        pipeline_algo.degree(graph, **options)


def test_degree_of_a_graph_without_edge_types_is_refused(tmp_path: Path) -> None:
    with (
        og.init(tmp_path / "g.omni", "node Person { name: String @key }") as lonely,
        pytest.raises(UsageError, match="no edge types"),
    ):
        pipeline_algo.degree(lonely)


def refuse_to_work(*_: object, **__: object) -> None:
    raise AssertionError("work began before the call was refused")


MEASURES = [pipeline_algo.degree, pipeline_algo.components, pipeline_algo.pagerank, pipeline_algo.label_propagation]


@pytest.mark.parametrize("measure", MEASURES)
def test_measure_of_a_read_only_graph_is_refused_before_spark_starts(
    graph: og.Graph, measure: Callable[..., pipeline_algo.Measured], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.spark.executors.wait_for_spark", refuse_to_work)
    with pytest.raises(GraphError, match='use `engine="local"`'):
        measure(og.open(graph.uri, read_only=True), engine="spark")


@pytest.mark.parametrize(
    ("write_to", "is_read_only", "message"),
    [("level", True, "opened read-only"), ("levl", False, "did you mean `level`"), ("note", False, "must be a number")],
)
def test_measure_that_cannot_be_written_is_refused_before_it_is_computed(
    graph: og.Graph, write_to: str, is_read_only: bool, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.spark.algo.measurement.read_edges", refuse_to_work)
    with pytest.raises((GraphError, UsageError), match=message):
        pipeline_algo.degree(og.open(graph.uri, read_only=is_read_only), write_to=write_to)
