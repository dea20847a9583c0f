"""Spark Connect with a real server on loopback: pipelines, loads, reads and queries work over it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

import omnigraph as og
from tests.spark.test_cluster import LOOPBACK, free_port, start, wait_for
from tests.support.crash_campaign import REPOSITORY
from tests.support.pipeline_fixtures import contents
from tests.support.spark_environment import SETTINGS

SCHEMA = """
node Person { name: String @key  age: I64? }
edge Knows: Person -> Person
"""
FILE = """\
pipelines:
  people:
    publish: { merge_into: main }
    sources: { accounts: { format: json, path: accounts, incremental: seq } }
    transforms:
      people: "SELECT name, age, age < 0 AS gone FROM accounts"
      friends: "SELECT name, friend FROM accounts WHERE friend IS NOT NULL"
    nodes: { Person: { from: people, columns: { name: name, age: age }, delete_when: gone } }
    edges: { Knows: { from: friends, src: name, dst: friend } }
    expect:
      - { on: accounts, not_null: [name], else: quarantine }
      - { on: people, unique: [name] }
"""
ROWS = [
    {"seq": 1, "name": "ann", "age": 30, "friend": None},
    {"seq": 2, "name": "bob", "age": 40, "friend": "ann"},
    {"seq": 3, "name": None, "age": 5, "friend": None},
]
CLIENT = """
import json, sys
import omnigraph as og
from omnigraph import pipeline
from omnigraph.errors import OmniGraphError
from pyspark.sql.connect.session import SparkSession

uri, file, report = sys.argv[1:]
graph, spark = og.open(uri), pipeline.session()
assert isinstance(spark, SparkSession)
before = {name: spark.conf.get(name) for name in ("spark.sql.session.timeZone", "spark.sql.shuffle.partitions")}
said = {"checked": list(pipeline.check(graph, file).nodes["Person"])}
options = {"report": report}
said["statuses"] = [
    pipeline.run(graph, file, dry_run=True).status,
    pipeline.run(graph, file, **options).status,
    pipeline.run(graph, file, **options).status,
    pipeline.run(graph, file, backfill=("0", "1"), **options).status,
]
frame = spark.createDataFrame([("zoe", 3)], "name string, age long")
said["loaded"] = dict(pipeline.load(graph, nodes={"Person": frame}, mode="merge", spark=spark).nodes)
said["read"] = spark.read.format("omnigraph").options(graph=uri, type="Person").load().count()
said["asked"] = pipeline.query(graph, "query q() { match { $p: Person } return { $p.name } }", spark=spark).count()
said["same"] = before == {name: spark.conf.get(name) for name in before}
print(json.dumps(said))
"""


@pytest.mark.spark
@pytest.mark.slow
def test_pipeline_runs_over_a_spark_connect_server(tmp_path: Path) -> None:
    (tmp_path / "accounts").mkdir()
    (tmp_path / "accounts" / "1.json").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "pipelines.yaml").write_text(FILE)
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    port = free_port()
    settings = SETTINGS | {
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
    }
    command = [
        "org.apache.spark.deploy.SparkSubmit",
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[1]"),
        *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
        "spark-internal",
    ]
    with ExitStack() as stack:
        # The tasks of the server run this interpreter.
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("PYSPARK_PYTHON", sys.executable)
        wait_for(start(stack, tmp_path, command), "Spark Connect server started")
        words = [graph.uri, str(tmp_path / "pipelines.yaml"), str(tmp_path / "report")]
        client = subprocess.run(
            [sys.executable, "-c", CLIENT, *words],
            cwd=REPOSITORY,
            env=os.environ | {"SPARK_REMOTE": f"sc://{LOOPBACK}:{port}"},
            capture_output=True,
            text=True,
        )
        assert client.returncode == 0, client.stderr
    assert json.loads(client.stdout.splitlines()[-1]) == {
        "checked": ["name", "age"],
        "statuses": ["dry_run", "published", "nothing_new", "published"],
        "loaded": {"Person": 1},
        "read": 3,
        "asked": 3,
        "same": True,
    }
    names = [row["data"]["name"] for row in contents(og.open(graph.uri)) if row.get("type") == "Person"]
    assert sorted(names) == ["ann", "bob", "zoe"]
