"""A session that we did not start stays as it is: its settings, its views, and what its jobs are called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph import pipeline
from tests.support.pipeline_fixtures import world

FILE = """\
pipelines:
  people:
    publish: { merge_into: main }
    sources: { accounts: { format: parquet, path: accounts, incremental: seq } }
    transforms: { people: "SELECT name FROM accounts" }
    nodes: { Person: { from: people } }
    expect: [{ on: people, unique: [name] }]
    spark: { conf: { spark.sql.shuffle.partitions: 3, spark.executor.memory: 9g } }
"""
QUERY = "query q() { match { $p: Person } return { $p.name } }"


def describe(spark: Any) -> dict[str, object]:
    context = spark.sparkContext
    return {
        "settings": dict(spark.conf.getAll),
        "context": sorted(context.getConf().getAll()),
        "jobs": [context.getLocalProperty(f"spark.job.{name}") for name in ("description", "tags")]
        + [context.getLocalProperty("spark.jobGroup.id")],
        "views": sorted(table.name for table in spark.catalog.listTables()),
        "active": spark.getActiveSession() is None or spark.getActiveSession().conf.get("spark.sql.session.timeZone"),
        "python": context.pythonExec,
    }


@pytest.mark.spark
@pytest.mark.slow
def test_session_of_the_user_is_never_reconfigured(spark: Any, tmp_path: Path) -> None:
    user = spark.newSession()
    user.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    user.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    user.conf.set("spark.sql.shuffle.partitions", "2")
    # As Spark comes: other tests do without these.
    user.conf.set("spark.sql.adaptive.enabled", "true")
    user.conf.set("spark.sql.codegen.wholeStage", "true")
    user.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    user.range(3).createOrReplaceTempView("accounts")
    (tmp_path / "accounts").mkdir()
    pq.write_table(pa.table({"seq": [1, 2], "name": ["eve", "fay"]}), tmp_path / "accounts" / "1.parquet")
    (tmp_path / "pipelines.yaml").write_text(FILE)
    # What makes a session the active one is the user's own call.
    frame = user.createDataFrame([("dan",)], "name string")
    graph, before = world(tmp_path / "g.omni"), describe(user)
    pipeline.load(graph, nodes={"Person": frame}, mode="append", spark=user)
    assert describe(user) == before, "load"
    pipeline.check(graph, tmp_path / "pipelines.yaml", spark=user)
    assert pipeline.run(graph, tmp_path / "pipelines.yaml", spark=user).status == "published"
    assert describe(user) == before, "run"
    result = pipeline.query(graph, QUERY, spark=user)
    assert {row["p.name"] for row in result.collect()} == {"ann", "bob", "dan", "eve", "fay"}
    assert describe(user) == before, "query"
    assert [row["id"] for row in user.table("accounts").collect()] == [0, 1, 2], "its view"
