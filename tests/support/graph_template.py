"""Graphs that many tests start from: built once in a process, then copied."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import omnigraph as og
from omnigraph.graph import Graph


def copy_graph(target: Path | str, schema: str, data: bytes) -> Graph:
    """Return a new graph of a schema with some lines of data; its identifiers are those of every other copy."""
    shutil.copytree(_template(schema, data), target)
    return og.open(target)


def build_graph(target: Path | str, schema: str, data: bytes) -> Graph:
    """Return such a graph that is made now, for tests that hold the clock."""
    graph = og.init(target, schema)
    graph.ingest(data, mode="append")
    return graph


@cache
def _template(schema: str, data: bytes) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="omnigraph-template-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    build_graph(folder / "g.omni", schema, data).close()
    return folder / "g.omni"
