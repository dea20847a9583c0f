"""Data frames as input: of an ingest, here and served, and of a load."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.client.frame_lines import encode_frames
from tests.support.live_server import serving_graph
from tests.support.write_fixtures import create, unchanged

pytestmark = pytest.mark.slow

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  height: F64?
  born: DateTime?
  day: Date?
  tags: [String]?
  is_new: Bool?
}
edge Knows: Person -> Person {
  since: I32?
}
"""
PEOPLE = pa.table(
    {
        "name": ["Ada", 'Bob "B"\n'],
        "age": pa.array([36, None], pa.int64()),
        "height": [1.75, None],
        "born": pa.array([datetime(1815, 12, 10, 1, 2, 3, 4_000, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "tags": [["x", "y"], None],
        "is_new": [True, None],
    }
)
KNOWS = pa.table({"from": ["Ada"], "to": ['Bob "B"\n'], "since": [1843]})
READ = """query q() {
  match { $p: Person }
  return { $p.name as name, $p.age as age, $p.height as height, $p.born as born, $p.tags as tags, $p.is_new as is_new }
  order { $p.name }
}"""


class ArrowStream:
    """A frame of any library that speaks the Arrow C stream protocol, with the wide types that polars has."""

    def __init__(self, table: pa.Table) -> None:
        wide = {pa.string(): pa.large_string(), pa.list_(pa.string()): pa.large_list(pa.large_string())}
        self._table = table.cast(pa.schema([(field.name, wide.get(field.type, field.type)) for field in table.schema]))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        stream: Any = self._table
        return stream.__arrow_c_stream__(requested_schema)


FRAMES: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda table: table,
    "reader": lambda table: table.to_reader(),
    "pandas": lambda table: table.to_pandas(),
    "dictionaries": lambda table: table.to_pylist(),
    "iterator of dictionaries": lambda table: iter(table.to_pylist()),
    "iterator of batches": lambda table: (batch for batch in table.to_batches(max_chunksize=1)),
    "arrow stream": ArrowStream,
    "categories": lambda table: table.set_column(0, "name", table.column("name").dictionary_encode()),
    "large texts": lambda table: table.set_column(0, "name", table.column("name").cast(pa.large_string())),
}


def into_graph(graph: og.Graph, nodes: dict[str, Any], edges: dict[str, Any]) -> object:
    return graph.ingest(nodes=nodes, edges=edges)


def into_server(graph: og.Graph, nodes: dict[str, Any], edges: dict[str, Any]) -> object:
    with serving_graph(graph.uri) as live, og.connect(f"http://{live.host}:{live.port}", graph="g") as served:
        return served.ingest(nodes=nodes, edges=edges)


def by_load(graph: og.Graph, nodes: dict[str, Any], edges: dict[str, Any]) -> object:
    return pipeline.load(graph, nodes=nodes, edges=edges, engine="local")


@pytest.mark.parametrize(
    ("write", "kind"),
    [*((write, kind) for write in (into_graph, by_load) for kind in FRAMES), (into_server, "pandas")],
)
def test_rows_of_a_frame_are_entities(write: Callable[..., object], kind: str, tmp_path: Path) -> None:
    graph = create(tmp_path / "g.omni", SCHEMA)
    write(graph, {"Person": FRAMES[kind](PEOPLE)}, {"Knows": FRAMES["pandas"](KNOWS)})
    assert graph.query(READ).rows() == PEOPLE.to_pylist()
    ends = graph.query(
        "query q() { match { $a: Person  $b: Person  $a knows $b } return { $a.name as a, $b.name as b } }"
    )
    assert ends.rows() == [{"a": "Ada", "b": 'Bob "B"\n'}]


@pytest.mark.parametrize("write", [into_graph, by_load])
def test_wrong_value_is_refused_with_the_number_of_its_row(write: Callable[..., object], tmp_path: Path) -> None:
    graph = create(tmp_path / "g.omni", SCHEMA)
    frame = pd.DataFrame({"name": ["Ada", "Bob", "Cid"], "age": [1, 2**40, 3]})
    with unchanged(graph), pytest.raises(og.DataError, match=r"(row|line) 2: .*1099511627776"):
        write(graph, {"Person": frame}, {})


def test_empty_frame_writes_nothing(tmp_path: Path) -> None:
    graph = create(tmp_path / "g.omni", SCHEMA)
    assert graph.ingest(nodes={"Person": PEOPLE.slice(0, 0)}).commit is None


def by_graph_load(graph: og.Graph, nodes: dict[str, Any], edges: dict[str, Any], **options: Any) -> object:
    return graph.load(nodes=nodes, edges=edges, **options)


def by_ingest(graph: og.Graph, nodes: dict[str, Any], edges: dict[str, Any], **options: Any) -> object:
    return graph.ingest(nodes=nodes, edges=edges, **options)


def in_bulk(graph: og.Graph, nodes: dict[str, Any], edges: dict[str, Any], **options: Any) -> object:
    return pipeline.load(graph, nodes=nodes, edges=edges, engine="local", **options)


ALL_KNOWS = "match { $a: Person  $a knows $b } return { $a.name }"
EMPTY = {kind: FRAMES[kind] for kind in ("table", "reader", "pandas", "dictionaries", "iterator of dictionaries")}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("kind", EMPTY)
@pytest.mark.parametrize("write", [by_ingest, by_graph_load, in_bulk])
def test_overwrite_with_an_empty_frame_empties_its_type(
    write: Callable[..., object], kind: str, tmp_path: Path
) -> None:
    graph = create(tmp_path / "g.omni", SCHEMA)
    graph.ingest(nodes={"Person": PEOPLE}, edges={"Knows": KNOWS})
    with unchanged(graph):
        for mode in ("append", "merge"):
            write(graph, {"Person": EMPTY[kind](PEOPLE.slice(0, 0))}, {}, mode=mode)
    write(graph, {}, {"Knows": EMPTY[kind](KNOWS.slice(0, 0))}, mode="overwrite")
    assert (len(graph.query(READ).rows()), graph.query(ALL_KNOWS).rows()) == (2, [])
    write(graph, {"Person": EMPTY[kind](PEOPLE.slice(0, 0))}, {"Knows": []}, mode="overwrite")
    assert graph.query(READ).rows() == []


def test_empty_frame_empties_only_the_type_that_it_names(tmp_path: Path) -> None:
    graph = create(tmp_path / "g.omni", SCHEMA)
    graph.ingest(nodes={"Person": PEOPLE}, edges={"Knows": KNOWS})
    with unchanged(graph), pytest.raises(og.DataError, match="no node type `Persn`"):
        graph.ingest(nodes={"Persn": PEOPLE.slice(0, 0)}, mode="overwrite")
    # Edges that would lose their ends are in the way, as they are of a load that names other people.
    with unchanged(graph), pytest.raises(og.DataError):
        graph.load(nodes={"Person": PEOPLE.slice(0, 0)}, mode="overwrite")
    receipt = graph.load(nodes={"Person": PEOPLE.slice(0, 1)}, edges={"Knows": KNOWS.slice(0, 0)}, mode="overwrite")
    assert (receipt.nodes["Person"], receipt.edges["Knows"]) == (1, 0)


def test_empty_frame_is_not_sent_to_a_server_to_be_ignored(tmp_path: Path) -> None:
    graph = create(tmp_path / "g.omni", SCHEMA)
    graph.ingest(nodes={"Person": PEOPLE})
    with serving_graph(graph.uri) as live, og.connect(f"http://{live.host}:{live.port}", graph="g") as served:
        with unchanged(graph), pytest.raises(og.UsageError, match="no line of it names the type"):
            served.ingest(nodes={"Person": PEOPLE.slice(0, 0)}, mode="overwrite")
        assert served.ingest(nodes={"Person": PEOPLE.slice(0, 0)}).commit is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data": PEOPLE}, "do not name their type"),
        ({"data": [], "nodes": {"Person": PEOPLE}}, "pass either `data`"),
        ({"nodes": {"Person": [1]}}, "`Person` is a `list`, which is not a data frame"),
        ({"edges": {"Knows": PEOPLE}}, "needs the columns `from` and `to`; it has `name`"),
        ({"nodes": {"Person": pa.table({"name": [b"x"]})}}, "column `name` has the Arrow type `binary`"),
    ],
)
def test_frame_that_cannot_be_read_is_explained(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    graph = create(tmp_path / "g.omni", SCHEMA)
    with pytest.raises(og.UsageError, match=message):
        graph.ingest(**arguments)


def test_rows_of_a_polars_frame_are_entities(tmp_path: Path) -> None:
    import polars

    graph = create(tmp_path / "g.omni", SCHEMA)
    people, knows = polars.from_arrow(PEOPLE), polars.from_arrow(KNOWS)
    graph.ingest(nodes={"Person": people}, edges={"Knows": knows})
    result = graph.query(READ)
    assert result.rows() == PEOPLE.to_pylist()
    assert result.to_polars().to_dicts() == polars.DataFrame(result).to_dicts() == PEOPLE.to_pylist()
    pipeline.load(graph, nodes={"Person": people}, engine="local")
    assert graph.query(READ).rows() == PEOPLE.to_pylist()


def test_huge_frame_is_refused_before_most_of_it_is_read(tmp_path: Path) -> None:
    graph = create(tmp_path / "g.omni", SCHEMA)
    pulled = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal pulled
        for number in range(400):
            pulled += 1
            yield pa.record_batch({"name": [f"{number} {row} {'x' * 200}" for row in range(1_000)]})

    reader = pa.RecordBatchReader.from_batches(pa.schema([("name", pa.string())]), batches())
    with unchanged(graph), pytest.raises(og.LimitExceeded, match=r"limited to 8192; split it, or load it"):
        graph.ingest(nodes={"Person": reader})
    assert 8 < pulled < 80


def test_large_batch_is_encoded_in_parts() -> None:
    parts = list(encode_frames({"Person": pa.table({"name": ["x" * 100] * 100_000})}, None))
    assert parts[0].startswith(b'{"type":"Person","data":{"name":"xxx')
    assert b"".join(parts).count(b"\n") == 100_000
    assert len(parts) > 10


@pytest.mark.parametrize("type_", [pa.float16(), pa.float32(), pa.float64()])
def test_whole_floats_with_nulls_of_any_width_are_read(tmp_path: Path, type_: pa.DataType) -> None:
    graph = og.init(tmp_path / "graph.omni", "node Part { name: String @key  size: F32?  count: I32? }")
    sizes = pa.array([np.float16(-2), None], type_)
    graph.ingest(nodes={"Part": pa.table({"name": ["a", "b"], "size": sizes, "count": sizes})})
    assert [graph.get("Part", name) for name in "ab"] == [
        {"id": "a", "name": "a", "size": -2.0, "count": -2},
        {"id": "b", "name": "b", "size": None, "count": None},
    ]
