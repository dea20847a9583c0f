"""Unsigned integers from 2^63 on can be asked for: as literals, in lists, and as parameters."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.graph import Graph

LARGE, LARGER = 2**63, 2**64 - 1


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = og.init(tmp_path_factory.mktemp("u64") / "g.omni", "node P { name: String @key  n: U64? }")
    values = {"small": 5, "large": LARGE, "larger": LARGER, "none": None}
    graph.ingest([{"type": "P", "data": {"name": name, "n": value}} for name, value in values.items()])
    return graph


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (f"$p.n = {LARGER}", ["larger"]),
        (f"$p.n > {LARGE - 1}", ["large", "larger"]),
        (f"$p.n < {LARGER}", ["large", "small"]),
        (f"$p.n != {LARGE}", ["larger", "small"]),
        (f"$p.n in [{LARGE}, 5]", ["large", "small"]),
        (f"$p.n in [5, {LARGER}]", ["larger", "small"]),
    ],
)
def test_unsigned_literal_compares_by_its_value(graph: Graph, condition: str, expected: list[str]) -> None:
    found = graph.query(f"query q() {{ match {{ $p: P {condition} }} return {{ $p.name }} }}")
    assert sorted(row["p.name"] for row in found.rows()) == expected


@pytest.mark.parametrize("value", [LARGER, str(LARGER)])
def test_unsigned_parameter_may_be_as_large_as_its_type(graph: Graph, value: object) -> None:
    found = graph.query("query q($n: U64) { match { $p: P $p.n = $n } return { $p.name } }", params={"n": value})
    assert found.rows() == [{"p.name": "larger"}]


def test_list_of_unsigned_and_negative_literals_is_refused(graph: Graph) -> None:
    with pytest.raises(og.errors.OmniGraphError, match="cannot hold"):
        graph.query(f"query q() {{ match {{ $p: P $p.n in [{LARGE}, -1] }} return {{ $p.name }} }}")


def test_unsigned_literal_is_written_and_matched_by_mutations(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", "node P { name: String @key  n: U64? }")
    graph.ingest([{"type": "P", "data": {"name": "a", "n": LARGER}}])
    graph.mutate(f"query q() {{ update P set {{ n: {LARGE} }} where n = {LARGER} }}")
    assert graph.query("query q() { match { $p: P } return { $p.n } }").rows() == [{"p.n": LARGE}]
