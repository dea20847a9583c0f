"""Reads of a whole dataset in id order, in memory that does not follow its size.

Reads one pinned version. Blob columns come as descriptors; `read_blobs` fetches their bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import GraphError
from omnigraph.limits import SORTED_BYTES_MAX
from omnigraph.store.read.dataset import Dataset, lance_errors

# The stubs know fewer argument types than the kernels take.

ROW_ID: Final = "_rowid"

# A type too large to be sorted whole is fetched in windows that are a part of what may be: small ones would read the
# same pages over and over.
_WINDOW_PART: Final = 4
_WINDOW_ROWS_MIN: Final = 1_024
_BATCH_ROWS: Final = 8_192


def ordered_batches(dataset: Dataset, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Stream all rows by ascending id, each batch with the given columns and `_rowid`."""
    dataset.store.meter.count("scan", str(dataset.ref))
    stored = max(1, _stored_bytes(dataset))
    with lance_errors(f"reading {dataset.ref} in order", dataset):
        if stored <= SORTED_BYTES_MAX:
            yield from _sorted(dataset, columns, _BATCH_ROWS)
            return
        rows = dataset.count() * SORTED_BYTES_MAX // _WINDOW_PART // stored
        for batch in _sorted(dataset, ["id"], max(_WINDOW_ROWS_MIN, rows)):
            yield from _fetch_columns(dataset, batch, columns)


def _sorted(dataset: Dataset, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    scanner = dataset.lance.scanner(
        columns=list(columns), order_by=["id"], with_row_id=True, batch_size=rows, strict_batch_size=True
    )
    yield from scanner.to_batches()


def _stored_bytes(dataset: Dataset) -> int:
    files = (file for fragment in dataset.lance.get_fragments() for file in fragment.metadata.files)
    return sum(file.file_size_bytes or 0 for file in files)


def _fetch_columns(dataset: Dataset, batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    row_ids: Any = batch.column(ROW_ID)
    rows = dataset.take(row_ids.to_pylist(), columns)
    assert rows.num_rows == len(row_ids), "a pinned version keeps its rows"
    yield from rows.append_column(ROW_ID, row_ids).combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)


def read_blobs(dataset: Dataset, column: str, row_ids: pa.Array[Any]) -> list[bytes | None]:
    """Return the bytes of managed blobs by row id, in the order asked for; None where a row holds none."""
    if len(row_ids) == 0:
        return []
    dataset.store.meter.count("take", str(dataset.ref))
    with lance_errors(f"reading blobs of {dataset.ref}", dataset):
        return [payload for _, payload in dataset.lance.read_blobs(column, ids=row_ids)]


def blob_sizes(descriptors: pa.Array[Any]) -> pa.Array[Any]:
    """Return how many bytes each blob of a column of descriptors has; zero for none.

    Asked before any byte is read, so it refuses descriptors that refer to data outside of the graph. Only a foreign
    tool can write those, and reading them would open whatever file or address they name.
    """
    storage = descriptors.storage if isinstance(descriptors, pa.ExtensionArray) else descriptors
    if pc.any(pc.not_equal(pc.struct_field(storage, "blob_uri"), pa.scalar(""))).as_py():
        raise GraphError(
            "a blob refers to data outside of the graph, which is never read; restore the graph from a backup",
            code="blob.integrity",
        )
    sizes: pa.Array[Any] = pc.if_else(pc.is_valid(storage), pc.cast(pc.struct_field(storage, "size"), pa.int64()), 0)
    return sizes
