"""Loads of Parquet and CSV: every property type, columns by other names, ends by key, compression, and storage."""

from __future__ import annotations

import bz2
import csv
import datetime as dt
import gzip
import io
import json
import math
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph.engine.input import column_mapping, csv_reader
from omnigraph.engine.input.filesystems import filesystem
from omnigraph.engine.input.splits import Split
from omnigraph.errors import DataError, OmniGraphError
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.pipeline import Columns, load
from omnigraph.rules.delta import Findings
from tests.support.pipeline_fixtures import lines_of, load_bytes, splits_of
from tests.support.s3_server import S3Server, s3_server
from tests.support.write_fixtures import rows

__all__ = ["s3_server"]

pytestmark = pytest.mark.slow

SCHEMA = """
node Thing {
  code: I64 @key
  name: String
  small: I32?
  big: U64?
  ratio: F32?
  exact: F64?
  is_on: Bool?
  day: Date?
  at: DateTime?
  tags: [String]?
  vec: Vector(3)?
  raw: Blob?
}
node Free { label: String? }
edge Links: Thing -> Thing { weight: F64? }
edge Has: Thing -> Free
"""
AT = dt.datetime(2024, 5, 6, 7, 8, 9, 123000, dt.UTC)
TYPED = pa.table(
    {
        "code": pa.array([1, 2], pa.int32()),
        "name": pa.array(["a", "b"], pa.large_string()).dictionary_encode(),
        "small": pa.array([3, None], pa.int64()),
        "big": pa.array([2**63, None], pa.uint64()),
        "ratio": pa.array([0.5, None], pa.float64()),
        "exact": pa.array([0.1, None], pa.float32()),
        "is_on": [True, None],
        "day": pa.array([dt.date(2024, 1, 2), None], pa.date32()),
        "at": pa.array([AT, None], pa.timestamp("us", "UTC")),
        "tags": pa.array([["x", "y"], None], pa.list_(pa.string())),
        "vec": pa.array([[1.0, 2.0, 3.0], None], pa.list_(pa.float64())),
        "raw": pa.array([b"bytes", None], pa.binary()),
    }
)
CSV = """code,name,small,big,ratio,exact,is_on,day,at,tags,vec,raw
1,a,3,9223372036854775808,0.5,0.1,true,2024-01-02,2024-05-06T07:08:09.123Z,"[""x"",""y""]","[1,2,3]",base64:Ynl0ZXM=
2,b,,,,,,,,,,
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return og.init(tmp_path / "g.omni", SCHEMA)


def check_things(graph: Graph, exact: float) -> None:
    found = rows(graph, "node:Thing")
    instants = (
        session_of(graph)
        .view()
        .dataset(TypeKey("node:Thing"))
        .read(["at"])
        .column("at")
        .combine_chunks()
        .view(pa.int64())
    )
    assert instants.drop_null().to_pylist() == [int(AT.timestamp() * 1000)]
    assert found["1"] | {"at": AT} == {
        "id": "1", "code": 1, "name": "a", "small": 3, "big": 2**63, "ratio": 0.5, "exact": exact, "is_on": True,
        "day": dt.date(2024, 1, 2), "at": AT, "tags": ["x", "y"], "vec": [1.0, 2.0, 3.0],
        "raw": b"bytes",
    }  # fmt: skip
    assert {name for name, value in found["2"].items() if value is not None} == {"id", "code", "name"}


@pytest.mark.parametrize("row_group", [1, 100])
def test_load_parquet_of_every_type(graph: Graph, tmp_path: Path, row_group: int) -> None:
    pq.write_table(TYPED, tmp_path / "t.parquet", row_group_size=row_group)
    with splits_of(1):
        report = load(graph, nodes={"Thing": tmp_path / "t.parquet"}, mode="append", engine="local")
    assert report.total_entities == 2
    check_things(graph, pa.scalar(0.1, pa.float32()).as_py())


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_load_csv_of_every_type(graph: Graph, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(CSV.encode()) if name.endswith("gz") else CSV.encode())
    load(graph, nodes={"Thing": str(tmp_path / name)}, mode="append", engine="local")
    check_things(graph, 0.1)


def test_mapper_value_by_value_equals_whole_columns(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(TYPED, tmp_path / "t.parquet")
    monkeypatch.setattr(column_mapping.ColumnMapper, "_convert_columns", lambda self, named: None)
    load(graph, nodes={"Thing": tmp_path / "t.parquet"}, mode="append", engine="local")
    check_things(graph, pa.scalar(0.1, pa.float32()).as_py())


def test_csv_numbers_are_the_same_beside_a_wrong_row_or_lists(graph: Graph, tmp_path: Path) -> None:
    head = "code,name,tags,small,big,ratio,exact,is_on,day\n"
    spelled = "007,a,{},-0,08,-0,-0.0,True,2024-01-02\n8,b,,1,2,.5,1e2,0,\n"
    files = {"right": spelled.format(""), "wrong": spelled.format("") + "9,c,,x,,,,,\n", "lists": spelled.format("[]")}
    found = {}
    for name, text in files.items():
        (tmp_path / f"{name}.csv").write_text(head + text)
        options: dict[str, Any] = {"on_error": "quarantine", "report": tmp_path / "out"}
        load(graph, nodes={"Thing": tmp_path / f"{name}.csv"}, mode="overwrite", engine="local", **options)
        found[name] = rows(graph, "node:Thing")
    assert [math.copysign(1, found["right"]["7"][name]) for name in ("ratio", "exact")] == [-1, -1]
    assert (found["lists"]["7"].pop("tags"), found["right"]["7"].pop("tags")) == ([], None)
    # As text, minus zero is not zero.
    assert repr(found["lists"]) == repr(found["right"])
    assert found["wrong"]["7"].pop("tags") is None
    assert repr(found["wrong"]) == repr(found["right"])


@pytest.mark.parametrize(("zone", "hour"), [(None, 7), ("UTC", 7), ("+02:00", 7), ("Asia/Tokyo", 7)])
def test_instants_without_a_zone_are_utc_and_others_keep_their_moment(
    graph: Graph, tmp_path: Path, zone: str | None, hour: int
) -> None:
    wall = pa.array([AT.replace(tzinfo=None)], pa.timestamp("ns"))
    instants = wall if zone is None else wall.cast(pa.timestamp("ns", zone))
    table = pa.table({"code": [1], "name": ["a"], "at": instants})
    pq.write_table(table, tmp_path / "t.parquet")
    load(graph, nodes={"Thing": tmp_path / "t.parquet"}, mode="append", engine="local")
    assert graph.query("query q() { match { $t: Thing } return { $t.at as at } }").rows()[0]["at"] == AT
    assert AT.hour == hour


def test_load_edges_by_key_value_and_mapped_columns(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "things.csv").write_text('kode,name\n07,x\n8,""\n')
    (tmp_path / "links.csv").write_text("a,b,weight\n007,8,0.5\n")
    pq.write_table(pa.table({"id": ["f1", None], "label": [None, "l"]}), tmp_path / "free.parquet")
    pq.write_table(pa.table({"src": [7], "dst": ["f1"]}), tmp_path / "has.parquet")
    report = load(
        graph,
        nodes={
            "Thing": Columns(tmp_path / "things.csv", properties={"kode": "code"}),
            "Free": tmp_path / "free.parquet",
        },
        edges={"Links": f"{tmp_path}/links.csv:a->b", "has": tmp_path / "has.parquet"},
        mode="append",
        engine="local",
    )
    assert (dict(report.nodes), dict(report.edges)) == ({"Free": 2, "Thing": 2}, {"Has": 1, "Links": 1})
    [link] = rows(graph, "edge:Links").values()
    assert (link["src"], link["dst"], link["weight"]) == ("7", "8", 0.5)
    assert rows(graph, "node:Thing")["8"]["name"] == ""
    [has] = rows(graph, "edge:Has").values()
    assert (has["src"], has["dst"]) == ("7", "f1")


@pytest.mark.parametrize(
    ("text", "rule", "line"),
    [
        ("code,name\n1,a\nx,b\n", "N10", 3),
        ("code,name,small\n1,a,99999999999\n", "N10", 2),
        ("code,name,day\n1,a,someday\n", "N10", 2),
        ("code,name,vec\n1,a,\"[1,2]\"\n", "N10", 2),
        ("code,name\n1,a\n2,\n", "N10", 3),
        ("code,name,extra\n1,a,b\n", "N6", None),
        ("code,name\n1,a\n1,b\n", "E5", 3),
        ('code,name\n\n1,"a\nb"\r\n\n\nx,c\n', "N10", 7),
    ],
)  # fmt: skip
def test_load_csv_with_a_wrong_value_names_its_record(
    graph: Graph, tmp_path: Path, text: str, rule: str, line: int | None
) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError) as caught:
        load(graph, nodes={"Thing": tmp_path / "t.csv"}, mode="append", engine="local")
    assert (caught.value.context["rule"], caught.value.context.get("line")) == (rule, line)


def test_load_overwrite_with_an_empty_file_empties_the_type(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("code,name\n1,a\n")
    load(graph, nodes={"Thing": tmp_path / "t.csv"}, mode="append", engine="local")
    pq.write_table(TYPED.slice(0, 0).select(["code", "name"]), tmp_path / "t.parquet")
    load(graph, nodes={"Thing": tmp_path / "t.parquet"}, mode="overwrite", engine="local")
    assert rows(graph, "node:Thing") == {}


def test_load_ndjson_compressed_in_directories_and_patterns(graph: Graph, tmp_path: Path) -> None:
    records = [{"type": "Thing", "data": {"code": place, "name": f"{place}"}} for place in range(40)]
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.ndjson").write_bytes(lines_of(records[:10]))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(lines_of(records[10:20])))
    with pa.CompressedOutputStream(str(folder / "c.ndjson.zst"), "zstd") as stream:
        stream.write(lines_of(records[20:30]))
    (folder / "_SUCCESS").write_bytes(b"")
    (tmp_path / "d-1.json").write_bytes(lines_of(records[30:])[:-1])
    with splits_of(64):
        report = load(graph, [folder, f"{tmp_path}/d-*.json"], mode="append", engine="local")
    assert report.total_entities == 40
    assert len(rows(graph, "node:Thing")) == 40


def test_load_blobs_that_lie_beside_their_file_survive_a_load(graph: Graph, tmp_path: Path) -> None:
    large = b"x" * 300_000
    pq.write_table(pa.table({"code": [1], "name": ["a"], "raw": [large]}), tmp_path / "t.parquet")
    load(graph, nodes={"Thing": tmp_path / "t.parquet"}, mode="append", engine="local")
    load_bytes(graph, lines_of([{"type": "Thing", "data": {"code": 2, "name": "b"}}]), tmp_path, "merge")
    assert rows(graph, "node:Thing")["1"]["raw"] == large


@pytest.mark.s3
def test_load_on_s3_reads_and_writes_there(s3_server: S3Server) -> None:
    root = s3_server.uri("load")
    with og.init(f"{root}/g", SCHEMA) as graph:
        records = [{"type": "Thing", "data": {"code": place, "name": "n"}} for place in range(20)]
        for name, part in (("a", records[:10]), ("b", records[10:])):
            with filesystem(root).open_output_stream(f"{root.removeprefix('s3://')}/in/{name}.ndjson") as stream:
                stream.write(lines_of(part))
        with splits_of(100):
            report = load(graph, f"{root}/in/*.ndjson", mode="append", engine="local")
            assert report.total_entities == 20
            load(graph, f"{root}/in/a.ndjson", mode="merge", engine="local")
        assert len(rows(graph, "node:Thing")) == 20
        for name in ("name=part/code=20/x.csv", "name=part/_temporary/y.csv"):
            with filesystem(root).open_output_stream(f"{root.removeprefix('s3://')}/hive/{name}") as stream:
                stream.write(b"small\n7\n")
        for source in (f"{root}/hive", f"{root}/hive/**/*.csv", f"{root}/hive/name=part/code=20/x.csv"):
            load(graph, nodes={"Thing": source}, mode="merge", engine="local")
            found = rows(graph, "node:Thing")
            assert (len(found), found["20"]["name"], found["20"]["small"]) == (21, "part", 7)
        objects = session_of(graph).kernel.store.objects.list("")
        assert not [one.path for one in objects if "_staging" in one.path or "__recovery/0" in one.path]


COMPOSITE = """
node Flat { house: String  floor: I32  @key(house, floor) }
edge Above: Flat -> Flat { note: String? }
"""


def test_load_ends_by_the_columns_of_a_composite_key(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", COMPOSITE)
    (tmp_path / "flats.csv").write_text('house,floor\n"a, ""b""",1\n"a, ""b""",2\n')
    (tmp_path / "above.csv").write_text('house,upper,lower,note\n"a, ""b""",2,1,x\n')
    flats, above = str(tmp_path / "flats.csv"), f"{tmp_path / 'above.csv'}:floor=upper,house->house, floor = lower"
    load(graph, nodes={"Flat": flats}, edges={"Above": above}, mode="append", engine="local")
    found = graph.query("query q() { match { $a: Flat  $b: Flat  $a above $b } return { $a.floor, $b.floor } }").rows()
    assert [list(row.values()) for row in found] == [[2, 1]]


@pytest.mark.parametrize(
    ("ends", "line", "said"),
    [
        (
            "house,floor=upper->house,floor=lower",
            "a,,1,x",
            "line 2: `from` of an edge `Above` is the id of a node, and is null",
        ),
        ("house,upper->house,floor=lower", "a,2,1,x", "is not the key of `Flat`"),
        ("house,floor=upper->house,floor=nothing", "a,2,1,x", "expected the columns"),
        ("house,floor=upper->house,floor=lower", "a,two,1,x", r"line 2: column `upper` is not a valid `Flat\.floor`"),
    ],
)
def test_load_ends_by_wrong_columns_says_what_is_wrong(tmp_path: Path, ends: str, line: str, said: str) -> None:
    graph = og.init(tmp_path / "g.omni", COMPOSITE)
    (tmp_path / "above.csv").write_text(f"house,upper,lower,note\n{line}\n")
    source, target = ends.split("->")
    mapped = Columns(str(tmp_path / "above.csv"), source, target)
    with pytest.raises(OmniGraphError, match=said):
        load(graph, edges={"Above": mapped}, mode="append", engine="local")


# -- columns that directories spell ----------------------------------------------------------------------------

PARTITIONED = "node Visit { day: Date?  page: I32?  place: String?  who: String? }"


@pytest.fixture
def visits(tmp_path: Path) -> Graph:
    return og.init(tmp_path / "v.omni", PARTITIONED)


def visits_of(graph: Graph) -> list[tuple[object, ...]]:
    found = [(one["day"], one["page"], one["place"], one["who"]) for one in rows(graph, "node:Visit").values()]
    return sorted(found, key=str)


def write_visits(folder: Path, name: str) -> None:
    first, second = folder / "day=2024-01-02" / "place=S%C3%A3o %2F Paulo", folder / "day=2024-01-03" / "place=x=y"
    null = folder / "day=__HIVE_DEFAULT_PARTITION__" / "place=__HIVE_DEFAULT_PARTITION__"
    for number, place in enumerate((first, second, null)):
        place.mkdir(parents=True)
        table = pa.table({"page": pa.array([number], pa.int32()), "who": [f"w{number}"]})
        if name.endswith("csv"):
            (place / name).write_text(f"page,who\n{number},w{number}\n")
        else:
            pq.write_table(table, place / name)


EXPECTED_VISITS = [
    (None, 2, None, "w2"),
    (dt.date(2024, 1, 2), 0, "São / Paulo", "w0"),
    (dt.date(2024, 1, 3), 1, "x=y", "w1"),
]


@pytest.mark.parametrize("name", ["part-0.parquet", "part-0.csv"])
@pytest.mark.parametrize("source", ["in", "in/*/*/part-*", "in/day=*/**/*", "in/**/part-0.*"])
def test_load_partitioned_directories_gives_their_columns(
    visits: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_visits(tmp_path / "in", name)
    load(visits, nodes={"Visit": source}, mode="append", engine="local")
    assert visits_of(visits) == sorted(EXPECTED_VISITS, key=str)


def test_load_partition_values_stay_in_whole_columns(
    visits: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a partition column must not be converted value by value")

    monkeypatch.setattr(column_mapping.ColumnMapper, "_convert_rows", refuse)
    write_visits(tmp_path / "in", "part-0.parquet")
    load(visits, nodes={"Visit": tmp_path / "in"}, mode="append", engine="local")
    assert visits_of(visits) == sorted(EXPECTED_VISITS, key=str)


def test_load_one_partition_keeps_what_its_path_says(visits: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "region=eu" / "day=2024-01-02" / "where=inn"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"who": ["a"]}), folder / "f.parquet")
    renamed = Columns(folder / "f.parquet", properties={"where": "place"})
    load(visits, nodes={"Visit": renamed}, mode="append", engine="local")
    # `region` is no property of the type: a directory outside of what was named is not a column of it.
    assert visits_of(visits) == [(dt.date(2024, 1, 2), None, "inn", "a")]


@pytest.mark.parametrize(
    ("folder", "columns", "words"),
    [
        ("in/region=eu", {"who": ["a"]}, "has no property `region`"),
        ("in/who=b", {"who": ["a"]}, "is a column of"),
        ("in/page=many", {"who": ["a"]}, "`Visit.page` cannot hold this value"),
    ],
)
def test_load_partition_that_fits_nowhere_is_refused(
    visits: Graph, tmp_path: Path, folder: str, columns: dict[str, list[str]], words: str
) -> None:
    (tmp_path / folder).mkdir(parents=True)
    pq.write_table(pa.table(columns), tmp_path / folder / "f.parquet")
    with pytest.raises(OmniGraphError, match=words):
        load(visits, nodes={"Visit": tmp_path / "in"}, mode="append", engine="local")
    assert visits_of(visits) == []


def test_load_same_bytes_of_another_partition_is_another_job(visits: Graph, tmp_path: Path) -> None:
    for day in ("a/day=2024-01-02", "b/day=2024-01-03"):
        (tmp_path / day).mkdir(parents=True)
        pq.write_table(pa.table({"who": ["a"]}), tmp_path / day / "f.parquet")
    load(visits, nodes={"Visit": tmp_path / "a"}, mode="append", engine="local", job_id="j")
    with pytest.raises(OmniGraphError, match="loaded other input"):
        load(visits, nodes={"Visit": tmp_path / "b"}, mode="append", engine="local", job_id="j")
    moved = tmp_path / "run=2" / "a"
    moved.parent.mkdir()
    (tmp_path / "a").rename(moved)
    assert load(visits, nodes={"Visit": moved}, mode="append", engine="local", job_id="j").already_applied


@pytest.mark.parametrize("source", ["in", "in/**/*.csv", "in/**", "in/*/*.csv"])
def test_load_passes_over_hidden_and_temporary_paths(
    visits: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a/x.csv", "_temporary/0/y.csv", ".hidden/z.csv", "a/_u.csv", "a/.v.csv", "a/w.csv._COPYING_"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(f"who\n{name}\n")
    load(visits, nodes={"Visit": source}, mode="append", engine="local")
    assert [who for *_, who in visits_of(visits)] == ["a/x.csv"]


# -- quarantine, one rule for all formats ----------------------------------------------------------------------


def reject(graph: Graph, folder: Path, **source: Any) -> tuple[int, list[tuple[str, int, str, str]]]:
    """Load with quarantine; return what came in, and file, line, code and record of what did not."""
    options: dict[str, Any] = {"mode": "append", "engine": "local", "on_error": "quarantine", "report": folder / "out"}
    report = load(graph, **source, **options)
    lines = (folder / "out" / "rejected.ndjson").read_text().splitlines()
    rejected = [json.loads(line) for line in lines]
    return report.total_entities, [
        (Path(one["file"]).name, one["line"], one["code"], one["record"]) for one in rejected
    ]


def test_load_csv_rejects_rows_that_are_no_rows(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'code,name\n1,a\n2,b,c\n\n3,\xff\n4\n5,"e\ne"\n"6\n",f,g\n7,h\nx,i\n9,j,k\n')
    (tmp_path / "b.csv").write_bytes(b"code,name\n10,k\n11,l,m\n")
    count, rejected = reject(graph, tmp_path, nodes={"Thing": [tmp_path / "a.csv", tmp_path / "b.csv"]})
    assert count == 4
    assert set(rows(graph, "node:Thing")) == {"1", "5", "7", "10"}
    assert rows(graph, "node:Thing")["5"]["name"] == "e\ne"
    assert [one[:3] for one in rejected] == [
        ("a.csv", 3, "N1"), ("a.csv", 5, "N1"), ("a.csv", 6, "N1"), ("a.csv", 9, "N1"), ("a.csv", 12, "N10"),
        ("a.csv", 13, "N1"), ("b.csv", 3, "N1"),
    ]  # fmt: skip
    assert rejected[0][3] == "2,b,c"
    assert "\ufffd" in rejected[1][3]
    assert json.loads(rejected[4][3]) == {"code": "x", "name": "i"}


@pytest.mark.parametrize("block", [24, 1 << 20])
def test_csv_lines_are_those_of_an_editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """The oracle numbers rows with Python's reader, which says at which line a row ended."""
    monkeypatch.setattr(csv_reader, "LOAD_CSV_ROW_BYTES_MAX", block)
    random = Random(7)
    for _ in range(40):
        fields = [random.choice(["a", "bb", '"c\nd"', '"e\r\n\nf"', '""', '"g""h"']) for _ in range(40)]
        ends = [random.choice(["\n", "\r\n", "\n\n", "\n\r\n"]) for _ in range(20)]
        body = [",".join(fields[2 * row : 2 * row + random.choice([2, 2, 2, 2, 1])]) + ends[row] for row in range(20)]
        text = "".join(["x,y\n", *(row + (",z\n" if random.random() < 0.1 else "") for row in body)])
        (tmp_path / "t.csv").write_text(text, newline="")
        starts, before = {}, 0
        reader = csv.reader(io.StringIO(text, newline=""))
        for row in reader:
            if row:
                starts[before + 1] = len(row)
            before = reader.line_num
        findings = Findings(1_000)
        split = Split(str(tmp_path / "t.csv"), "csv", 0, 0, len(text), table_key=TypeKey("node:T"))
        chunks = list(csv_reader.read_csv(split, findings))
        found = {int(line): 2 for one in chunks for line in one.numbers}
        found |= {one.line: starts.get(one.line, 0) for one in findings.violations if one.line is not None}
        assert sorted(found.items()) == sorted(starts.items())[1:]
        assert {one.line for one in findings.violations} == {line for line, count in starts.items() if count != 2}
        assert [line for one in chunks for line in one.lines] == list(range(1, chunks[-1].lines.stop))
        values = [row for row in csv.reader(io.StringIO(text, newline="")) if len(row) == 2][1:]
        texts = [[one or "" for one in row.values()] for chunk in chunks for row in chunk.table.to_pylist()]
        assert texts == values


def test_csv_rows_without_a_value_are_no_empty_lines(graph: Graph, tmp_path: Path) -> None:
    file = tmp_path / "free.csv"
    for text, count, lines in (
        ("id,label\nf1,\n,\n,l\n", 3, []),
        ("id,label\nf2,\n\n\n,l\n\n", 2, []),
        ("id,label\nf3,\n\n,\n,l\n", 2, [3, 4]),
        ("label\na\n\nb\n", 2, []),
    ):
        file.write_text(text)
        loaded, rejected = reject(graph, tmp_path, nodes={"Free": file})
        assert (loaded, [line for _, line, _, _ in rejected]) == (count, lines)


@pytest.mark.parametrize("name", ["e.csv", "e.parquet", "e.ndjson"])
def test_load_rejects_edges_without_an_end_in_every_format(graph: Graph, tmp_path: Path, name: str) -> None:
    graph.ingest([{"type": "Thing", "data": {"code": one, "name": "n"}} for one in (7, 8)], mode="append")
    ends = [("007", "8"), (None, "8"), ("7", None), ("8", "7")]
    if name == "e.csv":
        (tmp_path / "odd.csv").write_text("src,dst\n007,8\nseven,8\n")
        with pytest.raises(DataError, match="`seven`") as caught:
            load(graph, mode="append", engine="local", edges={"Links": tmp_path / "odd.csv"})
        assert (caught.value.context["rule"], caught.value.context["line"]) == ("E9", 3)
    file = tmp_path / name
    if name == "e.csv":
        file.write_text("src,dst\n" + "".join(f"{one or ''},{two or ''}\n" for one, two in ends))
    elif name == "e.parquet":
        numbers = [[None if one is None else int(one) for one in side] for side in zip(*ends, strict=True)]
        pq.write_table(pa.table({"src": numbers[0], "dst": numbers[1]}), file)
    else:
        file.write_bytes(lines_of([{"edge": "Links", "from": one and str(int(one)), "to": two} for one, two in ends]))
    source: dict[str, Any] = {"data": file} if name == "e.ndjson" else {"edges": {"Links": file}}
    count, rejected = reject(graph, tmp_path, **source)
    first = 3 if name == "e.csv" else 2
    assert (count, [one[1:3] for one in rejected]) == (2, [(first, "N4"), (first + 1, "N4")])
    assert sorted((one["src"], one["dst"]) for one in rows(graph, "edge:Links").values()) == [
        ("7", "8"),
        ("8", "7"),
    ]
    with pytest.raises(DataError, match=f"line {first}: `from` of an edge `Links` is the id of a node, and is null"):
        load(graph, mode="append", engine="local", **source)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.tsv", b"code\tname\n1\ta,b\n"),
        ("t.tsv.gz", gzip.compress(b"code\tname\n1\ta,b\n")),
        ("t.csv.bz2", bz2.compress(b'code,name\n1,"a,b"\n')),
    ],
    ids=["tabs", "gzip", "bz2"],
)
def test_tabs_and_compressions_are_known_by_the_name_of_a_file(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    graph = og.init(tmp_path / "g.omni", "node Thing { code: I64 @key  name: String }")
    load(graph, nodes={"Thing": tmp_path / name}, engine="local")
    assert [(row["code"], row["name"]) for row in map(dict, _things(graph))] == [(1, "a,b")]


@pytest.mark.parametrize(
    ("text", "type_", "value"), [("1.50", "F64", 1.5), ("0.1", "F64", 0.1), ("0.1", "F32", 0.1), ("3.00", "I64", 3)]
)
def test_decimals_are_numbers_if_no_digit_is_lost(tmp_path: Path, text: str, type_: str, value: float) -> None:
    graph = og.init(tmp_path / "g.omni", f"node Thing {{ code: I64 @key  n: {type_}? }}")
    table = pa.table({"code": [1, 2], "n": pa.array([Decimal(text), None])})
    load(graph, nodes={"Thing": table}, engine="local")
    assert [row["n"] for row in _things(graph)] == [pytest.approx(value), None]


def test_integral_floats_are_integers_and_others_are_reported_alone(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", "node Thing { code: I64 @key  n: I64? }")
    pq.write_table(
        pa.table({"code": [1.0, 2.0, 3.0, 4.0], "n": [7.0, 7.5, None, float("nan")]}), tmp_path / "t.parquet"
    )
    report = load(
        graph,
        nodes={"Thing": tmp_path / "t.parquet"},
        engine="local",
        on_error="quarantine",
        report=tmp_path / "report",
    )
    assert [(row["code"], row["n"]) for row in _things(graph)] == [(1, 7), (3, None)]
    assert [item.line for item in report.rejected] == [2, 4]


def test_decimal_with_too_many_digits_is_reported_alone(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", "node Thing { code: I64 @key  n: F64? }")
    table = pa.table({"code": [1, 2], "n": pa.array([Decimal("1.5"), Decimal("0.12345678901234567890123")])})
    report = load(graph, nodes={"Thing": table}, engine="local", on_error="quarantine", report=tmp_path / "report")
    assert ([row["n"] for row in _things(graph)], [item.line for item in report.rejected]) == ([1.5], [2])


def _things(graph: Graph) -> list[dict[str, Any]]:
    return [json.loads(line)["data"] for line in b"".join(graph.export()).splitlines()]
