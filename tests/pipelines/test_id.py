"""A key that is declared as `id: String @key` is the id: one column, and otherwise a key like any other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.cli.app import main
from omnigraph.engine import export as exporting
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.lang.diagnostic import LanguageError
from tests.support.live_server import serving_graph

SCHEMA = """
node P { KEY: String @key  age: I32?  mail: String? @unique  photo: Blob?  @index(age) }
edge K: P -> P { n: I32?  @key(src, dst) }
"""
NAMES = ("id", "key")


@pytest.fixture
def graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Graph]:
    """The same content twice: under a key called `id`, and under one called `key`."""
    monkeypatch.chdir(tmp_path)
    return {name: fill(og.init(tmp_path / f"{name}.omni", SCHEMA.replace("KEY", name)), name) for name in NAMES}


def fill(graph: Graph, name: str) -> Graph:
    people = [{name: "ada", "age": 36, "mail": "a@x"}, {name: "bob", "photo": "base64:AAEC"}, {name: "007", "age": 7}]
    edges = [{"edge": "K", "from": "ada", "to": "bob", "data": {"n": 1}}, {"edge": "K", "from": "bob", "to": "007"}]
    graph.load([*({"type": "P", "data": one} for one in people), *edges])
    return graph


def as_id(value: Any) -> Any:
    """Return a value of the graph with the other key as the one with `id` has it."""
    if isinstance(value, dict):
        renamed = {name.replace("p.key", "p.id") if name != "key" else "id": as_id(one) for name, one in value.items()}
        assert renamed.get("id") == value.get("key", renamed.get("id"))
        return renamed
    if isinstance(value, list | tuple):
        items = [as_id(item) for item in value]
        return sorted(items) if items and all(isinstance(item, str) for item in items) else items
    return "id" if value == "key" else value


def rows(graph: Graph, text: str) -> list[dict[str, Any]]:
    return graph.query(text).to_json_rows()


def edge_ends(graph: Graph) -> list[dict[str, Any]]:
    return rows(graph, "match { $a $k: k $b } return { $a.@id as a, $b.@id as b, $k.n as n } order { a }")


def images(graph: Graph) -> list[Any]:
    blocks: list[Any] = [block.to_json() for block in graph.changes(start="beginning").blocks]
    parts = ("op", "id", "before", "after")
    return [[{part: change.get(part) for part in parts} for change in block["changes"]] for block in blocks]


def mutate(graph: Graph, text: str, **options: Any) -> int:
    return graph.mutate(f"query q() {{ {text} }}", **options).affected_nodes


# Every surface, as a function of a graph and the name of its key, that returns what can be compared.
def query_values(graph: Graph, key: str) -> Any:
    return [
        graph.query(f"match {{ $p: P }} return {{ $p.{key}, $p.age }} order {{ $p.{key} }}").to_json_rows(),
        rows(graph, f'match {{ $p: P {{ {key}: "ada" }} }} return {{ $p.age as age, $p as p }}'),
        rows(graph, f'match {{ $p: P  $p.{key} >= "ada" }} return {{ count(*) as n, max($p.{key}) as last }}'),
        rows(graph, f"match {{ $a: P  $a k $b }} return {{ $a.{key} as a, count($b) as n }} order {{ a }}"),
        rows(graph, f"match {{ $p: P }} return {{ upper($p.{key}) as up, $p.@id as id }} order {{ up desc }}"),
        graph.get("P", "ada"),
        graph.get("P", {key: "ada"}),
    ]


def mutations(graph: Graph, key: str) -> Any:
    counts = [
        mutate(graph, f'insert P {{ {key}: "eve", age: 1 }}'),
        mutate(graph, f'upsert P {{ {key}: "eve", age: 2 }} upsert P {{ {key}: "fay" }}'),
        mutate(graph, f'update P set {{ age: 8 }} where {key} = "007"'),
        mutate(graph, f'rename P set {{ {key}: "zoe" }} where {key} = "ada"'),
        mutate(graph, f"rename P set {{ {key}: upper({key}) }} where true"),
        mutate(graph, f'match {{ $p: P  $p.age = 2 }} insert P {{ {key}: concat($p.{key}, "+"), age: 9 }}'),
        mutate(graph, f'insert K {{ from: "EVE", to: "BOB", n: 5 }} update P set {{ age: 3 }} where {key} = "FAY"'),
        mutate(graph, f'delete P where {key} = "FAY"'),
    ]
    with pytest.raises(LanguageError, match="E3"):
        mutate(graph, f'update P set {{ {key}: "x" }} where {key} = "BOB"')
    everyone = rows(graph, f"match {{ $p: P }} return {{ $p.{key} as k, $p.age as age }} order {{ k }}")
    return [counts, everyone, edge_ends(graph), images(graph)]


def loads(graph: Graph, key: str) -> Any:
    many = [{key: f"n{number}", "age": number} for number in range(300)]
    graph.load(b"".join(json.dumps({"type": "P", "data": row}).encode() + b"\n" for row in many))
    graph.ingest(json.dumps({"type": "P", "data": {key: "c1", "age": 5}}).encode(), dialect="compatible")
    graph.load(nodes={"P": pa.table({key: ["f1", "ada"], "age": pa.array([1, 2], pa.int32())})})
    Path("p.csv").write_text(f"{key},age,mail\n008,1,x\nada,37,y\n")
    Path("k.csv").write_text("from,to,n\n008,ada,1\n")
    pipeline.load(graph, nodes={"P": "p.csv"}, edges={"K": "k.csv"}, engine="local")
    pq.write_table(pa.table({key: ["q1", "q2"]}), "p.parquet")
    pipeline.load(graph, nodes={"P": "p.parquet"}, engine="local", on_duplicate="last")
    refused = []
    for bad in ({key: None}, {"age": 1}, {key: 5}):
        with pytest.raises(OmniGraphError) as caught:
            graph.load([{"type": "P", "data": bad}])
        refused.append(caught.value.code)
    with pytest.raises(OmniGraphError) as caught:
        pipeline.load(graph, nodes={"P": "p.csv"}, mode="append", engine="local")
    everyone = rows(graph, f"match {{ $p: P }} return {{ $p.{key} as k, $p.age as age, $p.mail as m }} order {{ k }}")
    return [refused, caught.value.code, len(caught.value.context["violations"]), everyone, edge_ends(graph)]  # type: ignore[arg-type]


def history(graph: Graph, key: str) -> Any:
    mutate(graph, f'update P set {{ age: 37 }} where {key} = "ada"')
    changes: Any = graph.log("P", "ada").to_json()["changes"]
    parts = ("op", "changed_properties", "before", "after")
    log = [[change[part] for part in parts] for change in changes]
    blamed = {one.name: one.value for one in graph.blame("P", "ada").properties}
    past = graph.get("P", "ada", at="HEAD~1")
    return [log, blamed, past, images(graph)]


def branches(graph: Graph, key: str) -> Any:
    graph.branches.create("x")
    mutate(graph, f'update P set {{ age: 40 }} where {key} = "ada"', branch="x")
    mutate(graph, f'rename P set {{ {key}: "bert" }} where {key} = "bob"', branch="x")
    mutate(graph, f'insert P {{ {key}: "new" }}', branch="x")
    mutate(graph, f'update P set {{ mail: "z" }} where {key} = "007"')
    changes: Any = graph.diff("main", "x", images=True).to_json()
    parts = ("op", "id", "before", "after")
    shown = [[change.get(part) for part in parts] for change in changes["images"]]
    assert len(shown) == len(changes["changes"])
    merged = graph.branches.merge("x").outcome
    graph.branches.create("y")
    mutate(graph, f'update P set {{ age: 1 }} where {key} = "ada"', branch="y")
    mutate(graph, f'update P set {{ age: 2 }} where {key} = "ada"')
    with pytest.raises(OmniGraphError) as caught:
        graph.branches.merge("y")
    conflicts: Any = caught.value.context["conflicts"]
    [conflict] = conflicts
    graph.revert(str(graph.snapshot().head))
    sides = [conflict.get(side) for side in ("base", "ours", "theirs")]
    for side in sides:
        assert side is None or side.get(key, side.get("properties", {}).get(key)) == "ada"
    everyone = rows(graph, f"match {{ $p: P }} return {{ $p.{key} as k, $p.age as age, $p.mail as m }} order {{ k }}")
    return [merged, everyone, edge_ends(graph), shown]


def upkeep(graph: Graph, key: str) -> Any:
    for number in range(3):
        mutate(graph, f'insert P {{ {key}: "m{number}" }}')
    graph.maintenance.optimize()
    assert graph.maintenance.verify(data=True).is_sound
    described = rows(graph, f'match {{ $p: P {{ {key}: "m1" }} }} return {{ $p.{key} as k }}')
    indexes = [one for one in graph.maintenance.list_indices() if one.type_key == TypeKey.of("node", "P")]
    assert len({(one.property, one.kind) for one in indexes}) == len(indexes)
    return [described, [str(one) for one in indexes if one.property not in NAMES]]


def migrations(graph: Graph, key: str) -> Any:
    source = str(graph.schema.source)
    graph.schema.apply(source.replace("age: I32?", "age: I64?  nick: String?  level: I32 @default(4)"))
    graph.schema.apply(
        str(graph.schema.source).replace("node P {", 'node Q @rename_from("P") {').replace("P -> P", "Q -> Q")
    )
    mutate(graph, f'insert Q {{ {key}: "new" }}')
    everyone = rows(graph, f"match {{ $p: Q }} return {{ $p.{key} as k, $p.age as age, $p.level as l }} order {{ k }}")
    return [everyone, graph.get("Q", "new"), edge_ends(graph)]


def files(graph: Graph, key: str) -> Any:
    found = []
    for format_ in ("ndjson", "csv", "parquet"):
        out = Path(f"{key}-{format_}")
        pipeline.export(graph, out, format_, engine="local")
        copy = og.init(f"{key}-{format_}.omni", str(graph.schema.source))
        if format_ == "ndjson":
            pipeline.load(copy, out, engine="local")
        else:
            pipeline.load(copy, nodes={"P": out / "nodes" / "P"}, edges={"K": out / "edges" / "K"}, engine="local")
        assert b"".join(copy.export()) == b"".join(graph.export())
        everyone = rows(copy, f"match {{ $p: P }} return {{ $p.{key} as k, $p.age as age }} order {{ k }}")
        found.append([everyone, edge_ends(copy)])
    return found


def served(graph: Graph, key: str) -> Any:
    with serving_graph(graph.uri) as live, og.connect(f"http://127.0.0.1:{live.port}", graph="g") as client:
        client.mutate(f'query q() {{ insert P {{ {key}: "served" }} }}')
        client.load([{"type": "P", "data": {key: "loaded"}}])
        everyone = client.query(f"match {{ $p: P }} return {{ $p.{key} as k }} order {{ k }}").to_json_rows()
        return [everyone, client.get("P", "served"), len(b"".join(client.export()).splitlines())]


SURFACES: dict[str, Callable[[Graph, str], Any]] = {
    surface.__name__: surface
    for surface in (query_values, mutations, loads, history, branches, upkeep, migrations, files, served)
}


@pytest.mark.slow
@pytest.mark.parametrize("surface", SURFACES)
def test_a_key_called_id_behaves_as_a_key_of_another_name(graphs: dict[str, Graph], surface: str) -> None:
    ours, other = (SURFACES[surface](graphs[name], name) for name in NAMES)
    assert as_id(ours) == as_id(other)


def test_a_key_called_id_is_one_column_everywhere(graphs: dict[str, Graph]) -> None:
    graph = graphs["id"]
    names = session_of(graph).view("main", None, "read").dataset(TypeKey.of("node", "P")).schema.names
    assert names == ["id", "age", "mail", "photo"]
    assert graph.get("P", "ada") == {"id": "ada", "age": 36, "mail": "a@x"}
    people = [json.loads(line)["data"] for line in b"".join(graph.export(types=["P"])).splitlines()]
    assert [list(person) for person in people] == [["id", "age", "mail", "photo"]] * 3
    for format_ in ("cypher", "graphml", "gexf", "dot"):
        text = b"".join(graph.export(format=format_)).decode()
        assert "ada" in text
        assert format_ != "cypher" or 'CREATE (:`P` {`id`: "ada", `age`: 36, `mail`: "a@x"});' in text
    assert graph.query("match { $p: P } return { $p.id, $p.@id } limit 1").to_arrow().column_names == ["p.id", "p.@id"]
    assert graph.schema.nodes["P"].key == ("id",)
    indexes = [one.kind for one in graph.maintenance.list_indices() if (one.type_key.name, one.property) == ("P", "id")]
    assert len(indexes) == len(set(indexes)) == 2


def test_an_export_with_the_id_twice_is_caught(graphs: dict[str, Graph], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "column_names", lambda type_: ["id", *type_.ends, *sorted(type_.properties)])
    with pytest.raises(Exception):  # noqa: B017 - whichever layer meets it first
        test_a_key_called_id_is_one_column_everywhere(graphs)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("id: String @key", "name: String @key"),
        ("id: String @key", 'name: String @key @rename_from("id")'),
        ("name: String @key", "id: String @key"),
        ("name: String @key", 'id: String @key @rename_from("name")'),
        ("name: String?", "name: String?  id: String @key"),
    ],
)
def test_ids_of_nodes_that_exist_neither_come_nor_go(tmp_path: Path, before: str, after: str) -> None:
    graph = og.init(tmp_path / "g.omni", f"node P {{ {before}  age: I32? }}")
    key = "id" if "id" in before else "name"
    graph.load([{"type": "P", "data": {key: "ada"}}])
    exported = b"".join(graph.export())
    with pytest.raises(LanguageError, match=r"OG-MF-100.*the id of nodes that exist"):
        graph.schema.apply(f"node P {{ {after}  age: I32? }}", allow_data_loss=True)
    assert b"".join(graph.export()) == exported


def test_infer_declares_a_column_of_unique_texts_called_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("id,age\na1,3\nb2,4\n007,5\n")
    Path("numbers.csv").write_text("id,age\n1,3\n2,4\n")
    inferred = og.infer_schema(nodes={"People": "people.csv", "Numbers": "numbers.csv"})
    assert "id: String @key" in inferred.source
    graph = og.init("g.omni", inferred.source)
    pipeline.load(graph, nodes=inferred.nodes, engine="local")
    assert graph.get("People", "007") == {"id": "007", "age": 5}
    assert graph.get("Numbers", "1") == {"id": "1", "age": 3}
    assert main(["query", "g.omni", "-e", "match { $p: People } return { $p.id }"]) == 0


@pytest.mark.slow
@pytest.mark.spark
def test_dataframes_have_one_column_called_id(graphs: dict[str, Graph], spark: Any) -> None:
    pipeline.register(spark)
    frame = spark.read.format("omnigraph").options(graph=graphs["id"].uri, type="P").load()
    assert frame.columns == ["id", "age", "mail", "photo"]
    assert sorted(row["id"] for row in frame.where("id >= 'a'").collect()) == ["ada", "bob"]
    more = spark.createDataFrame([("eve", 5), ("ada", 50)], "id string, age int")
    more.write.format("omnigraph").options(graph=graphs["id"].uri, type="P", mode="merge").mode("append").save()
    graph = og.open(graphs["id"].uri)
    assert [graph.get("P", key)["age"] for key in ("eve", "ada")] == [5, 50]  # type: ignore[index]


def test_the_comparison_sees_a_difference(graphs: dict[str, Graph]) -> None:
    """The comparison itself can fail: an age that only one of the graphs has."""
    mutate(graphs["id"], 'update P set { age: 99 } where id = "ada"')
    with pytest.raises(AssertionError):
        assert as_id(query_values(graphs["id"], "id")) == as_id(query_values(graphs["key"], "key"))
