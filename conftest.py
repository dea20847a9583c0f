"""Examples in docstrings of the public API run on a small graph of their own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_SCHEMA = """
node Person {
  name: String @key
  age: I32?
}
edge Knows: Person -> Person
"""
_PEOPLE = [
    {"type": "Person", "data": {"name": "Ada", "age": 36}},
    {"type": "Person", "data": {"name": "Bob", "age": 41}},
    {"edge": "Knows", "from": "Ada", "to": "Bob"},
]
_WORDS = (">>> graph.", "(graph", " graph.", "(path)")


@pytest.fixture(scope="session")
def example_graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import omnigraph as og

    path = tmp_path_factory.mktemp("example") / "people.omni"
    with og.init(path, schema=_SCHEMA) as graph:
        graph.ingest(_PEOPLE)
    return path


@pytest.fixture(autouse=True)
def _example_namespace(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> Iterator[None]:
    example = getattr(request.node, "dtest", None)
    if example is None or not any(word in f" {example.docstring}" for word in _WORDS):
        yield
        return
    import omnigraph as og

    folder: Path = request.getfixturevalue("tmp_path")
    shutil.copytree(request.getfixturevalue("example_graph"), folder / "people.omni")
    with og.open(folder / "people.omni") as graph:
        doctest_namespace.update(og=og, graph=graph, path=str(folder / "people.omni"))
        yield
