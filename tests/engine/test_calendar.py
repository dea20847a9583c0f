"""Dates lie in the years 0001 to 9999 of UTC: others are refused, and these are read as they were written."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.engine.query.result import encode_json_pieces
from omnigraph.lang.diagnostic import LanguageError
from omnigraph.lang.times import DATE_RANGE, DATETIME_RANGE

SCHEMA = "node Event { name: String @key  day: Date?  at: DateTime? }"
FIRST, LAST = "0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[og.Graph]:
    with og.init(tmp_path_factory.mktemp("calendar") / "g.omni", schema=SCHEMA) as graph:
        yield graph


def test_ranges_are_those_of_the_calendar_of_python() -> None:
    epoch = dt.datetime(1970, 1, 1)
    assert ((dt.date.min - epoch.date()).days, (dt.date.max - epoch.date()).days) == DATE_RANGE
    last = dt.datetime.max.replace(microsecond=999_000)
    assert tuple((one - epoch) // dt.timedelta(milliseconds=1) for one in (dt.datetime.min, last)) == DATETIME_RANGE


@pytest.mark.parametrize(
    "values",
    [
        {"at": "9999-12-31T23:59:59.999-05:00"},
        {"at": "0001-01-01T00:00:00+00:01"},
        {"day": "9999-12-31T23:59:59-05:00"},
        {"day": DATE_RANGE[1] + 1},
        {"day": DATE_RANGE[0] - 1},
        {"at": DATETIME_RANGE[1] + 1},
        {"at": DATETIME_RANGE[0] - 1},
    ],
)
@pytest.mark.parametrize("count", [1, 40])
def test_instant_outside_is_refused_in_few_and_in_many_rows(
    graph: og.Graph, values: dict[str, Any], count: int
) -> None:
    rows = [{"type": "Event", "data": {"name": f"e{number}", **values}} for number in range(count)]
    with pytest.raises(og.errors.DataError) as caught:
        graph.load(rows, mode="append")
    assert caught.value.context["property"] in values


@pytest.mark.parametrize(
    "column",
    [
        ("day", pa.array([DATE_RANGE[1] + 1], pa.date32())),
        ("at", pa.array([DATETIME_RANGE[1] + 1], pa.timestamp("ms"))),
        ("at", pa.array([(DATETIME_RANGE[0] - 1) * 1_000], pa.timestamp("us", "UTC"))),
    ],
)
def test_column_of_parquet_outside_is_refused(
    graph: og.Graph, tmp_path: Path, column: tuple[str, pa.Array[Any]]
) -> None:
    path = tmp_path / "events.parquet"
    pq.write_table(pa.table({"name": ["e"], column[0]: column[1]}), path)
    with pytest.raises(og.errors.DataError, match=f"`Event.{column[0]}` cannot hold this value"):
        pipeline.load(graph, nodes={"Event": str(path)}, mode="append", engine="local")


def test_default_outside_is_refused(tmp_path: Path) -> None:
    schema = 'node Event { name: String @key  at: DateTime @default("9999-12-31T23:59:59-01:00") }'
    with pytest.raises(LanguageError):
        og.init(tmp_path / "d.omni", schema=schema)


@pytest.mark.parametrize("count", [1, 2_000])
def test_first_and_last_instant_are_read_as_written(graph: og.Graph, count: int) -> None:
    # Many rows are encoded by kernels, few one at a time.
    rows = [
        {"type": "Event", "data": {"name": f"e{number:04}", "day": at[:10], "at": at}}
        for number in range(count)
        for at in (FIRST, LAST)[number % 2 :][:1]
    ]
    graph.load(rows, mode="overwrite")
    result = graph.query("match { $e: Event } return { $e.name as name, $e.day as day, $e.at as at } order { name }")
    assert [{"type": "Event", "data": row} for row in result.to_json_rows()] == rows
    encoded = b"".join(encode_json_pieces(result.to_arrow()))
    assert orjson.loads(b"[" + encoded + b"]") == result.to_json_rows()


def test_table_of_a_result_loads_again(graph: og.Graph) -> None:
    event = {"name": "e", "day": "1969-12-31", "at": "1969-12-31T23:59:59.999Z"}
    graph.load([{"type": "Event", "data": event}], mode="overwrite")
    source = "match { $e: Event } return { $e.name as name, $e.day as day, $e.at as at }"
    table = graph.query(source).to_arrow()
    assert table.schema.field("at").type == pa.date64()
    graph.mutate('delete Event where name = "e"')
    graph.load(nodes={"Event": table}, mode="append")
    assert graph.query(source).to_json_rows() == [event]
    assert graph.query(source).to_arrow() == table
