"""What the tests of the pipeline share: a world with every rule, short ways to load, and what an outcome says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from omnigraph.engine.input import splits
from omnigraph.engine.load.report import LoadReport
from omnigraph.engine.tasks import Threads
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph
from omnigraph.pipeline import load
from tests.support.graph_template import copy_graph


class ThreadsAsExecutors(Threads):
    """Threads that stand for Spark executors, so that the code for executors runs without Spark."""

    engine = "spark"


SCHEMA = """
node Person {
  name: String @key
  email: String? @unique
  level: I32?
  team: String?
  role: enum(lead, member)?
  @unique(team, level)
  @range(level, 0..9)
  @check(team, "^[a-z]+$")
}
node Note {
  text: String
  score: F64? @unique
  tags: [String]?
  at: DateTime?
}
edge Knows: Person -> Person {
  since: Date?
  @unique(src, dst)
}
edge Wrote: Person -> Note @card(0..2)
edge Reports: Person -> Person @card(1..1)
"""
COMMITTED = [
    {"type": "Person", "data": {"name": "ann", "email": "ann@x", "level": 1, "team": "red"}},
    {"type": "Person", "data": {"name": "bob", "email": "bob@x", "level": 2, "team": "red"}},
    {"type": "Note", "data": {"id": "n1", "text": "first", "score": 1.5}},
    {"edge": "Knows", "from": "ann", "to": "bob", "data": {"id": "k1"}},
    {"edge": "Wrote", "from": "ann", "to": "n1", "data": {"id": "w1"}},
    {"edge": "Wrote", "from": "bob", "to": "n1", "data": {"id": "w2"}},
    {"edge": "Reports", "from": "bob", "to": "ann", "data": {"id": "r1"}},
]


_MADE_UP = re.compile(r"\b0[0-9A-HJKMNP-TV-Z]{25}\b")


def lines_of(records: Sequence[object]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in records)


def world(folder: Path) -> Graph:
    """Return a fresh graph of the schema with the committed rows."""
    return copy_graph(folder, SCHEMA, lines_of(COMMITTED))


@contextmanager
def staging_in_files() -> Iterator[None]:
    """Hold no input in memory, however small: tasks stage it in files."""
    with patch("omnigraph.engine.load.load.LOAD_MEMORY_BYTES_MAX", -1):
        yield


@contextmanager
def splits_of(size: int) -> Iterator[None]:
    """Cut files into splits of this many bytes, which tasks stage in files."""
    with patch.object(splits, "LOAD_SPLIT_BYTES", size), staging_in_files():
        yield


def load_bytes(graph: Graph, raw: bytes, folder: Path, mode: str, **options: Any) -> LoadReport:
    """Load NDJSON in process."""
    file = folder / "input.ndjson"
    file.write_bytes(raw)
    return load(graph, file, mode=mode, **{"engine": "local", **options})


def without_made_up(value: object) -> object:
    """Return JSON without ids that are made up."""
    return json.loads(_MADE_UP.sub("ULID", json.dumps(value)))


def told(error: OmniGraphError) -> dict[str, Any]:
    """Return what an error says, without ids that are made up."""
    violations: Any = error.context.get("violations", [])
    names = ("rule", "type_key", "property", "value", "line", "message")
    said = [type(error).__name__, error.message, *([one.get(name) for name in names] for one in violations)]
    return {"said": [_MADE_UP.sub("ULID", str(one)) for one in said]}


def contents(graph: Graph, branch: str = "main") -> list[dict[str, Any]]:
    """Return all entities, without ids that are made up."""
    found = [json.loads(line) for line in b"".join(graph.export(branch=branch)).splitlines()]
    for one in found:
        if len(one["data"].get("id", "")) == 26:
            del one["data"]["id"]
    return sorted(found, key=lambda one: json.dumps(one, sort_keys=True))
