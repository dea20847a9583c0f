"""Every public method of a graph rejects arguments of wrong types with a coded error."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine import arguments
from omnigraph.errors import OmniGraphError, UsageError
from omnigraph.graph import Graph
from tests.support.write_fixtures import fixture

READ = "query q() { match { $p: Port } return { $p.code } }"
# Arguments with which a call is right, but for the one that is tried; nothing here reaches a write.
RIGHT: dict[str, object] = {
    "a": "main", "at": "main", "b": "main", "branch": "main", "commit_id": "none", "cursor": None, "data": b"{",
    "entity_id": "P1", "from_": "main", "if_commit": "none", "into": "main", "name": "none", "new_name": "other",
    "property_name": "country", "schema": "nonsense", "source": READ, "type_name": "Port", "every": timedelta(1),
    "actor": None, "keep": 100, "key": "P1", "dry_run": True, "params": {}, "out": "/", "format": "parquet",
}  # fmt: skip
WRONG = (7.5, b"x", ["x", 7], {"x": 1}, object())
UNLOOKED_AT = {"resolutions", "budget", "embedder", "mode", "dialect", "entity"}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return fixture(tmp_path_factory.mktemp("given") / "g.omni")


def methods(graph: Graph) -> list[tuple[str, Callable[..., Any]]]:
    parts: dict[str, object] = {"": graph, "branches.": graph.branches, "tags.": graph.tags, "schema.": graph.schema}
    parts["at."] = graph.at(graph.snapshot().version)
    found = [
        (f"{part}{name}", getattr(owner, name))
        for part, owner in parts.items()
        for name in dir(type(owner))
        if not name.startswith("_") and not isinstance(getattr(type(owner), name), property)
    ]
    return [(name, method) for name, method in found if inspect.signature(method).parameters]


def escaped(graph: Graph) -> list[str]:
    """Call every method with wrong values in the place of each argument; return what was no error of ours."""
    found = []
    for name, method in methods(graph):
        wanted = inspect.signature(method).parameters
        right = {one: RIGHT[one] for one in wanted if one in RIGHT}
        for argument in wanted:
            for value in WRONG if argument not in UNLOOKED_AT and wanted[argument].annotation != "bool" else ():
                try:
                    answer = method(**{**right, argument: value})
                    if inspect.isgenerator(answer):
                        list(answer)
                except OmniGraphError:
                    continue
                except Exception as error:  # noqa: BLE001 - whatever escapes is what is looked for
                    found.append(f"{name}({argument}={value!r}): {type(error).__name__}")
    return found


@pytest.mark.slow
def test_methods_of_a_graph_reject_arguments_of_wrong_types(graph: Graph) -> None:
    assert len(methods(graph)) > 30
    before = graph.snapshot().version
    assert escaped(graph) == []
    assert graph.snapshot().version == before


@pytest.mark.slow
def test_methods_without_the_checks_let_other_errors_escape(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A clone to a path that is none would be made in this folder.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(arguments, "isinstance", lambda *_: True, raising=False)
    assert len(escaped(graph)) > 50


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda graph: graph.query(READ, branch=None), "`branch` must be a string, got `NoneType`"),
        (lambda graph: graph.query(7), "`source` must be a string or a path, got `int`"),
        (lambda graph: graph.query(READ, [1]), "parameters are given by name"),
        (lambda graph: graph.export(types="Port"), "`types` must be a list of names, got `str`"),
        (lambda graph: graph.maintenance.cleanup(older_than=7), "`older_than` must be a timedelta, got `int`"),
        (lambda graph: graph.ingest(7), "`int` cannot be read as input"),
        (lambda graph: graph.ingest("a\0b"), "null byte"),
        (lambda _: og.open(7), "`uri` must be a string or a path, got `int`"),  # type: ignore[arg-type]
    ],
)
def test_error_names_the_argument_and_the_expected_type(
    graph: Graph, call: Callable[[Graph], object], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        call(graph)
    assert words in caught.value.message
