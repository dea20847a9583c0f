"""What lowered plans return, judged by a naive interpreter on fixture F."""

from __future__ import annotations

from functools import cache
from itertools import permutations
from typing import Any

import pytest

from omnigraph.lang.query import ir
from tests.lang.query.query_interpreter import Graph, load_graph, run
from tests.support.query_fixtures import FIXTURES, compiled, read_text


@cache
def graph_f() -> Graph:
    return load_graph(FIXTURES / "F.ndjson", {"Vessel": "imo", "Port": "code"})


def rows(match: str, returned: str = "$v.imo", *, tail: str = "", params: str = "", **given: Any) -> list[Any]:
    text = read_text(match, returned, tail=tail, params=params)
    found = run(graph_f(), compiled(text).ir, given)
    return [row[0] if len(row) == 1 else row for row in found]


V1 = '$v: Vessel {imo: "V1"}'


@pytest.mark.parametrize(
    ("match", "returned", "expected"),
    [
        (f"{V1} $v callsAt $p", "$p.code", ["P1", "P2"]),
        (f"{V1} $v $w:callsAt $p", "$p.code", ["P1", "P1", "P2"]),
        ('$p: Port {code: "P1"} $p callsAt $v', "$v.imo", ["V1", "V2"]),
        ('$p: Port {code: "P1"} $v callsAt $p', "$v.imo", ["V1", "V2"]),
        (f"{V1} $v towedBy{{1,5}} $x", "$x.imo", ["V2", "V3"]),
        (f"{V1} $v towedBy{{2,3}} $x", "$x.imo", ["V3"]),
        (f"{V1} $v <towedBy> $x", "$x.imo", ["V2", "V3"]),
        (f"{V1} $v towedBy{{3,3}} $x", "$x.imo", []),
        (f"{V1} $v callsAt{{1,3}} $p", "$p.code", ["P1", "P2"]),
        (f"{V1} $v callsAt{{2,3}} $p", "$p.code", []),
        ("$v: Vessel not { $v callsAt $_ }", "$v.imo", ["V3", "V4"]),
        ('$v: Vessel not { $v callsAt $p $p.country = "BE" }', "$v.imo", ["V2", "V3", "V4"]),
        ("$v: Vessel not { $v towedBy{2,2} $x }", "$v.imo", ["V4"]),
        ("$p: Port not { $p callsAt $_ }", "$p.code", []),
        ("$v: Vessel $v.teu != 10", "$v.imo", ["V3", "V4"]),
        ('$v: Vessel {tags: "a"}', "$v.imo", ["V1"]),
        ('$v: Vessel $v.label starts_with "north "', "$v.imo", ["V1"]),
        ('$v: Vessel "the north" contains $v.label', "$v.imo", ["V2"]),
        ("$v: Vessel $v.teu > 5.5", "$v.imo", ["V1"]),
        ("$a: Port $b: Port", "count(*) as n", [4]),
        ("$v: Vessel $v $w:callsAt $p $w.fee > 1.5", "$w.fee", [2.0]),
        ("$v: Vessel", "count($v) as a, count($v.teu) as b, sum($v.teu) as s, min($v.teu) as m", [[4, 3, 20.0, 5]]),
        ("$v: Vessel $v.teu > 99", "count($v) as n, sum($v.teu) as s", [[0, None]]),
        ("$v: Vessel $v.teu > 99", "$v.kind, count($v) as n", []),
        ("$v towedBy $x $x towedBy $y $y towedBy $v", "$v.imo", ["V1", "V2", "V3"]),
        ('$v: Vessel {kind: "tug"} $v: Vessel {imo: "V3"}', "$v.imo", ["V3"]),
        ("$v: Vessel not { $v: Vessel {teu: 5} }", "$v.imo", ["V1", "V2"]),
    ],
)
def test_lowering_conformance_pattern_returns_rows(match: str, returned: str, expected: list[Any]) -> None:
    assert rows(match, returned) == expected


@pytest.mark.parametrize(
    ("match", "returned", "expected"),
    [
        ("$v: Vessel optional { $v callsAt $p }", "$v.imo, $p.code",
         [["V1", "P1"], ["V1", "P2"], ["V2", "P1"], ["V3", None], ["V4", None]]),
        ("$v: Vessel optional { $v callsAt $p } $p is null", "$v.imo", ["V3", "V4"]),
        ('$v: Vessel optional { $v callsAt $p $p.country = "BE" }', "$v.imo, $p.code",
         [["V1", "P2"], ["V2", None], ["V3", None], ["V4", None]]),
        ("$v: Vessel optional { $v towedBy $x } optional { $x callsAt $p }", "$v.imo, $x.imo, $p.code",
         [["V1", "V2", "P1"], ["V2", "V3", None], ["V3", "V1", "P1"], ["V3", "V1", "P2"], ["V4", None, None]]),
        ("$v: Vessel optional { $v callsAt $p }", "$v.imo, count($p) as n, count(*) as m",
         [["V1", 2, 2], ["V2", 1, 1], ["V3", 0, 1], ["V4", 0, 1]]),
        ("$v: Vessel $v.teu is null", "$v.imo", ["V2"]),
        ("$v: Vessel $v.teu is not null", "$v.imo", ["V1", "V3", "V4"]),
        ('$v: Vessel $v.teu > 5 or $v.kind = "bulk"', "$v.imo", ["V1", "V2"]),
        ('$v: Vessel ($v.teu > 5 or $v.kind = "tug") and $v.imo != "V4"', "$v.imo", ["V1", "V3"]),
        ("$v: Vessel $v.teu < 0 or $v.teu >= 0", "$v.imo", ["V1", "V3", "V4"]),
        ('$v: Vessel $v.imo in ["V1", "V9"]', "$v.imo", ["V1"]),
        ("$v: Vessel $v.teu in []", "$v.imo", []),
        ("$v: Vessel $v.teu > -1", "$v.imo", ["V1", "V3", "V4"]),
        (f"{V1} $v towedBy{{1,5}} $x as $h", "$x.imo, $h", [["V2", 1], ["V3", 2]]),
        (f"{V1} $v towedBy{{1,5}} $x as $h $h > 1", "$x.imo", ["V3"]),
        ("$v towedBy $x $x towedBy{1,4} $v as $h", "$v.imo, $h", [["V1", 2], ["V2", 2], ["V3", 2]]),
        ("$v: Vessel optional { $v towedBy{1,2} $x as $h }", "$v.imo, max($h) as far",
         [["V1", 2], ["V2", 2], ["V3", 2], ["V4", None]]),
    ],
)  # fmt: skip
def test_lowering_extension_pattern_returns_rows(match: str, returned: str, expected: list[Any]) -> None:
    assert rows(match, returned) == expected


def test_lowering_distinct_return_drops_equal_rows() -> None:
    text = "query q() { match { $v: Vessel } return distinct { $v.kind } }"
    assert run(graph_f(), compiled(text).ir) == [["bulk"], ["tanker"], ["tug"]]


def test_lowering_null_parameter_matches_nothing() -> None:
    assert rows("$v: Vessel $v.teu = $t", params="$t: I32?", t=None) == []
    assert rows("$v: Vessel $v.imo in $l", params="$l: [String]?", l=None) == []


CLAUSES = [
    "$v: Vessel",
    "$v callsAt $p",
    '$p: Port {country: "NL"}',
    "$v towedBy{1,2} $x as $h",
    "not { $x callsAt $p }",
    "optional { $x $w:callsAt $q }",
]


@pytest.mark.parametrize("first", CLAUSES[:-1])
def test_lowering_permuted_clauses_return_the_same_rows(first: str) -> None:
    returned = "$v.imo, $p.code, $x.imo, $h, $q.code, $w.fee"
    expected = rows(" ".join(CLAUSES), returned)
    assert expected
    others = [clause for clause in CLAUSES[:-1] if clause != first]
    for order in permutations(others):
        assert rows(" ".join([first, *order, CLAUSES[-1]]), returned) == expected, order


def test_lowering_closing_walks_share_no_temporary() -> None:
    plan = compiled(read_text("$v: Vessel $v towedBy $x $x towedBy $v $v <towedBy> $x $x towedBy $x")).ir
    assert isinstance(plan, ir.ReadIR)
    targets = [operator.target for operator in plan.pipeline if isinstance(operator, ir.Expand)]
    assert len(targets) == len(set(targets)) == 4


def test_lowering_first_binding_of_a_component_is_scanned() -> None:
    plan = compiled(read_text("$v callsAt $p $p: Port $v: Vessel $x: Vessel")).ir
    assert isinstance(plan, ir.ReadIR)
    scans = [operator.variable for operator in plan.pipeline if isinstance(operator, ir.NodeScan)]
    assert scans == ["p", "x"]
