"""Counts beyond 64 bits: exact as long as they fit, then a budget error, however many patterns are multiplied."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

import omnigraph as og
from omnigraph.errors import BudgetExceeded

SCHEMA = "node P { k: String @key\n n: I32?\n f: F64? }\nnode Q { k: String @key }\nedge E: P -> P { w: I32? }"
COUNT_MAX = 2**62


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[og.Graph]:
    path: Path = tmp_path_factory.mktemp("counts")
    people = [{"type": "P", "data": {"k": f"p{n}", "n": n, "f": n / 2}} for n in range(10)]
    # Sixteen parallel edges, there and back.
    ends = [("p0", "p1"), ("p1", "p0")] * 16
    edges = [{"edge": "E", "from": start, "to": end, "data": {"w": n}} for n, (start, end) in enumerate(ends)]
    with og.init(path / "g.omni", SCHEMA) as graph:
        graph.ingest(b"\n".join(orjson.dumps(one) for one in [*people, *edges]))
        yield graph


def unconnected(count: int, returned: str, more: str = "") -> str:
    patterns = " ".join(f"$a{place}: P" for place in range(count))
    return f"query q() {{ match {{ {patterns} {more} }} return {{ {returned} }} }}"


@pytest.mark.parametrize(
    "returned", ["count($a0) as c", "$a0.k as k, count($a1) as c", "sum($a0.n) as c", "avg($a1.f)"]
)
@pytest.mark.parametrize("count", [19, 20, 100, 400])
def test_count_beyond_64_bits_is_a_budget_error(graph: og.Graph, count: int, returned: str) -> None:
    with pytest.raises(BudgetExceeded) as caught:
        graph.query(unconnected(count, returned))
    assert caught.value.context["allowed"] == COUNT_MAX
    needed = caught.value.context["needed"]
    assert isinstance(needed, int)
    assert COUNT_MAX < needed < 2**63
    assert orjson.dumps(caught.value.to_json())


def test_count_that_fits_64_bits_is_exact(graph: og.Graph) -> None:
    assert graph.query(unconnected(18, "count($a0) as c")).rows() == [{"c": 10**18}]


@pytest.mark.parametrize("returned", ["count($a0) as c", "sum($a1.f) as c", "sum($a0.n) as c", "count($a3.n) as c"])
@pytest.mark.parametrize("more", ["$z: Q", "$a0.n > 100", "$a399.n > 100"])
def test_nothing_times_a_huge_count_is_nothing(graph: og.Graph, returned: str, more: str) -> None:
    few, many = (graph.query(unconnected(count, returned, more.replace("399", str(count - 1)))) for count in (4, 400))
    assert many.rows() == few.rows()


@pytest.mark.slow
@pytest.mark.parametrize("hops", [14, 15, 16, 17, 40, 300])
def test_ways_over_parallel_edges_are_exact_or_a_budget_error(graph: og.Graph, hops: int) -> None:
    walks = " ".join(f"$a{place} $e{place}: e $a{place + 1}" for place in range(hops))
    query = f"query q() {{ match {{ $a0: P {walks} }} return {{ count($a0) as c }} }}"
    exact = 2 * 16**hops
    if exact <= COUNT_MAX:
        assert graph.query(query).rows() == [{"c": exact}]
        return
    with pytest.raises(BudgetExceeded):
        graph.query(query)


@pytest.mark.parametrize("hops", [150, 400, 900])
def test_count_over_a_long_chain_is_planned_and_run_soon(graph: og.Graph, hops: int) -> None:
    walks = " ".join(f"$a{place} e $a{place + 1}" for place in range(hops))
    started = time.process_time()
    found = graph.query(f"query q() {{ match {{ $a0: P {walks} }} return {{ count($a{hops}) as c }} }}").rows()
    # From two nodes there is one way each, without parallel edges counted apart.
    assert found == [{"c": 2}]
    assert time.process_time() - started < 2, "planning takes more than time in proportion to the walks"
