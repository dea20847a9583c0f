"""Budgets: what would not fit ends in a coded error before it is made, and what can be computed otherwise is."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import clock
from omnigraph.engine.query.budget import Budget, CancelToken
from omnigraph.errors import BudgetExceeded, OmniGraphError, QueryCancelled
from omnigraph.graph import session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest.model import Snapshot
from omnigraph.manifest.plan import CommitPolicy, Effect, Plan
from omnigraph.store.write.transaction import append
from tests.support.read_fixtures import create

pytestmark = pytest.mark.slow

SCHEMA = "node A { k: String @key  n: I64? } edge E: A -> A"
SIZE = 100_000


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    """Return a graph of 100,000 nodes, all of which point at and come from one hub."""
    graph = create(tmp_path_factory.mktemp("budget"), schema=SCHEMA)
    names = [f"a{n}" for n in range(SIZE)]
    hub = ["a0"] * SIZE
    columns: dict[TypeKey, dict[str, list[Any]]] = {
        TypeKey("node:A"): {"id": names, "k": names, "n": list(range(SIZE))},
        TypeKey("edge:E"): {"id": [f"e{n}" for n in range(2 * SIZE)], "src": hub + names, "dst": names + hub},
    }

    def prepare(snapshot: Snapshot) -> Plan:
        effects = []
        for key, values in columns.items():
            dataset = session_of(graph).kernel.writable(snapshot, key)
            arrays = [pa.array(values[one.name], one.type) for one in dataset.schema]
            table = pa.Table.from_arrays(arrays, schema=dataset.schema)
            effects.append(Effect(key, dataset, (append(dataset, table),)))
        return Plan("load", tuple(effects))

    session_of(graph).kernel.commit("main", prepare, CommitPolicy.INSERT)
    return graph


def query(graph: og.Graph, match: str, returns: str, **budget: Any) -> list[dict[str, Any]]:
    source = f"query q() {{ match {{ {match} }} return {{ {returns} }} }}"
    return graph.query(source, budget=Budget(**budget)).rows()


def test_cross_product_too_large_is_refused_before_it_is_made(graph: og.Graph) -> None:
    with pytest.raises(BudgetExceeded, match=r"scan \$b: A would need 10,000,000,000 rows") as error:
        query(graph, "$a: A $b: A", "$a, $b")
    assert error.value.context["limit"] == "rows"
    assert error.value.context["needed"] == SIZE**2
    assert error.value.kind.http_status == 413


def test_cross_product_count_is_computed(graph: og.Graph) -> None:
    assert query(graph, "$a: A $b: A $c: A", "count(*) as n") == [{"n": SIZE**3}]
    assert query(graph, "$a: A $b: A", "sum($a.n) as s") == [{"s": float(sum(range(SIZE)) * SIZE)}]


def test_count_beyond_integers_is_refused(graph: og.Graph) -> None:
    with pytest.raises(BudgetExceeded, match="2\\^62"):
        query(graph, " ".join(f"$v{n}: A" for n in range(4)), "count(*) as n")


def test_hub_expands_or_is_refused(graph: og.Graph) -> None:
    assert len(query(graph, '$a: A {k: "a0"} $a e $b', "$b")) == SIZE
    assert query(graph, "$a: A $a e $b $b e $c", "count(*) as n") == [{"n": (SIZE - 1) * SIZE + 2 * SIZE - 1}]
    with pytest.raises(BudgetExceeded, match="expand"):
        query(graph, "$a: A $a e $b $b e $c", "$a, $c")
    with pytest.raises(BudgetExceeded, match="expand"):
        query(graph, "$a: A $a e{1,3} $b", "$a, $b", rows_max=2_000_000)


def test_rows_too_many_to_group_are_counted_by_weights(graph: og.Graph) -> None:
    match = '$a: A {k: "a0"} $a e $b $b e $c $c e $d'
    source = f"query q() {{ match {{ {match} }} return {{ $c, count(*) as n }} order {{ n desc }} limit 1 }}"
    [row] = graph.query(source, budget=Budget(rows_max=150_000)).rows()
    assert row == {"c": "a0", "n": (SIZE) * SIZE}


def test_bytes_are_bounded_apart_from_rows(graph: og.Graph) -> None:
    with pytest.raises(BudgetExceeded) as error:
        query(graph, "$a: A $a e $b", "$a, $b", bytes_max=1_000)
    assert error.value.context["limit"] == "bytes"


def test_values_of_the_result_count_as_bytes(graph: og.Graph) -> None:
    # What a cold query loads counts too, so the adjacency is loaded first.
    query(graph, "$a: A $a e $b", "$a, $b, $a.k, $b.k")
    with pytest.raises(BudgetExceeded, match="the result would need"):
        query(graph, "$a: A $a e $b", "$a, $b, $a.k, $b.k", bytes_max=10_000_000)


def test_time_is_bounded(graph: og.Graph) -> None:
    ticks = iter(range(10_000))
    with clock.replaced(elapsed=lambda: float(next(ticks))), pytest.raises(BudgetExceeded) as error:
        query(graph, "$a: A $a e{1,4} $b", "$a, $b", seconds_max=2.5)
    assert error.value.context["limit"] == "seconds"


def test_cancelled_query_stops(graph: og.Graph) -> None:
    token = CancelToken()
    token.cancel()
    with pytest.raises(QueryCancelled):
        query(graph, "$a: A $a e $b", "$b", cancel=token)


def test_cancel_from_another_thread_stops_a_running_query(graph: og.Graph) -> None:
    token = CancelToken()
    outcome: list[OmniGraphError] = []

    def work() -> None:
        try:
            while True:
                query(graph, "$a: A $a e $b", "$b", cancel=token)
        except OmniGraphError as error:
            outcome.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    token.cancel()
    thread.join(60)
    assert [type(error) for error in outcome] == [QueryCancelled]


def test_budget_of_an_empty_graph_is_never_spent(tmp_path: Path) -> None:
    graph = create(tmp_path, schema=SCHEMA)
    assert query(graph, "$a: A $b: A $a e{1,3} $b", "$a, $b", rows_max=0) == []
    assert query(graph, "$a: A $b: A", "count(*) as n", rows_max=1) == [{"n": 0}]
