"""Queries on the supply chain return the rows of the SQL beside them, and the answers that are shown."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.graph import Graph

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "gq-for-cypher-and-sql.md").read_text(encoding="utf-8")
PAIR = re.compile(r"<!-- pair: (\d+) -->\n.*?```gq\n(.*?)```\n.*?```sql\n(.*?)```", re.DOTALL)
PAIRS = PAIR.findall(PAGE)
QUESTION = re.compile(r"<!-- question -->\n.*?```gq\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
FIRST_QUESTIONS = (ROOT / "docs" / "appendix" / "first-questions.md").read_text(encoding="utf-8")
QUESTIONS = QUESTION.findall(FIRST_QUESTIONS)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    uri = tmp_path_factory.mktemp("pairs") / "supply.omni"
    with og.init(str(uri), schema=ROOT / "examples" / "supply" / "schema.pg") as graph:
        graph.ingest(ROOT / "examples" / "supply" / "data.ndjson", mode="append")
        yield graph


@pytest.fixture(scope="module")
def tables(graph: Graph) -> duckdb.DuckDBPyConnection:
    """Return every type of the graph as a table: nodes with `id`, edges with `src` and `dst`."""
    rows: dict[str, list[dict[str, object]]] = defaultdict(list)
    for line in b"".join(graph.export()).decode().splitlines():
        record = json.loads(line)
        ends = {"src": record["from"], "dst": record["to"]} if "edge" in record else {}
        rows[record.get("type") or record["edge"]].append(ends | record["data"])
    database = duckdb.connect()
    for name, records in rows.items():
        database.register(name, pa.Table.from_pylist(records))
    return database


@pytest.mark.parametrize(("gq", "sql"), [pytest.param(gq, sql, id=number) for number, gq, sql in PAIRS])
def test_query_returns_the_rows_of_the_sql_beside_it(
    graph: Graph, tables: duckdb.DuckDBPyConnection, gq: str, sql: str
) -> None:
    ours = [tuple(row.values()) for row in graph.query(gq).rows()]
    assert ours
    assert ours == tables.execute(sql).fetchall()


def test_every_sql_example_is_part_of_a_pair() -> None:
    assert len(PAIRS) == PAGE.count("```sql\n") == PAGE.count("```cypher\n") >= 7


@pytest.mark.parametrize(("gq", "shown"), QUESTIONS)
def test_question_has_the_answer_that_is_shown(graph: Graph, gq: str, shown: str) -> None:
    *table, _ = str(graph.query(gq)).splitlines()
    assert [line.rstrip() for line in table] == shown.splitlines()


def test_every_question_is_checked() -> None:
    assert len(QUESTIONS) == FIRST_QUESTIONS.count("<!-- question -->") >= 5
