"""Values that move between states of different types: exactly, or as a conflict with both values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine import exact_conversion
from omnigraph.engine.merge import type_merge
from omnigraph.errors import DataError, GraphError, MergeConflict
from tests.support.merge_fixtures import change
from tests.support.write_fixtures import create, rows

pytestmark = pytest.mark.slow
SCHEMA = "node Part {{ name: String @key  size: {0} note: String? }}"
FIRST = '{"type":"Part","data":{"name":"a","size":%s}}'
CASES = [
    ("F32?", "F64?", "1.0", "0.1"),
    ("F32?", "F64?", "1.0", "1e39"),
    ("F32", "F64", "1.0", "1e39"),
    ("I32?", "I64?", "1", str(2**40)),
    ("I32?", "F64?", "1", "2.5"),
    ("U32?", "I64?", "1", "-1"),
    ("[I32]?", "[I64]?", "[1]", f"[3, {2**40}]"),
    ("[F32]?", "[F64]?", "[1.0]", "[1e39]"),
]


def widened(root: Path, narrow: str, wide: str, first: str) -> og.Graph:
    graph = create(root / "graph.omni", SCHEMA.format(narrow), FIRST % first)
    graph.branches.create("dev")
    graph.schema.apply(SCHEMA.format(wide), branch="dev")
    return graph


def set_size(graph: og.Graph, value: str, name: str = "a") -> str:
    line = '{"type":"Part","data":{"name":"%s","size":%s}}' % (name, value)  # noqa: UP031 - braces of JSON
    receipt = graph.load(line.encode(), mode="merge", branch="dev")
    assert receipt.commit is not None
    return str(receipt.commit.commit_id)


def conflicts_of(graph: og.Graph, commit: str) -> list[dict[str, Any]]:
    before = rows(graph, "node:Part")
    with pytest.raises(MergeConflict) as caught:
        graph.cherry_pick(commit)
    assert rows(graph, "node:Part") == before
    found: Any = caught.value.context["conflicts"]
    return list(found)


@pytest.mark.parametrize("name", ["a", "new"])
@pytest.mark.parametrize(("narrow", "wide", "first", "second"), CASES)
def test_pick_of_a_value_that_does_not_fit_is_a_conflict(
    tmp_path: Path, narrow: str, wide: str, first: str, second: str, name: str
) -> None:
    graph = widened(tmp_path, narrow, wide, first)
    [conflict] = conflicts_of(graph, set_size(graph, second, name))
    assert (conflict["kind"], conflict["entity_id"], conflict["properties"]) == (
        "ValueConstraintViolation",
        name,
        ["size"],
    )
    assert conflict["theirs"]["size"] == json.loads(second)
    assert (conflict["ours"] or {}).get("size") == (json.loads(first) if name == "a" else None)
    assert "does not fit the type that it has here" in conflict["message"]


@pytest.mark.parametrize(
    ("narrow", "wide", "first", "second"),
    [
        ("F32?", "F64?", "1.0", "0.5"),
        ("I32?", "I64?", "1", "7"),
        ("I32?", "F64?", "1", "2"),
        ("I32?", "I64?", "1", "null"),
    ],
)
def test_pick_of_a_value_that_fits_converts_it(tmp_path: Path, narrow: str, wide: str, first: str, second: str) -> None:
    graph = widened(tmp_path, narrow, wide, first)
    graph.cherry_pick(set_size(graph, second))
    assert rows(graph, "node:Part")["a"]["size"] == json.loads(second)


def test_pick_leaves_values_alone_that_it_does_not_touch(tmp_path: Path) -> None:
    graph = widened(tmp_path, "F32?", "F64?", "1.0")
    set_size(graph, "1e39")
    commit = set_size(graph, "2.0", "b")
    change(graph, 'update Part set { note: "ours" } where name = "a"')
    graph.cherry_pick(commit)
    assert {key: row["size"] for key, row in rows(graph, "node:Part").items()} == {"a": 1.0, "b": 2.0}
    note = change(graph, 'update Part set { note: "theirs" } where name = "b"', "dev").commit.commit_id
    graph.cherry_pick(note)
    assert rows(graph, "node:Part")["b"]["note"] == "theirs"


def test_pick_does_not_look_at_values_that_only_our_side_has(tmp_path: Path) -> None:
    """No type holds all values of I64 and F64, but entities that the commit does not change need none."""
    graph = widened(tmp_path, "I32?", "F64?", "1")
    graph.schema.apply(SCHEMA.format("I64?"))
    graph.load(b'{"type":"Part","data":{"name":"large","size":9007199254740993}}')
    graph.cherry_pick(set_size(graph, "3", "new"))
    sizes = {key: row["size"] for key, row in rows(graph, "node:Part").items()}
    assert sizes == {"a": 1, "large": 9007199254740993, "new": 3}


def test_pick_of_a_value_that_does_not_fit_can_be_resolved(tmp_path: Path) -> None:
    graph = widened(tmp_path, "F32?", "F64?", "1.0")
    commit = set_size(graph, "1e39")
    [conflict] = graph.cherry_pick(commit, dry_run=True).conflicts
    subject: dict[str, Any] = {"type_key": conflict.type_key, "entity_id": "a"}
    with pytest.raises(GraphError, match=r"1e\+39 of `a.size` does not fit `float`, which would store inf") as caught:
        graph.cherry_pick(commit, resolutions=[{**subject, "take": "theirs"}])
    assert caught.value.code == "merge.resolution"
    graph.cherry_pick(commit, resolutions=[{**subject, "property": "size", "value": 4.0}])
    assert rows(graph, "node:Part")["a"]["size"] == 4.0


def test_revert_across_a_widened_type_restores_the_exact_value(tmp_path: Path) -> None:
    graph = widened(tmp_path, "F32?", "F64?", "0.1")
    commit = set_size(graph, "1e39")
    graph.revert(commit, branch="dev")
    assert rows(graph, "node:Part", "dev")["a"]["size"] == pa.scalar(0.1, pa.float32()).as_py()


def test_conversion_raises_with_both_values() -> None:
    with pytest.raises(DataError, match=r"300 of `T.x` does not fit `int8`, which would store 44"):
        exact_conversion.convert_exactly(pa.chunked_array([[1, 300]]), pa.int8(), "`T.x`")
    kept = exact_conversion.convert_exactly(pa.chunked_array([[1, None]]), pa.int8(), "`T.x`")
    assert kept.to_pylist() == [1, None]


def test_conversion_that_does_not_check_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (exact_conversion, type_merge):
        monkeypatch.setattr(module, "find_inexact", lambda column, type_: np.zeros(len(column), bool))
    graph = widened(tmp_path, "F32?", "F64?", "1.0")
    graph.cherry_pick(set_size(graph, "1e39"))
    assert rows(graph, "node:Part")["a"]["size"] == float("inf")
