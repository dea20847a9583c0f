"""Loads in a process of their own, that time themselves: `python -m benchmarks.loadcase CASE CORES HOME FORMAT:DATA …`.

Runs under any environment that holds what the case needs, so everything is imported late. Prints a line for each load.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from omnigraph.graph import session_of
from omnigraph.lang.catalog import TypeKey

SCHEMA = """
node Person { name: String @key  email: String?  age: I32?  score: F64? }
edge Knows: Person -> Person { weight: I32? }
"""
_PERSON = "name string, email string, age int, score double"
_ENVELOPE = f"type string, edge string, `from` string, `to` string, data struct<{_PERSON}, weight int>"


@cache
def _started(cores: int) -> Any:
    """Start Spark and its Python workers, once, and tell how long that took."""
    from omnigraph.spark.executors import Executors
    from omnigraph.spark.session import session

    start = time.perf_counter()
    spark = session(f"local[{cores}]")
    Executors(spark).run("starting", abs, list(range(cores)))
    print(json.dumps({"start": time.perf_counter() - start}), flush=True)
    return spark


def _sources(format_: str, data: Path) -> dict[str, Any]:
    if format_ == "NDJSON":
        return {"data": data / "graph.ndjson"}
    return {"nodes": {"Person": data / "person.parquet"}, "edges": {"Knows": data / "knows.parquet"}}


def _load(engine: str, format_: str, data: Path, home: Path) -> float:
    import omnigraph as og
    from omnigraph.pipeline import load

    graph = og.init(home, SCHEMA)
    start = time.perf_counter()
    report = load(graph, **_sources(format_, data), mode="append", engine=engine)  # type: ignore[call-overload]
    took = time.perf_counter() - start
    assert report.total_entities == json.loads((data / "rows.json").read_text())
    return took


def ours(format_: str, cores: int, data: Path, home: Path) -> float:
    """Load on Spark."""
    _started(cores)
    return _load("spark", format_, data, home)


def threads(format_: str, cores: int, data: Path, home: Path) -> float:
    """Load in threads of one process."""
    return _load("local", format_, data, home)


def bare(format_: str, cores: int, data: Path, home: Path) -> float:
    """Decode, check each row and write, one split after another: no keys, no rules over many rows, no commit."""
    import omnigraph as og
    from omnigraph.engine.input.splits import Columns, plan_columns, plan_ndjson
    from omnigraph.engine.load import stage_split
    from omnigraph.engine.load.job import InputSchema, Job, LoadOptions
    from omnigraph.engine.tasks import graph_access
    from omnigraph.ids import new_ulid

    graph = og.init(home, SCHEMA)
    snapshot, operation = graph.snapshot(), new_ulid()
    keys = TypeKey("node:Person"), TypeKey("edge:Knows")
    targets = {key: session_of(graph).kernel.writable(snapshot, key).ref for key in keys}
    schema = snapshot.state.schema
    job = Job(
        options=LoadOptions(mode="append", branch="main"),
        access=graph_access(graph.uri, operation),
        scratch="",
        schema=InputSchema(schema.ir, schema.ir_hash),
        targets=targets,
    )
    start = time.perf_counter()
    sources = _sources(format_, data)
    splits = plan_ndjson([sources["data"]]) if format_ == "NDJSON" else []
    for key, kind, name in ((keys[0], "nodes", "Person"), (keys[1], "edges", "Knows")):
        splits += plan_columns(key, Columns(sources[kind][name])) if format_ == "Parquet" else []
    for split in splits:
        for kept in stage_split.read_kept_rows(job, stage_split.StageTask(split), stage_split.StagedSplit()):
            stage_split._write_fragments(job, kept)
    return time.perf_counter() - start


def plain(format_: str, cores: int, data: Path, home: Path) -> float:
    """Parse and write Parquet with Spark alone, without a rule."""
    spark = _started(cores)
    start = time.perf_counter()
    if format_ == "NDJSON":
        lines = spark.read.schema(_ENVELOPE).json(str(data / "graph.ndjson"))
        nodes = lines.where("type = 'Person'").selectExpr("data.name", "data.email", "data.age", "data.score")
        edges = lines.where("edge = 'Knows'").selectExpr("`from`", "`to`", "data.weight")
    else:
        nodes, edges = (spark.read.parquet(str(data / f"{name}.parquet")) for name in ("person", "knows"))
    nodes.write.parquet(str(home / "person"))
    edges.write.parquet(str(home / "knows"))
    return time.perf_counter() - start


def _cypher(package: Any, cores: int, data: Path, home: Path) -> float:
    home.mkdir(parents=True)
    database = package.Database(str(home / "graph"), buffer_pool_size=6 << 30)
    connection = package.Connection(database, num_threads=cores)
    connection.execute("CREATE NODE TABLE Person(name STRING PRIMARY KEY, email STRING, age INT32, score DOUBLE)")
    connection.execute("CREATE REL TABLE Knows(FROM Person TO Person, weight INT32)")
    start = time.perf_counter()
    connection.execute(f"COPY Person FROM '{data / 'person.parquet'}'")
    connection.execute(f"COPY Knows FROM '{data / 'knows.parquet'}'")
    connection.execute("CHECKPOINT")
    return time.perf_counter() - start


def kuzu(format_: str, cores: int, data: Path, home: Path) -> float:
    """COPY into a new database."""
    import kuzu as package

    return _cypher(package, cores, data, home)


def ladybug(format_: str, cores: int, data: Path, home: Path) -> float:
    """COPY into a new database."""
    import ladybug as package

    return _cypher(package, cores, data, home)


CASES: dict[str, Callable[[str, int, Path, Path], float]] = {
    one.__name__: one for one in (ours, threads, bare, plain, kuzu, ladybug)
}


def main(words: list[str]) -> None:
    case, cores, home, *inputs = words
    # Everything that this process starts stays on these cores.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])
    for place, given in enumerate(inputs):
        format_, _, data = given.partition(":")
        own = Path(home) / str(place)
        print(json.dumps({"seconds": CASES[case](format_, int(cores), Path(data), own)}), flush=True)
        shutil.rmtree(own)


if __name__ == "__main__":
    main(sys.argv[1:])
