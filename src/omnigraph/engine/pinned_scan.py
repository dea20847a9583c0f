"""Scans of one pinned version of one type, in parts that tasks read in threads or on executors.

Exports and analytics read by them with and without Spark, so pyspark is not imported here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.engine.export import column_type, read_blob_column, split_batch
from omnigraph.engine.session import View
from omnigraph.engine.tasks import GraphAccess, graph_access, parse_catalog
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import Type, TypeKey
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.store.read.dataset import Dataset, DatasetRef
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
    return to_layout(scan.type, dataset, scan_fragments(dataset, fragment_ids, columns), columns)


def to_layout(
    type_: Type, dataset: Dataset, batches: Iterator[pa.RecordBatch], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield stored rows in the layout of their type, with the bytes of blobs."""
    layout = pa.schema([arrow_schema(type_).field(name) for name in columns])
    blobs = [name for name in columns if is_blob(type_, name)]
    for batch in batches:
        for part in split_batch(batch, blobs):
            columns_read = [
                read_blob_column(dataset, name, part)
                if name in blobs
                else part.column(part.schema.get_field_index(name))
                for name in columns
            ]
            yield pa.RecordBatch.from_arrays(columns_read, schema=layout)


def is_blob(type_: Type, name: str) -> bool:
    return column_type(type_, name).is_blob
