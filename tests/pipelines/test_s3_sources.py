"""Sources of pipelines on S3, in a Spark that has no file system for it: formats, folders, partitions and refusals."""

from __future__ import annotations

import datetime as dt
import gzip
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException

from omnigraph.engine.input.filesystems import filesystem
from omnigraph.errors import UsageError
from omnigraph.pipelines.declaration.config import SourceDeclaration
from omnigraph.pipelines.sources.read import read_source
from tests.support.s3_server import S3Server, s3_server

__all__ = ["s3_server"]

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.slow]

LAKE = "graphs/lake"


def put(key: str, content: bytes) -> None:
    with filesystem("s3://graphs").open_output_stream(f"{LAKE}/{key}", compression=None) as stream:
        stream.write(content)


def put_table(key: str, table: pa.Table) -> None:
    pq.write_table(table, f"{LAKE}/{key}", filesystem=filesystem("s3://graphs"))


def read(spark: Any, format_name: str, path: str, **options: str) -> list[dict[str, Any]]:
    source = SourceDeclaration("rows", format_name, f"s3://{LAKE}/{path}", options, None)
    return [row.asDict() for row in read_source(spark, source, None).collect()]


def test_text_files_are_parsed_by_spark(spark: Any, s3_server: S3Server) -> None:
    put("csv/1.csv", b'\xef\xbb\xbfid,name\r\n1,ann\r\n2,"b,ob"\r\n')
    put("csv/2.csv", b"id,name\n3,\xc3\xa9ve")
    put("csv/_temporary/3.csv", b"id,name\n4,nil\n")
    rows = read(spark, "csv", "csv/", header="true", schema="id INT, name STRING")
    assert sorted((row["id"], row["name"]) for row in rows) == [(1, "ann"), (2, "b,ob"), (3, "éve")]
    # Its columns would be those of the first file, and its header a row.
    put("csv/4.csv", b"name,id\ndan,4\n")
    with pytest.raises(PythonException, match=r"the header of `s3://.*/4.csv` is not that of `s3://.*/1.csv`"):
        read(spark, "csv", "csv/", header="true", schema="id STRING, name STRING")
    with pytest.raises(UsageError, match="`encoding` on `s3://` needs Spark's own file system"):
        read(spark, "json", "csv/", encoding="ISO-8859-1")
    put("json/1.json.gz", gzip.compress(b'{"id": 1, "at": {"x": 2}}\n\n{"id": 2}\n'))
    assert [row["id"] for row in read(spark, "json", "json/*.json.gz")] == [1, 2]
    put("json/2.json", b'{"id": 1}\n{"id":\n')
    with pytest.raises(UsageError, match=r"source `rows` cannot be read: .*(?i:malformed)"):
        read(spark, "json", "json/2.json")


def test_parquet_keeps_types_partitions_and_later_columns(spark: Any, s3_server: S3Server) -> None:
    at = dt.datetime(2026, 3, 29, 1, 30, tzinfo=dt.UTC)
    first = pa.table(
        {
            "id": pa.array([1], pa.int32()),
            "at": pa.array([at], pa.timestamp("ns", "UTC")),
            "local": pa.array([at.replace(tzinfo=None)], pa.timestamp("us")),
            "price": pa.array([Decimal("1.20")], pa.decimal128(9, 2)),
            "tags": [["a", "b"]],
        }
    )
    put_table("t/day=1/1.parquet", first)
    put_table("t/day=2/2.parquet", first.set_column(0, "id", pa.array([2], pa.int32())).drop_columns(["tags"]))
    rows = sorted(read(spark, "parquet", "t/"), key=lambda row: row["id"])
    assert [(row["day"], row["tags"]) for row in rows] == [("1", ["a", "b"]), ("2", None)]
    assert (rows[0]["price"], rows[0]["local"]) == (Decimal("1.20"), at.replace(tzinfo=None))
    assert rows[0]["at"].timestamp() == at.timestamp()
    declared = read(spark, "parquet", "t/day=1/", schema="price DOUBLE, id BIGINT, other STRING")
    assert declared == [{"price": 1.2, "id": 1, "other": None}]


def test_what_needs_a_file_system_of_spark_is_refused(spark: Any, s3_server: S3Server) -> None:
    put("json/1.json", b"[]")
    put("json/day=1/1.json", b"{}")
    for format_name, path, options in (
        ("json", "json/1.json", {"multiLine": "true"}),
        ("json", "json/", {}),
        ("orc", "json/1.json", {}),
    ):
        with pytest.raises(UsageError, match="hadoop-aws"):
            read(spark, format_name, path, **options)
    with pytest.raises(UsageError, match="matches no file; check the path"):
        read(spark, "parquet", "nowhere/")
