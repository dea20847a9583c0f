"""Paths: which are found, in which order, and what can be read from them."""

from __future__ import annotations

from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine.query import Budget
from omnigraph.errors import BudgetExceeded, DataError
from omnigraph.lang.diagnostic import LanguageError

SCHEMA = """
node Stop { name: String @key }
node Depot { name: String @key }
edge Leg: Stop -> Stop { minutes: F64?  kind: String? }
edge Ends: Stop -> Depot { minutes: F64? }
"""
# Two ways of two hops from a to d, a heavy direct one, a longer light one, and parallels.
LEGS = [
    ("a", "b", 1.0), ("a", "c", 1.0), ("b", "d", 2.0), ("c", "d", 2.0), ("a", "d", 9.0), ("a", "e", 0.5),
    ("e", "f", 0.5), ("f", "d", 0.5), ("d", "a", 1.0), ("a", "b", 3.0), ("d", "d", 0.0), ("f", "g", None),
]  # fmt: skip


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    graph = og.init(tmp_path_factory.mktemp("paths") / "g.omni", SCHEMA)
    rows: list[dict[str, Any]] = [{"type": "Stop", "data": {"name": name}} for name in "abcdefg"]
    rows.append({"type": "Depot", "data": {"name": "a"}})
    for number, (start, end, minutes) in enumerate(LEGS):
        data: dict[str, Any] = {"id": f"e{number:02}", "kind": "bus"}
        rows.append(
            {"edge": "Leg", "from": start, "to": end, "data": data | ({} if minutes is None else {"minutes": minutes})}
        )
    rows.append({"edge": "Ends", "from": "d", "to": "a", "data": {"id": "x", "minutes": 1.0}})
    graph.ingest(rows, mode="append")
    return graph


def ask(graph: og.Graph, path: str, columns: str = "nodes($p)", tail: str = "", **values: object) -> list[Any]:
    params = "$k: I64" if "k" in values else ""
    body = f'$a: Stop {{name: "a"}} $d: Stop {{name: "d"}} path $p = {path}'
    source = f"query q({params}) {{ match {{ {body} }} return {{ {columns} }} {tail} }}"
    table = graph.query(source, params=values).to_arrow()
    return [next(iter(row.values())) if len(row) == 1 else tuple(row.values()) for row in table.to_pylist()]


def joined(paths: list[Any]) -> list[str]:
    return ["".join(nodes) for nodes in paths]


@pytest.mark.parametrize("mode", ["auto", "csr", "indexed"])
def test_shortest_takes_the_fewest_hops(graph: og.Graph, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", mode)
    assert joined(ask(graph, "shortest $a leg{1,} $d")) == ["ad"]


def test_shortest_by_weight_takes_the_least_total(graph: og.Graph) -> None:
    columns = "nodes($p), edges($p), length($p), cost($p)"
    [found] = ask(graph, "shortest $a leg{1,} $d by minutes", columns)
    assert found == (["a", "e", "f", "d"], ["e05", "e06", "e07"], 3, 1.5)


def test_all_shortest_returns_every_tie_in_order(graph: og.Graph) -> None:
    source = (
        'query q() { match { $b: Stop {name: "b"} $c: Stop {name: "c"} path $p = all shortest $b <leg>{1,} $c }'
        " return { $p } }"
    )
    rows = graph.query(source).to_arrow().column(0).to_pylist()
    assert joined(rows) == ["bac", "bdc"]


def test_k_shortest_by_hops_then_names(graph: og.Graph) -> None:
    assert joined(ask(graph, "shortest 3 $a leg{1,} $d", "nodes($p)", "order { length($p) }")) == ["ad", "abd", "acd"]
    assert len(ask(graph, "shortest 9 $a leg{1,} $d")) == 4


def test_k_shortest_by_weight_from_a_parameter(graph: og.Graph) -> None:
    rows = ask(graph, "shortest($k) $a leg{1,} $d by minutes", "nodes($p), cost($p) as c", "order { c }", k=3)
    assert [("".join(nodes), cost) for nodes, cost in rows] == [("aefd", 1.5), ("abd", 3.0), ("acd", 3.0)]


def test_lightest_parallel_stands_for_the_others(graph: og.Graph) -> None:
    source = (
        'query q() { match { $a: Stop {name: "a"} $b: Stop {name: "b"} path $p = $a leg{1,} $b by minutes }'
        " return { edges($p) } }"
    )
    assert graph.query(source).to_arrow().column(0).to_pylist() == [["e00"]]


def test_edge_without_weight_is_not_walked(graph: og.Graph) -> None:
    for by, expected in (("", 1), (" by minutes", 0)):
        source = (
            f'query q() {{ match {{ $a: Stop {{name: "a"}} $g: Stop {{name: "g"}} path $p = $a leg{{1,}} $g{by} }}'
            f" return {{ $p }} }}"
        )
        assert graph.query(source).to_arrow().num_rows == expected


def test_range_from_zero_includes_the_empty_path(graph: og.Graph) -> None:
    source = (
        'query q() { match { $a: Stop {name: "a"} path $p = $a leg{0,1} $b }'
        " return { $p, length($p) as l } order { l } }"
    )
    rows = graph.query(source).to_arrow().to_pylist()
    assert [("".join(row["p"]), row["l"]) for row in rows] == [("a", 0), ("ab", 1), ("ac", 1), ("ad", 1), ("ae", 1)]


def test_path_from_its_bound_right_end_reads_left_to_right(graph: og.Graph) -> None:
    source = (
        'query q() { match { $g: Stop {name: "g"} path $p = all shortest $b leg{1,} $g }'
        " return { $b, $p } order { $b.name } limit 2 }"
    )
    rows = graph.query(source).to_arrow().to_pylist()
    assert [(row["b"], "".join(row["p"])) for row in rows] == [("a", "aefg"), ("b", "bdaefg")]


def test_path_through_several_types(graph: og.Graph) -> None:
    source = 'query q() { match { $a: Stop {name: "a"} path $p = $a _{1,} $x $x: Depot } return { $p, cost($p) } }'
    assert list(graph.query(source).to_arrow().to_pylist()[0].values()) == [["a", "d", "a"], 2.0]


def test_optional_path_is_null_where_there_is_none(graph: og.Graph) -> None:
    source = (
        'query q() { match { $g: Stop {name: "g"} optional { path $p = $g leg{1,} $x } }'
        " return { $p, length($p), $x } }"
    )
    assert list(graph.query(source).to_arrow().to_pylist()[0].values()) == [None, None, None]


def test_paths_group_and_filter_by_length(graph: og.Graph) -> None:
    source = (
        'query q() { match { $a: Stop {name: "a"} path $p = $a leg{1,} $b length($p) > 1 }'
        " return { length($p) as l, count(*) as n } order { l } }"
    )
    assert [tuple(row.values()) for row in graph.query(source).to_arrow().to_pylist()] == [(2, 1), (3, 1)]


def test_negative_weight_is_refused(tmp_path: Any) -> None:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    rows = [{"type": "Stop", "data": {"name": name}} for name in "ab"]
    graph.ingest([*rows, {"edge": "Leg", "from": "a", "to": "b", "data": {"minutes": -1.0}}], mode="append")
    with pytest.raises(DataError, match="weights of 0 or more"):
        graph.query("query q() { match { $a: Stop path $p = $a leg{1,} $b by minutes } return { $p } }")


def test_too_many_paths_exceed_the_budget(tmp_path: Any) -> None:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    names = [f"{layer}{place}" for layer in "abcdefghij" for place in range(4)]
    rows: list[dict[str, Any]] = [{"type": "Stop", "data": {"name": name}} for name in names]
    for layer, following in zip("abcdefghi", "bcdefghij", strict=True):
        rows += [
            {"edge": "Leg", "from": f"{layer}{one}", "to": f"{following}{two}", "data": {}}
            for one in range(4) for two in range(4)
        ]  # fmt: skip
    graph.ingest(rows, mode="append")
    source = "query q() { match { $a: Stop path $p = all shortest $a leg{1,} $b } return { count(*) } }"
    with pytest.raises(BudgetExceeded):
        graph.query(source, budget=Budget(rows_max=10_000))


@pytest.mark.parametrize(
    ("clause", "words"),
    [
        ("path $a = $a leg{1,} $b", "cannot name a path"),
        ("path $p = $a $e:leg $b", "binds no edge variable"),
        ("path $p = $a leg{1,2} $b as $h", "read `length($p)`"),
        ("path $p = $a leg{2,3} $b", "begins at 0 or 1"),
        ("path $p = $a leg{1,3} $b by minutes", "no upper hop bound"),
        ("path $p = $a leg{1,} $b by minute", "did you mean `minutes`"),
        ("path $p = $a leg{1,} $b by kind", "a weight is a number"),
        ("path $p = shortest($n) $a leg{1,} $b", "declare it"),
        ("path $p = $a leg{1,} $b $p leg $c", "is a path; a traversal joins nodes"),
    ],
)
def test_mistakes_are_explained(graph: og.Graph, clause: str, words: str) -> None:
    with pytest.raises(LanguageError) as caught:
        graph.query(f"query q() {{ match {{ $a: Stop {clause} }} return {{ $a }} }}")
    assert "[T41]" in str(caught.value)
    assert words in str(caught.value)


def test_explain_says_what_is_searched(graph: og.Graph) -> None:
    source = "query q() { match { $a: Stop path $p = shortest 2 $a leg{1,} $b by minutes } return { $p } }"
    assert "paths $p shortest 2 by minutes: $a out Leg{1,} $b: Stop" in str(graph.explain(source))
