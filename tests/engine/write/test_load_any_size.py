"""`graph.load`: one call for every input, which writes what is small at once and the rest in bulk."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

import omnigraph as og
from omnigraph.engine.input import spool
from omnigraph.engine.load import load
from omnigraph.engine.load.buckets import InBuckets
from omnigraph.engine.load.memory import InMemory
from omnigraph.limits import LOAD_MEMORY_BYTES_MAX, WRITE_ENTITIES_MAX

SCHEMA = "node Person { name: String @key  age: I64? }\nedge Knows: Person -> Person"
MANY = WRITE_ENTITIES_MAX + 1


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> og.Graph:
    monkeypatch.chdir(tmp_path)
    return og.init(tmp_path / "g.omni", SCHEMA)


def records(count: int) -> list[dict[str, Any]]:
    return [{"type": "Person", "data": {"name": f"p{number}", "age": number}} for number in range(count)]


def lines(count: int) -> bytes:
    return "".join(f"{json.dumps(record)}\n" for record in records(count)).encode()


def table(count: int) -> pa.Table:
    return pa.table({"name": [f"p{number}" for number in range(count)], "age": range(count)})


def inputs(kind: str, count: int) -> dict[str, Any]:
    """Return the arguments of a load of so many people, as one kind of input."""
    path = Path("people.ndjson")
    path.write_bytes(lines(count))
    pyarrow.csv.write_csv(table(count), "people.csv")
    made: dict[str, Callable[[], dict[str, Any]]] = {
        "dictionaries": lambda: {"data": records(count)},
        "iterator": lambda: {"data": iter(records(count))},
        "bytes": lambda: {"data": lines(count)},
        "path": lambda: {"data": path},
        "paths": lambda: {"data": [str(path)]},
        "binary file": lambda: {"data": io.BytesIO(lines(count))},
        "text file": lambda: {"data": io.StringIO(lines(count).decode())},
        "table": lambda: {"nodes": {"Person": table(count)}},
        "reader": lambda: {"nodes": {"Person": table(count).to_reader()}},
        "csv": lambda: {"nodes": {"Person": "people.csv"}},
    }
    return made[kind]()


KINDS = ["dictionaries", "iterator", "bytes", "path", "paths", "binary file", "text file", "table", "reader", "csv"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [2, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("memory", [pytest.param(1, marks=pytest.mark.slow), LOAD_MEMORY_BYTES_MAX])
def test_load_takes_every_kind_and_size(
    kind: str, count: int, memory: int, graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (load, spool):
        monkeypatch.setattr(module, "LOAD_MEMORY_BYTES_MAX", memory)
    receipt = graph.load(**inputs(kind, count), branch="review", from_branch="main")
    assert (receipt.total_entities, receipt.branch_created) == (count, True)
    assert graph.get("Person", f"p{count - 1}", branch="review") == {
        "id": f"p{count - 1}",
        "name": f"p{count - 1}",
        "age": count - 1,
    }
    assert graph.commit(receipt.commit_id or "").kind == "load"


@pytest.fixture
def stagings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note where inputs are staged, and how often."""
    staged: list[str] = []
    for kind in (InMemory, InBuckets):

        def stage(self: Any, *tasks: Any, kind: Any = kind, real: Any = kind.stage) -> None:
            staged.append(kind.__name__)
            real(self, *tasks)

        monkeypatch.setattr(kind, "stage", stage)
    return staged


@pytest.mark.parametrize("kind", KINDS)
def test_size_is_known_before_anything_is_decoded(
    kind: str, graph: og.Graph, stagings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (load, spool):
        monkeypatch.setattr(module, "LOAD_MEMORY_BYTES_MAX", 10_000)
    for count in (2, 2_000):
        graph.load(**inputs(kind, count))
    assert stagings == ["InMemory", "InBuckets"]


def test_size_that_was_guessed_too_low_costs_memory_only(
    graph: og.Graph, stagings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (load, spool):
        monkeypatch.setattr(module, "LOAD_MEMORY_BYTES_MAX", 20_000)
    people = [*records(200), {"type": "Person", "data": {"name": "long" * 10_000}}]
    assert (graph.load(people).total_entities, stagings) == (201, ["InMemory"])


def test_load_of_wrong_data_writes_nothing(graph: og.Graph) -> None:
    head = graph.snapshot().head
    for data in (b'{"type": "Nobody", "data": {}}', [{"type": "Nobody", "data": {}}]):
        with pytest.raises(og.DataError):
            graph.load(data)
    assert graph.snapshot().head == head
