"""Rows that a run has left out, kept with the graph until they are loaded: rejected ones, and edges that wait.

The commit of the load names the objects that hold them, so which rows wait follows from the commits alone. Rejected
rows wait for `retry_rejected`; an edge whose end is missing may be `pending`, and is tried again by the next run.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.engine.input.splits import Columns
from omnigraph.engine.load.report import RejectedLine
from omnigraph.errors import DataError, UsageError
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import Catalog, EdgeType, TypeKey
from omnigraph.limits import PIPELINE_REJECTED_RUNS_MAX
from omnigraph.manifest.model import Commit
from omnigraph.pipelines import history as record
from omnigraph.pipelines.declaration.config import PipelineDeclaration
from omnigraph.pipelines.transform import Deletion

# Below the root of a graph.
GRAPH_FOLDER: Final = "__pipelines"
# The rule that both ends of an edge exist.
_MISSING_END: Final = "E9"


@dataclass(frozen=True, slots=True)
class RejectedRun:
    """A run with rejected rows that were not loaded since: the objects that hold them, by type."""

    run_id: str
    objects: Mapping[str, str]


def keep_rows(
    graph: Graph, pipeline: PipelineDeclaration, run_id: str, rejected: Sequence[RejectedLine], *, may_wait: bool
) -> dict[str, str]:
    """Write the rows that a run leaves out beside the graph, and return the properties of its commit that name them.

    Raises:
        DataError: A row is neither an edge that may wait, nor to be rejected.
    """
    patient = {str(item.table_key) for item in pipeline.edges.values() if item.is_pending and may_wait}
    waiting = [line for line in rejected if str(line.type_key) in patient and line.violation.rule == _MISSING_END]
    others = [line for line in rejected if line not in waiting]
    if others and not pipeline.is_rejecting:
        violation = others[0].violation
        raise DataError(f"{others[0].origin}: {violation.message}", rule=violation.rule, line=others[0].line)
    properties = {record.REJECTED: str(len(others))}
    for name, lines in ((record.REJECTED_ROWS, others), (record.PENDING, waiting)):
        objects = _write_rows(graph, f"{GRAPH_FOLDER}/{pipeline.name}/{run_id}/{name}", lines)
        if objects:
            properties[name] = orjson.dumps(objects, option=orjson.OPT_SORT_KEYS).decode()
    if waiting:
        properties[record.PENDING_ROWS] = str(len(waiting))
    return properties


def _write_rows(graph: Graph, prefix: str, lines: Iterable[RejectedLine]) -> dict[str, str]:
    tables: dict[TypeKey, list[pa.Table]] = {}
    for line in lines:
        if line.origin is not None:
            assert line.type_key is not None, "the rows of a frame have a type"
            tables.setdefault(line.type_key, []).append(line.origin.row)
    objects = session_of(graph).kernel.store.objects
    paths = {}
    for key, rows in tables.items():
        sink = io.BytesIO()
        pq.write_table(pa.concat_tables(rows, promote_options="permissive"), sink, compression="zstd")
        paths[str(key)] = f"{prefix}.{key.kind}.{key.name}.parquet"
        objects.write(paths[str(key)], sink.getvalue())
    return paths


def read_rows(graph: Graph, path: str) -> pa.Table:
    """Return the rows of an object."""
    data = session_of(graph).kernel.store.objects.read_if_exists(path)
    if data is None:
        raise UsageError(f"`{path}`, which holds rejected rows, is gone; load them from the report of the run")
    return pq.read_table(pa.BufferReader(data))


def remove_old_rows(graph: Graph, pipeline: PipelineDeclaration) -> None:
    """Remove the rows of all but the newest runs; a commit is older than its objects only by the time of its load."""
    objects = session_of(graph).kernel.store.objects
    prefix = f"{GRAPH_FOLDER}/{pipeline.name}"
    run_ids = sorted({info.path.split("/")[-2] for info in objects.list(prefix)})
    newest = record.find_progress(graph, pipeline)
    paths = [*pending_objects(newest).values(), *([] if newest is None else [newest.properties.get(record.LEDGER, "")])]
    needed = {path.split("/")[-2] for path in paths if path}
    for run_id in run_ids[: max(len(run_ids) - PIPELINE_REJECTED_RUNS_MAX, 0)]:
        if run_id not in needed:
            objects.discard_prefix(f"{prefix}/{run_id}")


def find_rejected(graph: Graph, pipeline: PipelineDeclaration) -> list[RejectedRun]:
    """Return the published runs whose rejected rows were not retried, oldest first."""
    settled: set[str] = set()
    waiting = []
    commits = record.load_commits(graph, pipeline.target_branch, pipeline.names)
    for commit in islice(commits, PIPELINE_REJECTED_RUNS_MAX):
        settled |= record.read_json(commit, record.RETRIED).keys()
        run_id, objects = commit.properties.get(record.RUN, ""), record.read_json(commit, record.REJECTED_ROWS)
        if objects and run_id not in settled:
            waiting.append(RejectedRun(run_id, objects))
    return waiting[::-1]


def choose_rejected(graph: Graph, pipeline: PipelineDeclaration, run_id: str | None) -> list[RejectedRun]:
    """Return the runs to retry: all that wait, or the named one."""
    waiting = find_rejected(graph, pipeline)
    if run_id is None:
        return waiting
    chosen = [item for item in waiting if item.run_id == run_id]
    if not chosen:
        known = ", ".join(f"`{item.run_id}`" for item in waiting) or "none"
        raise UsageError(f"run `{run_id}` of `{pipeline.name}` has no rejected rows that wait; there are {known}")
    return chosen


def collect_rows(graph: Graph, pipeline: PipelineDeclaration, chosen: Iterable[RejectedRun]) -> dict[str, Columns]:
    """Return the rejected rows of some runs by type; of several rows of an entity, the newest."""
    views = {str(item.table_key): item.from_view for item in pipeline.mappings}
    tables: dict[str, list[pa.Table]] = {}
    for item in chosen:
        for key, path in item.objects.items():
            tables.setdefault(key, []).append(read_rows(graph, path))
    rows = {}
    for key, parts in tables.items():
        names = identity_columns(graph.schema.catalog, TypeKey(key), parts[-1].column_names)
        table = _newest_of_each(pa.concat_tables(parts, promote_options="permissive"), names)
        ends = ("from", "to") if TypeKey(key).kind == "edge" else (None, None)
        rows[key] = Columns(table, ends[0], ends[1], view=views.get(key, "rejected rows"))
    return rows


def _newest_of_each(table: pa.Table, names: Sequence[str]) -> pa.Table:
    if not names:
        return table
    # Bounded by what a load may reject.
    newest = {tuple(row.values()): index for index, row in enumerate(table.select(list(names)).to_pylist())}
    return table.take(pa.array(sorted(newest.values()), pa.int64()))


def identity_columns(catalog: Catalog, key: TypeKey, names: Sequence[str]) -> list[str]:
    """Return the columns of staged rows by which an entity is known; none if nothing tells two of them apart."""
    type_ = catalog.type_of(key)
    if "id" in names:
        return ["id"]
    ends = {"src": "from", "dst": "to"} if isinstance(type_, EdgeType) else {}
    columns = [ends.get(name, name) for name in type_.key]
    return columns if all(name in names for name in columns) else []


def pending_objects(commit: Commit | None) -> dict[str, str]:
    """Return the objects that hold the edges which wait since a run, by type."""
    return {} if commit is None else record.read_json(commit, record.PENDING)


def is_pending_due(graph: Graph, pipeline: PipelineDeclaration, before: Commit) -> bool:
    """Return True if edges wait, and others have written to the target since the last run: an end may be there now."""
    if not pending_objects(before):
        return False
    for commit in session_of(graph).kernel.history(pipeline.target_branch):
        if commit.commit_id == before.commit_id:
            return False
        if commit.kind != "merge":
            return True
    return False


def add_pending(
    graph: Graph, spark: Any, before: Commit | None, edges: Mapping[str, Columns], deletions: Iterable[Deletion]
) -> dict[str, Columns]:
    """Return the edges of a run and those that wait, unless the run has a newer row of the same edge, or deletes it."""
    joined = dict(edges)
    for key, path in pending_objects(before).items():
        name = TypeKey(key).name
        if name not in edges:
            continue
        rows = edges[name].data
        pending = spark.createDataFrame(read_rows(graph, path))
        known = identity_columns(graph.schema.catalog, TypeKey(key), rows.columns)
        if known:
            pending = pending.join(rows.select(*known), known, "left_anti")
        for deletion in deletions:
            if str(deletion.type.table_key) == key:
                ends = {"src": "from", "dst": "to"}
                deleted = deletion.rows.toDF(*(ends.get(column, column) for column in deletion.rows.columns))
                pending = pending.join(deleted, deleted.columns, "left_anti")
        chosen = [column for column in rows.columns if column in pending.columns]
        union = rows.unionByName(pending.select(*chosen), allowMissingColumns=True)
        joined[name] = Columns(union, "from", "to", view=edges[name].view)
    return joined
