"""Paths by weight and by hops: the questions, and the two processes that answer them.

`python -m benchmarks.path_worker serve ours|scipy HOME`. SciPy runs in the peers' environment, which lacks OmniGraph.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.reads.engines import Ask, Params
from benchmarks.reads.lines import Draw, Line
from benchmarks.reads.worker import Session, serve_requests

K = 5
_ENDS = "$a: Place { code: $start } $b: Place { code: $end }"
_BOTH = "query q($start: String, $end: String)"

PATH_LINES = (
    Line(
        "lightest",
        "the lightest path between two places",
        f"{_BOTH} {{ match {{ {_ENDS} path $p = shortest $a road{{1,}} $b by fee }}"
        " return { cost($p) as cost, length($p) as hops } }",
        "",
        "",
        Draw.PAIR,
        calls=5,
    ),
    Line(
        "k_lightest",
        f"the {K} lightest paths between two places",
        f"{_BOTH} {{ match {{ {_ENDS} path $p = shortest {K} $a road{{1,}} $b by fee }}"
        " return { cost($p) as cost, length($p) as hops } }",
        "",
        "",
        Draw.PAIR,
        calls=2,
    ),
    Line(
        "lightest_to_all",
        "the lightest paths from one place to all",
        "query q($start: String) { match { $a: Place { code: $start } path $p = shortest $a road{1,} $b by fee }"
        " return { $b.number as number, cost($p) as cost } }",
        "",
        "",
        Draw.PERSON,
        calls=3,
    ),
    Line(
        "fewest_hops",
        "the path of fewest hops between two places",
        f"{_BOTH} {{ match {{ {_ENDS} path $p = shortest $a road{{1,}} $b }} return {{ length($p) as hops }} }}",
        "",
        "",
        Draw.PAIR,
        calls=5,
    ),
)
BY_NAME = {line.name: line for line in PATH_LINES}


def number_of(code: str) -> int:
    """Return the number in the code of a place."""
    return int(code.removeprefix("p"))


class OmniGraph:
    def __init__(self, home: Path) -> None:
        import omnigraph as og

        self.graph = og.open(home, read_only=True)

    def ask(self, line: Line) -> Ask:
        return lambda params: self.graph.query(line.gq, params=params).to_arrow()


class SciPy:
    """`scipy.sparse.csgraph` on a matrix in memory, which has an entry for each pair of places already."""

    def __init__(self, home: Path) -> None:
        from scipy.sparse import csr_array

        roads = np.load(home)
        size = int(roads["size"])
        # Of a narrow type, as its searches want them, so that no call converts it.
        ends = (roads["start"].astype(np.int32), roads["end"].astype(np.int32))
        self.matrix = csr_array((roads["fee"], ends), shape=(size, size))

    def ask(self, line: Line) -> Ask:
        answer: Ask = getattr(self, line.name)
        return answer

    def lightest(self, params: Params) -> pa.Table:
        from scipy.sparse.csgraph import dijkstra

        start, end = number_of(params["start"]), number_of(params["end"])
        costs, before = dijkstra(self.matrix, indices=start, return_predecessors=True)
        if not np.isfinite(costs[end]):
            return _costs([], [])
        return _costs([costs[end]], [_hops(before, start, end)])

    def k_lightest(self, params: Params) -> pa.Table:
        from scipy.sparse.csgraph import yen

        start, end = number_of(params["start"]), number_of(params["end"])
        costs, before = yen(self.matrix, start, end, K, return_predecessors=True)
        return _costs(costs, [_hops(row, start, end) for row in before])

    def lightest_to_all(self, params: Params) -> pa.Table:
        from scipy.sparse.csgraph import dijkstra

        start = number_of(params["start"])
        costs = dijkstra(self.matrix, indices=start)
        costs[start] = np.inf
        reached = np.flatnonzero(np.isfinite(costs))
        return pa.table({"number": reached, "cost": costs[reached]})

    def fewest_hops(self, params: Params) -> pa.Table:
        from scipy.sparse.csgraph import breadth_first_order

        start, end = number_of(params["start"]), number_of(params["end"])
        _, before = breadth_first_order(self.matrix, start)
        return pa.table({"hops": [_hops(before, start, end)] if before[end] >= 0 else []})


def _costs(costs: Any, hops: list[int]) -> pa.Table:
    return pa.table({"cost": pa.array(costs, pa.float64()), "hops": pa.array(hops, pa.int64())})


def _hops(before: Any, start: int, end: int) -> int:
    """Return how many steps lead back from an end to the start."""
    hops = 0
    while end != start:
        end, hops = before[end], hops + 1
    return hops


def main(words: list[str]) -> None:
    _, name, home = words
    engine = OmniGraph(Path(home)) if name == "ours" else SciPy(Path(home))
    serve_requests(Session(engine, BY_NAME))


if __name__ == "__main__":
    main(sys.argv[1:])
