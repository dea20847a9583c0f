"""The tables of functions and aggregates: engines and reference know the names, and the examples are true."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine.query.aggregate import KERNELS
from omnigraph.engine.query.functions import IMPLEMENTATIONS
from omnigraph.lang.query.functions import AGGREGATES, FUNCTIONS, SAMPLE, AggregateFunction, Function
from omnigraph.spark.query.aggregates import EXPRESSIONS
from tests.oracle import aggregates
from tests.oracle import functions as reference
from tools import built_docs

# Where aggregates are computed, in process and on Spark; the table has their names in `usage` only.
DISPATCHES = {"engine/query/aggregate.py", "spark/query/aggregates.py"}
# Known to the expression compiler itself: it reads the clock of the query.
_COMPILED = {"today"}


def test_engine_implements_every_function_and_no_other() -> None:
    assert set(IMPLEMENTATIONS) | _COMPILED == set(FUNCTIONS)


def test_reference_evaluator_knows_every_function() -> None:
    assert set(reference.FUNCTIONS) == set(FUNCTIONS)
    assert set(aggregates.AGGREGATES) == set(AGGREGATES)


def test_both_engines_implement_every_aggregate_and_no_other() -> None:
    assert set(KERNELS) == set(EXPRESSIONS) == set(AGGREGATES)


def test_only_the_table_and_the_engines_name_aggregates() -> None:
    package = Path(og.__file__).parent
    folders = [package / part for part in ("lang/query", "lang/editor", "engine/query", "spark/query")]
    paths = {path.relative_to(package).as_posix(): path for folder in folders for path in folder.rglob("*.py")}
    assert {name for name, path in paths.items() if find_aggregate_names(path.read_text())} == DISPATCHES


def test_list_of_aggregates_elsewhere_is_noticed() -> None:
    assert find_aggregate_names('if call.function in ("sum", "avg"): pass') == ["sum", "avg"]


def find_aggregate_names(source: str) -> list[str]:
    """Return the strings of a source that name aggregates; `count` is a word of patterns, too."""
    strings = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return [value for value in strings if isinstance(value, str) and value in AGGREGATES.keys() - {"count"}]


def test_language_page_lists_every_function_and_aggregate() -> None:
    page = built_docs.read_page("languages.md")
    assert all(f"| `{function.name}` |" in page for function in FUNCTIONS.values())
    assert all(f"| `{aggregate.usage}` |" in page for aggregate in AGGREGATES.values())


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path: Path = tmp_path_factory.mktemp("functions")
    graph = og.init(path / "one.omni", "node One { name: String @key }")
    graph.mutate('query q() { insert One { name: "one" } }')
    return graph


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda item: item.name)
def test_documented_example_gives_its_result(function: Function, graph: Any) -> None:
    [row] = graph.query(f"query q() {{ match {{ $o: One }} return {{ {function.example} as x }} }}").to_json_rows()
    expected = json.loads(function.result)
    assert (row["x"], type(row["x"])) == (expected, type(expected))


@pytest.mark.parametrize("aggregate", AGGREGATES.values(), ids=lambda item: item.name)
def test_documented_aggregate_gives_its_results(aggregate: AggregateFunction, graph: Any) -> None:
    for values, expected in ((SAMPLE, aggregate.result), ((), aggregate.empty)):
        call = aggregate.usage.replace("(x", "($x")
        source = f"query q($list: [I64]) {{ match {{ $o: One  unwind $list as $x }} return {{ {call} as x }} }}"
        [row] = graph.query(source, {"list": list(values)}).to_json_rows()
        assert json.dumps(row["x"]) == expected
