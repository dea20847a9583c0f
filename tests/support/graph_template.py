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


@cache
def _template(schema: str, data: bytes) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="omnigraph-template-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with og.init(folder / "g.omni", schema) as graph:
        graph.ingest(data, mode="append")
    return folder / "g.omni"
