"""Rankings: what is ranked, what remains, in which order, and what scores say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import omnigraph as og
from omnigraph.engine.query import ranking
from omnigraph.engine.query.embedders import Purpose
from omnigraph.errors import DataError
from tests.support.read_fixtures import create

SCHEMA = """
node Note {
  name: String @key
  text: String? @index
  kind: String?
  vec: Vector(2)?
  made: Vector(2)? @embed(text, model="m1")
}
edge Cites: Note -> Note
"""
NOTES: list[dict[str, Any]] = [
    {"name": "a", "text": "sea wind", "kind": "x", "vec": [0.0, 0.0]},
    {"name": "b", "text": "sea", "kind": "y", "vec": [1.0, 0.0]},
    {"name": "c", "text": "wind", "kind": "y", "vec": [3.0, 4.0]},
    {"name": "d", "text": "sea sea star", "kind": "y", "vec": [1.0, 0.0]},
    {"name": "e", "kind": "y"},
]
CITES = [("a", "b"), ("a", "c"), ("b", "c"), ("c", "d"), ("e", "a")]


class OneVector:
    """Embeds every text as one vector."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.name = "one"

    def embed(self, texts: Any, dimension: int, purpose: Purpose) -> Any:
        return np.tile(np.array([1.0, 0.0], np.float32), (len(texts), 1))


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "indexed"])
def graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    lines: list[dict[str, Any]] = [{"type": "Note", "data": note} for note in NOTES]
    lines += [{"edge": "Cites", "from": source, "to": target} for source, target in CITES]
    graph = create(tmp_path_factory.mktemp("ranking"), lines, SCHEMA)
    if request.param:
        graph.maintenance.ensure_indices()
    return graph


def ranked(
    graph: og.Graph, match: str, order: str, rest: str = "limit 9", returns: str = "$n", **params: Any
) -> list[Any]:
    """Return the rows in order, those of one column as that value."""
    declared = "$v: Vector(2)?, $t: String?, $k: I64?"
    source = f"query q({declared}) {{ match {{ {match} }} return {{ {returns} }} order {{ {order} }} {rest} }}"
    found = [tuple(row.values()) for row in graph.query(source, params=params).rows()]
    return [row[0] if len(row) == 1 else row for row in found]


NEAR = "nearest($n.vec, [0.0, 0.0])"


@pytest.mark.parametrize(
    ("match", "rest", "expected"),
    [
        ("$n: Note", "limit 9", ["a", "b", "d", "c"]),
        ("$n: Note", "limit 2", ["a", "b"]),
        ("$n: Note", "skip 1 limit 2", ["b", "d"]),
        ('$n: Note $n.kind = "y"', "limit 2", ["b", "d"]),
        ('$n: Note {kind: "y"}', "limit 1", ["b"]),
        ("$n: Note not { $_ cites $n }", "limit 9", []),
        ("$n: Note not { $n cites $_ }", "limit 2", []),
        ("$n: Note $n cites $m", "limit 2", ["a", "a"]),
        ("$n: Note $n cites $m", "limit 3", ["a", "a", "b"]),
        ('$m: Note {name: "a"} $m cites $n', "limit 9", ["b", "c"]),
        ('$m: Note {name: "c"} $m cites $n', "limit 1", ["d"]),
    ],
)
def test_nearest_takes_the_best_of_what_its_own_conditions_leave(
    graph: og.Graph, match: str, rest: str, expected: list[str]
) -> None:
    assert ranked(graph, match, NEAR, rest) == expected


@pytest.mark.parametrize("order", [NEAR, 'bm25($n.text, "sea")', f'rrf({NEAR}, bm25($n.text, "sea"))'])
def test_rank_after_a_pattern_without_rows_returns_nothing(graph: og.Graph, order: str) -> None:
    assert ranked(graph, '$m: Note {name: "none"} $n: Note', order) == []


def test_nearest_takes_a_vector_parameter_and_null_ranks_nothing(graph: og.Graph) -> None:
    assert ranked(graph, "$n: Note", "nearest($n.vec, $v)", "limit 1", v=[3, 4]) == ["c"]
    assert ranked(graph, "$n: Note", "nearest($n.vec, $v)", "limit 1") == []


def test_bm25_orders_only_what_matches(graph: og.Graph) -> None:
    assert ranked(graph, "$n: Note", 'bm25($n.text, "sea")', "") in (["b", "d", "a"], ["d", "b", "a"])
    assert ranked(graph, '$n: Note $n.kind = "x"', 'bm25($n.text, "sea")', "") == ["a"]
    assert ranked(graph, "$n: Note", 'bm25($n.text, "nothing")', "") == []
    assert ranked(graph, "$n: Note", "bm25($n.text, $t)", "") == []


def test_rrf_adds_reciprocal_ranks_and_keeps_whole_entities(graph: og.Graph) -> None:
    call = 'rrf(nearest($n.vec, [0.0, 0.0]), bm25($n.text, "wind"), 1)'
    found = ranked(graph, "$n: Note", "s", "limit 9", f"$n, {call} as s")
    assert [name for name, _ in found][:2] == ["a", "c"]
    scores = dict(found)
    assert scores["c"] == pytest.approx(1 / 5 + (1 / 2 if scores["c"] > 0.6 else 1 / 3))
    assert scores["b"] == pytest.approx(1 / 3)
    assert ranked(graph, "$n: Note $n cites $m", call, "limit 2", "$n, $m") == [("a", "b"), ("a", "c")]


@pytest.mark.parametrize("match", ["$n: Note", "$n: Note $n cites $m"])
@pytest.mark.parametrize("call", ["near first", "text first", "two texts", "two places"])
def test_rrf_does_not_depend_on_where_it_is_cut(tied: og.Graph, match: str, call: str) -> None:
    score = CALLS[call]
    returned = f"$n.name as name, {score} as s"
    whole = ranked(tied, match, "s", "limit 1000", returned)
    unordered = f"query q() {{ match {{ {match} }} return {{ {returned} }} }}"
    alone = {row["name"]: row["s"] for row in tied.query(unordered).rows()}
    assert dict(whole) == {name: one for name, one in alone.items() if one is not None}
    for limit in (1, 3, 10, 40):
        assert ranked(tied, match, "s", f"limit {limit}", returned) == whole[:limit]
    pages = [row for skip in range(0, 30, 3) for row in ranked(tied, match, "s", f"skip {skip} limit 3", returned)]
    assert pages == whole[:30]


# Two calls each, and whether the least score of a call is the best.
FUSED = {
    "near first": (("nearest($n.vec, [0.0, 1.0])", 1), ('bm25($n.text, "sea wind")', -1)),
    "text first": (('bm25($n.text, "sea wind")', -1), ("nearest($n.vec, [0.0, 1.0])", 1)),
    "two texts": (('bm25($n.text, "sea")', -1), ('bm25($n.text, "wind")', -1)),
    "two places": (("nearest($n.vec, [0.0, 1.0])", 1), ("nearest($n.vec, [3.0, 2.0])", 1)),
}
PATTERNS = ["$n: Note", "$n: Note $n cites $m", '$n: Note $n.name < "n100"', "$m: Note $m cites $n"]


def fused_by_definition(graph: og.Graph, match: str, calls: Any, window: int) -> dict[str, float]:
    """Return reciprocal ranks, added, of the best `window` of each call; equal scores of a call in the order of ids."""
    fused: dict[str, float] = {}
    for call, sign in calls:
        source = f"query q() {{ match {{ {match} }} return distinct {{ $n.name as name, {call} as s }} }}"
        scores = [(sign * row["s"], row["name"]) for row in graph.query(source).rows() if row["s"] is not None]
        for rank, (_, name) in enumerate(sorted(scores)[:window], start=1):
            fused[name] = fused.get(name, 0.0) + 1.0 / (60 + rank)
    return fused


@pytest.mark.parametrize("window", [1, 7, 40, 1000])
@pytest.mark.parametrize("match", PATTERNS)
@pytest.mark.parametrize("call", FUSED)
def test_rrf_fuses_the_window_of_each_call(tied: og.Graph, match: str, call: str, window: int) -> None:
    check_windows(tied, match, call, window)


def check_windows(graph: og.Graph, match: str, call: str, window: int) -> None:
    expected = fused_by_definition(graph, match, FUSED[call], window)
    score = f"rrf({FUSED[call][0][0]}, {FUSED[call][1][0]}, 60, {window})"
    returned = f"$n.name as name, {score} as s"
    whole = ranked(graph, match, "s", "limit 9999", returned)
    assert dict(whole) == pytest.approx(expected)
    assert [score for _, score in whole] == sorted((score for _, score in whole), reverse=True)
    alone = graph.query(f"query q() {{ match {{ {match} }} return distinct {{ {returned} }} }}").rows()
    assert {row["name"]: row["s"] for row in alone if row["s"] is not None} == dict(whole)
    pages = [row for skip in range(0, 30, 10) for row in ranked(graph, match, "s", f"skip {skip} limit 10", returned)]
    assert pages == whole[:30]


def test_rrf_without_a_window_fuses_others(tied: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking.Ranking, "_window_size", lambda self, run: None)
    for match in PATTERNS:
        with pytest.raises(AssertionError):
            check_windows(tied, match, "near first", 7)


def test_rrf_window_is_a_thousand_unless_given(tied: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    call = 'rrf(nearest($n.vec, [0.0, 1.0]), bm25($n.text, "sea"))'
    shown = str(tied.explain(f"query q() {{ match {{ $n: Note }} return {{ $n }} order {{ {call} }} limit 3 }}"))
    assert "window 1000" in shown


@pytest.mark.parametrize("number", ["k", "window"])
def test_rrf_numbers_of_zero_are_refused_where_they_are_bound(graph: og.Graph, number: str) -> None:
    arguments = "$k" if number == "k" else "60, $k"
    with pytest.raises(DataError, match=f"`{number}` of `rrf` must be greater than zero"):
        ranked(graph, "$n: Note", f'rrf(nearest($n.vec, [0.0, 0.0]), bm25($n.text, "wind"), {arguments})', k=0)


def test_rrf_needs_a_positive_k(graph: og.Graph) -> None:
    with pytest.raises(DataError, match="greater than zero"):
        ranked(graph, "$n: Note", 'rrf(nearest($n.vec, [0.0, 0.0]), bm25($n.text, "wind"), $k)', k=0)


def test_score_column_alone_leaves_rows_as_they_are(graph: og.Graph) -> None:
    source = f"query q() {{ match {{ $n: Note }} return {{ $n, {NEAR} as d }} order {{ $n.name }} }}"
    found = [tuple(row.values()) for row in graph.query(source).rows()]
    assert found == [("a", 0.0), ("b", 1.0), ("c", 5.0), ("d", 1.0), ("e", None)]


def test_score_column_by_alias_orders_like_its_call(graph: og.Graph) -> None:
    assert ranked(graph, "$n: Note", "d", "limit 3", f"$n, {NEAR} as d") == [("a", 0.0), ("b", 1.0), ("d", 1.0)]


def test_rank_restricts_groups_and_distinct_rows(graph: og.Graph) -> None:
    assert ranked(graph, "$n: Note", "d", "limit 3", f"{NEAR} as d") == [0.0, 1.0, 1.0]
    source = f"query q() {{ match {{ $n: Note }} return distinct {{ {NEAR} as d }} order {{ d }} limit 3 }}"
    assert [row["d"] for row in graph.query(source).rows()] == [0.0, 1.0]


def test_nearest_text_is_embedded_with_the_recorded_model(graph: og.Graph) -> None:
    source = 'query q() { match { $n: Note } return { $n } order { nearest($n.vec, "words") } limit 1 }'
    assert graph.query(source, embedder=OneVector("any")).rows() == [{"n": "b"}]
    made = 'query q() { match { $n: Note } return { $n } order { nearest($n.made, "words") } limit 1 }'
    assert graph.query(made, embedder=OneVector("m1")).rows() == []
    with pytest.raises(DataError) as error:
        graph.query(made, embedder=OneVector("m2"))
    assert error.value.context["rule"] == "E13"


def test_limit_zero_is_refused_with_nearest(graph: og.Graph) -> None:
    source = f"query q($k: I64) {{ match {{ $n: Note }} return {{ $n }} order {{ {NEAR} }} limit $k }}"
    with pytest.raises(DataError, match="at least 1"):
        graph.query(source, params={"k": 0})


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ('$n: Note search($n.text, "STAR")', ["d"]),
        ('$n: Note search($n.text, "wind") search($n.text, "sea")', ["a"]),
        ('$n: Note search($n.text, "star") or $n.text is null', ["d", "e"]),
        ('$m: Note {name: "a"} $m cites $n search($n.text, "wind")', ["c"]),
        ('$n: Note not { search($n.text, "sea") }', ["c", "e"]),
        ("$n: Note search($n.text, $t)", []),
    ],
)
def test_text_predicates_hold_on_any_bound_node(graph: og.Graph, match: str, expected: list[str]) -> None:
    source = f"query q($t: String?) {{ match {{ {match} }} return {{ $n }} order {{ $n.name }} }}"
    assert [row["n"] for row in graph.query(source).rows()] == expected


WORDS = ["sea", "wind", "sea wind", "wind wind star", "star", "rock"]
CALLS = {
    "bm25": 'bm25($n.text, "sea wind")',
    "nearest": "nearest($n.vec, [0.0, 1.0])",
    "near first": 'rrf(nearest($n.vec, [0.0, 1.0]), bm25($n.text, "sea wind"))',
    "text first": 'rrf(bm25($n.text, "sea wind"), nearest($n.vec, [0.0, 1.0]), 1)',
    "two texts": 'rrf(bm25($n.text, "sea"), bm25($n.text, "wind"))',
    "two places": "rrf(nearest($n.vec, [0.0, 1.0]), nearest($n.vec, [3.0, 2.0]))",
}


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    """Many notes of few texts and few places, so that nearly all scores are shared, by names in no order."""
    random = np.random.default_rng(11)
    notes = [
        {"name": f"n{name:03}", "text": WORDS[place % 6], "vec": random.integers(0, 4, 2).tolist()}
        for place, name in enumerate(random.permutation(150))
    ]
    cites = [{"edge": "Cites", "from": f"n{place:03}", "to": f"n{place * 7 % 150:03}"} for place in range(0, 150, 2)]
    records = [{"type": "Note", "data": note} for note in notes]
    graph = create(tmp_path_factory.mktemp("tied"), [*records, *cites], SCHEMA)
    graph.maintenance.ensure_indices()
    return graph


@pytest.mark.parametrize("rest", ["limit 1", "limit 7", "skip 5 limit 20", "limit 200"])
@pytest.mark.parametrize("call", CALLS)
def test_best_of_many_equal_scores_are_the_first_of_all(tied: og.Graph, call: str, rest: str) -> None:
    assert best_of(tied, call, rest, "return") == best_of(tied, call, rest, "return distinct")


def test_best_of_many_equal_scores_without_whole_grades_are_others(
    tied: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "_end_of_ties", lambda keys, wanted: min(wanted or 0, len(keys)))
    calls = ["bm25", "near first", "text first"]
    assert any(
        best_of(tied, call, "limit 7", "return") != best_of(tied, call, "limit 7", "return distinct") for call in calls
    )


def best_of(graph: og.Graph, call: str, rest: str, returns: str) -> list[Any]:
    """Return the best by a call; distinct rows are ranked to the end before they are cut, others only so far."""
    source = f"query q() {{ match {{ $n: Note }} {returns} {{ $n.name, {CALLS[call]} as s }} order {{ s }} {rest} }}"
    return [tuple(row.values()) for row in graph.query(source).rows()]
