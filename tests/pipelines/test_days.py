"""A pipeline over a database, Parquet and JSON that is run day after day ends where one load of everything ends."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.errors import UsageError
from omnigraph.graph import Graph
from tests.support.examples import IS_LONG
from tests.support.pipeline_fixtures import contents

SCHEMA = """
node Person { name: String @key  age: I64? }
node Ticket { tid: I64 @key }
node Topic { label: String @key }
edge Owns: Person -> Ticket
edge About: Ticket -> Topic
"""
FILE = """\
pipelines:
  crm:
    publish: { merge_into: main }
    sources:
      accounts: { format: jdbc, url: "${CRM_JDBC}", table: accounts, incremental: updated_at }
      tickets: { format: parquet, path: tickets, incremental: tid }
      topics: { format: json, path: topics.json }
    transforms:
      people: "SELECT name, max_by(age, updated_at) AS age FROM accounts GROUP BY name"
    nodes:
      Person: { from: people }
      Ticket: { from: tickets, columns: { tid: tid } }
      Topic: { from: topics }
    edges:
      Owns: { from: tickets, src: owner, dst: tid }
      About: { from: tickets, src: tid, dst: topic }
    expect: [{ on: tickets, unique: [tid] }]
"""
START = dt.datetime(2026, 3, 28, tzinfo=dt.UTC)
Account = tuple[str, int, int]  # name, age, and the hour of the change
# Per day: changes of accounts, of which the newest counts, and tickets with owner and topic.
DAYS: list[tuple[list[Account], list[tuple[int, str, str]]]] = [
    ([("ann", 30, 1), ("bob", 40, 2), ("ann", 31, 3)], [(1, "ann", "bikes"), (2, "bob", "cars")]),
    ([("cid", 50, 25)], [(3, "cid", "bikes")]),
    ([("ann", 33, 51), ("ann", 32, 50)], []),
    ([("bob", 41, 75)], [(4, "ann", "cars")]),
]
LATE: Account = ("dan", 60, 10)


def write_day(folder: Path, spark: Any, url: str, day: int) -> None:
    accounts, tickets = DAYS[day]
    write_accounts(spark, url, accounts)
    if tickets:
        table = pa.table(dict(zip(("tid", "owner", "topic"), zip(*tickets, strict=True), strict=True)))
        (folder / "tickets").mkdir(exist_ok=True)
        pq.write_table(table, folder / "tickets" / f"{day}.parquet")


def write_accounts(spark: Any, url: str, accounts: list[Account]) -> None:
    rows = [(name, age, START + dt.timedelta(hours=hour)) for name, age, hour in accounts]
    frame = spark.createDataFrame(rows, "name string, age long, updated_at timestamp")
    frame.coalesce(1).write.mode("append").jdbc(url, "accounts")


def expected_ages(accounts: list[Account]) -> dict[str, int]:
    """The definition: of the changes of an account, the latest counts."""
    return {name: age for name, age, _ in sorted(accounts, key=lambda account: account[2])}


def ages(graph: Graph) -> dict[str, int]:
    rows = graph.query("query q() { match { $p: Person } return { $p.name, $p.age } }").rows()
    return {row["p.name"]: row["p.age"] for row in rows}


@pytest.mark.spark
@pytest.mark.slow
def test_daily_runs_equal_one_load_of_everything(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark._jvm.java.lang.System.setProperty("derby.system.home", str(tmp_path))
    url = f"jdbc:derby:memory:{tmp_path.name};create=true"
    monkeypatch.setenv("CRM_JDBC", url)
    (tmp_path / "pipelines.yaml").write_text(FILE)
    (tmp_path / "topics.json").write_text("".join(json.dumps({"label": name}) + "\n" for name in ("bikes", "cars")))
    graph, known = og.init(tmp_path / "daily.omni", SCHEMA), list[Account]()
    for day in range(len(DAYS) if IS_LONG else 3):
        write_day(tmp_path, spark, url, day)
        known += DAYS[day][0]
        if day == 1:
            # This run is stopped before its merge; the same command finishes it.
            merging = patch("omnigraph.engine.branches.Branches.merge", side_effect=KeyboardInterrupt)
            with merging, pytest.raises(KeyboardInterrupt):
                pipeline.run(graph, tmp_path / "pipelines.yaml", spark=spark)
        assert pipeline.run(graph, tmp_path / "pipelines.yaml", spark=spark).status == "published"
        assert ages(graph) == expected_ages(known)
    write_accounts(spark, url, [LATE])
    pipeline.run(graph, tmp_path / "pipelines.yaml", spark=spark)
    assert "dan" not in ages(graph), "it is below the watermark"
    hours = ("2026-03-28 09:00:00", "2026-03-28 11:00:00")
    with pytest.raises(UsageError, match="`accounts`, `tickets` are incremental"):
        pipeline.run(graph, tmp_path / "pipelines.yaml", spark=spark, backfill=hours)
    pipeline.run(graph, tmp_path / "pipelines.yaml", spark=spark, backfill=hours, source="accounts")
    whole = og.init(tmp_path / "whole.omni", SCHEMA)
    pipeline.run(whole, tmp_path / "pipelines.yaml", spark=spark)
    assert contents(graph) == contents(whole)
    assert ages(graph) == expected_ages([*known, LATE])
