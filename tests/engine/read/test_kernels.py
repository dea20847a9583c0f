"""The fast kernels of reads against the plainest way to say the same, above and below the sizes that they switch at."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from omnigraph.engine.query import entities, expand, factorized, operators, ordering
from omnigraph.engine.query.adjacency import Adjacency, build_adjacency
from omnigraph.engine.query.aggregate import Groups
from omnigraph.engine.query.budget import Budget
from omnigraph.engine.query.context import Caches
from omnigraph.engine.query.ordering import top_rows
from omnigraph.engine.query.vectors import Rows, distinct_rows
from omnigraph.errors import BudgetExceeded
from omnigraph.graph import session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import READ_CACHE_VERSIONS_MAX
from omnigraph.store.read.dataset import DatasetRef
from tests.support.read_fixtures import create, knows, person, write

Ids = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
Lengths = npt.NDArray[np.int64]


def ids(chance: np.random.Generator, count: int, below: int) -> Ids:
    return chance.integers(-1, below, count).astype(np.int32)


@pytest.mark.parametrize("names", ["p", "pq", "pqr"])
@pytest.mark.parametrize("below", [3, 40, 2**30])
def test_distinct_rows_are_those_of_a_set(names: str, below: int) -> None:
    chance = np.random.default_rng(below + len(names))
    for count in (0, 1, 2, 300):
        columns = {name: ids(chance, count, below) for name in names}
        found = distinct_rows(Rows(count, columns))
        given = list(zip(*(columns[name].tolist() for name in names), strict=True))
        kept = list(zip(*(found.columns[name].tolist() for name in names), strict=True))
        assert len(kept) == found.count == len(set(given))
        assert set(kept) == set(given)
        assert all(found.columns[name].dtype == np.int32 for name in names)


@pytest.mark.parametrize("sample", [4, 8_192])
@pytest.mark.parametrize("spread", [1, 7, 100_000])
def test_first_rows_are_those_of_a_full_sort(sample: int, spread: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "_SAMPLE", sample)
    chance = np.random.default_rng(spread)
    first, second = chance.integers(0, spread, 2_000), chance.integers(0, 5, 2_000)
    ranks = chance.permutation(2_000)
    expected = np.lexsort((ranks, second, first))
    for wanted in (0, 1, 10, 249, 1_999, None):
        found = top_rows([first, second], 2_000, wanted, lambda places: [ranks[places]])
        assert found.tolist() == expected[:wanted].tolist()


@pytest.mark.parametrize("size", [5, 10**6, 2**60])
def test_groups_are_those_of_a_dictionary(size: int) -> None:
    chance = np.random.default_rng(7)
    codes = chance.choice(chance.integers(0, size, 20), 200)
    groups = Groups([(codes, size)], 200)
    members: dict[int, list[int]] = {}
    for place, code in enumerate(codes.tolist()):
        members.setdefault(code, []).append(place)
    assert groups.size == len(members)
    assert sorted(groups.first.tolist()) == sorted(places[0] for places in members.values())
    assert all(len({int(groups.of[place]) for place in places}) == 1 for places in members.values())
    assert Groups([(codes[:0], 2**60)], 0).size == 0


@pytest.mark.parametrize("marks", [1, 64, 1 << 20])
def test_marked_pairs_are_those_of_a_set(marks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expand, "_MARKS_MAX", marks)
    monkeypatch.setattr(expand, "_OWNERS_MIN", 1)
    chance = np.random.default_rng(marks)
    source, target = chance.integers(0, 12, 60), chance.integers(0, 9, 60)
    adjacency = build_adjacency(source, target, None, 12, 9)
    owners, others = np.sort(chance.integers(0, 12, 500)), chance.integers(0, 9, 500)
    edges = set(zip(source.tolist(), target.tolist(), strict=True))
    expected = [place for place, pair in enumerate(zip(owners, others, strict=True)) if pair in edges]
    found = expand.find_marked(_Unchecked(), adjacency, owners, others, "here")  # type: ignore[arg-type]
    assert found.tolist() == expected


SIDES: dict[str, Callable[[Lengths, Lengths], Mask]] = {
    "shorter": lambda lengths, others: lengths <= others,
    "near": lambda lengths, others: np.ones(len(lengths), np.bool_),
    "far": lambda lengths, others: np.zeros(len(lengths), np.bool_),
}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("marks", [1, 64, 1 << 20])
def test_what_neighbours_have_in_common_is_that_of_sets(marks: int, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(near: Adjacency, nodes: Ids, far: Adjacency, others: Ids) -> Mask:
        return SIDES[side](near.degrees[nodes], far.degrees[others])

    monkeypatch.setattr(expand, "_probe_near_side", chosen)
    monkeypatch.setattr(expand, "_MARKS_MAX", marks)
    monkeypatch.setattr(expand, "_OWNERS_MIN", 1)
    chance = np.random.default_rng(marks)
    near = build_adjacency(chance.integers(0, 12, 60), chance.integers(0, 9, 60), None, 12, 9)
    far = build_adjacency(chance.integers(0, 7, 20), chance.integers(0, 9, 20), None, 7, 9)
    nodes, others = chance.integers(0, 12, 300), chance.integers(0, 7, 300)

    def neighbours(adjacency: Adjacency, node: int) -> set[int]:
        return set(adjacency.neighbours[adjacency.starts[node] : adjacency.starts[node + 1]].tolist())

    expected = [
        (place, target)
        for place, (node, other) in enumerate(zip(nodes, others, strict=True))
        for target in sorted(neighbours(near, node) & neighbours(far, other))
    ]
    run = _Unchecked()
    found = expand.intersect_neighbours(run, near, nodes, far, others, 8, "here")  # type: ignore[arg-type]
    assert list(zip(found.rows.tolist(), found.targets.tolist(), strict=True)) == expected
    if side == "shorter":
        lengths = np.minimum(near.degrees[nodes], far.degrees[others])
        assert max(run.reserved) <= len(expected) + int(lengths.sum())
    nothing = expand.intersect_neighbours(run, near, nodes[:0], far, others[:0], 8, "here")  # type: ignore[arg-type]
    assert len(nothing.rows) == len(nothing.targets) == 0


def test_lists_of_few_owners_are_marked_and_long_ones_not_looked_up() -> None:
    # Node 0 has a thousand neighbours, all others have one.
    source = np.concatenate([np.zeros(1_000, np.int64), np.arange(1, 1_001)])
    adjacency = build_adjacency(source, np.concatenate([np.arange(1_000), np.arange(1_000)]), None, 1_001, 1_000)
    others = np.arange(1, 1_001)
    hub = np.zeros(1_000, np.int64)
    assert not expand._probe_near_side(adjacency, hub, adjacency, others).any()
    assert expand._probe_near_side(adjacency, others, adjacency, hub).all()
    # The neighbours of a hundred nodes, fifty each, against those of one that has forty: all are looked up in one list.
    many = build_adjacency(np.repeat(np.arange(100), 50), np.tile(np.arange(50), 100), None, 100, 50)
    one = build_adjacency(np.zeros(40, np.int64), np.arange(40), None, 1, 50)
    assert expand._probe_near_side(many, np.arange(100), one, np.zeros(100, np.int64)).all()


class _Unchecked:
    """A run without a budget, which notes how many rows it was asked for."""

    def __init__(self) -> None:
        self.spending = self
        self.reserved: list[int] = []

    def check(self, where: str) -> None:
        """Time does not matter."""

    def reserve(self, rows: int, row_bytes: int, where: str) -> None:
        self.reserved.append(rows)


# What a pattern of three asks of its pairs, where `near` says who knows whom.
Near = dict[int, set[int]]
CYCLES: dict[str, Callable[[Near, int, int, int], bool]] = {
    "$p knows $q $q knows $r $r knows $p": lambda near, p, q, r: q in near[p] and r in near[q] and p in near[r],
    "$r knows $p $p knows $q $q knows $r": lambda near, p, q, r: q in near[p] and r in near[q] and p in near[r],
    "$p knows $q $q knows $r $p knows $r": lambda near, p, q, r: q in near[p] and r in near[q] and r in near[p],
    "$p knows $q $r knows $q $r knows $p": lambda near, p, q, r: q in near[p] and q in near[r] and p in near[r],
    "$p knows $q $q <knows> $r $r <knows> $p": lambda near, p, q, r: (
        q in near[p] and (r in near[q] or q in near[r]) and (r in near[p] or p in near[r])
    ),
    '$p knows $q $q knows $r $r knows $p $r.name != "p3"': lambda near, p, q, r: (
        r != 3 and q in near[p] and r in near[q] and p in near[r]
    ),
    '$p: Person {name: "p4"} $p knows $q $q knows $p $p knows $r': lambda near, p, q, r: (
        p == 4 and q in near[p] and p in near[q] and r in near[p]
    ),
}


@pytest.mark.parametrize("pattern", CYCLES)
def test_cycles_are_closed_alike_by_meeting_by_marks_and_by_looking(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = np.random.default_rng(5)
    pairs = {(int(a), int(b)) for a, b in chance.integers(0, 15, (70, 2))}
    lines = [person(f"p{n}") for n in range(15)] + [knows(f"p{a}", f"p{b}") for a, b in pairs]
    graph = create(tmp_path, lines)
    near = {a: {b for c, b in pairs if c == a} for a in range(15)}
    expected = {one for one in product(range(15), repeat=3) if CYCLES[pattern](near, *one)}
    assert expected
    for meeting, marking in ((0, 0), (4_096, 0), (4_096, 4_096)):
        monkeypatch.setattr(operators, "MANY_PAIRS", meeting)
        monkeypatch.setattr(expand, "MANY_PAIRS", marking)
        rows = graph.query(f"query q() {{ match {{ {pattern} }} return {{ $p, $q, $r }} }}").rows()
        found = {tuple(int(row[name][1:]) for name in "pqr") for row in rows}
        assert len(rows) == len(found)
        assert found == expected
        counted = graph.query(f"query q() {{ match {{ {pattern} }} return {{ count(*) as n }} }}").rows()
        assert counted == [{"n": len(expected)}]
        ends = graph.query(f"query q() {{ match {{ {pattern} }} return distinct {{ $r }} }}").rows()
        assert {int(row["r"][1:]) for row in ends} == {r for _, _, r in expected}


def test_cycles_of_more_paths_than_the_budget_allows_are_counted(tmp_path: Path) -> None:
    # All know one, and that one knows all: 200 times 200 ways lead over it, and hardly any of them closes.
    lines = [person(f"p{n}") for n in range(200)]
    lines += [knows(f"p{n}", "p0") for n in range(1, 200)] + [knows("p0", f"p{n}") for n in range(1, 200)]
    graph = create(tmp_path, [*lines, knows("p1", "p2")])
    source = "query q() { match { $p: Person $p knows $q $q knows $r $p knows $r } return { count(*) as n } }"
    assert graph.query(source, budget=Budget(rows_max=10_000)).rows() == [{"n": 3}]


@pytest.mark.parametrize("kind", ["int64", "float64"])
def test_gathered_weights_are_sums_over_neighbours(kind: str) -> None:
    chance = np.random.default_rng(3)
    adjacency = build_adjacency(chance.integers(0, 30, 200), chance.integers(0, 20, 200), None, 30, 20)
    for weights in ([1] * 20, list(range(20)), [2**40 + n for n in range(20)]):
        dense = np.array(weights, kind)
        near = [
            adjacency.neighbours[low:high] for low, high in zip(adjacency.starts, adjacency.starts[1:], strict=False)
        ]
        for nodes in (np.arange(30), np.array([4, 9]), np.arange(29)):
            found = factorized._gather_weights(adjacency, nodes, dense)
            assert found.dtype == kind
            assert found.tolist() == [sum(dense[near[node]].tolist()) for node in nodes]


def test_value_that_no_way_leads_through_adds_nothing() -> None:
    values = np.array([np.nan, np.inf, 2.5, np.nan])
    found = factorized._scale_by_paths(values, np.array([0, 0, 3, 1]))
    assert found[:3].tolist() == [0.0, 0.0, 7.5]
    assert np.isnan(found[3])


def test_more_ways_than_integers_count_are_refused(tmp_path: Path) -> None:
    graph = create(tmp_path, [person(f"p{n}") for n in range(8)])
    write(graph, [knows(f"p{a}", f"p{b}") for a in range(8) for b in range(8)])
    spokes = " ".join(f"$p knows $q{n}" for n in range(22))
    with pytest.raises(BudgetExceeded, match="more than 2\\^62"):
        graph.query(f"query q() {{ match {{ $p: Person {spokes} }} return {{ count(*) as n }} }}")
    spokes = " ".join(f"$p knows $q{n}" for n in range(19))
    [row] = graph.query(f"query q() {{ match {{ $p: Person {spokes} }} return {{ count(*) as n }} }}").rows()
    assert row["n"] == 8 * 8**19


def test_reading_into_memory_counts_against_the_query(tmp_path: Path) -> None:
    graph = create(tmp_path, [person(f"p{n}", age=n) for n in range(200)] + [knows(f"p{n}", "p0") for n in range(200)])
    scan = "query q() { match { $p: Person $p.age = 3 } return { $p } }"
    walk = 'query q() { match { $p: Person {name: "p1"} $p knows $q } return { $q } }'
    for source, what in ((scan, "reading `age`"), (walk, "reading adjacency")):
        with pytest.raises(BudgetExceeded, match=what) as error:
            graph.query(source, budget=Budget(bytes_max=700))
        assert error.value.context["limit"] == "bytes"
        assert len(graph.query(source)) == 1
        # What is in memory by now costs the next query nothing.
        assert len(graph.query(source, budget=Budget(bytes_max=700))) == 1


def test_resolved_names_are_forgotten_with_what_they_name() -> None:
    caches, here = Caches(bytes_max=100), DatasetRef("path", None, 1)
    assert caches.resolved(here) is caches.resolved(here)
    assert caches.resolved(here) is not caches.resolved(here.at(2))
    kept = caches.resolved(here)
    caches.get("large", "family", lambda _: _Sized(60))
    caches.trim()
    # Something may soon have to go, and only asking by identity shows what is in use.
    assert caches.resolved(here) is not kept
    assert caches.resolved(here) is not caches.resolved(here)
    caches.clear()


def test_caches_keep_the_versions_used_last() -> None:
    caches = Caches()
    for version in range(READ_CACHE_VERSIONS_MAX + 3):
        caches.get(("node", version), "node", lambda _: _Sized(1))
        # The first version is in use all the while.
        caches.get(("node", 0), "node", _never)
        caches.get("other", "other", lambda _: _Sized(1))
    assert caches.nbytes == READ_CACHE_VERSIONS_MAX + 1
    assert caches.peek(("node", 0)) is not None
    assert caches.peek(("node", 1)) is None
    assert caches.peek("other") is not None


def test_cache_makes_a_version_from_the_one_used_last() -> None:
    caches, seen = Caches(), list[object]()

    def make(previous: _Sized | None) -> _Sized:
        seen.append(previous)
        return _Sized(1)

    first = caches.get("v1", "node", make)
    second = caches.get("v2", "node", make)
    caches.get("v1", "node", _never)
    caches.get("v3", "node", make)
    caches.get("w1", "edge", make)
    assert seen == [None, first, first, None]
    assert second is not first


@pytest.mark.slow
def test_memory_stays_when_reads_follow_writes(tmp_path: Path) -> None:
    graph = create(tmp_path, [person(f"p{n}") for n in range(50)] + [knows(f"p{n}", "p0") for n in range(50)])
    source = "query q($n: String) { match { $p: Person {name: $n} $p knows $q } return { $q } }"
    held = []
    for turn in range(3 * READ_CACHE_VERSIONS_MAX):
        graph.mutate("query add($n: String) { insert Person { name: $n } }", params={"n": f"new-{turn}"})
        assert len(graph.query(source, params={"n": "p3"})) == 1
        held.append(graph._caches.nbytes)
    # The type grows by a row a turn; without a bound on versions the last number is three times the middle one.
    assert held[-1] < 2 * held[READ_CACHE_VERSIONS_MAX]


def _never(_: object) -> _Sized:
    raise AssertionError("it is kept")


class _Sized:
    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


@pytest.mark.slow
def test_walk_without_an_index_is_looked_up_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expand, "_SMALL_EDGES", 0)
    lines = [person(f"p{n}") for n in range(40)] + [knows(f"p{n}", f"p{(n * 7) % 40}") for n in range(40)]
    graph = create(tmp_path, lines)
    source = "query q($n: String) { match { $p: Person {name: $n} $p knows $q } return { $q } }"

    def walks() -> list[str]:
        graph._caches.clear()
        plans = [graph.explain(source, params={"n": f"p{n}"}, profile=True) for n in range(5)]
        return [str(plan.operators[1].actual["traversal"]) for plan in plans]

    assert walks() == ["indexed", "indexed", "csr", "csr", "csr"]
    graph.maintenance.ensure_indices()
    assert walks() == ["indexed"] * 5


def test_ids_are_found_alike_whether_few_or_all_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = create(tmp_path, [person(f"p{n}") for n in range(60)])
    view = session_of(graph).view()
    people = entities.Entities(view.dataset(TypeKey("node:Person")), lambda: None)
    names = people.ids.to_pylist()
    wanted = [names[7], "nobody", names[7], names[59], names[0]]
    expected = [7, -1, 7, 59, 0]
    for selective in (1, 1_000):
        monkeypatch.setattr(entities, "_SELECTIVE", selective)
        assert people.find_all(pa.chunked_array([wanted[:2], wanted[2:]])).tolist() == expected
        assert people.find_all(pa.array([], pa.string())).tolist() == []
