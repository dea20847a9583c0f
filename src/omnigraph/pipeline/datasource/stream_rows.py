"""The changes of one commit to one type as DataFrame rows, read in a task.

Reads two versions of one dataset, which the driver chose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from omnigraph.engine.changes import row_diff
from omnigraph.engine.changes.change_json import image_texts
from omnigraph.engine.changes.cursor import ChangeFilter
from omnigraph.engine.changes.row_diff import RowChanges
from omnigraph.engine.changes.state_diff import of_ops
from omnigraph.engine.write.ndjson.blocks import Type
from omnigraph.errors import ChangeFeedGap, StorageError
from omnigraph.limits import CHANGE_WINDOW_BLOB_ROWS, STREAM_WINDOW_ROWS
from omnigraph.pipeline.datasource.spark_types import column_names, spark_field, spark_fields
from omnigraph.pipeline.datasource.table_reader import Scan, to_spark_batch
from omnigraph.rules.arrow_typing import pc
from omnigraph.store.read.dataset import DatasetRef

_STRING_COLUMNS: Final = ("graph_commit_id", "actor_id", "authored_branch", "kind", "type", "op", "id")
_AT: Final = "authored_at"
_BEFORE, _AFTER = "before", "after"
_OPTIONAL: Final = ("actor_id", _BEFORE, _AFTER)


@dataclass(frozen=True, slots=True)
class TypeChange:
    """The changes of one commit to one type. `scan` is the version after it, `before` the one before.

    A large change is cut into `shares`, one task each.
    """

    graph_commit_id: str
    authored_at_us: int
    actor_id: str | None
    authored_branch: str
    scan: Scan
    before: DatasetRef
    selection: ChangeFilter
    share: int = 0
    shares: int = 1


def stream_schema(type_: Type | None) -> Any:
    """Return the Spark schema of a stream: images are JSON, or structs if the stream has one type."""
    image = "string" if type_ is None else _image_fields(type_)
    fields = [*_STRING_COLUMNS[:1], _AT, *_STRING_COLUMNS[1:], _BEFORE, _AFTER]
    kinds: dict[str, object] = {_AT: "timestamp", _BEFORE: image, _AFTER: image}
    return StructType.fromJson(
        {
            "type": "struct",
            "fields": [
                spark_field(name, kinds.get(name, "string"), nullable=name in _OPTIONAL, metadata={}) for name in fields
            ],
        }
    )


def _image_fields(type_: Type) -> dict[str, object]:
    # A missing image has no values, so even required properties are nullable.
    fields = [field | {"nullable": True} for field in spark_fields(type_, column_names(type_))]
    return {"type": "struct", "fields": fields}


def read_change(change: TypeChange, schema: Any) -> Iterator[pa.RecordBatch]:
    """Yield the changes by id, one window of entities at a time."""
    layout = to_arrow_schema(schema, timezone="UTC")
    try:
        before, after = (change.scan.access.open(ref) for ref in (change.before, change.scan.ref))
        candidates = _slice_share(of_ops(row_diff.candidates(before, after), change.selection), change)
        size = CHANGE_WINDOW_BLOB_ROWS if change.scan.type.has_blobs else STREAM_WINDOW_ROWS
        for offset in range(0, candidates.num_rows, size):
            changes = row_diff.compare(before, after, candidates.slice(offset, size))
            if changes.count:
                yield _batch(change, changes, layout)
    except StorageError as error:
        raise _as_feed_gap(change, error) from error


def _slice_share(rows: pa.Table, change: TypeChange) -> pa.Table:
    first, last = (rows.num_rows * part // change.shares for part in (change.share, change.share + 1))
    return rows.slice(first, last - first)


def _batch(change: TypeChange, changes: RowChanges, layout: pa.Schema) -> pa.RecordBatch:
    type_, kind = change.scan.type, layout.field(_AFTER).type
    inserted, deleted, before, after = (
        _image_column(type_, rows, kind) for rows in (changes.inserted, changes.deleted, changes.before, changes.after)
    )
    groups = {"insert": changes.inserted, "update": changes.after, "delete": changes.deleted}
    ids = pa.concat_arrays([rows.column("id").combine_chunks().cast(pa.string()) for rows in groups.values()])
    columns: dict[str, Any] = {
        "id": ids,
        "op": pa.concat_arrays([pa.repeat(op, rows.num_rows) for op, rows in groups.items()]),
        _BEFORE: pa.concat_arrays([pa.nulls(len(inserted), kind), before, deleted]),
        _AFTER: pa.concat_arrays([inserted, after, pa.nulls(len(deleted), kind)]),
    }
    constant = {
        "graph_commit_id": change.graph_commit_id,
        _AT: change.authored_at_us,
        "actor_id": change.actor_id,
        "authored_branch": change.authored_branch,
        "kind": change.scan.table_key.partition(":")[0],
        "type": type_.name,
    }
    for name, value in constant.items():
        columns[name] = pa.repeat(pa.scalar(value, layout.field(name).type), len(ids))
    order = pc.sort_indices(ids)
    return pa.RecordBatch.from_arrays([columns[name].take(order) for name in layout.names], schema=layout)


def _image_column(type_: Type, rows: pa.Table, kind: Any) -> Any:
    """Return each row as one value: JSON as in the feed, or a struct of the columns."""
    if not isinstance(kind, pa.StructType):
        return image_texts(type_, rows).cast(kind) if rows.num_rows else pa.nulls(0, kind)
    if not rows.num_rows:
        return pa.nulls(0, kind)
    (batch,) = rows.combine_chunks().to_batches()
    return pa.StructArray.from_arrays(to_spark_batch(type_, batch, pa.schema(kind.fields)).columns, fields=kind.fields)


def _as_feed_gap(change: TypeChange, error: StorageError) -> ChangeFeedGap | StorageError:
    """Return `ChangeFeedGap` if the error is due to a version that cleanup removed."""
    store = change.scan.access.store()
    if all(store.has_version(ref) for ref in (change.before, change.scan.ref)):
        return error
    return ChangeFeedGap(
        f"cleanup removed a version that the changes of commit {change.graph_commit_id} need; take a new baseline, and"
        " restart the stream from there with the option `start` and a new checkpoint",
        first_unreadable_commit_id=change.graph_commit_id,
    )
