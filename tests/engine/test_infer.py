"""Inference of schemas: what is decided from data, and that the same data loads into a graph with the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph as og
from omnigraph import pipeline
from omnigraph.cli import main
from omnigraph.engine.infer import profile as profiles
from omnigraph.engine.infer import relations
from omnigraph.engine.infer.profile import Sketch
from omnigraph.lang.catalog import Catalog
from omnigraph.lang.diagnostic import Source
from omnigraph.lang.schema import compile_schema

SUPPLY = Path(__file__).parents[2] / "examples" / "supply"
DOMAIN = "01JAZ5V9X0000000000000000A"
TEAMS = ("air", "land", "sea")


def catalog_of(text: str) -> Catalog:
    return compile_schema(Source("inferred.pg", text), domain=DOMAIN).catalog


def property_types(text: str, name: str) -> dict[str, str]:
    catalog = catalog_of(text)
    owner = catalog.nodes.get(name) or catalog.edges[name]
    return {property_.name: str(property_.type) for property_ in owner.properties.values()}


def load(path: Path, inferred: og.InferredSchema) -> pipeline.LoadReport:
    """Create a graph with an inferred schema and load its input."""
    with og.init(path, schema=inferred.source) as graph:
        return pipeline.load(graph, **inferred.load_arguments())


def write_people(folder: Path, count: int = 40) -> None:
    people = pa.table(
        {
            "Full Name": [f"Person {number}" for number in range(count)],
            "email": [f"p{number}@example.org" for number in range(count)],
            "team": [TEAMS[number % 3] for number in range(count)],
            "zip": [f"{number:05}" for number in range(count)],
            "age": [None if number == 7 else 20 + number for number in range(count)],
            "ratio": [number / 3 for number in range(count)],
            "born": [f"19{number % 100:02}-02-03" for number in range(count)],
            "seen": [f"2024-01-02T03:04:{number % 60:02}Z" for number in range(count)],
            "active": [number % 2 == 0 for number in range(count)],
        }
    )
    knows = pa.table(
        {
            "who": [f"p{number}@example.org" for number in range(count - 1)],
            "whom": [f"p{number + 1}@example.org" for number in range(count - 1)],
            "since": [2000 + number % 9 for number in range(count - 1)],
        }
    )
    twice = pa.concat_tables([knows, knows.slice(0, 1)])
    pyarrow.csv.write_csv(people, folder / "people.csv")
    pyarrow.csv.write_csv(twice, folder / "knows.csv")
    pyarrow.parquet.write_table(people, folder / "people.parquet")
    pyarrow.parquet.write_table(twice, folder / "knows.parquet")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_people(tmp_path)
    return tmp_path


def test_infer_csv_decides_types_keys_and_edges(folder: Path) -> None:
    inferred = og.infer_schema([folder / "people.csv", folder / "knows.csv"])
    assert property_types(inferred.source, "People") == {
        "active": "Bool",
        "age": "I64?",
        "born": "Date",
        "email": "String",
        "full_name": "String",
        "ratio": "F64",
        "seen": "DateTime",
        "team": "enum(air, land, sea)",
        "zip": "String",
    }
    catalog = catalog_of(inferred.source)
    assert catalog.nodes["People"].key == ("email",)
    assert (catalog.edges["Knows"].source, catalog.edges["Knows"].target) == ("People", "People")
    assert property_types(inferred.source, "Knows") == {"since": "I64"}
    assert "email: String @key // 40 rows, 40 distinct, 0 null\n" in inferred.source
    assert "age: I64? // 40 rows, 39 distinct, 1 null\n" in inferred.source
    assert "full_name: String // column `Full Name`, 40 rows" in inferred.source
    assert "load_arguments" in inferred.source
    assert inferred.engine == "local"


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_infer_files_load_into_their_schema(ending: str, folder: Path) -> None:
    inferred = og.infer_schema([folder / f"people.{ending}", folder / f"knows.{ending}"])
    report = load(folder / "g.omni", inferred)
    assert (report.nodes, report.edges) == ({"People": 40}, {"Knows": 40})


@pytest.mark.slow
def test_infer_example_data_loads_and_finds_its_composite_key(tmp_path: Path) -> None:
    inferred = og.infer_schema(SUPPLY / "data.ndjson")
    found, declared = catalog_of(inferred.source), catalog_of((SUPPLY / "schema.pg").read_text())
    assert {name: type_.key for name, type_ in found.nodes.items()} == {
        name: type_.key for name, type_ in declared.nodes.items()
    }
    ends = [{name: (edge.source, edge.target) for name, edge in schema.edges.items()} for schema in (found, declared)]
    assert ends[0] == ends[1]
    assert str(found.nodes["Package"].properties["embedding"].type) == "Vector(4)"
    report = load(tmp_path / "g.omni", inferred)
    lines = [json.loads(line) for line in (SUPPLY / "data.ndjson").read_text().splitlines()]
    assert sum(report.nodes.values()) == sum("type" in line for line in lines)
    assert sum(report.edges.values()) == sum("edge" in line for line in lines)


@pytest.mark.slow
def test_infer_frames_load_and_keep_their_types(tmp_path: Path) -> None:
    items = pa.table({"id": ["a", "b"], "size": pa.array([1, 2], pa.int32()), "embedding": [[0.5, 1.0], [1.5, 2.0]]})
    links = pa.table({"from": ["a"], "to": ["b"], "id": ["l1"]})
    inferred = og.infer_schema(nodes={"Item": items.to_pandas()}, edges={"Link": links})
    assert property_types(inferred.source, "Item") == {"embedding": "Vector(2)", "id": "String", "size": "I32"}
    assert catalog_of(inferred.source).nodes["Item"].key == ("id",)
    assert "// id: 1 row, 1 distinct, 0 null; the ids of the graph" in inferred.source
    report = load(tmp_path / "g.omni", inferred)
    assert (report.nodes, report.edges) == ({"Item": 2}, {"Link": 1})
    with og.open(tmp_path / "g.omni") as graph:
        assert (graph.get("Item", "a") or {})["size"] == 1


@pytest.mark.slow
@pytest.mark.spark
def test_infer_on_spark_gives_the_same_schema(folder: Path, spark: Any) -> None:
    files = [folder / "people.csv", folder / "knows.parquet"]
    local, on_spark = (og.infer_schema(files, engine=engine) for engine in ("local", "spark"))
    assert (on_spark.source, on_spark.engine) == (local.source, "spark")
    frame = spark.read.parquet(str(folder / "people.parquet")).repartition(3)
    from_frame = og.infer_schema(nodes={"People": frame})
    from_file = og.infer_schema(nodes={"People": folder / "people.parquet"})
    assert from_frame.source.split("\n\n")[1:] == from_file.source.split("\n\n")[1:]
    assert load(folder / "g.omni", from_frame).nodes == {"People": 40}


def write_csv(path: Path, **columns: list[Any]) -> Path:
    pyarrow.csv.write_csv(pa.table(columns), path)
    return path


def test_infer_id_that_repeats_is_a_property_of_another_name(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "visits.csv", id=["a", "a", "b"], ID=["x", "y", "z"], src=["p", "q", "r"])
    types = property_types(og.infer_schema(path).source, "Visits")
    assert set(types) == {"id_", "id__2", "src"}


def test_infer_column_with_a_null_is_no_key(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "parts.csv", code=["a", None, "c"], serial=["x", "y", "z"])
    source = og.infer_schema(path).source
    assert catalog_of(source).nodes["Parts"].key == ("serial",)
    assert property_types(source, "Parts") == {"code": "String?", "serial": "String"}


def test_infer_integer_ends_follow_the_names_of_columns(tmp_path: Path) -> None:
    files = [
        write_csv(tmp_path / "customers.csv", customer_id=list(range(1, 31)), name=["n"] * 30),
        write_csv(tmp_path / "products.csv", product_id=list(range(1, 31)), label=["l"] * 30),
        write_csv(tmp_path / "bought.csv", product_id=[1, 1, 2], customer_id=[3, 3, 4], pieces=[1, 2, 1]),
    ]
    inferred = og.infer_schema(files)
    bought = catalog_of(inferred.source).edges["Bought"]
    assert (bought.source, bought.target) == ("Products", "Customers")
    assert property_types(inferred.source, "Bought") == {"pieces": "I64"}
    assert "--edge 'Bought=" in inferred.source or "bought.csv:product_id->customer_id" in inferred.source


def test_infer_reference_in_a_node_is_noted(tmp_path: Path) -> None:
    files = [
        write_csv(tmp_path / "customers.csv", id=["c1", "c2"], city=["A", "B"]),
        write_csv(tmp_path / "orders.csv", id=["o1", "o2"], customer_id=["c1", "c1"]),
    ]
    assert "// customer_id: every value is a key of Customers" in og.infer_schema(files).source


def test_infer_what_no_property_holds_is_left_out_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "data.ndjson"
    lines = [
        {"type": "A", "data": {"k": "x", "nested": {"b": 1}, "mixed": 1}},
        {"data": {"k": "y", "mixed": "z"}, "type": "A"},
        {"edge": "E", "from": "x", "to": "nowhere", "data": {}},
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    source = og.infer_schema(path).source
    assert property_types(source, "A") == {"k": "String"}
    assert "// left out: `nested` has" in source
    assert "// left out: `mixed` has" in source
    assert "// left out: edge E, because the values of `to` are in no key of a node type" in source
    assert not catalog_of(source).edges


def test_infer_lists_without_items_fit_other_lists(tmp_path: Path) -> None:
    path = tmp_path / "data.ndjson"
    first = [{"type": "A", "data": {"k": "x", "some": [], "none": []}}]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in first))
    assert property_types(og.infer_schema(path).source, "A") == {"k": "String", "none": "[String]", "some": "[String]"}
    second = tmp_path / "more.ndjson"
    second.write_text(json.dumps({"type": "A", "data": {"k": "y", "some": [1, 2], "none": []}}))
    types = property_types(og.infer_schema([path, second]).source, "A")
    assert types == {"k": "String", "none": "[String]", "some": "[I64]"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{oops", "data.ndjson` line 1: this is not valid JSON"),
        ('{"type": "A", "data": {"k": 1}}\n{"type": "A", "data": {"k": 1, "k": 2}}', "line 2: duplicate member `k`"),
        ("[1]", "this is a JSON array"),
        ('{"name": 1}', "names its type"),
        ("", "nothing to infer"),
    ],
)
def test_infer_other_lines_are_refused(line: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "data.ndjson").write_text(line)
    with pytest.raises(og.OmniGraphError) as caught:
        og.infer_schema(tmp_path / "data.ndjson" if line else [])
    assert reason in str(caught.value)


def test_infer_illegal_name_in_ndjson_is_refused_with_a_legal_one(tmp_path: Path) -> None:
    (tmp_path / "data.ndjson").write_text('{"type": "A", "data": {"First Name": 1}}')
    with pytest.raises(og.UsageError, match="`first_name`"):
        og.infer_schema(tmp_path / "data.ndjson")


@given(st.data())
def test_infer_csv_types_read_every_value(data: st.DataObject) -> None:
    words = st.sampled_from(["", *READS_AS])
    values = data.draw(st.lists(words, min_size=1, max_size=6))
    column = pa.array([None if value == "" else value for value in values], pa.string())
    profile = profiles.profile_column(column, is_text=True, is_json=False)
    expected = expected_type([value for value in values if value])
    assert (profile.type.scalar.value if profile.type and profile.type.scalar else None) == expected
    parts = [
        profiles.profile_column(column.slice(start, 1), is_text=True, is_json=False) for start in range(len(column))
    ]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged.merge(part)
    assert (merged.type, merged.values, merged.words) == (profile.type, profile.values, profile.words)
    assert np.array_equal(merged.sketch.hashes, profile.sketch.hashes)


# The oracle: what each text is, from the documentation of CSV columns.
READS_AS = {
    "1": "I64",
    "-7": "I64",
    "007": "String",
    "1.5": "F64",
    "2e3": "F64",
    "true": "Bool",
    "2024-02-29": "Date",
    "2023-02-29": "String",
    "x": "String",
    "9" * 18: "I64",
    "1" * 19: "String",
}


def expected_type(values: list[str]) -> str | None:
    kinds = {READS_AS[value] for value in values}
    if len(kinds) < 2:
        return next(iter(kinds), None)
    return "F64" if kinds == {"I64", "F64"} else "String"


def test_sketch_estimate_and_containment_hold_beyond_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "INFER_SKETCH_VALUES", 256)
    hashes = np.random.default_rng(7).integers(0, 2**64, 20_000, np.uint64)
    whole = Sketch.of(hashes[:5_000]).merge(Sketch.of(hashes[5_000:]))
    assert not whole.is_exact
    assert len(whole.hashes) == 256
    assert abs(whole.distinct - 20_000) < 6_000
    assert Sketch.of(hashes[::7]).is_within(whole)
    assert not Sketch.of(hashes + np.uint64(1)).is_within(whole)
    assert not whole.has_duplicates


def test_infer_rare_duplicate_beyond_the_sketch_makes_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "INFER_SKETCH_VALUES", 16)
    monkeypatch.setattr(relations, "INFER_PASS_VALUES", 300)
    codes = [f"c{number}" for number in range(1_000)]
    path = write_csv(tmp_path / "things.csv", code=[*codes, "c500"], label=[f"l{number}" for number in range(1_001)])
    source = og.infer_schema(path).source
    assert catalog_of(source).nodes["Things"].key == ("label",)
    assert "label: String @key // 1,001 rows, 1,001 distinct, 0 null" in source
    assert "code: String // 1,001 rows, about " in source
    # The mutant: without the passes, the sample alone takes `code` for a key.
    monkeypatch.setattr(relations.Relater, "_is_key", lambda *_: True)
    assert catalog_of(og.infer_schema(path).source).nodes["Things"].key == ("code",)


def test_infer_is_the_same_for_any_order_of_files(folder: Path) -> None:
    files = [folder / "people.csv", folder / "knows.csv"]
    first, second = og.infer_schema(files).source, og.infer_schema(files[::-1]).source
    assert first.split("\n\n")[1:] == second.split("\n\n")[1:]


def test_schema_infer_command_prints_or_writes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(folder / "knows.csv"), "--node", f"Person={folder / 'people.parquet'}"]
    assert main(["schema", "infer", *files]) == 0
    printed = capsys.readouterr().out
    assert "edge Knows: Person -> Person" in printed
    assert main(["schema", "infer", *files, "--out", str(folder / "s.pg")]) == 0
    assert (folder / "s.pg").read_text() == printed
    assert main(["schema", "infer", *files, "--out", str(folder / "s.pg")]) == 1
    assert "exists already" in capsys.readouterr().err
    assert main(["fmt", "--check", str(folder / "s.pg")]) == 0


def test_table_of_links_with_one_distinct_end_is_an_edge(tmp_path: Path) -> None:
    files = {"a.csv": "k\na1\na2\na3\n", "b.csv": "k\nb1\nb2\n", "one.csv": "x,y\na1,b1\na2,b1\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    source = og.infer_schema([str(tmp_path / name) for name in files]).source
    assert "edge One: A -> B" in source
    assert "node One" not in source
    # A further column may describe the nodes of the distinct end, and a key of its own makes a node.
    for text in ("x,y,note\na1,b1,z\na2,b1,w\n", "z,y\nc1,b1\nc2,b1\n"):
        (tmp_path / "one.csv").write_text(text)
        assert "node One" in og.infer_schema([str(tmp_path / name) for name in files]).source


def test_true_and_false_of_pandas_are_booleans(tmp_path: Path) -> None:
    rows = "".join(f"n{number},{number % 2 == 0},{'TRUE' if number % 3 else 'false'}\n" for number in range(40))
    (tmp_path / "flags.csv").write_text(f"name,ok,loud\n{rows}")
    inferred = og.infer_schema([str(tmp_path / "flags.csv")]).source
    assert "ok: Bool" in inferred
    assert "loud: Bool" in inferred
    with og.init(tmp_path / "g.omni", schema=inferred) as graph:
        pipeline.load(graph, nodes={"Flags": str(tmp_path / "flags.csv")})
        counts = list(graph.query("match { $f: Flags $f.ok = true } return { count($f) as n }"))
        assert counts == [{"n": 20}]


def test_delimiter_of_csv_files_is_used_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    people = tmp_path / "people.csv"
    people.write_text("name;age\nAda;36\nBob;40\n")
    assert main(["schema", "infer", "--node", f"Person={people}", "--delimiter", ";"]) == 0
    shown = capsys.readouterr().out
    assert "name: String @key" in shown
    assert "age: I64" in shown
    assert "--delimiter ';'" in shown
    inferred = pipeline.infer_schema(nodes={"Person": pipeline.Columns(str(people), delimiter=";")}, engine="local")
    with og.init(tmp_path / "g.omni", schema=inferred.source) as graph:
        pipeline.load(graph, **inferred.load_arguments(), engine="local")
        assert graph.get("Person", "Ada")["age"] == 36  # type: ignore[index]
