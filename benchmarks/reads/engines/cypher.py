"""What Kuzu and Ladybug share: one descends from the other and kept its language and its interface.

Imports neither; each has a module of its own that hands its package in, because one process can hold only one of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.reads.engines import THREADS, Ask
from benchmarks.reads.lines import Line

_POOL_BYTES = 6 << 30
_TABLES = (
    "CREATE NODE TABLE Person(number INT32, handle STRING PRIMARY KEY, name STRING, city STRING, age INT32)",
    "CREATE NODE TABLE Post(number INT32, slug STRING PRIMARY KEY, created TIMESTAMP_MS, text STRING, vec FLOAT[64])",
    "CREATE REL TABLE Follows(FROM Person TO Person)",
    "CREATE REL TABLE Wrote(FROM Person TO Post)",
)


def load(package: Any, data: Path, home: Path) -> Any:
    """Copy the files into a new database and return a connection to it."""
    home.mkdir(parents=True)
    connection = _connect(package, home, read_only=False)
    for statement in _TABLES:
        connection.execute(statement)
    for table in ("Person", "Post"):
        connection.execute(f"COPY {table} FROM '{data / table.lower()}.parquet'")
    for table in ("Follows", "Wrote"):
        source = f"LOAD FROM '{data / table.lower()}.parquet' RETURN from_key, to_key"
        connection.execute(f"COPY {table} FROM ({source})")
    return connection


class CypherEngine:
    """An opened database; every question is a prepared statement."""

    def __init__(self, package: Any, home: Path) -> None:
        self.connection = _connect(package, home, read_only=True)

    def ask(self, line: Line) -> Ask | None:
        if not line.cypher:
            return None
        statement = self.connection.prepare(line.cypher)
        execute = self.connection.execute
        if line.is_fetched_as_rows:
            return lambda params: execute(statement, params).get_all()
        return lambda params: execute(statement, params).get_as_arrow()


def _connect(package: Any, home: Path, *, read_only: bool) -> Any:
    database = package.Database(str(home / "graph"), buffer_pool_size=_POOL_BYTES, read_only=read_only)
    return package.Connection(database, num_threads=THREADS)
