"""Bounds before the work: long queries are refused or planned in linear time, and long searches are refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.engine.query.budget import Budget, CancelToken
from omnigraph.errors import BudgetExceeded, LimitExceeded, OmniGraphError, QueryCancelled
from omnigraph.graph import session_of
from omnigraph.limits import FUZZY_WORDS_MAX, QUERY_CLAUSES_MAX, QUERY_TOKENS_MAX, SEARCH_WORDS_MAX

SCHEMA = "node P { k: String @key\n n: I32?\n t: String? }\nedge E: P -> P"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[og.Graph]:
    path: Path = tmp_path_factory.mktemp("bounds")
    with og.init(path / "g.omni", SCHEMA) as graph:
        graph.ingest(b'{"type": "P", "data": {"k": "a", "n": 1, "t": "some words"}}\n')
        yield graph


def query(match: str, returned: str = "$p.k") -> str:
    return f"query q() {{ match {{ $p: P {match} }} return {{ {returned} }} }}"


def seconds(graph: og.Graph, source: str) -> float:
    started = time.process_time()
    graph.explain(source)
    return time.process_time() - started


@pytest.mark.slow
@pytest.mark.parametrize("clause", ["$p e $p ", "$p e $q ", "$p e $_ $p.n = 1 ", "$p e $q $q.n = 1 $p.n = 1 "])
def test_planning_takes_time_in_proportion_to_the_clauses(graph: og.Graph, clause: str) -> None:
    # They take 0.1 to 0.5 seconds; when it was quadratic, 2.3 to 10.
    graph.explain(query(clause))
    assert seconds(graph, query(clause * (QUERY_CLAUSES_MAX - 2))) < 2


@pytest.mark.slow
def test_columns_of_one_name_are_named_in_linear_time(graph: og.Graph) -> None:
    result = graph.query(query("", ", ".join(["$p.k"] * 5_000)))
    assert result.columns[:3] == ["p.k", "p.k_2", "p.k_3"]
    assert len(set(result.columns)) == 5_000


def refused(graph: og.Graph, source: str) -> str:
    with pytest.raises(OmniGraphError) as caught:
        graph.query(source)
    return caught.value.message


@pytest.mark.slow
def test_query_of_too_many_clauses_or_signs_is_refused(graph: og.Graph) -> None:
    message = refused(graph, query("$p e $_ " * QUERY_CLAUSES_MAX))
    assert str(QUERY_CLAUSES_MAX) in message
    started = time.process_time()
    assert str(QUERY_TOKENS_MAX) in refused(graph, query("$p.n = 1 " * (QUERY_TOKENS_MAX // 5)))
    assert time.process_time() - started < 2, "it was parsed first"
    # Long texts and comments are no signs.
    assert len(graph.query(query(f'$p.k = "{"x. " * QUERY_TOKENS_MAX}" /* {"a " * QUERY_TOKENS_MAX} */'))) == 0


@pytest.mark.parametrize(("function", "most"), [("fuzzy", FUZZY_WORDS_MAX), ("search", SEARCH_WORDS_MAX)])
def test_search_for_too_many_words_is_refused(graph: og.Graph, function: str, most: int) -> None:
    find = query(f'{function}($p.t, "WORDS")', "count($p) as n")
    enough = " ".join(f"w{n}" for n in range(most - 1)) + " words"
    assert graph.query(find.replace("WORDS", enough)).rows() == [{"n": 1}]
    with pytest.raises(LimitExceeded) as caught:
        graph.query(find.replace("WORDS", f"{enough} zebra"))
    assert caught.value.context == {"resource": "search_words", "limit": most, "actual": most + 1}


def test_compiling_belongs_to_the_budget(graph: og.Graph) -> None:
    cancel = CancelToken()
    cancel.cancel()
    with pytest.raises(QueryCancelled, match="compiling"):
        graph.query(query(""), budget=Budget(cancel=cancel))
    with pytest.raises(BudgetExceeded):
        graph.query(query(""), budget=Budget(seconds_max=-1))


@pytest.mark.slow
def test_compiled_queries_are_kept_by_bytes(graph: og.Graph) -> None:
    held = session_of(graph)._queries
    for number in range(40):
        graph.explain(query(f'$p.k != "{number}{"x" * 50_000}"'))
        assert held.nbytes <= 64 * 1024 * 1024
    assert held.nbytes > 32 * 1024 * 1024
