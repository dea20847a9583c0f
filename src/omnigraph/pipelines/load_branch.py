"""The branch that a run loads to: rows that are deleted or completed there, leftovers of earlier runs, and publication.

Deletes are idempotent: a run that breaks off after them has published none, and the next one does them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import clock
from omnigraph.engine.input.column_mapping import ColumnMapper
from omnigraph.engine.input.splits import Columns
from omnigraph.engine.write.mutate import delete_ids, read_ids
from omnigraph.errors import BranchExists, BranchNotFound, DataError, LimitExceeded, PolicyDenied, UsageError
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import Catalog, EdgeType, Property, Type
from omnigraph.lang.scalars import TIMES
from omnigraph.limits import PIPELINE_DELETED_KEYS_MAX, PIPELINE_SNAPSHOT_KEYS_MAX
from omnigraph.manifest.model import MESSAGE, Commit
from omnigraph.pipelines import history as record
from omnigraph.pipelines.check import is_stopped, judge_answers
from omnigraph.pipelines.declaration.config import PipelineDeclaration
from omnigraph.pipelines.history import RunRecorder, RunReport
from omnigraph.pipelines.transform import Deletion
from omnigraph.rules.coerce import default_value
from omnigraph.rules.delta import Findings, Ids, one_array, without
from omnigraph.spark.datasource.options import time_column
from omnigraph.spark.session import register, run_job

_ID: Final = "id of the row"


def complete_rows(
    graph: Graph, pipeline: PipelineDeclaration, spark: Any, rows: Mapping[str, Columns]
) -> dict[str, Columns]:
    """Return the rows of each type, those of `mode: patch` with the stored properties that they have no column for.

    The branch of the load is read, and the merge that publishes it works by property, so that what others change
    meanwhile in these properties stays.
    """
    catalog, completed = graph.schema.catalog, dict(rows)
    for mapping in pipeline.mappings:
        if not mapping.is_patch or mapping.type_name not in rows:
            continue
        columns, type_ = rows[mapping.type_name], catalog.type_of(mapping.table_key)
        options = {"graph": graph.uri, "type": str(type_.table_key), "branch": _branch_to_read(graph, pipeline)}
        completed[mapping.type_name] = replace(
            columns, data=_complete_patch(columns.data, catalog, type_, spark, options)
        )
    return completed


def _branch_to_read(graph: Graph, pipeline: PipelineDeclaration) -> str:
    """Return the branch of the load, or the one that it will be made from."""
    target = pipeline.publication
    return target.branch if target.branch in graph.branches.list() else str(target.merge_into)


def _complete_patch(frame: Any, catalog: Catalog, type_: Type, spark: Any, options: Mapping[str, str]) -> Any:
    from pyspark.sql import functions
    from pyspark.sql.types import StringType, StructField, StructType

    columns = set(frame.columns)
    # A vector follows its text: if that is given, it is made again.
    missing = [
        name
        for name, item in type_.properties.items()
        if name not in columns and (item.embed is None or item.embed.source not in columns)
    ]
    if not missing:
        return frame
    # By its id, which follows from the key as in a load: stored values may have another type, or fewer digits.
    schema = StructType([*frame.schema.fields, StructField(_ID, StringType())])
    rows = frame.mapInArrow(partial(_add_ids, catalog, type_), schema)
    register(spark)
    stored = spark.read.format("omnigraph").options(**options, columns=",".join(["id", *missing])).load()
    stored = stored.select(*(functions.col(name).alias(f"stored {name}") for name in ("id", *missing)))
    is_new, now_ms = stored["`stored id`"].isNull(), clock.now_us() // 1_000
    kept = []
    for name in missing:
        column, item = stored[f"`stored {name}`"], type_.properties[name]
        if item.default is not None:
            column = functions.when(
                is_new, _default_of(item, now_ms, stored.schema[f"stored {name}"].dataType)
            ).otherwise(column)
        kept.append(column.alias(name))
    completed = rows.join(stored, rows[f"`{_ID}`"] == stored["`stored id`"], "left")
    return completed.select(*(rows[f"`{name}`"] for name in frame.columns), *kept)


def _default_of(item: Property, now_ms: int, kind: Any) -> Any:
    """Return the default of a property that a new entity does not mention, as a Spark column."""
    from pyspark.sql import functions

    if item.default is not None and item.default.kind == "uuid":
        return functions.expr("uuid()")
    value = default_value(item, now_ms)
    columns = [functions.lit(element) for element in (value if item.type.is_list else [value])]
    if item.type.scalar in TIMES:
        columns = [time_column(column, item.type.scalar) for column in columns]
    return (functions.array(*columns) if item.type.is_list else columns[0]).cast(kind)


def _add_ids(catalog: Catalog, type_: Type, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add the ids that a load would give to rows; null where a key does not fit, which the load reports."""
    mapper = ColumnMapper(catalog, type_, Columns(None), Findings())
    ends = {"src": "from", "dst": "to"} if isinstance(type_, EdgeType) else {}
    for batch in batches:
        named = {name: batch.column(ends.get(name, name)) for name in type_.key or ("id",)}
        yield batch.append_column(_ID, mapper.identify(pa.table(named)))


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
    type_ = deletion.type
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
    stored = read_ids(session_of(graph), type_.table_key, _branch_to_read(graph, pipeline))
    if max(len(ids), len(stored)) > PIPELINE_SNAPSHOT_KEYS_MAX:
        raise LimitExceeded(
            f"a snapshot of `{type_.name}` compares {max(len(ids), len(stored)):,} entities; the limit is"
            f" {PIPELINE_SNAPSHOT_KEYS_MAX:,}. Use `mode: overwrite`, or mark deleted rows with `delete_when`",
            limit="PIPELINE_SNAPSHOT_KEYS_MAX",
        )
    return without(stored, one_array(ids))


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes a load, unless an expectation about the loaded branch fails; `queries` are those of expectations."""

    graph: Graph
    pipeline: PipelineDeclaration
    recorder: RunRecorder
    queries: Mapping[str, str]

    def publish_unfinished(self) -> RunReport | None:
        """Publish a load that an interrupted or stopped run has left on its branch; None if there is none."""
        commit = record.find_unfinished(self.graph, self.pipeline)
        if commit is None:
            return None
        self.recorder.set(
            run_id=commit.properties.get(record.RUN, self.recorder.report.run_id),
            commit_id=commit.commit_id,
            nodes=record.read_counts(commit, "node"),
            edges=record.read_counts(commit, "edge"),
            watermarks=record.read_json(commit, record.WATERMARKS),
        )
        return self.publish(commit.commit_id, is_left_over=True)

    def publish(self, commit_id: str, *, is_left_over: bool = False) -> RunReport:
        """Merge the branch of a load into its target, if it was not loaded there directly.

        A load that an earlier run has left over, and that waits for a review, keeps this run from reading anything.
        """
        target = self.pipeline.publication
        if target.merge_into is None:
            return self.recorder.finish("published", f"loaded to `{target.branch}`")
        try:
            return self._judge_and_merge(target.merge_into, is_left_over=is_left_over)
        except BranchNotFound:
            if not record.is_reachable(self.graph, commit_id, target.merge_into):
                raise
            return self.recorder.finish("already_done", f"another run has merged it into `{target.merge_into}`")

    def _judge_and_merge(self, merge_into: str, *, is_left_over: bool) -> RunReport:
        target = self.pipeline.publication
        with self.recorder.stage("ask"):
            verdicts = judge_answers(self.pipeline, self._count_rows)
        self.recorder.add_verdicts(verdicts)
        if is_stopped(verdicts):
            return self.recorder.finish(
                "stopped",
                f"an expectation failed, and `{merge_into}` is unchanged; `{target.branch}` holds the load. Correct it"
                " there and run the pipeline again, or delete the branch",
            )
        if target.needs_review and is_left_over:
            return self.recorder.finish(
                "blocked_by_review",
                f"no source was read, because the load of run {self.recorder.report.run_id} still waits for review on"
                f" `{target.branch}`; merge it into `{merge_into}`, or delete the branch to discard it, and run the"
                " pipeline again",
            )
        if target.needs_review:
            message = f"`{target.branch}` waits for review; merge it into `{merge_into}` to publish"
            return self.recorder.finish("awaiting_review", message)
        with self.recorder.stage("merge"):
            self.graph.branches.merge(target.branch, merge_into, delete_branch=True)
        return self.recorder.finish("published", f"merged into `{merge_into}`")

    def _count_rows(self, query: str) -> int:
        return len(self.graph.query(self.queries[query], name=query, branch=self.pipeline.publication.branch))


def delete_leftover_branch(graph: Graph, pipeline: PipelineDeclaration) -> None:
    """Delete a branch that was merged by a run which was killed before it could delete it."""
    if _find_unmerged_commits(graph, pipeline) == []:
        # Another run may delete it as well, and an actor who may not delete it can still run the pipeline.
        with suppress(BranchNotFound, PolicyDenied):
            graph.branches.delete(pipeline.publication.branch)


def remove_merged_branch(graph: Graph, pipeline: PipelineDeclaration) -> bool:
    """Delete a branch that was merged by hand, so that the load starts from the newest state of the target.

    So is one that has only deletes of a run that broke off: what they were read from may have changed since, or have
    been a mistake. Returns whether the branch has a load of this pipeline that is not published.
    """
    target, waiting = pipeline.publication, _find_unmerged_commits(graph, pipeline)
    if waiting is None:
        return False
    is_own = [
        commit.properties.get(record.PIPELINE) in pipeline.names
        or commit.properties.get(MESSAGE) in tuple(map(deletes_message, pipeline.names))
        for commit in waiting
    ]
    if not all(is_own):
        raise UsageError(
            f"branch `{target.branch}` has commits that are not of pipeline `{pipeline.name}` and not in"
            f" `{target.merge_into}`; nothing was written. Merge or delete it, or name another `publish.branch`",
            branch=target.branch,
        )
    # What another run has just loaded stays: the load of this run finds that it is done.
    is_loaded = any(record.PIPELINE in commit.properties for commit in waiting)
    if not is_loaded:
        graph.branches.delete(target.branch)
    return is_loaded


def _find_unmerged_commits(graph: Graph, pipeline: PipelineDeclaration) -> list[Commit] | None:
    """Return the commits of the load's branch that its target lacks; None without a branch that has any commit."""
    target = pipeline.publication
    if target.merge_into is None or target.branch not in graph.branches.list():
        return None
    kernel = session_of(graph).kernel
    snapshot = kernel.snapshot(target.branch)
    # A branch without commits was just made, perhaps by another run. After a fast-forward it is at the head of its
    # target, too, but then it has made that commit.
    if snapshot.head is None or kernel.find_commit(snapshot.head).branch != snapshot.state.branch_id:
        return None
    published = {commit.commit_id for commit in kernel.history(target.merge_into)}
    return [commit for commit in kernel.history(target.branch) if commit.commit_id not in published]
