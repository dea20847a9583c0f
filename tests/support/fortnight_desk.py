"""The sources of the fortnight as real ones: a Derby database, Parquet on S3, and JSON lines; and a graph compared."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

import omnigraph as og
from omnigraph import pipeline
from omnigraph.engine.input.filesystems import filesystem
from omnigraph.graph import Graph
from tests.support.crash_campaign import REPOSITORY
from tests.support.fortnight_world import Day, Expected, World, time_of

SCHEMA: Final = """
node Person { name: String @key  age: I64? }
node Ticket { tid: I64 @key }
node Topic { label: String @key  title: String? }
edge Owns: Person -> Ticket
edge About: Ticket -> Topic
"""
FILE: Final = """\
pipelines:
  desk:
    publish: { merge_into: main }
    sources:
      accounts:
        { format: jdbc, url: "${DESK_JDBC}", table: accounts, incremental: updated_at, preferTimestampNTZ: true }
      tickets: { format: parquet, path: "s3://graphs/lake/tickets/", incremental: seq }
      topics: { format: json, path: topics, incremental: at }
    transforms:
      events: >-
        SELECT tid, max_by(owner, seq) AS owner, max_by(topic, seq) AS topic, max_by(deleted, seq) AS deleted
        FROM tickets GROUP BY tid
      links: "SELECT concat('owns ', tid) AS owns, concat('about ', tid) AS about, * FROM events WHERE NOT deleted"
      subjects: "SELECT label, max_by(title, at) AS title, max_by(deleted, at) AS deleted FROM topics GROUP BY label"
    nodes:
      Person: { from: accounts, columns: { name: name, age: age }, delete_when: deleted }
      Ticket: { from: events, columns: { tid: tid }, delete_when: deleted }
      Topic: { from: subjects, columns: { label: label, title: title }, delete_when: deleted }
    edges:
      # An edge has the id of its ticket, so that a ticket of another owner replaces it.
      Owns: { from: links, columns: { id: owns }, src: owner, dst: tid }
      About: { from: links, columns: { id: about }, src: tid, dst: topic }
    expect:
      - { on: topics, not_null: [label], at_most: "40 %", else: quarantine }
      - { on: events, unique: [tid] }
      - { query: impossible_ages, rows: 0 }
    queries: checks
    spark: { master: "${DESK_MASTER}" }
"""
CHECK: Final = "query impossible_ages() { match { $p: Person  $p.age > 150 } return { $p.name } }"


@dataclass
class Desk:
    """A folder with the sources and the declaration; `spark` is only the JVM in which the database is written."""

    folder: Path
    spark: Any
    world: World

    def __post_init__(self) -> None:
        (self.folder / "checks").mkdir()
        (self.folder / "checks" / "impossible_ages.gq").write_text(CHECK)
        (self.folder / "topics").mkdir()
        (self.folder / "pipelines.yaml").write_text(FILE)
        self.spark._jvm.java.lang.System.setProperty("derby.system.home", str(self.folder))
        columns = '"name" VARCHAR(40) PRIMARY KEY, "age" BIGINT, "deleted" BOOLEAN, "updated_at" TIMESTAMP'
        self._change_database([f"CREATE TABLE accounts ({columns})"])

    @property
    def file(self) -> Path:
        return self.folder / "pipelines.yaml"

    def deliver(self, day: Day) -> Path:
        """Bring what a day brings, and return a copy of the database that any number of JVMs can read."""
        number = len(self.world.days) - 1
        statements = []
        for row in day.accounts:
            where = f"\"name\" = '{row.name}'"
            values = (
                f"{row.age}, {row.is_deleted}, TIMESTAMP('{time_of(row.updated_at).isoformat(' ', 'microseconds')}')"
            )
            statements += [
                f"DELETE FROM accounts WHERE {where}",
                f"INSERT INTO accounts VALUES ('{row.name}', {values})",
            ]
        self._change_database(statements)
        lines = [
            {"label": row.label, "title": row.title, "deleted": row.is_deleted, "at": row.at} for row in day.topics
        ]
        (self.folder / "topics" / f"{number}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
        events = [*day.tickets, *day.late]
        table = pa.table(
            {
                "tid": [row.tid for row in events],
                "owner": [row.owner for row in events],
                "topic": [row.topic for row in events],
                "deleted": [row.is_deleted for row in events],
                "seq": [row.seq for row in events],
            }
        )
        pq.write_table(table, f"graphs/lake/tickets/{number}.parquet", filesystem=filesystem("s3://graphs"))
        copy = self.folder / f"accounts-{number}.jar"
        with ZipFile(copy, "w") as archive:
            for path in sorted((self.folder / "database").rglob("*")):
                archive.write(path, path.relative_to(self.folder))
        return copy

    def _change_database(self, statements: Sequence[str]) -> None:
        from py4j.protocol import Py4JJavaError

        jvm, url = self.spark._jvm, f"jdbc:derby:{self.folder / 'database'}"
        driver, properties = jvm.org.apache.derby.jdbc.EmbeddedDriver(), jvm.java.util.Properties()
        connection = driver.connect(f"{url};create=true", properties)
        connection.setAutoCommit(False)
        for text in statements:
            statement = connection.createStatement()
            statement.executeUpdate(text)
            statement.close()
        connection.commit()
        connection.close()
        # A database that was shut down says so by an exception.
        with suppress(Py4JJavaError):
            driver.connect(f"{url};shutdown=true", properties)

    def environment(self, copy: Path, master: str = "local[2]") -> dict[str, str]:
        return {"DESK_JDBC": f"jdbc:derby:jar:({copy})database", "DESK_MASTER": master}

    def start_driver(
        self,
        graphs: Sequence[str],
        environment: Mapping[str, str],
        backfills: Sequence[tuple[int, int]] = (),
        kill_at: int = 0,
        groups: Sequence[int] = (),
    ) -> subprocess.Popen[str]:
        given = {
            "graphs": [*graphs],
            "file": str(self.file),
            "report": str(self.folder / "report"),
            "backfills": [*backfills],
            "kill_at": kill_at,
            "groups": [*groups],
        }
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.fortnight_driver", json.dumps(given)],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


def observe(graph: Graph) -> Expected:
    """Return what a graph holds."""

    def rows(pattern: str, *names: str) -> list[tuple[Any, ...]]:
        found = graph.query(f"query q() {{ match {{ {pattern} }} return {{ {', '.join(names)} }} }}").rows()
        return [tuple(row[name.removeprefix("$")] for name in names) for row in found]

    owns = rows("$p: Person $p owns $t", "$t.tid", "$p.name")
    about = rows("$t: Ticket $t about $s", "$t.tid", "$s.label")
    # A dictionary would hide a ticket with two owners.
    assert len({tid for tid, _ in owns}) == len(owns)
    assert len({tid for tid, _ in about}) == len(about)
    return Expected(
        dict(rows("$p: Person", "$p.name", "$p.age")),
        dict(rows("$s: Topic", "$s.label", "$s.title")),
        {tid for (tid,) in rows("$t: Ticket", "$t.tid")},
        dict(owns),
        dict(about),
    )


def check(uri: str, desk: Desk) -> None:
    """Compare a graph and the history of its runs with the definition of the sources."""
    graph, world = og.open(uri), desk.world
    assert observe(graph) == world.expected()
    assert graph.branches.list() == ["main"]
    runs = pipeline.list_runs(graph, pipeline.read_pipelines(desk.file)["desk"])[::-1]
    daily = [run for run in runs if run.backfill is None]
    marks = [
        (
            dt.datetime.fromisoformat(run.watermarks["accounts"]),
            int(run.watermarks["tickets"]),
            int(run.watermarks["topics"]),
        )
        for run in daily
    ]
    days = range(len(world.days))
    # Exactly once: one load for every day, which ends where the day ended and has as many entities as the day.
    assert marks == [world.watermarks(day) for day in days]
    assert [{**run.nodes, **run.edges} for run in daily] == [world.counts(day) for day in days]
    broken = [sum(row.label is None for row in day.topics) for day in world.days]
    assert [run.quarantined for run in daily] == broken
    late = [row.seq for day in world.days for row in day.late]
    assert [run.backfill for run in runs if run.backfill is not None] == [f"tickets {seq - 1}..{seq}" for seq in late]
    assert len({run.commit_id for run in runs}) == len({run.run_id for run in runs}) == len(runs)
