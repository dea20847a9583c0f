"""Read the ids and endpoints of types in tasks, and compare them by bucket: no process holds all ids of a type."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.key_buckets.hashes import bucket_of
from omnigraph.engine.maintain.verify_ids import (
    TypeScan,
    columns_to_verify,
    count_lost,
    count_repeated,
    find_wrong_ids,
)
from omnigraph.engine.session import View
from omnigraph.engine.tasks import GraphAccess, Runner, graph_access, report_progress
from omnigraph.errors import OmniGraphError, PipelineError
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import EdgeType, Type, TypeKey
from omnigraph.limits import MAINTAIN_TASK_ROWS
from omnigraph.rules.arrow_typing import Column, pc
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.write.fragments import fragment_runs, scan_fragments

# A string, the type that owns it as an id, and the type (asker) and column it was read from. Column -1 is an error.
_KEYS: Final = "bucket int, owner int, asker int, column int, text string"
_COUNTS: Final = "asker int, column int, rows long, wrong long, text string"
_COUNT_TYPES: Final[Mapping[str, pa.DataType]] = {
    **dict.fromkeys(("asker", "column"), pa.int32()),
    **dict.fromkeys(("rows", "wrong"), pa.int64()),
    "text": pa.string(),
}
_COLUMNS: Final = ("id", "src", "dst")
_FAILED: Final = -1
# The column of ids that do not follow from the key.
_WRONG_ID: Final = 3


@dataclass(frozen=True, slots=True)
class _VerifyTask:
    """The fragments that one task reads; `owners` has, by column, the type whose ids it refers to."""

    type: Type
    type_index: int
    ref: DatasetRef
    fragment_ids: tuple[int, ...]
    owners: tuple[int, ...]


def scan_by_bucket(runner: Runner, view: View, types: Sequence[Type]) -> Mapping[TypeKey, TypeScan | OmniGraphError]:
    """Read all ids and endpoints of some types, and compare them by bucket."""
    # Tasks open versions by path, so links of recent commits must be finished first.
    view.kernel.finish_links(view.snapshot)
    failed: dict[int, OmniGraphError] = {}
    tasks: list[_VerifyTask] = []
    rows: dict[int, int] = {}
    for index, type_ in enumerate(types):
        try:
            rows[index] = view.dataset(type_.table_key).count()
            tasks += _plan_tasks(view, types, index)
        except OmniGraphError as error:
            failed[index] = error
    columns = sum(count * (3 if isinstance(types[index], EdgeType) else 1) for index, count in rows.items())
    buckets = max(1, math.ceil(columns / MAINTAIN_TASK_ROWS))
    access = graph_access(view.kernel.store.root.uri, new_ulid())
    report_progress("verifying", 0, len(types))
    read = partial(read_keys, access, buckets)
    counted = runner.map_groups("verifying", read, tasks, _KEYS, ("bucket", "owner"), check_bucket, _COUNTS)
    report_progress("verifying", len(types), len(types))
    failed |= {row["asker"]: PipelineError(row["text"]) for row in counted if row["column"] == _FAILED}
    return {
        type_.table_key: failed[index] if index in failed else _summarize(types, index, rows, counted, failed)
        for index, type_ in enumerate(types)
    }


def _plan_tasks(view: View, types: Sequence[Type], index: int) -> list[_VerifyTask]:
    type_ = types[index]
    nodes = {other.name: number for number, other in enumerate(types) if not isinstance(other, EdgeType)}
    ends = [nodes[end] for end in type_.ends.values()]
    dataset = view.dataset(type_.table_key)
    runs = fragment_runs(dataset)
    return [_VerifyTask(type_, index, dataset.ref, tuple(run), (index, *ends)) for run in runs]


def read_keys(access: GraphAccess, buckets: int, task: _VerifyTask) -> Iterator[pa.RecordBatch]:
    """Yield the ids and endpoints of some fragments with their buckets."""
    try:
        dataset = access.open(task.ref)
        for batch in scan_fragments(dataset, task.fragment_ids, columns_to_verify(task.type)):
            wrong_ids = find_wrong_ids(task.type, pa.Table.from_batches([batch])).combine_chunks()
            bucket = np.zeros(len(wrong_ids), np.int32)
            yield _key_batch(bucket, task.type_index, task.type_index, _WRONG_ID, wrong_ids)
            for column, owner in enumerate(task.owners):
                texts: Column = batch.column(_COLUMNS[column])
                bucket = bucket_of(texts, access.operation_id, buckets).astype(np.int32)
                yield _key_batch(bucket, owner, task.type_index, column, texts)
    except OmniGraphError as error:
        # Not raised, so that the other types are still verified.
        yield _key_batch(np.zeros(1, np.int32), task.type_index, task.type_index, _FAILED, pa.array([error.message]))


def _key_batch(bucket: Any, owner: int, asker: int, column: int, texts: Column) -> pa.RecordBatch:
    numbers = {"owner": owner, "asker": asker, "column": column}
    columns = {name: np.full(len(texts), number, np.int32) for name, number in numbers.items()}
    return pa.RecordBatch.from_pydict({"bucket": bucket, **columns, "text": texts})


def check_bucket(keys: pa.Table) -> pa.Table:
    """Count duplicate ids in one bucket of a type, and endpoints that are not among its ids."""
    ids = keys.filter(pc.equal(keys["column"], 0))["text"]
    counts: list[dict[str, object]] = []
    for group in keys.group_by(["asker", "column"]).aggregate([]).to_pylist():
        asker, column = group["asker"], group["column"]
        texts = keys.filter(pc.and_(pc.equal(keys["asker"], asker), pc.equal(keys["column"], column)))["text"]
        if column == _FAILED:
            counts.append({**group, "rows": 0, "wrong": 0, "text": texts[0].as_py()})
            continue
        if column == _WRONG_ID:
            wrong = len(texts)
        else:
            wrong = count_repeated(texts) if column == 0 else count_lost(texts, ids)
        counts.append({**group, "rows": len(texts), "wrong": wrong})
    return pa.Table.from_pylist(counts, schema=pa.schema(_COUNT_TYPES))


def _summarize(
    types: Sequence[Type],
    index: int,
    rows: Mapping[int, int],
    counted: Sequence[Mapping[str, Any]],
    failed: Mapping[int, OmniGraphError],
) -> TypeScan:
    rows_seen, wrong = [0, 0, 0, 0], [0, 0, 0, 0]
    for row in counted:
        if row["asker"] == index:
            rows_seen[row["column"]] += row["rows"]
            wrong[row["column"]] += row["wrong"]
    type_ = types[index]
    # A driver that runs out of memory returns fewer rows and no error.
    if any(number != rows[index] for number in rows_seen[: 1 + len(type_.ends)]):
        raise PipelineError(
            f"Spark returned {rows_seen[0]} of {rows[index]} ids of `{type_.name}`, so it was not verified; give"
            " the driver more memory and retry"
        )
    unread = {types[number].name for number in failed if not isinstance(types[number], EdgeType)}
    # Nothing is known of the edges that lead to a type which could not be read.
    lost = {column: wrong[_COLUMNS.index(column)] for column, end in type_.ends.items() if end not in unread}
    return TypeScan(rows[index], wrong[0] == 0, lost, wrong[_WRONG_ID])
