"""Builds the segments of full-text indexes.

Lance indexes columns as they are stored, so the terms of texts are written to a dataset of their own, in a temporary
directory and with the row ids of the texts; the files of the index that is built there are those of the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa
from lance import LanceDataset, LanceOperation
from lance.bitmap import Bitmap
from lance.dataset import Index
from lance.fragment import RowIdSequence, write_fragments

from omnigraph.limits import ANALYSED_BYTES_MAX
from omnigraph.store.index.text_analysis import INDEX_OPTIONS, joined_terms
from omnigraph.store.objects.control_objects import Objects
from omnigraph.store.objects.uri import Location
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.read.lookup import ROW_ID

_TERMS: Final = pa.schema([pa.field("terms", pa.string())])
_READ_ROWS: Final = 8_192


def build_text_segment(dataset: Dataset, column: str, name: str, fragments: Sequence[int]) -> Index:
    """Write the files of a segment that knows the texts of some fragments; nothing names them yet."""
    with TemporaryDirectory(prefix="omnigraph-") as folder:
        # Files are copied below their root, so both have the same path.
        terms = _write_terms(dataset, column, fragments, Path(folder) / dataset.ref.directory)
        # Text segments are written as parts; only the merge gives them the files that queries read.
        part = terms.create_index_uncommitted(
            _TERMS.names[0],
            index_type="INVERTED",
            name=name,
            fragment_ids=[fragment.fragment_id for fragment in terms.get_fragments()],
            **INDEX_OPTIONS,
        )
        segment = terms.merge_existing_index_segments([part])
        scratch = Objects(Location.parse(folder))
        paths = [f"{dataset.ref.directory}/_indices/{segment.uuid}/{file.path}" for file in segment.files or ()]
        dataset.store.in_parallel([partial(scratch.copy_to, dataset.store.objects, path) for path in paths])
    return replace(
        segment,
        fields=[dataset.field_ids[column]],
        dataset_version=dataset.version,
        fragment_ids=Bitmap(fragments),
    )


def _write_terms(dataset: Dataset, column: str, fragments: Sequence[int], directory: Path) -> LanceDataset:
    """Return a dataset of the terms of all texts, each with the row id of its text."""
    row_ids: list[Any] = []
    reader = pa.RecordBatchReader.from_batches(_TERMS, _term_batches(dataset, column, fragments, row_ids))
    directory.mkdir(parents=True)
    written = write_fragments(reader, str(directory), mode="create")
    known = pa.chunked_array(row_ids, pa.uint64())
    start = 0
    for fragment in written:
        fragment.row_id_meta = RowIdSequence(known.slice(start, fragment.num_rows)).to_inline_metadata()
        start += fragment.num_rows
    return LanceDataset.commit(str(directory), LanceOperation.Overwrite(_TERMS, written), enable_stable_row_ids=True)


def _term_batches(
    dataset: Dataset, column: str, fragments: Sequence[int], row_ids: list[Any]
) -> Iterator[pa.RecordBatch]:
    """Yield the terms of all texts in bounded batches, and note the row ids."""
    scanner = dataset.scanner([column], set(fragments), with_row_id=True, batch_size=_READ_ROWS)
    pending: list[pa.RecordBatch] = []
    for batch in scanner.to_batches():
        pending.append(batch)
        if sum(batch.nbytes for batch in pending) >= ANALYSED_BYTES_MAX:
            yield _term_batch(pending, column, row_ids)
            pending = []
    if pending:
        yield _term_batch(pending, column, row_ids)


def _term_batch(batches: Sequence[pa.RecordBatch], column: str, row_ids: list[Any]) -> pa.RecordBatch:
    row_ids += [batch.column(ROW_ID) for batch in batches]
    texts = pa.concat_arrays([batch.column(column) for batch in batches])
    return pa.record_batch([joined_terms(texts)], schema=_TERMS)
