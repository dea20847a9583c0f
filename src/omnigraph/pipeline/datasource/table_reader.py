"""Batch reads of the data source: a type as a DataFrame, each task reading a part of the rows of a pinned snapshot.

Filters come from the option `filter`, never from Spark's filter pushdown: Spark keeps pushed filters on a relation that
other parts of a query share, and results would be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from omnigraph.engine.export import column_names, split_batch
from omnigraph.engine.session import View
from omnigraph.engine.tasks import GraphAccess, graph_access, parse_catalog
from omnigraph.errors import StorageError, UsageError
from omnigraph.graph import Graph, session_of
from omnigraph.ids import CommitId, new_ulid
from omnigraph.lang.catalog import Scalar, Type, TypeKey
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.limits import LOAD_SPLIT_BYTES, SPARK_PARTITION_ROWS, SPARK_PARTITIONS_MAX
from omnigraph.pipeline.datasource.options import (
    READ_OPTIONS,
    SourceOptions,
    find_type,
    parse_options,
    spark_errors,
    spark_fields,
    to_spark_column,
)
from omnigraph.rules.arrow_typing import Column, arrays, pc
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.read.lookup import ROW_ID, read_blobs
from omnigraph.store.read.row_ranges import RowRange, scan_range, split_rows
from omnigraph.store.write.fragments import fragment_runs, scan_fragments


@dataclass(frozen=True, slots=True)
class Scan:
    """One pinned version of one type, as tasks see it."""

    access: GraphAccess
    ir: str
    table_key: TypeKey
    ref: DatasetRef

    @property
    def type(self) -> Type:
        return parse_catalog(self.ir).type_of(self.table_key)

    def open(self) -> Dataset:
        return self.access.open(self.ref)


def plan_scan(view: View, table_key: TypeKey) -> tuple[Scan, list[list[int]]]:
    """Return the scan of a type, and the fragments of each task."""
    # Tasks open versions by path, so links of recent commits must be finished first.
    view.kernel.finish_links(view.snapshot)
    dataset = view.dataset(table_key)
    access = graph_access(view.kernel.store.root.uri, new_ulid())
    scan = Scan(access, view.snapshot.state.schema.ir, table_key, dataset.ref)
    return scan, fragment_runs(dataset)


def stored_rows(scan: Scan, fragment_ids: Sequence[int], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield stored rows with row ids: blobs as descriptors, in batches of bounded bytes."""
    blobs = [name for name in columns if is_blob(scan.type, name)]
    for batch in scan_fragments(scan.open(), fragment_ids, columns):
        yield from split_batch(batch, blobs)


def read_rows(scan: Scan, fragment_ids: Sequence[int], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some fragments, in the layout of their type."""
    dataset = scan.open()
    return _to_layout(scan.type, dataset, scan_fragments(dataset, fragment_ids, columns), columns)


def read_part(scan: Scan, part: RowRange, columns: Sequence[str], where: str | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part that satisfy a filter, in the layout of their type."""
    dataset = scan.open()
    return _to_layout(scan.type, dataset, scan_range(dataset, part, columns, where), columns)


def _to_layout(
    type_: Type, dataset: Dataset, batches: Iterator[pa.RecordBatch], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    layout = pa.schema([arrow_schema(type_).field(name) for name in columns])
    blobs = [name for name in columns if is_blob(type_, name)]
    for batch in batches:
        for part in split_batch(batch, blobs):
            columns_read = [
                _read_blob_column(dataset, name, part)
                if name in blobs
                else part.column(part.schema.get_field_index(name))
                for name in columns
            ]
            yield pa.RecordBatch.from_arrays(columns_read, schema=layout)


def is_blob(type_: Type, name: str) -> bool:
    """Return True if a column is a blob property."""
    return name in type_.properties and type_.properties[name].type.scalar is Scalar.BLOB


def _read_blob_column(dataset: Dataset, name: str, batch: pa.RecordBatch) -> Column:
    descriptors = batch.column(name)
    valid = pc.is_valid(descriptors).to_numpy(zero_copy_only=False)
    blobs = [blob or b"" for blob in read_blobs(dataset, name, batch.column(ROW_ID).filter(pa.array(valid)))]
    # A blob may be large, so a single one is not copied.
    sizes = np.zeros(batch.num_rows, np.int64)
    sizes[valid] = [len(blob) for blob in blobs]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    data = blobs[0] if len(blobs) == 1 else b"".join(blobs)
    bits = None if valid.all() else arrays.py_buffer(np.packbits(valid, bitorder="little"))
    return arrays.Array.from_buffers(
        pa.large_binary(), batch.num_rows, [bits, arrays.py_buffer(offsets), arrays.py_buffer(data)]
    )


_QUOTED: Final = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`""")


@dataclass(frozen=True, slots=True)
class PinnedSnapshot:
    """The commit that a read shows from now on, and the one whose schema it names things by."""

    commit: CommitId
    today: CommitId


def pin_snapshot(values: Mapping[str, str]) -> PinnedSnapshot | None:
    """Return what a read of these options shows from now on; None for a write or a stream."""
    if not {name.lower() for name in values} <= {*READ_OPTIONS}:
        return None
    options = parse_options(values, READ_OPTIONS)
    with options.open() as graph:
        commit, today = (
            _open_view(graph, options, None).snapshot.head,
            session_of(graph).kernel.snapshot(options.branch).head,
        )
        assert commit is not None, "every state has a commit that made it"
        assert today is not None, "a graph is born with a commit"
        return PinnedSnapshot(commit, today)


def schema_of(values: Mapping[str, str], pin: PinnedSnapshot | None) -> Any:
    """Return the Spark schema of a batch read."""
    options = parse_options(values, READ_OPTIONS)
    with options.open() as graph:
        type_ = find_type(_open_view(graph, options, pin).catalog, options.type)
        return StructType.fromJson({"type": "struct", "fields": spark_fields(type_, _selected_columns(options, type_))})


class Reader(DataSourceReader):
    """Plans a read in the driver and reads parts of the rows in tasks."""

    def __init__(self, values: Mapping[str, str], pin: PinnedSnapshot | None, schema: Any) -> None:
        options = parse_options(values, READ_OPTIONS)
        with options.open() as graph:
            view = _open_view(graph, options, pin)
            type_ = find_type(view.catalog, options.type)
            self._layout = validate_layout(type_, schema)
            self._where = _validate_filter(view, type_, options)
            self._parts = split_rows(view.dataset(type_.table_key), _rows_per_task(view, type_, options))
            self._scan, _ = plan_scan(view, type_.table_key)

    def partitions(self) -> list[Any]:
        return [RowPartition(part) for part in self._parts]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        # An empty type has no parts; Spark then reads one empty partition of its own.
        if isinstance(partition, RowPartition):
            with spark_errors(is_planning=False):
                yield from read_spark_batches(self._scan, partition.value, self._layout, self._where)


class RowPartition(InputPartition):
    """The rows that one task reads."""


def read_spark_batches(scan: Scan, part: RowRange, layout: pa.Schema, where: str | None) -> Iterator[pa.RecordBatch]:
    """Yield rows in Spark's types."""
    for batch in read_part(scan, part, layout.names, where):
        yield to_spark_batch(scan.type, batch, layout)


def to_spark_batch(type_: Type, batch: Any, layout: pa.Schema) -> pa.RecordBatch:
    """Return a batch with every column in its Spark type."""
    columns = []
    for field in layout:
        column, property_ = batch.column(field.name), type_.properties.get(field.name)
        columns.append(
            column.cast(field.type) if property_ is None else to_spark_column(column, property_.type, field.type)
        )
    return pa.RecordBatch.from_arrays(columns, schema=layout)


def validate_layout(type_: Type, schema: Any) -> pa.Schema:
    """Return the Arrow schema of a Spark schema, which may omit columns but not change their types."""
    names = [str(name) for name in schema.fieldNames()]
    _require_columns(type_, names)
    expected = StructType.fromJson({"type": "struct", "fields": spark_fields(type_, names)})
    for requested, actual in zip(schema.fields, expected.fields, strict=True):
        if requested.dataType.simpleString() != actual.dataType.simpleString():
            raise UsageError(
                f"`{type_.name}.{actual.name}` is `{actual.dataType.simpleString()}` in Spark, but the schema says"
                f" `{requested.dataType.simpleString()}`; omit the schema and cast afterwards",
                column=actual.name,
            )
    layout: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return layout


def _open_view(graph: Graph, options: SourceOptions, pin: PinnedSnapshot | None) -> View:
    if pin is None:
        return session_of(graph).view(options.branch, options.at, names=options.naming)
    today = session_of(graph).kernel.at_commit(pin.today)
    return session_of(graph).view(options.branch, pin.commit, names=options.naming, today=today)


def _selected_columns(options: SourceOptions, type_: Type) -> list[str]:
    names = options.name_list("columns")
    if names is None:
        return column_names(type_)
    _require_columns(type_, names)
    return names


def _require_columns(type_: Type, names: list[str]) -> None:
    available = column_names(type_)
    for name in names:
        if name not in available:
            hint = did_you_mean(name, available) or f"it has {', '.join(available)}"
            raise UsageError(f"`{type_.name}` has no column `{name}`; {hint}", column=name)


def _rows_per_task(view: View, type_: Type, options: SourceOptions) -> int:
    """Return how many rows a task reads at most, for the requested number of tasks or one that suits their size."""
    dataset = view.dataset(type_.table_key)
    rows = dataset.count()
    if "numpartitions" in options.values:
        count = options.integer("numpartitions")
        if not 1 <= count <= SPARK_PARTITIONS_MAX:
            raise UsageError(
                f"`numPartitions` must be from 1 to {SPARK_PARTITIONS_MAX}, got {count}; without it, a task reads about"
                f" {LOAD_SPLIT_BYTES >> 20} MiB",
                option="numPartitions",
            )
        return max(1, -(-rows // count))
    nbytes = sum(file.file_size_bytes or 0 for fragment in dataset.fragments for file in fragment.files)
    return max(1, min(SPARK_PARTITION_ROWS, rows * LOAD_SPLIT_BYTES // max(1, nbytes)))


def _validate_filter(view: View, type_: Type, options: SourceOptions) -> str | None:
    where = options.values.get("filter")
    if where is None:
        return None
    if not is_single_condition(where):
        raise UsageError(
            f"`{where}` is not a single condition on `{type_.name}`: its brackets or quotes do not match, or it has a"
            " comment; write a single SQL condition",
            option="filter",
        )
    try:
        # `AND false` makes this a syntax check. Lance ignores trailing text that it cannot parse; in brackets it must
        # parse all of it.
        view.dataset(type_.table_key).count(f"({where}) AND false")
    except StorageError as error:
        raise UsageError(
            f"`{where}` is not a valid condition on `{type_.name}`: {error.message}", option="filter"
        ) from error
    return f"({where})"


def is_single_condition(text: str) -> bool:
    """Return True if SQL text cannot escape from brackets around it.

    >>> [is_single_condition(text) for text in ("name = ')' OR (age > 3)", "age > 3) OR (true", "a -- b")]
    [True, False, False]
    """
    bare = _QUOTED.sub("", text)
    if any(sign in bare for sign in ("'", '"', "`", "--", "/*", ";")):
        return False
    depth = 0
    for sign in bare:
        depth += (sign == "(") - (sign == ")")
        if depth < 0:
            return False
    return depth == 0
