"""Results in the forms that callers ask for: batches, Python values, JSON, frames and HTML."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.query.result import Result
from omnigraph.errors import UsageError
from omnigraph.limits import RESULT_BATCH_ROWS
from tests.support.read_fixtures import create

INSTANT = dt.datetime(2024, 1, 31, 10, 0, 0, 1_000, tzinfo=dt.UTC)
SCHEMA = "node Visit { name: String @key  at: DateTime?  times: [DateTime]?  day: Date?  n: I32?  ok: Bool? }"


def visits(count: int) -> list[dict[str, Any]]:
    values = {"at": INSTANT.isoformat(), "times": [INSTANT.isoformat()], "day": "2024-01-31", "n": 7, "ok": True}
    return [{"type": "Visit", "data": {"name": f"v{i}", **(values if i % 2 else {})}} for i in range(count)]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    return create(tmp_path_factory.mktemp("result"), visits(50), SCHEMA)


def read(graph: og.Graph, rest: str = "") -> Result:
    columns = "$v.name as name, $v.at as at, $v.times as times, $v.day as day, $v.n as n, $v.ok as ok"
    return graph.query(f"query q() {{ match {{ $v: Visit }} return {{ {columns} }} order {{ $v.name }} {rest} }}")


def test_result_rows_and_json_of_every_slice_agree(graph: og.Graph) -> None:
    rows, spelt = read(graph).rows(), read(graph).to_json_rows()
    assert len(rows) == 50
    assert [row["times"] for row in rows] == [[INSTANT] if row["n"] else None for row in rows]
    assert {str(row["times"]) for row in spelt} == {"None", "['2024-01-31T10:00:00.001Z']"}
    for start in (0, 1, 7, 49, 50):
        part = Result(read(graph).to_arrow().slice(start, 3), "q", "main", None)
        assert part.rows() == rows[start : start + 3]
        assert part.to_json_rows() == spelt[start : start + 3]


def test_result_of_nothing_has_columns_and_every_form(graph: og.Graph) -> None:
    result = read(graph, "limit 0")
    assert (result.rows(), result.to_json_rows(), list(result.batches()), len(result)) == ([], [], [], 0)
    assert result.columns == ["name", "at", "times", "day", "n", "ok"]
    assert "<th>times</th>" in result._repr_html_()
    assert list(result.to_pandas().columns) == result.columns


def test_result_frame_of_pandas_keeps_instants_and_nulls(graph: og.Graph) -> None:
    frame = read(graph, "limit 2").to_pandas()
    assert frame["name"].tolist() == ["v0", "v1"]
    assert str(frame["at"].dtype) == "datetime64[ms, UTC]"
    assert frame["at"][1].to_pydatetime() == INSTANT
    assert frame["at"].isna().tolist() == [True, False]
    assert frame["day"].tolist() == [None, dt.date(2024, 1, 31)]
    assert frame["times"][0] is None
    assert [str(one) for one in frame["times"][1]] == ["2024-01-31T10:00:00.001"]


def test_result_frame_of_polars_is_made_from_arrow(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    polars = ModuleType("polars")
    polars.from_arrow = lambda table: table  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "polars", polars)
    table = read(graph).to_polars()
    assert table.schema.field("at").type == pa.timestamp("ms", "UTC")
    assert table.schema.field("times").type == pa.list_(pa.timestamp("ms", "UTC"))
    assert table.column("times").to_pylist()[:2] == [None, [INSTANT]]


def test_result_batches_are_bounded_and_share_memory() -> None:
    table = pa.table({"n": pa.array(range(3 * RESULT_BATCH_ROWS + 1))})
    result = Result(table, "q", "main", None)
    before = pa.total_allocated_bytes()
    batches = list(result.batches())
    assert [batch.num_rows for batch in batches] == [RESULT_BATCH_ROWS] * 3 + [1]
    assert pa.total_allocated_bytes() == before
    assert pa.Table.from_batches(batches).equals(table)
    with pytest.raises(UsageError, match="at least 1"):
        next(result.batches(rows=0))


def test_result_html_shows_the_first_rows_and_says_how_many_there_are(graph: og.Graph) -> None:
    shown = read(graph)._repr_html_()
    assert shown.count("<tr>") == 21
    assert "50 rows, the first 20 shown" in shown
    assert "2024-01-31T10:00:00.001Z" in shown
    few = Result(pa.table({"<script>": ["<b>", None]}), "q", "main", None)._repr_html_()
    assert "<th>&lt;script&gt;</th>" in few
    assert few.count("<td>") == 2
    assert "shown" not in few


def test_result_names_where_it_was_read(tmp_path: Path) -> None:
    graph = create(tmp_path, visits(1), SCHEMA)
    result = read(graph)
    assert (result.query_name, result.branch) == ("q", "main")
    assert result.graph_commit_id == graph.commits()[0].commit_id
