"""Tables of a database as input: read through JDBC by Spark, from a real one that runs inside of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph.pipeline import Columns, load
from tests.support.pipeline_fixtures import world
from tests.support.write_fixtures import rows

URL = "jdbc:derby:memory:{0};create=true"


@pytest.mark.spark
@pytest.mark.slow
def test_load_takes_tables_of_a_database(spark: Any, tmp_path: Path) -> None:
    # Otherwise the database leaves its log where the tests were started.
    spark._jvm.java.lang.System.setProperty("derby.system.home", str(tmp_path))
    graph, url = world(tmp_path / "g"), URL.format(tmp_path.name)
    people = spark.range(40).selectExpr("id as nr", "concat('p', id) as name", "cast(id % 3 as int) as level")
    people.write.jdbc(url, "people")
    spark.range(40).selectExpr("concat('p', id) as a", "'ann' as b").write.jdbc(url, "knows")
    # Parts of a table are read side by side.
    table = spark.read.jdbc(url, "people", column="nr", lowerBound=0, upperBound=40, numPartitions=2).drop("nr")
    knows = spark.read.jdbc(url, "(select * from knows) as knows")
    report = load(graph, nodes={"Person": table}, edges={"Knows": Columns(knows, "a", "b")}, mode="append")
    assert (dict(report.nodes), dict(report.edges)) == ({"Person": 40}, {"Knows": 40})
    found = {row["name"]: row["level"] for row in rows(graph, "node:Person").values()}
    assert found == {"ann": 1, "bob": 2} | {f"p{place}": place % 3 for place in range(40)}
