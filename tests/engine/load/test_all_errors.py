"""All that is wrong with an input is reported at once: malformed lines and rules that other lines break, by line."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.engine.load import transaction
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph
from omnigraph.limits import VIOLATIONS_MAX
from omnigraph.rules import validate
from tests.support.pipeline_fixtures import splits_of, staging_in_files

SCHEMA = """
node P { name: String @key  age: I32?  kind: enum(a, b)?  mail: String? @unique  size: I32  @range(age, 0..150) }
edge K: P -> P { n: I32? }
"""
# By row, what is wrong with it: nothing, a value that its type cannot hold, or a rule that it breaks.
ROWS: list[tuple[dict[str, Any], str | None]] = [
    ({"name": "x1", "age": 5, "kind": "a", "mail": "m1", "size": 1}, None),
    ({"name": "x2", "age": 999, "kind": "a", "mail": "m2", "size": 1}, "E8"),
    ({"name": "x3", "age": "old", "kind": "a", "mail": "m3", "size": 1}, "N9"),
    ({"name": "x4", "age": 5, "kind": "z", "mail": "m4", "size": 1}, "E7"),
    ({"name": "x5", "age": 5, "kind": "a", "mail": "m1", "size": 1}, "E5"),
    ({"name": "x6", "age": 5, "kind": "a", "mail": "m6", "size": None}, "N10"),
    ({"name": "x1", "age": 5, "kind": "a", "mail": "m7", "size": 1}, "E5"),
    ({"name": "x8", "age": 5, "kind": "a", "mail": "m8", "size": "q"}, "N10"),
    ({"name": "x9", "age": -1, "kind": "a", "mail": "m9", "size": 1}, "E8"),
]
EXPECTED = [(line, rule) for line, (_, rule) in enumerate(ROWS, 1) if rule]


def as_ndjson(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps({"type": "P", "data": row}).encode() + b"\n" for row in rows)


def as_csv(rows: list[dict[str, Any]]) -> str:
    cells = [["" if value is None else str(value) for value in row.values()] for row in rows]
    return "\n".join(map(",".join, [list(ROWS[0][0]), *cells])) + "\n"


def load_ndjson(graph: Graph, rows: list[dict[str, Any]], **options: Any) -> object:
    Path("p.ndjson").write_bytes(as_ndjson(rows))
    with staging_in_files():
        return pipeline.load(graph, "p.ndjson", engine="local", **options)


def load_csv(graph: Graph, rows: list[dict[str, Any]], **options: Any) -> object:
    Path("p.csv").write_text(as_csv(rows))
    return pipeline.load(graph, nodes={"P": "p.csv"}, engine="local", **options)


# By way, how the rows are loaded, and how many lines come before the first of them.
WAYS: dict[str, tuple[Callable[..., object], int]] = {
    "bulk": (load_ndjson, 0),
    "csv": (load_csv, 1),
    "lines": (lambda graph, rows, **options: graph.ingest(as_ndjson(rows), **options), 0),
    "records": (lambda graph, rows, **o: graph.ingest([{"type": "P", "data": row} for row in rows], **o), 0),
}


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.chdir(tmp_path)
    return og.init("g.omni", schema=SCHEMA)


def errors(graph: Graph, way: str, rows: list[dict[str, Any]], **options: Any) -> list[tuple[int, str]]:
    load, before = WAYS[way]
    with pytest.raises(OmniGraphError) as refused:
        load(graph, rows, **options)
    violations: Any = refused.value.context["violations"]
    assert refused.value.context["line"] == violations[0]["line"]
    return [(violation["line"] - before, violation["rule"]) for violation in violations]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_malformed_lines_and_broken_rules_come_together_by_line(graph: Graph, way: str, mode: str) -> None:
    assert errors(graph, way, [row for row, _ in ROWS], mode=mode) == EXPECTED


@pytest.mark.parametrize("way", ["bulk", "csv"])
def test_errors_of_many_splits_come_by_line(graph: Graph, way: str) -> None:
    with splits_of(64):
        assert errors(graph, way, [row for row, _ in ROWS]) == EXPECTED


@pytest.mark.parametrize("way", WAYS)
def test_entities_that_exist_are_reported_beside_malformed_lines(graph: Graph, way: str) -> None:
    graph.load(as_ndjson([{**ROWS[0][0], "name": "x2", "mail": "other"}, {**ROWS[0][0], "name": "y", "mail": "m4"}]))
    rows = [{**ROWS[0][0], "name": name, "mail": f"m{name[1]}"} for name in ("x1", "x2", "x3", "x4")]
    rows[2]["size"] = "q"
    assert errors(graph, way, rows, mode="append") == [(2, "E11"), (3, "N10"), (4, "E5")]


# What a malformed line would have done is unknown, so nothing is reported that may only follow from its absence.


def no_consequences(graph: Graph) -> None:
    good = ROWS[0][0]
    graph.load(as_ndjson([{**good, "name": "a", "mail": "old"}]))
    moved = [{**good, "name": "a", "mail": "new", "size": "q"}, {**good, "name": "b", "mail": "old"}]
    for way in WAYS:
        assert errors(graph, way, moved, mode="merge") == [(1, "N10")], way
    node = {"type": "P", "data": {**good, "name": "zz", "size": "q"}}
    text = b"".join(json.dumps(line).encode() + b"\n" for line in (node, {"edge": "K", "from": "a", "to": "zz"}))
    Path("edges.ndjson").write_bytes(text)
    for is_in_memory in (True, False):
        with nullcontext() if is_in_memory else staging_in_files(), pytest.raises(OmniGraphError) as refused:
            graph.load("edges.ndjson")
        violations: Any = refused.value.context["violations"]
        assert [(violation["line"], violation["rule"]) for violation in violations] == [(1, "N10")]


def test_consequences_of_malformed_lines_are_not_reported(graph: Graph) -> None:
    no_consequences(graph)


def test_rules_that_need_the_malformed_lines_are_caught(graph: Graph) -> None:
    with patch.object(transaction, "SET_RULES_OF_ROWS_ALONE", validate.SET_RULES), pytest.raises(AssertionError):
        no_consequences(graph)


def test_a_value_that_a_malformed_line_frees_is_not_reported(graph: Graph) -> None:
    with patch.object(transaction, "UnlessReplaced", lambda _, committed: committed), pytest.raises(AssertionError):
        no_consequences(graph)


@pytest.mark.parametrize("way", ["bulk", "lines"])
def test_malformed_lines_that_hide_rules_are_caught(graph: Graph, way: str) -> None:
    with (
        patch.object(transaction, "merge_by_line", lambda malformed, *_: list(malformed)),
        pytest.raises(AssertionError),
    ):
        test_malformed_lines_and_broken_rules_come_together_by_line(graph, way, "merge")


@pytest.mark.parametrize("way", WAYS)
def test_errors_of_both_kinds_end_at_the_limit(graph: Graph, way: str) -> None:
    rows = [{**ROWS[0][0], "name": f"n{number}", "mail": None} for number in range(3 * VIOLATIONS_MAX)]
    for number in range(0, len(rows), 2):
        rows[number]["age"] = "old" if number % 4 else 999
    found = errors(graph, way, rows)
    assert len(found) == VIOLATIONS_MAX
    assert found == [(number + 1, "N9" if number % 4 else "E8") for number in range(0, 2 * VIOLATIONS_MAX, 2)]
