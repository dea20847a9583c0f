"""Graph analytics on Spark, in many small blocks: the same numbers as in process, and nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import omnigraph as og
from omnigraph.pipeline import algo
from omnigraph.spark.algo import measurement
from tests.support.examples import IS_LONG

SCHEMA = """
node Person { name: String @key  level: I64? }
node Town { name: String @key }
edge Knows: Person -> Person
edge LivesIn: Person -> Town
"""
MEASURES: dict[str, Callable[..., algo.Measured]] = {
    "degree": algo.degree,
    "components": algo.components,
    "pagerank": partial(algo.pagerank, iterations=100 if IS_LONG else 3),
    "label_propagation": algo.label_propagation,
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    chance = Random(4)
    made = og.init(tmp_path_factory.mktemp("algo") / "g.omni", SCHEMA)
    records: list[dict[str, Any]] = [{"type": "Person", "data": {"name": f"p{place}"}} for place in range(30)]
    records += [{"type": "Town", "data": {"name": f"p{place}"}} for place in range(5)]
    knows = [(chance.randrange(30), chance.randrange(30)) for _ in range(40)]
    records += [{"edge": "Knows", "from": f"p{one}", "to": f"p{two}"} for one, two in [*knows, (3, 3)]]
    records += [{"edge": "LivesIn", "from": f"p{place}", "to": f"p{place % 5}"} for place in range(0, 30, 4)]
    # Several commits leave several fragments, so that nodes are numbered by several tasks.
    for start in range(0, len(records), 20):
        made.ingest(records[start : start + 20], mode="merge")
    return made


def differs(graph: og.Graph, spark: Any, name: str, **options: Any) -> bool:
    here = MEASURES[name](graph, engine="local").to_arrow()
    there = MEASURES[name](graph, engine="spark", spark=spark, **options).to_arrow()
    return not all(np.allclose(here[one].to_numpy(), there[one].to_numpy()) for one in here.column_names[2:])


@pytest.mark.spark
@pytest.mark.slow
def test_measures_on_spark_equal_those_in_process(graph: og.Graph, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "ALGO_BLOCK_NODES", 13 if IS_LONG else 20)
    assert [name for name in MEASURES if differs(graph, spark, name)] == []
    left = [path for path in Path(graph.uri).rglob("*") if path.is_file() and "_staging" in str(path)]
    assert left == []
    # A block that forgets an edge is noticed.
    load = measurement._read_pairs
    monkeypatch.setattr(measurement, "Executors", _InProcess)
    assert not differs(graph, spark, "components")
    monkeypatch.setattr(measurement, "_read_pairs", lambda work, paths: load(work, paths)[:, :-1])
    assert differs(graph, spark, "degree")
    assert differs(graph, spark, "pagerank")


class _InProcess:
    """Runs tasks here, where a patched function is seen."""

    def __init__(self, spark: Any) -> None:
        pass

    def run(self, stage: str, work: Any, payloads: list[Any]) -> list[Any]:
        return [work(payload) for payload in payloads]


@pytest.mark.spark
@pytest.mark.slow
def test_measures_on_spark_are_written_in_one_commit_or_a_dataframe(graph: og.Graph, spark: Any) -> None:
    before = len(graph.commits())
    measured = algo.degree(graph, ["Knows"], engine="spark", spark=spark, write_to="level")
    assert (measured.engine, len(graph.commits())) == ("spark", before + 1)
    rows = graph.query("query q() { match { $p: Person } return { $p.name as name, $p.level as level } }").rows()
    frame = measured.to_dataframe(spark)
    assert frame.columns == ["type", "id", "degree", "in_degree", "out_degree"]
    assert {row["id"]: row["degree"] for row in frame.collect()} == {row["name"]: row["level"] for row in rows}
