"""Spark and the stores of Google and Azure: tasks get the settings of their driver, for graphs as for files."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
import tests.support.cloud_stores
from omnigraph import pipeline
from omnigraph.engine.input.filesystems import filesystem, path_in_store
from omnigraph.errors import UsageError
from omnigraph.pipelines.declaration.config import SourceDeclaration
from omnigraph.pipelines.sources.read import read_source
from tests.support.cloud_stores import Cloud, new_uri

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.slow]

_no_cloud = tests.support.cloud_stores._no_cloud
azurite_server = tests.support.cloud_stores.azurite_server
azurite = tests.support.cloud_stores.azurite
gcs_server = tests.support.cloud_stores.gcs_server
cloud = tests.support.cloud_stores.cloud


def read(spark: Any, format_name: str, path: str, **options: str) -> list[dict[str, Any]]:
    source = SourceDeclaration("rows", format_name, path, options, None)
    return [row.asDict() for row in read_source(spark, source, None).collect()]


def test_spark_loads_and_reads_in_the_store(spark: Any, cloud: Cloud) -> None:
    address = new_uri(cloud)
    files = filesystem(address)
    with files.open_output_stream(path_in_store(f"{address}.in/csv/1.csv"), compression=None) as stream:
        stream.write(b"name,age\nada,36\n")
    table = pa.table({"name": ["bob"], "age": pa.array([7], pa.int32())})
    pq.write_table(table, path_in_store(f"{address}.in/parquet/day=1/2.parquet"), filesystem=files)

    assert [row["name"] for row in read(spark, "csv", f"{address}.in/csv/", header="true")] == ["ada"]
    assert [(row["name"], row["day"]) for row in read(spark, "parquet", f"{address}.in/parquet/")] == [("bob", "1")]
    with pytest.raises(UsageError, match=r"`encoding` on `\w\w://` needs Spark's own file system"):
        read(spark, "json", f"{address}.in/csv/", encoding="ISO-8859-1")

    graph = og.init(address, "node P { name: String @key  age: I32? }")
    report = pipeline.load(graph, nodes={"P": f"{address}.in/csv/1.csv"}, mode="append", engine="spark", spark=spark)
    assert report.engine == "spark"
    rows = graph.query("query all() { match { $p: P } return { $p.name as name, $p.age as age } }")
    assert [(row["name"], row["age"]) for row in rows] == [("ada", 36)]
