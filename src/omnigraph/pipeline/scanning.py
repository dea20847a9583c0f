"""Scanning: the rows of some fragments of one type, in its own layout, wherever a task runs.

What the DataFrames of Spark and an export are made of. Blobs come as their bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from omnigraph.engine.core import View
from omnigraph.engine.export import slices
from omnigraph.engine.write.loaded import Type
from omnigraph.ids import new_ulid
from omnigraph.lang.schema.arrow import arrow_schema
from omnigraph.lang.types import Scalar
from omnigraph.limits import LOAD_SPLIT_BYTES
from omnigraph.pipeline.job import Place, catalog_from, place_of
from omnigraph.rules.kernels import Column, arrays, pc
from omnigraph.store.dataset import Dataset, DatasetRef
from omnigraph.store.fragments import fragment_runs, scan_fragments
from omnigraph.store.ordered import ROW_ID, read_blobs


@dataclass(frozen=True, slots=True)
class Scan:
    """One pinned version of one type, as tasks know it."""

    place: Place
    ir: str
    table_key: str
    ref: DatasetRef

    @property
    def type(self) -> Type:
        return catalog_from(self.ir).type_of(self.table_key)

    def open(self) -> Dataset:
        return self.place.open(self.ref)


def plan_scan(view: View, table_key: str) -> tuple[Scan, list[list[int]]]:
    """Return how tasks reach a type of a view, and the fragments that each of them is to read."""
    # Tasks open versions by path alone, so what was just published must be in its place.
    view.kernel.finish_links(view.snapshot)
    dataset = view.dataset(table_key)
    place = place_of(view.kernel.store.root.uri, new_ulid())
    scan = Scan(place, view.snapshot.state.schema.ir, table_key, dataset.ref)
    return scan, fragment_runs(dataset, LOAD_SPLIT_BYTES)


def stored_rows(scan: Scan, fragment_ids: Sequence[int], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield rows as they are stored, with their row ids: blobs as descriptors, in batches that bound their bytes."""
    blobs = [name for name in columns if _is_blob(scan.type, name)]
    for batch in scan_fragments(scan.open(), fragment_ids, columns):
        yield from slices(batch, blobs)


def read_rows(
    scan: Scan, fragment_ids: Sequence[int], columns: Sequence[str], where: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some fragments that satisfy a condition, in the layout of their type."""
    type_, dataset = scan.type, scan.open()
    layout = pa.schema([arrow_schema(type_).field(name) for name in columns])
    blobs = [name for name in columns if _is_blob(type_, name)]
    for batch in scan_fragments(dataset, fragment_ids, columns, where):
        for part in slices(batch, blobs):
            found = [
                _payloads(dataset, name, part) if name in blobs else part.column(part.schema.get_field_index(name))
                for name in columns
            ]
            yield pa.RecordBatch.from_arrays(found, schema=layout)


def _is_blob(type_: Type, name: str) -> bool:
    return name in type_.properties and type_.properties[name].type.scalar is Scalar.BLOB


def _payloads(dataset: Dataset, name: str, batch: pa.RecordBatch) -> Column:
    descriptors = batch.column(name)
    valid = pc.is_valid(descriptors).to_numpy(zero_copy_only=False)
    found = [one or b"" for one in read_blobs(dataset, name, batch.column(ROW_ID).filter(pa.array(valid)))]
    # Blobs may be large: a single one is not copied.
    sizes = np.zeros(batch.num_rows, np.int64)
    sizes[valid] = [len(one) for one in found]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    data = found[0] if len(found) == 1 else b"".join(found)
    bits = None if valid.all() else arrays.py_buffer(np.packbits(valid, bitorder="little"))
    return arrays.Array.from_buffers(
        pa.large_binary(), batch.num_rows, [bits, arrays.py_buffer(offsets), arrays.py_buffer(data)]
    )
