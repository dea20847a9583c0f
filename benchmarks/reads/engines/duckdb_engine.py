"""DuckDB in a layout made for these questions: dense integer ends, edges sorted by source, keys indexed."""

from __future__ import annotations

from pathlib import Path

import duckdb

from benchmarks.reads.engines import THREADS, Ask
from benchmarks.reads.lines import Line

_MEMORY = "6GB"


def build(data: Path, home: Path) -> None:
    home.mkdir(parents=True)
    with duckdb.connect(str(home / "graph.duckdb")) as connection:
        files = {name: f"read_parquet('{data / name}.parquet')" for name in ("person", "post", "follows", "wrote")}
        connection.execute(f"CREATE TABLE person AS FROM {files['person']}")
        connection.execute(f"CREATE TABLE post AS SELECT * REPLACE (vec::FLOAT[64] AS vec) FROM {files['post']}")
        for name in ("follows", "wrote"):
            connection.execute(f"CREATE TABLE {name} AS SELECT src, dst FROM {files[name]} ORDER BY src, dst")
        connection.execute("CREATE UNIQUE INDEX person_handle ON person (handle)")


class DuckDb:
    def __init__(self, home: Path) -> None:
        settings: dict[str, str | bool | int | float | list[str]] = {"threads": THREADS, "memory_limit": _MEMORY}
        self._connection = duckdb.connect(str(home / "graph.duckdb"), read_only=True, config=settings)

    def ask(self, line: Line) -> Ask | None:
        if not line.sql:
            return None
        connection, text = self._connection, line.sql
        if line.is_fetched_as_rows:
            return lambda params: connection.execute(text, params).fetchall()
        return lambda params: connection.sql(text, params=params).to_arrow_table()


def open_engine(home: Path) -> DuckDb:
    return DuckDb(home)
