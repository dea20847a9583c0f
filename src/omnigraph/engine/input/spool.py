"""Inputs that are not files: held in memory while they are small, and spooled to temporary files otherwise.

Nothing is decoded here. How large an input is, as far as that is known, decides where it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from io import BytesIO
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet

from omnigraph.engine.input.frames import frame_name, is_arrow_stream, read_frame
from omnigraph.engine.input.ndjson.reader import as_bytes
from omnigraph.engine.input.splits import Columns, Split, plan_columns, plan_ndjson, unsupported_input
from omnigraph.engine.json_text import encode_record
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import LOAD_MEMORY_BYTES_MAX

# Dictionaries are counted in chunks, of each of which some are measured.
_CHUNK_RECORDS: Final = 8_192
_SAMPLED_RECORDS: Final = 100
T = TypeVar("T")


class Spool:
    """The temporary files of one operation, removed when it ends."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def plan_data(self, data: Any) -> list[Split]:
        """Return the splits of NDJSON: paths, bytes, a file object, or dictionaries."""
        if (paths := as_paths(data)) is not None:
            return plan_ndjson(paths)
        if isinstance(data, bytes):
            return self._plan_text(data, ())
        if hasattr(data, "readline"):
            head = as_bytes(data.read(LOAD_MEMORY_BYTES_MAX + 1))
            return self._plan_text(head, iter(lambda: as_bytes(data.read(LOAD_MEMORY_BYTES_MAX)), b""))
        if isinstance(data, Mapping) or not isinstance(data, Iterable) or is_arrow_stream(data):
            raise unsupported_input(data)
        return self._plan_records(data)

    def plan_table(self, table_key: TypeKey, columns: Columns, properties: Container[str] = ()) -> list[Split]:
        """Return the splits of the rows of one type: a frame, or Parquet and CSV files."""
        if not is_arrow_stream(columns.data):
            return plan_columns(table_key, columns, properties)
        reader = read_frame(columns.data)
        batches, size = _take(reader, lambda batch: batch.nbytes)
        # Messages name the frame: a file of it is gone when they are read.
        columns = replace(columns, name=frame_name(table_key.name))
        if size <= LOAD_MEMORY_BYTES_MAX:
            table = pa.Table.from_batches(batches, reader.schema)
            return [in_memory("arrow", table, size, table_key, replace(columns, data=None))]
        path = self._path("parquet")
        write_parquet(str(path), reader.schema, chain(batches, reader))
        return plan_columns(table_key, replace(columns, data=str(path)))

    def _plan_text(self, head: bytes, rest: Iterable[bytes]) -> list[Split]:
        if len(head) <= LOAD_MEMORY_BYTES_MAX:
            return [in_memory("ndjson", head, len(head))]
        return self._plan_lines(chain([head], rest))

    def _plan_records(self, data: Iterable[Any]) -> list[Split]:
        records = iter(data)
        chunks, size = _take(iter(lambda: list(islice(records, _CHUNK_RECORDS)), []), _measure_records)
        head: list[Any] = list(chain.from_iterable(chunks))
        if head and not isinstance(head[0], Mapping):
            raise unsupported_input(head[0])
        if size <= LOAD_MEMORY_BYTES_MAX:
            return [in_memory("records", head, size)]
        return self._plan_lines(map(encode_record, chain(head, records)))

    def _plan_lines(self, lines: Iterable[bytes]) -> list[Split]:
        path = self._path("ndjson")
        with path.open("wb") as file:
            file.writelines(lines)
        return [replace(split, name="") for split in plan_ndjson([path])]

    def _path(self, ending: str) -> Path:
        folder = self._stack.enter_context(TemporaryDirectory(prefix="omnigraph-load-"))
        return Path(folder) / f"input.{ending}"


def in_memory(
    format_: str, content: Any, size: int, table_key: TypeKey | None = None, columns: Columns | None = None
) -> Split:
    """Return the split of an input that is held in memory."""
    name = "" if columns is None else columns.name
    return Split("", format_, 0, size, size, table_key=table_key, columns=columns, name=name, content=content)


def as_paths(data: Any) -> list[Any] | None:
    """Return the paths that an input consists of; None if it holds the data itself."""
    if isinstance(data, str | PathLike):
        return [data]
    is_list = isinstance(data, list | tuple) and bool(data) and isinstance(data[0], str | PathLike)
    return list(data) if is_list else None


def write_parquet(sink: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write batches as a Parquet file, a row group for each."""
    with pyarrow.parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)


def bytes_of(split: Split) -> bytes:
    """Return what is in memory as the bytes of a file, by which a repeated input is recognized."""
    if split.format == "ndjson":
        return bytes(split.content)
    if split.format == "records":
        return b"".join(map(encode_record, split.content))
    sink = BytesIO()
    write_parquet(sink, split.content.schema, split.content.to_batches())
    return sink.getvalue()


def _take(parts: Iterator[T], measure: Callable[[T], int]) -> tuple[list[T], int]:
    """Return parts up to what is held in memory, and one more if there is any, with their size in bytes."""
    parts_taken: list[T] = []
    size = 0
    for part in parts:
        parts_taken.append(part)
        size += measure(part)
        if size > LOAD_MEMORY_BYTES_MAX:
            break
    return parts_taken, size


def _measure_records(records: list[Any]) -> int:
    """Return about how large dictionaries are as NDJSON, by the first ones."""
    sample = records[:_SAMPLED_RECORDS]
    return sum(map(len, map(encode_record, sample))) * len(records) // len(sample)
