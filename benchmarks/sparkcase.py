"""Sums and merges in a process of their own: `python -m benchmarks.sparkcase CASE FOLDER …`.

Prints the CPU seconds of the process and all that it started, whether it still runs or not.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

_TICKS = os.sysconf("SC_CLK_TCK")


def start(folder: str) -> None:
    """Start Spark alone, with a query that needs no Python."""
    _spark().range(10).collect()


def sum_parquet(folder: str) -> None:
    """Sum a column of a file up."""
    _spark().read.parquet(f"{folder}/people.parquet").agg({"age": "sum"}).collect()


def sum_graph(folder: str) -> None:
    """Sum the same column of a type up."""
    options = {"graph": f"{folder}/people.omni", "type": "Person", "columns": "age"}
    _spark().read.format("omnigraph").options(**options).load().agg({"age": "sum"}).collect()


def merge(engine: Literal["local", "spark"], folder: str, branch: str) -> None:
    """Merge a branch."""
    import omnigraph as og

    with og.open(f"{folder}/merge.omni") as graph:
        graph.on(engine=engine).branches.merge(branch)


def _spark() -> Any:
    from omnigraph.spark.session import session

    return session("local[2]")


CASES: dict[str, Callable[..., None]] = {
    "start": start,
    "sum_parquet": sum_parquet,
    "sum_graph": sum_graph,
    "merge_local": partial(merge, "local"),
    "merge_spark": partial(merge, "spark"),
}


def tree_seconds(process: int) -> float:
    """Return the CPU seconds of a process, of those that it has waited for, and of all below it."""
    return sum(_seconds(each) for each in _tree(process))


def _tree(process: int) -> Iterator[int]:
    yield process
    for task in Path(f"/proc/{process}/task").iterdir():
        # A thread may end at any moment.
        with suppress(OSError):
            for child in (task / "children").read_text().split():
                yield from _tree(int(child))


def _seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


def main(words: list[str]) -> None:
    case, *arguments = words
    CASES[case](*arguments)
    print(json.dumps({"seconds": tree_seconds(os.getpid())}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
