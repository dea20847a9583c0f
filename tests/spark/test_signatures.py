"""Functions of the pipeline choose their engine in the same way: `engine`, `spark`, `master` and `progress`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.spark import executors
from omnigraph.spark.algo import MeasureOptions
from tests.support.graph_template import copy_built

SCHEMA = """
node Person {
  name: String @key
  words: Vector(4)? @embed(name)
  rank: F64?
}
edge Knows: Person -> Person
"""
CHOICE = {"engine": "auto", "spark": None, "master": None, "progress": None}
MEASURES = [getattr(pipeline.algo, name) for name in pipeline.algo.__all__ if name[0].islower()]
# What a pipeline runs on is part of its declaration.
DECLARED = ("run", "retry_rejected", "check", "read_pipelines", "plan_run", "list_runs", "schedule")
FUNCTIONS = [
    getattr(pipeline, name)
    for name in pipeline.__all__
    if name not in ("register", "session", "algo", *DECLARED) and name[0].islower()
]
QUERY = "query q() { match { $p: Person } return { $p.name } }"
Call = Callable[..., Any]
CALLS: dict[str, Callable[[og.Graph, Path], tuple[Call, list[Any]]]] = {
    "load": lambda graph, out: (pipeline.load, [graph, _people(out)]),
    "apply_schema": lambda graph, out: (
        pipeline.apply_schema,
        [graph, SCHEMA.replace("rank: F64?", "rank: F64?  level: I32 @default(1)")],
    ),
    "infer_schema": lambda graph, out: (pipeline.infer_schema, [_people(out)]),
    "export": lambda graph, out: (pipeline.export, [graph, out / "export"]),
    "embed": lambda graph, out: (pipeline.embed, [graph]),
    "merge": lambda graph, out: (pipeline.merge, [graph, "review"]),
    "optimize": lambda graph, out: (pipeline.optimize, [graph]),
    "verify": lambda graph, out: (pipeline.verify, [graph]),
    "diff": lambda graph, out: (pipeline.diff, [graph, "main", "review"]),
    "query": lambda graph, out: (pipeline.query, [graph, QUERY]),
    "degree": lambda graph, out: (pipeline.algo.degree, [graph]),
    "components": lambda graph, out: (pipeline.algo.components, [graph]),
    "pagerank": lambda graph, out: (pipeline.algo.pagerank, [graph]),
    "label_propagation": lambda graph, out: (pipeline.algo.label_propagation, [graph]),
}
# They return a DataFrame, which only Spark has.
FRAMES = ("diff", "query")


def _people(folder: Path) -> Path:
    path = folder / "people.ndjson"
    path.write_text('{"type": "Person", "data": {"name": "Eve"}}\n')
    return path


def build(path: Path) -> og.Graph:
    graph = og.init(path, schema=SCHEMA)
    graph.ingest([{"type": "Person", "data": {"name": name}} for name in ("Ada", "Bob")])
    graph.ingest([{"edge": "Knows", "from": "Ada", "to": "Bob"}])
    graph.branches.create("review")
    graph.ingest([{"type": "Person", "data": {"name": "Cid"}}], branch="review")
    graph.ingest([{"type": "Person", "data": {"name": "Dee"}}])
    return graph


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[og.Graph]:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    with copy_built(build, tmp_path / "g.omni") as opened:
        yield opened


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_function_takes_every_choice_by_keyword(function: Call) -> None:
    parameters = inspect.signature(function).parameters
    assert next(iter(parameters)) == ("data" if function is pipeline.infer_schema else "graph")
    assert {name: parameters[name].default for name in CHOICE} == CHOICE
    assert {parameters[name].kind for name in CHOICE} == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("function", MEASURES, ids=lambda function: function.__name__)
def test_measure_takes_every_choice_as_an_option(function: Call) -> None:
    assert CHOICE.keys() <= MeasureOptions.__annotations__.keys()
    assert "options" in inspect.signature(function).parameters


def test_every_function_is_called_below() -> None:
    assert {function.__name__ for function in (*FUNCTIONS, *MEASURES)} == CALLS.keys()


@pytest.mark.parametrize("name", sorted(CALLS))
def test_choices_that_contradict_each_other_are_refused(name: str, graph: og.Graph, tmp_path: Path) -> None:
    function, arguments = CALLS[name](graph, tmp_path)
    for choice in (
        {"engine": "local", "spark": object()},
        {"spark": object(), "master": "local"},
        {"engine": "abacus"},
    ):
        with pytest.raises(og.UsageError):
            function(*arguments, **choice)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_progress_is_reported_without_spark(name: str, graph: og.Graph, tmp_path: Path) -> None:
    function, arguments = CALLS[name](graph, tmp_path)
    seen: list[tuple[str, int, int]] = []

    def watch(stage: str, done: int, total: int, unit: str) -> None:
        seen.append((stage, done, total))

    if name in FRAMES:
        with pytest.raises(og.UsageError, match=f"use `graph.{name}`"):
            function(*arguments, engine="local", progress=watch)
        return
    function(*arguments, engine="local", progress=watch)
    assert seen
    assert all(0 <= done <= total for _, done, total in seen)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_session_of_the_caller_is_used(name: str, graph: og.Graph, tmp_path: Path) -> None:
    """A session that fails on its first use shows that the function asked it, and started no other."""

    class Broken:
        def __getattr__(self, attribute: str) -> Any:
            raise RuntimeError(f"asked for {attribute}")

    def start(master: str | None) -> Any:
        raise AssertionError("another session was started")

    function, arguments = CALLS[name](graph, tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executors, "start_executors", start)
        with pytest.raises(RuntimeError, match="asked for"):
            function(*arguments, spark=Broken())
