"""One optimize in a process of its own, that times itself: `python -m benchmarks.maintaincase CASE ROOT`.

Prints how long it took, without the start of anything, and how long Spark took to start.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path


def ours(root: str) -> float:
    """Optimize in process."""
    import omnigraph as og

    with og.open(root) as graph:
        start = time.perf_counter()
        assert graph.maintenance.optimize().commit is not None
        return time.perf_counter() - start


def lance(root: str) -> float:
    """Let Lance compact every dataset and bring its indexes up to date, with the same size of fragments."""
    import lance as pylance

    from omnigraph.store.write.transaction import ROWS_PER_FILE

    datasets = [pylance.dataset(path) for path in sorted([*Path(root).glob("nodes/*"), *Path(root).glob("edges/*")])]
    start = time.perf_counter()
    for one in datasets:
        one.optimize.compact_files(target_rows_per_fragment=ROWS_PER_FILE)
        one.optimize.optimize_indices()
    return time.perf_counter() - start


def spark(root: str, cores: int) -> float:
    """Optimize on Spark, once its workers are there."""
    import omnigraph as og
    from omnigraph import pipeline
    from omnigraph.spark.executors import Executors
    from omnigraph.spark.session import session

    start = time.perf_counter()
    Executors(session(f"local[{cores}]")).run("starting", abs, list(range(cores)))
    print(json.dumps({"start": time.perf_counter() - start}), flush=True)
    with og.open(root) as graph:
        start = time.perf_counter()
        assert pipeline.optimize(graph, engine="spark").commit is not None
        return time.perf_counter() - start


CASES: dict[str, Callable[[str], float]] = {
    "ours": ours,
    "lance": lance,
    "spark1": lambda root: spark(root, 1),
    "spark2": lambda root: spark(root, 2),
}


if __name__ == "__main__":
    print(json.dumps({"seconds": CASES[sys.argv[1]](sys.argv[2])}), flush=True)
