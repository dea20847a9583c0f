"""Examples in docstrings of the public API run on a small graph of their own; those of the client on a served one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

_SCHEMA = """
node Person {
  name: String @key
  age: I32?
  photo: Blob?
}
edge Knows: Person -> Person
"""
_PEOPLE = [
    {"type": "Person", "data": {"name": "Ada", "age": 36, "photo": "base64:UE5HIQ=="}},
    {"type": "Person", "data": {"name": "Bob", "age": 41}},
    {"edge": "Knows", "from": "Ada", "to": "Bob"},
]
_QUERIES = """
query people() { match { $p: Person } return { $p.name as name } order { name asc } }
query add_person($name: String) { insert Person { name: $name } }
"""
_CLIENT = ("omnigraph.client.graph.", "omnigraph.client.endpoints.")
_WORDS = (">>> graph.", "(graph", " graph.", "(path")


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
    path = folder / "people.omni"
    shutil.copytree(request.getfixturevalue("example_graph"), path, copy_function=shutil.copyfile)
    with ExitStack() as stack:
        if example.name.startswith(_CLIENT):
            from tests.support.live_server import serving_graph

            (folder / "stored.gq").write_text(_QUERIES)
            live = stack.enter_context(serving_graph(path, queries=folder / "stored.gq"))
            url = f"http://{live.host}:{live.port}"
            doctest_namespace["graph"] = stack.enter_context(og.connect(url, graph="g"))
        else:
            doctest_namespace["graph"] = stack.enter_context(og.open(path))
        doctest_namespace.update(og=og, path=str(path))
        yield
