"""Types with hundreds of properties: the same results by the ways that are chosen for wide rows."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og

COUNT = 300


@pytest.mark.slow
def test_wide_type_is_updated_deleted_and_merged_like_any_other(tmp_path: Path) -> None:
    properties = " ".join(f"p{number}: I32?" for number in range(COUNT))
    graph = og.init(tmp_path / "g.omni", f"node P {{ name: String @key {properties} }}")
    row = {f"p{number}": number for number in range(COUNT)}
    graph.ingest([{"type": "P", "data": {"name": name, **row}} for name in "abc"])
    graph.branches.create("review")
    graph.mutate('query q() { update P set { p1: -1 } where name = "a" }', branch="review")
    graph.mutate('query q() { update P set { p2: -2 } where name = "a" }')
    graph.mutate('query q() { delete P where name = "b" }')
    graph.mutate('query q() { update P set { p3: 0 } where name = "nobody" }')
    graph.branches.merge("review")
    rows = graph.query(
        "query q() { match { $p: P } return { $p.name, $p.p1, $p.p2, $p.p299 } order { $p.name } }"
    ).rows()
    assert [tuple(one.values()) for one in rows] == [("a", -1, -2, 299), ("c", 1, 2, 299)]
