"""`spark-submit` on a standalone cluster whose Python lacks this package: it comes with `--py-files`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from tests.spark.test_cluster import cluster, environment
from tests.spark.test_session import bare_python
from tests.support.crash_campaign import REPOSITORY

FILE = """\
pipelines:
  people:
    publish: { merge_into: main }
    sources: { accounts: { format: parquet, path: accounts, incremental: seq } }
    transforms: { people: "SELECT name FROM accounts" }
    nodes: { Person: { from: people } }
    expect: [{ on: people, unique: [name] }]
"""
APPLICATION = """
import json, sys
from pyspark.sql import SparkSession
import omnigraph as og
from omnigraph import pipeline

spark = SparkSession.builder.appName("nightly").config("spark.sql.session.timeZone", "Asia/Tokyo").getOrCreate()
def settings():
    return {*spark.sparkContext.getConf().getAll(), *spark.conf.getAll.items()}

before = settings()
report = pipeline.run(og.open(sys.argv[1]), sys.argv[2], spark=spark)
said = {
    "status": report.status,
    "nodes": dict(report.nodes),
    "changed": sorted(settings() ^ before),
    "package": og.__file__,
}
print("said " + json.dumps(said))
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.long
def test_submitted_application_with_a_wheel_runs_a_pipeline(tmp_path: Path) -> None:
    import pyspark

    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True)
    [wheel] = (tmp_path / "dist").glob("*.whl")
    # Executors import from `.zip`, and ignore `.whl`.
    package = wheel.rename(tmp_path / "omnigraph.zip")
    (tmp_path / "accounts").mkdir()
    pq.write_table(pa.table({"seq": [1, 2], "name": ["ann", "bob"]}), tmp_path / "accounts" / "1.parquet")
    (tmp_path / "pipelines.yaml").write_text(FILE)
    (tmp_path / "nightly.py").write_text(APPLICATION)
    graph, python = og.init(tmp_path / "g.omni", "node Person { name: String @key }"), bare_python(tmp_path)
    inherited = {name: value for name, value in environment(tmp_path).items() if name != "PYTHONPATH"}
    with cluster(tmp_path) as running:
        submitted = subprocess.run(
            [
                str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
                *("--master", running.master, "--py-files", str(package), "--conf", "spark.ui.enabled=false"),
                *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.memory=512m"),
                *(str(tmp_path / "nightly.py"), graph.uri, str(tmp_path / "pipelines.yaml")),
            ],
            cwd=tmp_path,
            env=inherited | {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)},
            capture_output=True,
            text=True,
        )
    assert submitted.returncode == 0, submitted.stderr
    # The Java that is found may send the output of its programs to standard error.
    lines = (submitted.stdout + submitted.stderr).splitlines()
    [line] = [line for line in lines if line.startswith("said ")]
    said = json.loads(line.removeprefix("said "))
    assert (said["status"], said["nodes"], said["changed"]) == ("published", {"Person": 2}, [])
    # The package is the one of the wheel, not that of this checkout.
    assert str(REPOSITORY) not in said["package"]
