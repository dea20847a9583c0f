"""How fast the languages are: compile times that people and servers wait for."""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks.topic import Measure, Topic, median_ms
from omnigraph.lang.diagnostic import Source
from omnigraph.lang.query import compile_query
from omnigraph.lang.schema import compile_schema
from tests.support.big_schemas import big_schema
from tests.support.typical_queries import TYPICAL_QUERY, TYPICAL_SCHEMA

DOMAIN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
_LOAD = "import time; start = time.perf_counter(); {}; print((time.perf_counter() - start) * 1000)"
_QUERY_LOAD = _LOAD.format(
    "from omnigraph.lang.query import lint_queries; from omnigraph.lang.catalog import Catalog;"
    " from omnigraph.lang.diagnostic import Source; lint_queries([Source('q', '')], Catalog({}, {}, (), ''))"
)
_SCHEMA_LOAD = _LOAD.format(
    "from omnigraph.lang.schema import compile_schema; from omnigraph.lang.diagnostic import Source;"
    f" compile_schema(Source('s', 'node A {{}}'), domain='{DOMAIN}')"
)


def run() -> Topic:
    catalog = compile_schema(Source("typical.pg", TYPICAL_SCHEMA), domain=DOMAIN).catalog
    query = Source("typical.gq", TYPICAL_QUERY)
    big = Source("big.pg", big_schema())
    size_kb = len(big.text.encode()) / 1_000
    query_ms = median_ms(lambda: compile_query(query, catalog), rounds=300)
    schema_ms = median_ms(lambda: compile_schema(big, domain=DOMAIN), rounds=15)
    return Topic(
        "Languages",
        "Compiling is everything from text to a checked, typed result: for a query its plan, for a schema its catalog.",
        (
            Measure("a typical query", query_ms, 3, rounds=300),
            Measure(f"a schema of {size_kb:.0f} KB", schema_ms, 150, rounds=15),
            Measure("first schema of a process, imports and grammar included", first_use_ms(_SCHEMA_LOAD), rounds=5),
            Measure("first query of a process, imports and grammar included", first_use_ms(_QUERY_LOAD), rounds=5),
        ),
    )


def first_use_ms(program: str) -> float:
    """Return the median of five fresh processes, each timing itself."""
    command = [sys.executable, "-c", program]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(5)]
    return statistics.median(float(run.stdout) for run in runs)
