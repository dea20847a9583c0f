"""Export: a state of a graph as many files, written side by side; each format is one that a load takes back.

Tasks read whole fragments and write one file each; the driver writes what it all came to, last.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, get_args

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from pyarrow import fs

from omnigraph.engine.export import record_chunks
from omnigraph.engine.json_text import json_text
from omnigraph.engine.past_names import NOW, Naming
from omnigraph.engine.session import Moment
from omnigraph.engine.tasks import NO_PROGRESS, Progress, Threads
from omnigraph.engine.write.ndjson.blocks import Type
from omnigraph.errors import LimitExceeded, UsageError
from omnigraph.graph import Graph
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import PropertyType, Scalar
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.limits import LOAD_CSV_ROW_BYTES_MAX, LOAD_LOCAL_BYTES_MAX
from omnigraph.manifest.model import MAIN
from omnigraph.pipeline.bulk_load.splits import filesystem
from omnigraph.pipeline.datasource.spark_types import column_names, find_type, to_frame
from omnigraph.pipeline.datasource.table_reader import Scan, plan_scan, read_rows, stored_rows
from omnigraph.pipeline.spark.executors import Engine, check_engine, executors
from omnigraph.rules.arrow_typing import Column, pc
from omnigraph.store.objects.failures import from_os_error

Format = Literal["ndjson", "parquet", "csv"]
_REPORT: Final = "_export.json"
_FOLDERS: Final = {"node": "nodes", "edge": "edges"}
_INSTANTS: Final = {Scalar.DATE: "%Y-%m-%d", Scalar.DATETIME: "%Y-%m-%dT%H:%M:%SZ"}
_MILLISECONDS: Final = pa.timestamp("ms", "UTC")


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export wrote: the commit, and by type how many entities in how many files."""

    out: str
    format: str
    engine: str
    commit_id: str
    entities: Mapping[str, int]
    files: int

    def to_json(self) -> dict[str, object]:
        """Return the report as every surface shows it."""
        names = ("out", "format", "engine", "commit_id", "files")
        return {**{name: getattr(self, name) for name in names}, "entities": dict(self.entities)}


@dataclass(frozen=True, slots=True)
class _Part:
    """What one task writes: fragments of a type, to a path."""

    scan: Scan
    fragment_ids: list[int]
    path: str


def export(
    graph: Graph,
    out: str | os.PathLike[str],
    format: Format = "parquet",  # noqa: A002 - the word every writer uses
    *,
    types: Sequence[str] | None = None,
    branch: str = MAIN,
    at: Moment | None = None,
    names: Naming = NOW,
    engine: Engine = "auto",
    master: str | None = None,
    watcher: Progress = NO_PROGRESS,
) -> ExportReport:
    """Write a state to `out`, a new or empty directory or `s3://` address, as files that a load takes back.

    They are `nodes/Type/part-*` and `edges/Type/part-*`; where a last one, `_export.json`, is missing, it did not end.
    """
    if format not in get_args(Format):
        raise UsageError(f"there is no format `{format}`; it is one of {', '.join(get_args(Format))}", format=format)
    check_engine(engine)
    view = graph.core.view(branch.strip(), at, "export", names)
    catalog = view.catalog
    chosen: list[Type] = [*catalog.nodes.values(), *catalog.edges.values()]
    if types:
        chosen = [find_type(catalog, one) for one in types]
    folder = _empty_folder(os.fspath(out))
    parts: list[_Part] = []
    size = 0
    for type_ in chosen:
        scan, runs = plan_scan(view, type_.table_key)
        size += sum(file.file_size_bytes or 0 for one in scan.open().fragments for file in one.files)
        kind = _FOLDERS[type_.table_key.partition(":")[0]]
        base = f"{folder}/{kind}/{type_.name}"
        parts += [_Part(scan, run, f"{base}/part-{place:05d}.{format}") for place, run in enumerate(runs)]
    is_small = engine == "auto" and master is None and size <= LOAD_LOCAL_BYTES_MAX
    runner = Threads(watcher) if engine == "local" or is_small else executors(master, watcher)
    counts = runner.run("exporting", partial(write_part, format), parts)
    entities = {type_.table_key: 0 for type_ in chosen}
    for part, count in zip(parts, counts, strict=True):
        entities[part.scan.table_key] += count
    report = ExportReport(folder, format, runner.engine, str(view.snapshot.head), entities, len(parts))
    _put(f"{folder}/{_REPORT}", lambda sink: sink.write(orjson.dumps(report.to_json(), option=orjson.OPT_INDENT_2)))
    return report


def _empty_folder(out: str) -> str:
    """Return where to write; files that are there would be taken for a part of the export."""
    folder = out.rstrip("/") if out.startswith("s3://") else os.path.abspath(os.path.expanduser(out))
    selector = fs.FileSelector(folder.removeprefix("s3://"), recursive=True, allow_not_found=True)
    with _write_errors(folder):
        inside = filesystem(folder).get_file_info(selector)
    if any(one.type is fs.FileType.File for one in inside):
        raise UsageError(f"`{out}` is not empty; give a new directory", path=out)
    return folder


def write_part(format_: str, part: _Part) -> int:
    """Write some fragments of a type as one file, and return how many entities they hold."""
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
        empty = _shaped(part.scan.type, _no_rows(part.scan.type, columns), shape)

        def write(sink: Any) -> None:
            with open_writer(sink, empty.schema) as writer:
                for batch in read_rows(part.scan, part.fragment_ids, columns):
                    counts.append(batch.num_rows)
                    writer.write_batch(_shaped(part.scan.type, batch, shape))

    _put(part.path, write)
    return sum(counts)


@contextmanager
def _write_errors(path: str) -> Iterator[None]:
    """Report what the system refuses as a failure of storage."""
    try:
        yield
    except OSError as error:
        raise from_os_error(error, "write", path) from error


def _open_parquet(type_: Type, sink: Any, schema: pa.Schema) -> Any:
    """Return a writer that does not pack blobs: to look for repeats and bounds, it would hold them several times."""
    others = [name for name in schema.names if not _is_blob(type_, name)]
    options: dict[str, Any] = {
        "use_dictionary": others,
        "write_statistics": others,
        "compression": {name: "snappy" if name in others else "none" for name in schema.names},
    }
    return pyarrow.parquet.ParquetWriter(sink, schema, **options)


def _is_blob(type_: Type, name: str) -> bool:
    return name in type_.properties and type_.properties[name].type.scalar is Scalar.BLOB


def _no_rows(type_: Type, columns: Sequence[str]) -> pa.RecordBatch:
    layout = pa.schema([arrow_schema(type_).field(name) for name in columns])
    return pa.RecordBatch.from_pydict({name: [] for name in columns}, schema=layout)


def _put(path: str, write: Callable[[Any], Any]) -> None:
    """Write a file so that it is there whole or not at all, also when a task is done twice."""
    with _write_errors(path):
        _put_whole(filesystem(path), path, write)


def _put_whole(client: Any, path: str, write: Callable[[Any], Any]) -> None:
    bare = path.removeprefix("s3://")
    if path.startswith("s3://"):
        # An object appears when its upload ends.
        with client.open_output_stream(bare) as sink:
            write(sink)
        return
    folder, _, name = bare.rpartition("/")
    client.create_dir(folder, recursive=True)
    beside = f"{folder}/.{name}.{new_ulid()}"
    try:
        with client.open_output_stream(beside) as sink:
            write(sink)
        client.move(beside, bare)
    except BaseException:
        if os.path.exists(beside):
            client.delete_file(beside)
        raise


def _shaped(type_: Type, batch: Any, shape: Callable[[Column, PropertyType], Column]) -> pa.RecordBatch:
    columns: dict[str, Column] = {}
    for name in batch.schema.names:
        property_ = type_.properties.get(name)
        columns[name] = batch.column(name) if property_ is None else shape(batch.column(name), property_.type)
    return pa.RecordBatch.from_pydict(columns)


def _parquet_column(column: Column, type_: PropertyType) -> Column:
    """Return a column as Parquet can hold it: it would cut instants down to days."""
    if type_.scalar is not Scalar.DATETIME:
        return column
    return to_frame(column, type_, pa.list_(_MILLISECONDS) if type_.is_list else _MILLISECONDS)


def _csv_column(column: Column, type_: PropertyType) -> Column:
    """Return a column as texts and numbers: lists and vectors as JSON, blobs as a record spells them."""
    if type_.is_list or type_.scalar is Scalar.VECTOR:
        return pc.if_else(column.is_valid(), json_text(column), pa.scalar(None, pa.string()))
    if type_.scalar is Scalar.BLOB:
        longest = pc.max(pc.binary_length(column)).as_py() or 0
        if longest // 3 * 4 >= LOAD_CSV_ROW_BYTES_MAX:
            raise LimitExceeded(
                f"a blob of {longest} bytes makes a longer row of CSV than a load takes back; export as Parquet",
                resource="bytes of a row",
                limit=LOAD_CSV_ROW_BYTES_MAX,
            )
        return pa.array([None if one is None else f"base64:{b64encode(one).decode()}" for one in column.to_pylist()])
    if type_.scalar in _INSTANTS:
        return pc.strftime(_parquet_column(column, type_), _INSTANTS[type_.scalar])
    return column
