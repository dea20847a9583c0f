"""Parallel export of a state of a graph to NDJSON, Parquet or CSV files that a load can read back.

Each task reads whole fragments and writes one file; the driver writes `_export.json` last.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, get_args

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from pyarrow import fs

from omnigraph.engine.arguments import check_choice, check_name_list, check_type, strip_name
from omnigraph.engine.entity_lookup import find_qualified_type
from omnigraph.engine.export import column_names, column_type, record_chunks
from omnigraph.engine.input.filesystems import filesystem, object_scheme, path_in_store
from omnigraph.engine.json_text import iso_json_text
from omnigraph.engine.past_schemas import Naming
from omnigraph.engine.pinned_scan import Scan, is_blob, plan_scan, read_rows, stored_rows
from omnigraph.engine.revisions import AsOf
from omnigraph.engine.session import GraphSession
from omnigraph.errors import LimitExceeded, UsageError
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import PropertyType, Type
from omnigraph.lang.scalars import TIMES
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.limits import LOAD_CSV_ROW_BYTES_MAX, LOAD_LOCAL_BYTES_MAX
from omnigraph.public_values import PublicValue
from omnigraph.rules.arrow_typing import Column, pc
from omnigraph.rules.time_columns import time_texts, to_timestamps
from omnigraph.store.objects.failures import from_os_error

Format = Literal["ndjson", "parquet", "csv"]
_REPORT: Final = "_export.json"
_FOLDERS: Final = {"node": "nodes", "edge": "edges"}


@dataclass(frozen=True, slots=True)
class ExportReport(PublicValue):
    """The result of an export: the commit, the entities by type, and the number of files."""

    out: str
    format: str
    engine: str
    commit_id: str
    entities: Mapping[str, int]
    files: int


@dataclass(frozen=True, slots=True)
class _Part:
    """The task of one file: fragments of a type, and the path."""

    scan: Scan
    fragment_ids: list[int]
    path: str


def export_files(
    session: GraphSession,
    out: str | os.PathLike[str],
    format: Format,  # noqa: A002 - as in every writer
    types: Sequence[str] | None,
    branch: str,
    at: AsOf | None,
    names: Naming,
) -> ExportReport:
    """Export a state of a graph to files; see `Graph.export_files`."""
    check_type("out", out, str | os.PathLike)
    check_choice("format", format, get_args(Format))
    check_name_list("types", types)
    view = session.view(strip_name(branch), at, "export", names)
    catalog = view.catalog
    chosen = [find_qualified_type(catalog, name) for name in types] if types else catalog.types
    folder = _empty_folder(os.fspath(out))
    parts: list[_Part] = []
    size = 0
    for type_ in chosen:
        scan, runs = plan_scan(view, type_.table_key)
        size += sum(file.file_size_bytes or 0 for fragment in scan.open().fragments for file in fragment.files)
        kind = _FOLDERS[type_.table_key.kind]
        base = f"{folder}/{kind}/{type_.name}"
        parts += [_Part(scan, run, f"{base}/part-{index:05d}.{format}") for index, run in enumerate(runs)]
    runner = session.runners.by_size(size, LOAD_LOCAL_BYTES_MAX)
    counts = runner.run("exporting", partial(write_part, format), parts)
    entities = {str(type_.table_key): 0 for type_ in chosen}
    for part, count in zip(parts, counts, strict=True):
        entities[part.scan.table_key] += count
    report = ExportReport(folder, format, runner.engine, str(view.snapshot.head), entities, len(parts))
    _write_file(
        f"{folder}/{_REPORT}", lambda sink: sink.write(orjson.dumps(report.to_json(), option=orjson.OPT_INDENT_2))
    )
    return report


def _empty_folder(out: str) -> str:
    """Return the output folder; it must be empty, because other files would look like part of the export."""
    folder = out.rstrip("/") if object_scheme(out) else os.path.abspath(os.path.expanduser(out))
    with _write_errors(folder):
        is_empty = _is_empty(folder)
    if not is_empty:
        raise UsageError(f"`{out}` is not empty; choose a new directory", path=out)
    return folder


def _is_empty(folder: str) -> bool:
    """Return True if a folder has no entry, or is not there; looks no further than the first level."""
    if object_scheme(folder):
        selector = fs.FileSelector(path_in_store(folder), allow_not_found=True)
        return not filesystem(folder).get_file_info(selector)
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        return next(entries, None) is None
    return True


def write_part(format_: str, part: _Part) -> int:
    """Write some fragments of a type to one file, and return the number of entities."""
    columns = column_names(part.scan.type)
    counts: list[int] = []
    if format_ == "ndjson":
        dataset, type_ = part.scan.open(), part.scan.type

        def write(sink: Any) -> None:
            for batch in stored_rows(part.scan, part.fragment_ids, columns):
                counts.append(batch.num_rows)
                for chunk in record_chunks(dataset, type_, batch):
                    sink.write(chunk)
    else:
        shape = _parquet_column if format_ == "parquet" else _csv_column
        open_writer: Any = partial(_open_parquet, part.scan.type) if format_ == "parquet" else pyarrow.csv.CSVWriter
        layout = pa.schema([arrow_schema(part.scan.type).field(name) for name in columns])
        empty = _convert_batch(part.scan.type, pa.RecordBatch.from_pylist([], schema=layout), shape)

        def write(sink: Any) -> None:
            with open_writer(sink, empty.schema) as writer:
                for batch in read_rows(part.scan, part.fragment_ids, columns):
                    counts.append(batch.num_rows)
                    writer.write_batch(_convert_batch(part.scan.type, batch, shape))

    _write_file(part.path, write)
    return sum(counts)


@contextmanager
def _write_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise from_os_error(error, "write", path) from error


def _open_parquet(type_: Type, sink: Any, schema: pa.Schema) -> Any:
    """Open a Parquet writer without dictionaries and statistics of blobs, which would copy them in memory."""
    others = [name for name in schema.names if not is_blob(type_, name)]
    options: dict[str, Any] = {
        "use_dictionary": others,
        "write_statistics": others,
        "compression": {name: "snappy" if name in others else "none" for name in schema.names},
    }
    return pyarrow.parquet.ParquetWriter(sink, schema, **options)


def _write_file(path: str, write: Callable[[Any], Any]) -> None:
    """Write a file atomically, so that retries of a task are safe."""
    client = filesystem(path)
    with _write_errors(path):
        if object_scheme(path):
            # An object becomes visible when its upload completes.
            with client.open_output_stream(path_in_store(path)) as sink:
                write(sink)
            return
        folder, _, name = path.rpartition("/")
        client.create_dir(folder, recursive=True)
        temporary = f"{folder}/.{name}.{new_ulid()}"
        try:
            with client.open_output_stream(temporary) as sink:
                write(sink)
            client.move(temporary, path)
        except BaseException:
            if os.path.exists(temporary):
                client.delete_file(temporary)
            raise


def _convert_batch(type_: Type, batch: Any, shape: Callable[[Column, PropertyType], Column]) -> pa.RecordBatch:
    columns = {name: shape(batch.column(name), column_type(type_, name)) for name in batch.schema.names}
    return pa.RecordBatch.from_pydict(columns)


def _parquet_column(column: Column, type_: PropertyType) -> Column:
    """Return a column for Parquet, which would truncate date64 to days."""
    return to_timestamps(column)


def _csv_column(column: Column, type_: PropertyType) -> Column:
    """Return a column for CSV: lists and vectors as JSON, blobs as `base64:` text."""
    if type_.is_array:
        return pc.if_else(column.is_valid(), iso_json_text(column), pa.scalar(None, pa.string()))
    if type_.is_blob:
        longest = pc.max(pc.binary_length(column)).as_py() or 0
        if longest // 3 * 4 >= LOAD_CSV_ROW_BYTES_MAX:
            raise LimitExceeded(
                f"a blob of {longest} bytes makes a CSV row longer than a load accepts; export as Parquet",
                resource="bytes of a row",
                limit=LOAD_CSV_ROW_BYTES_MAX,
            )
        return pa.array([None if blob is None else f"base64:{b64encode(blob).decode()}" for blob in column.to_pylist()])
    return time_texts(column) if type_.scalar in TIMES else column
