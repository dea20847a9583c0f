"""What the tasks of a DataFrame read: every row once, whatever was deleted, and no column that was not requested."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from lance import LanceDataset
from pyspark.sql.types import LongType, StructType

import omnigraph as og
from omnigraph.errors import UsageError
from omnigraph.graph import Graph
from omnigraph.limits import SPARK_PARTITION_ROWS
from omnigraph.spark.datasource import tables
from omnigraph.spark.datasource.tables import Reader
from omnigraph.store.read.row_ranges import RowRange, split_rows

NUMBERS = StructType().add("number", LongType())


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Fragments of 500, 3 and 100 people, without some that were deleted: at both ends, in runs, and every seventh."""
    graph = og.init(
        tmp_path_factory.mktemp("parts") / "g", "node Person { name: String @key\n  number: I64\n  note: String? }"
    )
    for numbers in (range(500), range(500, 503), range(503, 603)):
        people = {"name": [f"p{number}" for number in numbers], "number": [*numbers]}
        graph.ingest(nodes={"Person": pa.table(people)}, mode="append")
    for condition in ("number < 20", "number > 595", "number = 499", "number = 250"):
        graph.mutate(f"query q() {{ delete Person where {condition} }}")
    gone = [{"type": "Person", "data": {"name": f"p{number}", "number": -number}} for number in range(28, 400, 7)]
    graph.ingest(gone, mode="merge")
    graph.mutate("query q() { delete Person where number < 0 }")
    return graph


def expected() -> list[int]:
    gone = {*range(20), *range(596, 603), 499, 250, *range(28, 400, 7)}
    return [number for number in range(603) if number not in gone]


def reader(graph: Graph, schema: Any = NUMBERS, **options: str) -> Reader:
    return Reader({"graph": graph.uri, "type": "Person", **options}, None, schema)


def parts_of(source: Reader) -> list[list[int]]:
    return [
        [number for batch in source.read(part) for number in batch.column("number").to_numpy().tolist()]
        for part in source.partitions()
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_parts_hold_every_row_once(graph: Graph, count: int) -> None:
    found = parts_of(reader(graph, numPartitions=str(count)))
    assert sorted(number for part in found for number in part) == expected()
    # Parts do not cross fragments that are cut, so there may be one more of them for each fragment.
    size = -(-len(expected()) // count)
    assert max(map(len, found)) <= size
    assert len(expected()) / size <= len(found) <= len(expected()) / size + 3
    # A condition selects from each part, so that it leaves the work divided.
    filtered = parts_of(reader(graph, numPartitions=str(count), filter="number % 3 = 1 OR number > 580"))
    assert filtered == [[number for number in part if number % 3 == 1 or number > 580] for part in found]


def test_number_of_parts_follows_rows_and_bytes(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(reader(graph).partitions()) == 1
    monkeypatch.setattr(tables, "SPARK_PARTITION_ROWS", 100)
    assert len(reader(graph).partitions()) == 6
    monkeypatch.undo()
    monkeypatch.setattr(tables, "LOAD_SPLIT_BYTES", 2_000)
    assert len(reader(graph).partitions()) > 3
    assert sorted(number for part in parts_of(reader(graph)) for number in part) == expected()


def fragments_of(*rows: int) -> Any:
    return SimpleNamespace(fragments=[SimpleNamespace(id=number, num_rows=size) for number, size in enumerate(rows)])


def test_600_000_rows_of_one_fragment_are_three_parts() -> None:
    assert split_rows(fragments_of(600_000), SPARK_PARTITION_ROWS) == [
        RowRange((0,), 0, 200_000),
        RowRange((0,), 200_000, 400_000),
        RowRange((0,), 400_000, 600_000),
    ]
    assert split_rows(fragments_of(), 10) == []
    assert split_rows(fragments_of(4, 6, 1, 11, 0, 2), 10) == [
        RowRange((0, 1)),
        RowRange((2,)),
        RowRange((3,), 0, 5),
        RowRange((3,), 5, 11),
        RowRange((4, 5)),
    ]


@pytest.mark.parametrize("count", ["0", "-1", "100001", "many"])
def test_impossible_number_of_partitions_is_refused(graph: Graph, count: str) -> None:
    with pytest.raises(UsageError, match=r"(?i)`numPartitions` must be") as caught:
        reader(graph, numPartitions=count)
    assert caught.value.code == "usage.invalid"


def test_filter_of_a_part_cannot_escape_from_its_range(graph: Graph) -> None:
    with pytest.raises(UsageError, match="not a single condition"):
        reader(graph, filter="number > 47) OR (true", numPartitions="4")
    found = parts_of(reader(graph, filter="number = 30 OR true", numPartitions="4"))
    assert sorted(number for part in found for number in part) == expected()


@pytest.mark.parametrize("options", [{}, {"filter": "number > 580"}, {"numPartitions": "4"}])
def test_one_requested_column_is_the_only_one_that_lance_reads(
    graph: Graph, options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"graph": graph.uri, "type": "Person", **options}
    schema = tables.schema_of(given | {"columns": "name"}, None)
    assert schema.fieldNames() == ["name"]
    sources = [
        Reader(given | {"columns": "name"}, None, schema),
        Reader(given, None, StructType().add("name", "string")),
    ]
    read: list[list[str]] = []
    scanner = LanceDataset.scanner

    def watched(dataset: LanceDataset, *arguments: Any, **named: Any) -> Any:
        read.append(named["columns"])
        return scanner(dataset, *arguments, **named)

    monkeypatch.setattr(LanceDataset, "scanner", watched)
    for source in sources:
        batches = [batch for part in source.partitions() for batch in source.read(part)]
        assert {name for batch in batches for name in batch.schema.names} == {"name"}
    assert len(read) >= 2
    assert {tuple(columns) for columns in read} == {("name",)}
