"""Columns of decimals as floats: always the nearest float, by every way of loading and at any precision."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph.errors import DataError
from omnigraph.graph import Graph
from omnigraph.pipeline import load

pytestmark = pytest.mark.slow

SCHEMA = "node Price { k: I64 @key  wide: F64?  narrow: F32? }"
PRECISIONS = [(12, 2), (27, 6), (38, 20), (38, 38), (60, 30)]


def _prices(precision: int, scale: int) -> list[Decimal | None]:
    """Return numbers of up to 15 significant digits, which every float keeps, small and large ones."""
    random = Random(precision)
    digits = [random.randrange(1, 10 ** random.randint(1, min(precision, 15))) for _ in range(600)]
    return [None, *(Decimal(number).scaleb(-scale) * random.choice((1, -1)) for number in digits)]


def _table(values: list[Decimal | None], type_: pa.DataType) -> pa.Table:
    return pa.table({"k": list(range(len(values))), "wide": pa.array(values, type_)})


def _loaded(graph: Graph, name: str = "wide") -> list[Any]:
    query = f"query all() {{ match {{ $p: Price }} return {{ $p.k as k, $p.{name} as n }} order {{ k asc }} }}"
    return [row["n"] for row in graph.query(query).rows()]


@pytest.mark.parametrize(("precision", "scale"), PRECISIONS)
def test_decimals_of_a_file_become_the_nearest_floats(tmp_path: Path, precision: int, scale: int) -> None:
    values = _prices(precision, scale)
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    arrow_type = pa.decimal256 if precision > 38 else pa.decimal128
    pq.write_table(_table(values, arrow_type(precision, scale)), tmp_path / "prices.parquet")
    load(graph, nodes={"Price": tmp_path / "prices.parquet"}, engine="local")
    assert _loaded(graph) == [None if value is None else float(value) for value in values]


@pytest.mark.parametrize("column_type", [pa.decimal128(12, 2), pa.decimal256(60, 2)], ids=["128", "256"])
def test_decimals_of_a_frame_in_a_small_load_become_the_nearest_floats(tmp_path: Path, column_type: Any) -> None:
    values = [Decimal(cents) / 100 for cents in range(1, 3000)]
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    graph.load(nodes={"Price": _table([None, *values], column_type)})
    assert _loaded(graph) == [None, *map(float, values)]


def test_decimals_become_the_nearest_narrow_floats(tmp_path: Path) -> None:
    values = [Decimal(cents) / 100 for cents in range(1, 3000)]
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    table = _table(list(values), pa.decimal128(12, 2)).rename_columns(["k", "narrow"])
    load(graph, nodes={"Price": table}, engine="local")
    assert _loaded(graph, "narrow") == [float(np.float32(float(value))) for value in values]


def test_whole_decimals_of_a_frame_are_integers_in_a_small_load(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", "node Price { k: U64 @key  wide: F64? }")
    keys = pa.array([Decimal("18446744073709551615"), Decimal("7.00")], pa.decimal128(38, 2))
    graph.load(nodes={"Price": pa.table({"k": keys})})
    assert {row["k"] for row in graph.query("query q() { match { $p: Price } return { $p.k as k } }").rows()} == {
        7,
        18446744073709551615,
    }


@pytest.mark.parametrize("text", ["0.12345678901234567890123", "12345678901234567.25"])
def test_decimal_with_more_digits_than_a_float_is_refused_everywhere(tmp_path: Path, text: str) -> None:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    table = _table([Decimal("1.5"), Decimal(text)], pa.decimal128(38, 23 if text.startswith("0") else 2))
    with pytest.raises(DataError, match=r"row 2: .*digits"):
        load(graph, nodes={"Price": table}, engine="local")
    with pytest.raises(DataError, match=r"row 2: .*digits"):
        graph.load(nodes={"Price": table})


@pytest.mark.spark
def test_decimals_of_a_spark_frame_become_the_nearest_floats(tmp_path: Path, spark: Any) -> None:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    frame = spark.range(3000).selectExpr("id as k", "cast((id + 1) / 100 as decimal(12, 2)) as wide")
    load(graph, nodes={"Price": frame}, engine="spark", spark=spark)
    assert _loaded(graph) == [float(Decimal(cents) / 100) for cents in range(1, 3001)]
