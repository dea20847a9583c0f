"""GraphML and DOT, read back by networkx and checked against the graph itself."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import networkx
import pytest

import omnigraph as og
from omnigraph.cli import main

SCHEMA = """
node Person { name: String @key  age: I32?  big: U64?  born: Date?  seen: DateTime?  tags: [String]?  ok: Bool?
  height: F64?  face: Blob? }
node Team { name: String @key }
edge Knows: Person -> Person { since: I64? }
edge In: Person -> Team
"""
ODD = 'a<b>&"c"\n\\\té\u0001'
RECORDS: list[dict[str, Any]] = [
    {"type": "Person", "data": {
        "name": "ann", "age": -4, "big": 2**64 - 1, "born": "2024-01-31", "seen": "2024-01-31T10:00:00Z",
        "tags": ["x", 'y"'], "ok": True, "height": 1.5, "face": "base64:aGk=",
    }},
    {"type": "Person", "data": {"name": ODD}},
    {"type": "Team", "data": {"name": "ann"}},
    {"edge": "Knows", "from": "ann", "to": ODD, "data": {"id": "k1", "since": 7}},
    {"edge": "In", "from": ODD, "to": "ann", "data": {"id": "i1"}},
]  # fmt: skip


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    graph = og.init(tmp_path_factory.mktemp("formats") / "g.omni", SCHEMA)
    graph.ingest(RECORDS)
    return graph


def read_graphml(graph: og.Graph, **options: Any) -> Any:
    return networkx.read_graphml(io.BytesIO(b"".join(graph.export(format="graphml", **options))), force_multigraph=True)


def test_graphml_is_read_by_networkx(graph: og.Graph) -> None:
    read = read_graphml(graph)
    odd = f"Person:{ODD.replace(chr(1), chr(0xFFFD))}"
    nodes = dict(read.nodes(data=True))
    assert set(nodes) == {"Person:ann", odd, "Team:ann"}
    assert nodes["Person:ann"] == {
        "type": "Person", "name": "ann", "age": -4, "big": str(2**64 - 1), "born": "2024-01-31",
        "seen": "2024-01-31T10:00:00.000Z", "tags": '["x","y\\""]', "ok": True, "height": 1.5,
    }  # fmt: skip
    assert nodes[odd] == {"type": "Person", "name": ODD.replace("\u0001", "\ufffd")}
    assert {(data["type"], data.get("since")) for *_, data in read.edges(data=True)} == {("Knows", 7), ("In", None)}


def test_graphml_of_an_edge_type_brings_its_ends(graph: og.Graph) -> None:
    read = read_graphml(graph, types=["Knows"])
    # A reader makes up the nodes that edges name, but not their attributes.
    assert [data["type"] for _, data in read.nodes(data=True)] == ["Person", "Person"]
    assert read.number_of_edges() == 1


def test_graphml_of_nothing_is_a_document(tmp_path: Path) -> None:
    with og.init(tmp_path / "g.omni", SCHEMA) as empty:
        root = ElementTree.fromstring(b"".join(empty.export(format="graphml")))
    assert root.tag.endswith("graphml")


def test_dot_quotes_names(graph: og.Graph) -> None:
    text = b"".join(graph.export(format="dot")).decode()
    name = 'a<b>&\\"c\\"\\n\\\\\té\u0001'
    assert f'  "Person:{name}" [label="Person\\n{name}"];\n' in text
    assert f'  "Person:ann" -> "Person:{name}" [label="Knows"];\n' in text
    assert text.startswith("digraph {\n")
    assert text.endswith("}\n")
    assert text.count("\n") == 7


def test_unknown_format_is_refused(graph: og.Graph) -> None:
    with pytest.raises(og.UsageError, match="unknown format `gexf`; expected ndjson, dot, graphml"):
        graph.export(format="gexf")  # type: ignore[arg-type]


def test_command_line_prints_one_document(graph: og.Graph, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["export", graph.uri, "--format", "graphml"]) == 0
    assert capfdbinary.readouterr().out == b"".join(graph.export(format="graphml"))
    assert main(["export", graph.uri, "--format", "dot", "--out", "x"]) == 1
    assert b"redirect standard output" in capfdbinary.readouterr().err
    assert main(["schema", "show", graph.uri, "--format", "mermaid"]) == 0
    assert capfdbinary.readouterr().out.startswith(b"erDiagram\n")
