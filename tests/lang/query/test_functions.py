"""The table of functions: both engines and the reference know every name, and the documented examples are true."""

from __future__ import annotations

import json
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine.query.functions import IMPLEMENTATIONS
from omnigraph.lang.query.functions import FUNCTIONS, Function
from tests.oracle import functions as reference

# Known to the expression compiler itself: it reads the clock of the query.
_COMPILED = {"today"}


def test_engine_implements_every_function_and_no_other() -> None:
    assert set(IMPLEMENTATIONS) | _COMPILED == set(FUNCTIONS)


def test_reference_evaluator_knows_every_function() -> None:
    assert set(reference.FUNCTIONS) == set(FUNCTIONS)


def test_language_page_holds_the_table_of_functions() -> None:
    tool = run_path(str(Path(__file__).parents[3] / "tools" / "functions.py"))
    shown = tool["PAGE"].read_text().partition(tool["BEGIN"])[2].partition(tool["END"])[0]
    assert shown == tool["reference_tables"]()


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
