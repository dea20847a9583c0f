"""Deletes what a run's rows delete, on the branch of its load and before the commit that records its progress.

Deletes are idempotent: a run that breaks off after them has published none, and the next one does them again.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.write.delete_ids import delete_ids, read_ids
from omnigraph.errors import BranchExists, DataError, LimitExceeded
from omnigraph.graph import Graph, session_of
from omnigraph.limits import PIPELINE_DELETED_KEYS_MAX, PIPELINE_SNAPSHOT_KEYS_MAX
from omnigraph.pipeline.bulk_load.column_mapping import ColumnMapper
from omnigraph.pipeline.bulk_load.splits import Columns
from omnigraph.pipeline.declared.config import PipelineDeclaration
from omnigraph.pipeline.declared.transform import Deletion
from omnigraph.pipeline.spark.session import run_job
from omnigraph.rules.delta import Findings, Ids, one_array, without


def deletes_message(name: str) -> str:
    """Return the message of commits that delete for a pipeline, by which its next run knows them."""
    return f"Deletes of pipeline {name}"


def delete_rows(
    graph: Graph, pipeline: PipelineDeclaration, spark: Any, deletions: Iterable[Deletion]
) -> tuple[dict[str, int], bool]:
    """Delete entities on the branch of the load, which is created if need be.

    Returns how many there were, by type, and whether the rows say that any are to be deleted, there or not.
    """
    target, is_any = pipeline.publication, False
    counts: dict[str, int] = {}
    for deletion in deletions:
        ids = _find_ids(graph, pipeline, spark, deletion)
        is_any |= len(ids) > 0
        counts[deletion.type.name] = 0
        if len(ids) and target.branch not in graph.branches.list():
            with suppress(BranchExists):
                graph.branches.create(target.branch, str(target.merge_into))
        session = session_of(graph).with_message(deletes_message(pipeline.name))
        for start in range(0, len(ids), PIPELINE_DELETED_KEYS_MAX):
            key = deletion.type.table_key
            outcome = delete_ids(session, {key: ids.slice(start, PIPELINE_DELETED_KEYS_MAX)}, target.branch)
            counts[deletion.type.name] += outcome.counts[key]
    return counts, is_any


def _find_ids(graph: Graph, pipeline: PipelineDeclaration, spark: Any, deletion: Deletion) -> Ids:
    """Return the ids to delete: those of the rows, or all that a snapshot does not have."""
    type_, target = deletion.type, pipeline.publication
    stage = f"{pipeline.name}: finding deleted {type_.name}"
    rows = run_job(spark, stage, deletion.rows.toArrow)
    mapper = ColumnMapper(graph.schema.catalog, type_, Columns(None), Findings())
    ids = mapper.identify(rows.combine_chunks()) if rows.num_rows else pa.array([], pa.string())
    if ids.null_count:
        row = rows.slice(pc.index(ids.is_null(), True).as_py(), 1).to_pylist()[0]
        raise DataError(
            f"a row deletes a `{type_.name}` by {row}, which is not its key; nothing was published. Correct it in a"
            " transform, or leave it out"
        )
    if not deletion.is_snapshot:
        return ids
    branch = target.branch if target.branch in graph.branches.list() else str(target.merge_into)
    stored = read_ids(session_of(graph), type_.table_key, branch)
    if max(len(ids), len(stored)) > PIPELINE_SNAPSHOT_KEYS_MAX:
        raise LimitExceeded(
            f"a snapshot of `{type_.name}` compares {max(len(ids), len(stored)):,} entities; the limit is"
            f" {PIPELINE_SNAPSHOT_KEYS_MAX:,}. Use `mode: overwrite`, or mark deleted rows with `delete_when`",
            limit="PIPELINE_SNAPSHOT_KEYS_MAX",
        )
    return without(stored, one_array(ids))
