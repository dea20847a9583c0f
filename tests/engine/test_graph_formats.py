"""GraphML and GEXF, read back by networkx, DOT and Cypher, read by hand, checked against the graph itself."""

from __future__ import annotations

import io
import json
import math
import re
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


def test_gexf_is_read_by_networkx(graph: og.Graph) -> None:
    read = networkx.read_gexf(io.BytesIO(b"".join(graph.export(format="gexf"))))
    odd = f"Person:{ODD.replace(chr(1), chr(0xFFFD))}"
    nodes = dict(read.nodes(data=True))
    assert set(nodes) == {"Person:ann", odd, "Team:ann"}
    assert nodes["Person:ann"] == {
        "label": "ann", "type": "Person", "name": "ann", "age": -4, "big": str(2**64 - 1), "born": "2024-01-31",
        "seen": "2024-01-31T10:00:00.000Z", "tags": '["x","y\\""]', "ok": True, "height": 1.5,
    }  # fmt: skip
    assert nodes[odd]["name"] == ODD.replace("\u0001", "\ufffd")
    edges = {(source, target, data["type"], data.get("since")) for source, target, data in read.edges(data=True)}
    assert edges == {("Person:ann", odd, "Knows", 7), (odd, "Team:ann", "In", None)}


def test_gexf_of_nothing_is_a_document(tmp_path: Path) -> None:
    with og.init(tmp_path / "g.omni", SCHEMA) as empty:
        assert not networkx.read_gexf(io.BytesIO(b"".join(empty.export(format="gexf"))))


LITERAL = re.compile(
    r'(?P<call>date|datetime)\("(?P<moment>[^"]*)"\)'
    r'|(?P<text>"(?:[^"\\]|\\.)*"(?: \+ "(?:[^"\\]|\\.)*")*)|\((?P<ratio>-?[01].0)/0.0\)'
    r"|(?P<other>-?[0-9][-+.e0-9]*|true|false|null|\[|\]|, )"
)


def read_literals(text: str) -> list[Any]:
    """Read the Cypher literals at the start of a text, and the rest of it; lists are flat between brackets."""
    values: list[Any] = []
    while match := LITERAL.match(text):
        text = text[match.end() :]
        if match["text"]:
            values.append("".join(json.loads(part) for part in re.findall(r'"(?:[^"\\]|\\.)*"', match["text"])))
        elif match["moment"]:
            values.append((match["call"], match["moment"]))
        elif match["ratio"]:
            values.append({"1.0": math.inf, "-1.0": -math.inf, "0.0": "NaN"}[match["ratio"]])
        elif match["other"] in ("[", "]", ", "):
            values.append(match["other"])
        else:
            values.append(json.loads(match["other"]))
    return [*values, text]


def read_statement(line: str) -> tuple[str, dict[str, list[Any]]]:
    """Return what stands before the properties of a Cypher statement, and the properties."""
    head, _, rest = line.rpartition(" {`id`: ")
    properties, name = {}, "id"
    while True:
        *values, rest = read_literals(rest)
        # The separator before the next name is read with the value before it.
        properties[name] = values[:-1] if rest.startswith("`") else values
        if not rest.startswith("`"):
            return head, properties
        name, _, rest = rest[1:].partition("`: ")


def test_cypher_creates_what_the_graph_holds(graph: og.Graph) -> None:
    lines = b"".join(graph.export(format="cypher")).decode().splitlines()
    assert lines[:2] == [f"CREATE INDEX IF NOT EXISTS FOR (n:`{name}`) ON (n.`id`);" for name in ("Person", "Team")]
    ann, odd = read_statement(lines[3]), read_statement(lines[2])
    assert ann[0] == "CREATE (:`Person`"
    assert ann[1] == {
        "id": ["ann"], "name": ["ann"], "age": [-4], "big": [str(2**64 - 1)], "born": [("date", "2024-01-31")],
        "seen": [("datetime", "2024-01-31T10:00:00.000Z")], "tags": ["[", "x", ", ", 'y"', "]"], "ok": [True],
        "height": [1.5],
    }  # fmt: skip
    name = ODD.replace("\u0001", "\ufffd")
    assert odd[1] == {"id": [name], "name": [name]}
    head, properties = read_statement(lines[-1])
    assert head.startswith('MATCH (a:`Person` {`id`: "ann"}), (b:`Person` {`id`: ')
    assert head.endswith("}) CREATE (a)-[:`Knows`")
    assert properties == {"id": ["k1"], "since": [7]}
    assert len(lines) == 7


def test_cypher_text_holds_no_code_points_and_odd_numbers(tmp_path: Path) -> None:
    schema = "node N { k: String @key  xs: [F64]?  days: [Date]?  f: F64? }"
    with og.init(tmp_path / "g.omni", schema) as graph:
        key = "\\u0022}) DETACH DELETE n //\\\\u\u0001"
        graph.ingest([{"type": "N", "data": {"k": key, "xs": [1.5, 2.0], "days": ["2024-01-31"], "f": 1e300}}])
        graph.ingest([{"type": "N", "data": {"k": "z", "xs": []}}])
        lines = b"".join(graph.export(format="cypher")).decode().splitlines()
    # Some databases decode \\u0022 before they parse, also behind a backslash.
    assert "\\u" not in "".join(lines)
    _, properties = read_statement(lines[1])
    assert properties["k"] == [key.replace("\u0001", "\ufffd")]
    assert properties["xs"] == ["[", 1.5, ", ", 2.0, "]"]
    assert properties["days"] == ["[", ("date", "2024-01-31"), "]"]
    assert properties["f"] == [1e300]
    assert read_statement(lines[2])[1]["xs"] == ["[", "]"]


def test_dot_quotes_names(graph: og.Graph) -> None:
    text = b"".join(graph.export(format="dot")).decode()
    name = 'a<b>&\\"c\\"\\n\\\\\té\u0001'
    assert f'  "Person:{name}" [label="Person\\n{name}"];\n' in text
    assert f'  "Person:ann" -> "Person:{name}" [label="Knows"];\n' in text
    assert text.startswith("digraph {\n")
    assert text.endswith("}\n")
    assert text.count("\n") == 7


def test_unknown_format_is_refused(graph: og.Graph) -> None:
    with pytest.raises(og.UsageError, match="unknown format `gml`; expected ndjson, graphml, gexf, dot, cypher"):
        graph.export(format="gml")  # type: ignore[arg-type]


def test_command_line_prints_one_document(graph: og.Graph, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["export", graph.uri, "--format", "graphml"]) == 0
    assert capfdbinary.readouterr().out == b"".join(graph.export(format="graphml"))
    assert main(["export", graph.uri, "--format", "dot", "--out", "x"]) == 1
    assert b"redirect standard output" in capfdbinary.readouterr().err
    assert main(["schema", "show", graph.uri, "--format", "mermaid"]) == 0
    assert capfdbinary.readouterr().out.startswith(b"erDiagram\n")
