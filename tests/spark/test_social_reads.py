"""The interactive reads of the LDBC Social Network Benchmark return on Spark what they return in process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.spark.query import collect
from tests.test_social_reads import ASKED, FOLDER, NETWORK, READS

pytestmark = [pytest.mark.spark, pytest.mark.slow]


# One of each construct; each read takes Spark seconds.
SAMPLE = ("ic1", "ic3", "ic7", "ic14")


@pytest.mark.parametrize("is_sample", [True, pytest.param(False, marks=pytest.mark.long)])
def test_reads_are_equal_on_both_engines(tmp_path: Path, quick: Any, is_sample: bool) -> None:
    graph = og.init(tmp_path / "g.omni", schema=FOLDER / "schema.pg")
    graph.ingest(NETWORK, mode="append")
    first = {item[0]: item for item in reversed(ASKED)}
    for name, params, columns, expected in [first[name] for name in SAMPLE] if is_sample else ASKED:
        on_spark = collect(graph, READS, params, name=name, spark=quick).to_arrow()
        assert list(zip(*(on_spark[column].to_pylist() for column in columns), strict=True)) == expected, name
        assert on_spark.equals(graph.query(READS, params, name=name).to_arrow()), name
