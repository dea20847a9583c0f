"""What patterns mean: the traps of traversals, nulls, negations and optional blocks, in both ways of walking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import DataError
from tests.support.read_fixtures import city, create, firsts, knows, lives_in, person, rows, sorted_rows

DATA = [
    person("a", age=10, city="x", tags=["t", "u"], nums=[1, 2], born="2000-01-02", seen="2024-01-31T10:00:00.5Z"),
    person("b", age=20, city="x", score=2.5, ratio=0.1, active=True, huge=2**63 - 1),
    person("c", age=20, big=2**53 + 1, score=float(2**53), active=False, photo="base64:AA=="),
    person("d"),
    city("a", country="NL"),
    city("k", country="BE"),
    knows("a", "b", id="e1", weight=1.0),
    knows("a", "b", id="e2", weight=2.0),
    knows("b", "c", id="e3"),
    knows("c", "a", id="e4"),
    knows("c", "c", id="e5"),
    lives_in("a", "a", id="l1", rent=5),
    lives_in("b", "a", id="l2"),
    lives_in("b", "k", id="l3", rent=7),
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    return create(tmp_path_factory.mktemp("semantics"), DATA)


@pytest.fixture(params=["csr", "indexed"], autouse=True)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", request.param)
    return str(request.param)


@pytest.mark.parametrize(
    ("match", "returns", "expected"),
    [
        ('$p: Person {name: "a"} $p knows $q', "$q", ["b"]),
        ('$p: Person {name: "a"} $p $w:knows $q', "$q", ["b", "b"]),
        ('$p: Person {name: "a"} $p $_:knows $q', "$q", ["b"]),
        ('$p: Person {name: "a"} $q knows $p', "$q", ["c"]),
        ('$p: Person {name: "a"} $p <knows> $q', "$q", ["b", "c"]),
        ('$p: Person {name: "c"} $p $w:<knows> $q', "$q", ["a", "b", "c"]),
        ('$p: Person {name: "a"} $p knows{1,9} $q', "$q", ["b", "c"]),
        ('$p: Person {name: "a"} $p knows{2,2} $q', "$q", ["c"]),
        ('$p: Person {name: "a"} $p knows{3,3} $q', "$q", ["c"]),
        ('$p: Person {name: "a"} $p knows{4,9} $q', "$q", []),
        ('$p: Person {name: "c"} $p knows{1,1} $q', "$q", ["a", "c"]),
        ('$p: Person {name: "c"} $p knows{2,2} $q', "$q", ["b"]),
        ('$p: Person {name: "b"} $p livesIn{1,3} $c', "$c", ["a", "k"]),
        ('$p: Person {name: "b"} $p livesIn{2,3} $c', "$c", []),
        ('$c: City {name: "a"} $c livesIn $p', "$p", ["a", "b"]),
        ("$p knows $p", "$p", ["c"]),
        ("$p: Person $p knows $_", "$p", ["a", "b", "c", "c"]),
        ("$p knows $q $q knows $r $r knows $p", "$p", ["a", "b", "c", "c"]),
        ("$p: Person $p: Person {age: 20}", "$p", ["b", "c"]),
        ("$p: Person not { $p knows $_ }", "$p", ["d"]),
        ("$p: Person not { $_ knows $p }", "$p", ["d"]),
        ('$c: City not { $p livesIn $c $p.name = "b" }', "$c", []),
        ('$c: City not { $p livesIn $c $p.name = "a" }', "$c", ["k"]),
        ("$p: Person $q: Person not { $p knows $q } $p.age = 20 $q.age = 20", "$p", ["b", "c"]),
        ("$p: Person not { $p knows $q not { $q knows $p } }", "$p", ["d"]),
        ("$p: Person not { $p.age < 15 }", "$p", ["b", "c", "d"]),
        ("$p: Person $p.age < 15 or $p.age >= 15", "$p", ["a", "b", "c"]),
        ("$p: Person $p.age != 20", "$p", ["a"]),
        ("$p: Person $p.age in [20.0, 10.5]", "$p", ["b", "c"]),
        ("$p: Person $p.age in []", "$p", []),
        ("$p: Person $p.big > $p.score", "$p", ["c"]),
        ("$p: Person $p.big = $p.score", "$p", []),
        ("$p: Person $p.huge > $p.score", "$p", ["b"]),
        ("$p: Person $p.ratio = 0.1", "$p", ["b"]),
        ("$p: Person $p.active = true", "$p", ["b"]),
        ("$p: Person $p.active < true", "$p", ["c"]),
        ("$p: Person $p.active is null", "$p", ["a", "d"]),
        ("$p: Person $p.photo is not null", "$p", ["c"]),
        ('$p: Person $p.tags contains "u"', "$p", ["a"]),
        ("$p: Person $p.nums contains $p.age", "$p", []),
        ('$p: Person $p.born = date("2000-1-2")', "$p", ["a"]),
        ('$p: Person $p.seen = datetime("2024-01-31T10:00:00.500Z")', "$p", ["a"]),
        ("$p: Person $p.seen < now()", "$p", ["a"]),
        ('$p: Person ("abc" contains $p.name)', "$p", ["a", "b", "c"]),
        ("$p: Person $c: City ($p.name starts_with $c.name)", "$p", ["a"]),
    ],
)
def test_pattern_yields_the_right_rows(graph: og.Graph, match: str, returns: str, expected: list[Any]) -> None:
    assert firsts(graph, match, returns) == expected


def test_optional_block_keeps_rows_without_solution(graph: og.Graph) -> None:
    assert sorted_rows(graph, '$p: Person optional { $p $l:livesIn $c $c.country = "NL" }', "$p, $c, $l.rent") == [
        ("a", "a", 5), ("b", "a", None), ("c", None, None), ("d", None, None),
    ]  # fmt: skip


def test_optional_block_goes_on_from_a_missing_variable_to_nothing(graph: og.Graph) -> None:
    first, second = '$p: Person optional { $p knows $q $q.name = "b" }', "optional { $q knows $r as $h }"
    assert sorted_rows(graph, f"{first} {second}", "$p, $q, $r, $h") == [
        ("a", "b", "c", 1), ("b", None, None, None), ("c", None, None, None), ("d", None, None, None),
    ]  # fmt: skip


def test_optional_variable_is_null_in_filters_and_negations(graph: og.Graph) -> None:
    pattern = "$p: Person optional { $p livesIn $c }"
    assert firsts(graph, f"{pattern} $c is null", "$p") == ["c", "d"]
    assert firsts(graph, f"{pattern} $c.country is null", "$p") == ["c", "d"]
    assert firsts(graph, f'{pattern} not {{ $c.country = "NL" }}', "$p") == ["b", "c", "d"]
    assert firsts(graph, f"{pattern} not {{ $c livesIn $_ }}", "$p") == ["c", "d"]


def test_hops_count_the_shortest_way_and_loops_their_own(graph: og.Graph) -> None:
    assert sorted_rows(graph, "$p: Person $p knows{2,4} $q as $h", "$p, $q, $h") == [
        ("a", "c", 2), ("b", "a", 2), ("b", "c", 2), ("c", "b", 2),
    ]  # fmt: skip
    assert sorted_rows(graph, "$p: Person $p knows{3,4} $q as $h", "$p, $q, $h") == [("a", "c", 3)]


def test_hops_of_a_closed_walk_can_be_filtered(graph: og.Graph) -> None:
    assert sorted_rows(graph, "$p knows $q $q knows{1,4} $p as $h $h > 1", "$p, $q, $h") == [
        ("a", "b", 2), ("b", "c", 2), ("c", "a", 2),
    ]  # fmt: skip


def test_edges_of_a_closed_walk_are_rows_of_their_own(graph: og.Graph) -> None:
    assert sorted_rows(graph, "$p knows $q $p $w:knows $q", "$p, $w.weight") == [
        ("a", 1.0), ("a", 2.0), ("b", None), ("c", None), ("c", None),
    ]  # fmt: skip


def test_equal_ids_of_two_types_stay_apart(graph: og.Graph) -> None:
    assert sorted_rows(graph, '$p: Person {name: "a"} $p livesIn $c', "$p, $c, $c.country") == [("a", "a", "NL")]


def test_unconnected_bindings_make_every_combination(graph: og.Graph) -> None:
    assert len(rows(graph, "$p: Person $c: City", "$p, $c")) == 8
    assert rows(graph, "$p: Person $c: City $d: City", "count(*) as n") == [(16,)]


@pytest.mark.parametrize(
    ("returns", "rest", "expected"),
    [
        ("count(*) as n, count($p.age) as a, sum($p.age) as s, avg($p.age) as m", "", [(4, 3, 50.0, 50 / 3)]),
        ("min($p.age) as a, max($p.city) as b, min($p) as c", "", [(10, "x", "a")]),
        ("$p.age, count($p) as n", "order { $p.age desc }", [(20, 2), (10, 1), (None, 1)]),
        ("$p.age, count($p) as n", "order { n desc } skip 1 limit 1", [(None, 1)]),
    ],
)
def test_aggregates_skip_nulls_and_group_them(graph: og.Graph, returns: str, rest: str, expected: list[Any]) -> None:
    assert rows(graph, "$p: Person", returns, rest) == expected


def test_aggregates_over_nothing_give_a_row_only_without_groups(graph: og.Graph) -> None:
    assert rows(graph, "$p: Person $p.age > 99", "count(*) as n, max($p.age) as m, sum($p.age) as s") == [
        (0, None, None)
    ]
    assert rows(graph, "$p: Person $p.age > 99", "$p.city, count(*) as n") == []


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("$p.age", ["d", "a", "b", "c"]),
        ("$p.age desc", ["b", "c", "a", "d"]),
        ("$p.age desc, $p.active", ["c", "b", "a", "d"]),
        ("$p.ratio", ["a", "c", "d", "b"]),
        ("$p.ratio desc", ["b", "a", "c", "d"]),
        ("$p.city desc, $p.age desc", ["b", "a", "c", "d"]),
        ("$p.seen desc", ["a", "b", "c", "d"]),
    ],
)
def test_order_is_total_with_nulls_first_ascending(graph: og.Graph, order: str, expected: list[str]) -> None:
    assert firsts(graph, "$p: Person", "$p", f"order {{ {order} }}") == expected
    assert firsts(graph, "$p: Person", "$p", f"order {{ {order} }} skip 1 limit 2") == expected[1:3]


def test_order_breaks_ties_by_all_bound_ids(graph: og.Graph) -> None:
    found = rows(graph, "$b: Person $a: Person $b.city = $a.city", "$a, $b", "order { $a.city }")
    assert found == [("a", "a"), ("a", "b"), ("b", "a"), ("b", "b")]


def test_distinct_returns_equal_rows_once_with_nulls_equal(graph: og.Graph) -> None:
    source = "query q() { match { $p: Person } return distinct { $p.age } order { $p.age desc } limit 3 }"
    assert graph.query(source).rows() == [{"p.age": 20}, {"p.age": 10}, {"p.age": None}]
    lists = "query q() { match { $p: Person $q: Person } return distinct { $p.tags, $p.nums } }"
    assert len(graph.query(lists)) == 2


def test_columns_repeat_constants(graph: og.Graph) -> None:
    found = rows(
        graph, "$p: Person {name: $n}", '$n, 1, [1, 2] as l, date("1970-01-02") as d', declared="$n: String", n="a"
    )
    assert [(a, b, c, str(d)) for a, b, c, d in found] == [("a", 1, [1, 2], "1970-01-02")]


def test_parameter_missing_where_it_is_used_is_named(graph: og.Graph) -> None:
    with pytest.raises(DataError, match=r"\$n` was not provided") as error:
        rows(graph, "$p: Person {name: $n}", "$p", declared="$n: String")
    assert error.value.context["rule"] == "E2"
    assert firsts(graph, "$p: Person {age: 10}", "$p", declared="$n: String") == ["a"]


def test_parameter_null_matches_nothing(graph: og.Graph) -> None:
    assert firsts(graph, "$p: Person {name: $n}", "$p", declared="$n: String?") == []
    assert firsts(graph, "$p: Person $p.age != $n", "$p", declared="$n: I32?", n=None) == []
    assert firsts(graph, "$p: Person ($n is null or $p.age = $n)", "$p", declared="$n: I32?") == ["a", "b", "c", "d"]


@pytest.mark.parametrize(("skip", "limit"), [(-1, 1), (0, -1)])
def test_page_negative_is_refused(graph: og.Graph, skip: int, limit: int) -> None:
    with pytest.raises(DataError, match="negative"):
        rows(graph, "$p: Person", "$p", "skip $s limit $l", "$s: I64, $l: I64", s=skip, l=limit)


def test_date_literal_that_is_none_is_refused(graph: og.Graph) -> None:
    with pytest.raises(DataError, match="31/01/2024") as error:
        rows(graph, '$p: Person $p.age > 99 $p.born = date("31/01/2024")', "$p")
    assert error.value.context["rule"] == "E4"


def test_order_by_unknown_name_is_refused(graph: og.Graph) -> None:
    with pytest.raises(DataError, match="`missing`") as error:
        rows(graph, "$p: Person", "$p", "order { missing }")
    assert error.value.context["rule"] == "E2"


def test_composite_and_number_keys_are_looked_up(tmp_path: Path) -> None:
    schema = "node T { a: I64  b: String  c: Bool?  @key(a, b) }"
    graph = create(tmp_path, [{"type": "T", "data": {"a": n, "b": f"it's {n}"}} for n in range(3)], schema)
    assert rows(graph, '$t: T {a: 1, b: "it\'s 1"}', "$t.a, $t.b") == [(1, "it's 1")]
    assert rows(graph, "$t: T {a: 1}", "$t.b") == [("it's 1",)]
    assert rows(graph, '$t: T {a: $n, b: "it\'s 1"}', "$t.a", declared="$n: I32", n=1) == [(1,)]
