"""Freezes a small graph of the format that this release writes: `python -m tests.formats.frozen_formats`.

What is frozen is never made again: it is how graphs of that format looked when they were young.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
from pathlib import Path

import omnigraph as og
from omnigraph.manifest.catalog_format import FORMAT_STAMP

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"


def make(root: str) -> og.Graph:
    """Make a graph with a little of everything that a catalog can say."""
    graph = og.init(root, SCHEMA, actor="ann")
    graph.ingest([{"type": "Person", "data": {"name": name}} for name in ("ada", "bob")])
    graph.tags.create("first")
    graph.ingest([{"edge": "Knows", "from": "ada", "to": "bob"}])
    graph.mutate('query q() { update Person set { age: 36 } where name = "ada" }')
    return graph


def frozen(format_stamp: int) -> Path:
    """Return where the graph of a format is kept."""
    return Path(__file__).with_name(f"format-{format_stamp}.tar.gz")


def thaw(format_stamp: int, folder: Path) -> Path:
    """Unpack the graph of a format, and return its root. It has no branches, which keep absolute paths."""
    with tarfile.open(frozen(format_stamp)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "graph.omni"


def main() -> None:
    target = frozen(FORMAT_STAMP)
    assert not target.exists(), f"{target.name} is frozen"
    with tempfile.TemporaryDirectory() as folder:
        with make(f"{folder}/graph.omni"):
            pass
        body = io.BytesIO()
        with tarfile.open(fileobj=body, mode="w:gz") as archive:
            archive.add(f"{folder}/graph.omni", "graph.omni")
    target.write_bytes(body.getvalue())


if __name__ == "__main__":
    main()
