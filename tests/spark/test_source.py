"""Types as DataFrames: every value, columns, conditions, states of the past, and what a DataFrame is pinned to."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.entity_lookup import find_qualified_type
from omnigraph.engine.export import column_names
from omnigraph.engine.pinned_scan import plan_scan, read_rows
from omnigraph.errors import UsageError
from omnigraph.graph import session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.spark.datasource import tables
from omnigraph.spark.datasource.options import READ_OPTIONS, parse_options
from omnigraph.spark.diff import diff
from omnigraph.spark.query import collect
from tests.support.datasource_fixtures import FULL, things
from tests.support.examples import IS_LONG

pytestmark = pytest.mark.slow


def read(spark: Any, graph: Any, **options: str) -> Any:
    reader = spark.read.format("omnigraph").option("graph", graph.uri)
    for name, value in {"type": "Thing", **options}.items():
        reader = reader.option(name, value)
    return reader.load()


@pytest.mark.spark
def test_read_gives_every_value_as_spark_has_it(spark: Any, tmp_path: Path) -> None:
    graph = things(tmp_path / "g")
    frame = read(spark, graph)
    rows = {row["name"]: row.asDict() for row in frame.collect()}
    assert rows["full"] == FULL | {
        "id": "full",
        "total": Decimal(2**64 - 1),
        "ratio": pytest.approx(0.1),
        "near": pytest.approx([0.1, -2.5, 3.0]),
        "day": dt.date(1969, 12, 31),
        # Spark hands out instants without a zone, in the one of the session.
        "at": dt.datetime(1969, 12, 31, 23, 59, 59, 999_000),
        "body": b"\x00\x01\xff",
        "totals": [Decimal(0), Decimal(2**64 - 1)],
        "days": [dt.date(2024, 2, 29)],
        "instants": [dt.datetime(2024, 2, 29, 12, 30, 0, 123_000), dt.datetime(1900, 1, 1)],
    }
    assert (rows["empty"]["texts"], rows["empty"]["body"], rows["none"]["texts"]) == ([], b"", None)
    fields = {field.name: field for field in frame.schema.fields}
    assert fields["name"].metadata == {"omnigraph.type": "String", "omnigraph.key": True}
    assert fields["near"].metadata == {"omnigraph.type": "Vector(3)?"}
    assert (fields["id"].nullable, fields["total"].dataType.simpleString()) == (False, "decimal(20,0)")
    edges = read(spark, graph, type="Likes", columns="src,dst,weight").orderBy("src").collect()
    assert [tuple(row) for row in edges] == [("a", "b", Decimal(2**64 - 1)), ("b", "b", None)]


@pytest.mark.spark
def test_read_of_one_dataframe_shows_one_commit(spark: Any, tmp_path: Path) -> None:
    graph = things(tmp_path / "g")
    first = graph.snapshot().head
    frame = read(spark, graph)
    named = spark.read.format("omnigraph").schema("name string").option("type", "Thing").load(graph.uri)
    graph.ingest([{"type": "Thing", "data": {"name": "later"}}], mode="append")
    assert (frame.count(), read(spark, graph).count()) == (3, 4)
    # With a schema of the caller's, Spark asks for the source when the DataFrame is used and not before.
    assert sorted(tuple(row) for row in named.collect()) == [("empty",), ("full",), ("later",), ("none",)]
    assert read(spark, graph, at=str(first)).count() == 3
    assert read(spark, graph, version=str(graph.snapshot().version)).count() == 4
    # Conditions that Spark pushed down would stick to the relation, and the second use would see them.
    some = frame.where("count > 5")
    assert (some.count(), frame.count(), some.join(frame, "id").count(), some.union(frame).count()) == (1, 3, 1, 4)
    assert [row["name"] for row in read(spark, graph, filter="count > 5", columns="name").collect()] == ["full"]
    assert read(spark, graph, filter="name = 'nobody'").count() == 0
    parts = read(spark, graph, numPartitions="4")
    assert (parts.rdd.getNumPartitions(), frame.rdd.getNumPartitions()) == (4, 1)
    assert sorted(row["name"] for row in parts.collect()) == ["empty", "full", "later", "none"]
    graph.branches.create("side")
    graph.ingest([{"type": "Thing", "data": {"name": "aside"}}], mode="append", branch="side")
    assert (read(spark, graph, branch="side").count(), read(spark, graph).count()) == (5, 4)


# -- without Spark ---------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_read_of_the_past_has_todays_names_unless_asked_otherwise(spark: Any, tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node Person { name: String @key\n  age: I32?\n  secret: String? }")
    graph.ingest([{"type": "Person", "data": {"name": "ada", "age": 36, "secret": "x"}}])
    graph.tags.create("v1")
    newest = read(spark, graph, type="Person")
    renamed = (
        'node Human @rename_from("Person") { name: String @key\n  years: I32? @rename_from("age")\n  mail: String? }'
    )
    graph.schema.apply(renamed)
    human = "node Human { name: String @key\n  years: I32?\n  mail: String? }"
    graph.schema.apply(f"{human}\nnode Person {{ name: String @key }}")
    graph.ingest([{"type": "Person", "data": {"name": "zed"}}])
    row = {"id": "ada", "name": "ada", "years": 36, "mail": None}
    assert [one.asDict() for one in read(spark, graph, type="Human", at="v1").collect()] == [row]
    assert read(spark, graph, type="Person", at="v1").collect() == []
    then = read(spark, graph, type="Person", at="v1", names="then").collect()
    assert [(one["age"], one["secret"]) for one in then] == [(36, "x")]
    # A DataFrame keeps the names that it was made with.
    assert [one["age"] for one in newest.collect()] == [36]
    query = "query q() { match { $p: Human } return { $p.years as years, $p.mail as mail } }"
    assert collect(graph, query, at="v1", spark=spark).to_json_rows() == [{"years": 36, "mail": None}]
    empty = "query q() { match { $p: Person } return { $p.name } }"
    assert collect(graph, empty, at="v1", spark=spark).to_json_rows() == []
    assert len(collect(graph, empty, at="v1", names="then", spark=spark)) == 1
    changes = diff(graph, "v1", "main", spark=spark).collect()
    assert [(one["type_name"], one["id"], one["op"]) for one in changes] == [("Person", "zed", "insert")]


def test_plan_scan_gives_each_fragment_to_one_task(tmp_path: Path) -> None:
    graph = things(tmp_path / "g")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("omnigraph.store.write.fragments.LOAD_SPLIT_BYTES", 1)
        scan, runs = plan_scan(session_of(graph).view(), TypeKey("node:Thing"))
    assert runs == [[0], [1]]
    names = column_names(scan.type)
    found = [pa.Table.from_batches(read_rows(scan, run, names)) for run in runs]
    assert [one.num_rows for one in found] == [2, 1]
    assert found[0].schema.equals(arrow_schema(scan.type))
    assert found[0].column("body").to_pylist() == [b"\x00\x01\xff", b""]
    assert found[1].column("body").to_pylist() == [None]
    _, together = plan_scan(session_of(graph).view(), TypeKey("node:Thing"))
    assert together == [[0, 1]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "no graph was given"),
        ({"graph": "g"}, "option `type` is missing"),
        ({"graph": "g", "type": "Thign"}, "did you mean `Thing`"),
        ({"graph": "g", "type": "edge:Thing"}, "no type `edge:Thing`"),
        ({"graph": "g", "type": "Thing", "columns": "name,cuont"}, "did you mean `count`"),
        ({"graph": "g", "type": "Thing", "colums": "name"}, "did you mean `columns`"),
        ({"graph": "g", "type": "Thing", "version": "x"}, "integer"),
        ({"graph": "g", "type": "Thing", "version": "1", "at": "x"}, "use one of them"),
    ],
)
def test_schema_of_wrong_options_says_what_to_do(tmp_path: Path, options: Mapping[str, str], said: str) -> None:
    things(tmp_path / "g").close()
    given = {name: str(tmp_path / "g") if name == "graph" else value for name, value in options.items()}
    with pytest.raises(UsageError, match=said):
        tables.schema_of(given, None)


def test_reader_wrong_filter_or_schema_is_refused_before_tasks_run(tmp_path: Path) -> None:
    from pyspark.sql.types import LongType, StringType, StructType

    graph = things(tmp_path / "g")
    options = {"graph": graph.uri, "type": "Thing"}
    with pytest.raises(UsageError, match="not a valid condition on `Thing`"):
        tables.Reader(options | {"filter": "nothing > 5"}, None, StructType().add("name", StringType()))
    for where in (
        "count > 5) OR (true",
        "count > 5 garbage",
        "count > 5)",
        "(count > 5",
        "count > 5 -- x",
        "name = 'x",
    ):
        with pytest.raises(UsageError, match="condition on `Thing`"):
            tables.Reader(options | {"filter": where}, None, StructType().add("name", StringType()))
    with pytest.raises(UsageError, match=r"`Thing\.count` is `bigint` in Spark"):
        tables.Reader(options, None, StructType().add("count", StringType()))
    reader = tables.Reader(options, None, StructType().add("count", LongType()))
    (part,) = reader.partitions()
    assert [batch.to_pylist() for batch in reader.read(part)] == [
        [{"count": 2**32 - 1}, {"count": None}],
        [{"count": None}],
    ]


def test_at_is_a_time_if_it_reads_as_one() -> None:
    assert parse_options({"at": "2024-01-31T12:00:00"}, READ_OPTIONS).at == dt.datetime(2024, 1, 31, 12)
    assert parse_options({"AT": "v1"}, READ_OPTIONS).at == "v1"


def test_find_qualified_type_of_two_kinds_asks_which(tmp_path: Path) -> None:
    catalog = session_of(things(tmp_path / "g")).view().catalog
    assert find_qualified_type(catalog, "node:Thing").table_key == "node:Thing"
    assert find_qualified_type(catalog, "likes").table_key == "edge:Likes"


@pytest.mark.spark
def test_wrong_options_in_spark_say_code_and_message(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = things(tmp_path / "g")
    wrong = [
        ({"branch": "nowhere"}, "branch.not_found: "),
        ({"tyep": "x"}, "usage.invalid: unknown option `tyep`"),
        ({"type": "Thign"}, "usage.invalid: "),
    ]
    # Spark throws a worker away that has failed, and the next one imports everything again.
    for options, message in wrong if IS_LONG else wrong[:1]:
        with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
            read(spark, graph, **options)
        said = str(caught.value)
        assert message in said.splitlines()[0]
        assert "Traceback" not in said
        assert 'File "' not in said
    with pytest.raises(Exception, match=r"usage\.invalid: .* is not a single condition on `Thing`"):
        read(spark, graph, filter="count > 5) OR (true").collect()
    with pytest.raises(Exception, match=r"usage\.invalid: `CREATE TABLE … USING omnigraph`"):
        spark.sql(f"CREATE TABLE t USING omnigraph OPTIONS (graph '{graph.uri}', type 'Dot')")
    spark.sql(f"CREATE TEMPORARY VIEW dots USING omnigraph OPTIONS (graph '{graph.uri}', type 'Dot')")
    spark.sql("INSERT INTO dots SELECT 'z', 'z'")
    assert [row["name"] for row in spark.sql("SELECT name FROM dots ORDER BY name").collect()] == ["a", "b"]
    assert spark.read.format("omnigraph").options(graph=graph.uri, type="Dot").load().count() == 3


def test_hidden_traceback_is_shown_again_by_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    from omnigraph.spark.datasource.options import spark_errors

    def fail(**given: bool) -> None:
        with spark_errors(**given):
            raise UsageError("wrong", option="x")

    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
    with pytest.raises(UsageError, match=r"^usage\.invalid: wrong$") as caught:
        fail()
    assert (caught.value.message, "SPARK_HIDE_TRACEBACK" in os.environ) == ("wrong", True)
    with spark_errors():
        assert "SPARK_HIDE_TRACEBACK" not in os.environ
    with pytest.raises(UsageError):
        fail(is_planning=False)
    assert "SPARK_HIDE_TRACEBACK" not in os.environ
    monkeypatch.setenv("OMNIGRAPH_SPARK_TRACEBACK", "on")
    with pytest.raises(UsageError):
        fail()
    assert "SPARK_HIDE_TRACEBACK" not in os.environ
