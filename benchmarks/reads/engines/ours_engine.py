"""OmniGraph: loaded straight through the store and one commit, with every index its schema wants."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import omnigraph as og
from benchmarks.reads.engines import Ask, Params
from benchmarks.reads.lines import SCHEMA, Line
from omnigraph.graph import session_of
from omnigraph.lang.catalog import TypeKey

_PLANNING_ROUNDS = 25


def build(data: Path, home: Path) -> None:
    graph = og.init(home, schema=SCHEMA)
    _load(graph, data)
    graph.maintenance.ensure_indices()
    graph.close()


def _load(graph: og.Graph, data: Path) -> None:
    import pyarrow.parquet as pq

    from omnigraph.manifest.model import MAIN, Snapshot
    from omnigraph.manifest.plan import CommitPolicy, Effect, Plan
    from omnigraph.store.write.transaction import append

    kernel = session_of(graph).kernel
    sources = {
        TypeKey("node:Person"): pq.read_table(data / "person.parquet"),
        TypeKey("node:Post"): pq.read_table(data / "post.parquet"),
        TypeKey("edge:Follows"): pq.read_table(data / "follows.parquet"),
        TypeKey("edge:Wrote"): pq.read_table(data / "wrote.parquet"),
    }
    tables = {key: _fit(rows, kernel.dataset(kernel.snapshot(), key).schema) for key, rows in sources.items()}

    def prepare(snapshot: Snapshot) -> Plan:
        datasets = {key: kernel.writable(snapshot, key) for key in tables}
        return Plan("load", tuple(Effect(key, one, (append(one, tables[key]),)) for key, one in datasets.items()))

    kernel.commit(MAIN, prepare, CommitPolicy.INSERT)


def _fit(rows: Any, schema: Any) -> Any:
    """Return rows in the columns of a type: keys become ids, edges get their row number as id."""
    import pyarrow as pa

    names = {"from_key": "src", "to_key": "dst"}
    key = next((name for name in ("handle", "slug") if name in rows.column_names), None)
    columns = {names.get(name, name): rows[name] for name in rows.column_names if name not in ("src", "dst")}
    columns["id"] = rows[key] if key else pa.array(range(rows.num_rows), pa.int64()).cast(pa.string())
    if "created" in columns:
        # A cast from an instant would keep only its day.
        columns["created"] = columns["created"].cast(pa.int64())
    return pa.table([columns[field.name].cast(field.type) for field in schema], schema=schema)


class OmniGraph:
    def __init__(self, home: Path) -> None:
        self.graph = og.open(home, read_only=True)

    def ask(self, line: Line) -> Ask:
        query, text = self.graph.query, line.gq
        if line.is_fetched_as_rows:
            return lambda params: query(text, params=params).rows()
        return lambda params: query(text, params=params).to_arrow()

    def requests(self, line: Line, params: Params) -> int:
        """Return how often storage was asked for one run."""
        shown: Any = self.graph.explain(line.gq, params=params, profile=True).to_json()
        return sum(shown["storage"].values())

    def planning_ms(self, line: Line, params: Params) -> dict[str, float]:
        """Return the medians of explaining texts never seen before, and of explaining each of them again."""
        explain = self.graph.explain
        texts = [f"{line.gq} // {number}" for number in range(_PLANNING_ROUNDS)]
        first = [_elapsed_ms(lambda text=text: explain(text, params=params)) for text in texts]  # type: ignore[misc]
        again = [_elapsed_ms(lambda text=text: explain(text, params=params)) for text in texts]  # type: ignore[misc]
        return {"first": statistics.median(first), "again": statistics.median(again)}


def _elapsed_ms(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1_000


def open_engine(home: Path) -> OmniGraph:
    return OmniGraph(home)
