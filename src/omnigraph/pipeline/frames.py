"""DataFrames as input: their rows are put down as Parquet beside the graph, once, and read from there like any file.

So a DataFrame is computed a single time, although a load may look at a row more than once.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from omnigraph.ids import new_ulid
from omnigraph.limits import LOAD_SPLIT_BYTES
from omnigraph.pipeline.job import Job, Place
from omnigraph.pipeline.session import watched


def is_frame(source: object) -> bool:
    """Tell whether a source is a DataFrame of Spark, of this process or of a remote session."""
    return hasattr(source, "mapInArrow")


def put_down(frame: Any, job: Job) -> list[str]:
    """Write the rows of a DataFrame to the side of a load and return the addresses of the files."""
    files = frame.mapInArrow(partial(write_batches, job.place, job.side), "path string")
    rows = watched(frame.sparkSession, "reading a DataFrame", files.collect, lambda done: None)
    root = job.place.store().root
    # Only files of the attempts that counted are told; those of others are removed with the rest.
    return [root.child(row["path"]).uri for row in rows]


def write_batches(place: Place, folder: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of one partition, in files of about the size of a split, and yield their paths."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        gathered.append(batch)
        size += batch.nbytes
        if size >= LOAD_SPLIT_BYTES:
            yield _write(place, folder, gathered)
            gathered, size = [], 0
    if gathered:
        yield _write(place, folder, gathered)


def _write(place: Place, folder: str, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pa.Table.from_batches(batches), sink, compression="zstd", use_dictionary=False)
    path = f"{folder}/{new_ulid()}.parquet"
    place.store().objects.write(path, sink.getvalue())
    return pa.RecordBatch.from_pydict({"path": [path]})
