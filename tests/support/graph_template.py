"""Graphs that many tests start from: built once in a process, then copied."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.graph import Graph


def copy_graph(target: Path | str, schema: str, data: bytes) -> Graph:
    """Return a new graph of a schema with some lines of data; its identifiers are those of every other copy."""
    return _copy(_template(schema, data), target)


def copy_built(build: Callable[[Path], Graph], target: Path | str, **options: Any) -> Graph:
    """Return a copy, opened with some options, of the graph that a function builds at a path."""
    return _copy(_built(build), target, **options)


def build_graph(target: Path | str, schema: str, data: bytes) -> Graph:
    """Return such a graph that is made now, for tests that hold the clock."""
    graph = og.init(target, schema)
    if data:
        graph.ingest(data, mode="append")
    return graph


def _copy(template: Path, target: Path | str, **options: Any) -> Graph:
    shutil.copytree(template, target, copy_function=shutil.copyfile)
    return og.open(target, **options)


@cache
def _template(schema: str, data: bytes) -> Path:
    path = _new_path()
    build_graph(path, schema, data).close()
    return path


@cache
def _built(build: Callable[[Path], Graph]) -> Path:
    path = _new_path()
    build(path).close()
    return path


def _new_path() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="omnigraph-template-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder / "g.omni"
