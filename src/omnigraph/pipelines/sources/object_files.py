"""Reads objects as Spark frames where Spark itself has no file system for `s3://`, `gs://` or `az://`, as by default.

Tasks read the files with Arrow and the storage settings of the driver, one task for each file. Spark still parses JSON
and CSV, so options mean the same as anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.engine.input.filesystems import object_scheme, open_file, open_stream
from omnigraph.engine.input.splits import COMPRESSIONS, File, find_files
from omnigraph.engine.tasks import GraphAccess, graph_access
from omnigraph.errors import DataError, UsageError
from omnigraph.ids import new_ulid
from omnigraph.limits import PIPELINE_S3_BATCH_ROWS
from omnigraph.rules.arrow_typing import pc
from omnigraph.spark.executors import map_tasks

# What Hadoop says if no class is configured for the scheme of an address, or if its jar is missing, as for `gs://`.
_NO_FILE_SYSTEM: Final = re.compile(r"No FileSystem for scheme|Class org\.apache\.hadoop\.fs\.\S+ not found")


_S3_CONNECTOR: Final = (
    "`spark.jars.packages: org.apache.hadoop:hadoop-aws:3.5.0` and `spark.hadoop.fs.s3.impl:"
    " org.apache.hadoop.fs.s3a.S3AFileSystem`"
)
_LINES: Final = ("csv", "json", "text")


_LINE_BLOCK_BYTES: Final = 8 << 20


ReadFile = Callable[[str], Iterator[pa.RecordBatch]]


def read_s3_files(spark: Any, format_name: str, path: str, options: dict[str, str], schema: str | None = None) -> Any:
    """Return the rows of the objects of a name, folder or pattern; reads the footer of Parquet for its columns."""
    files = find_files(path)
    if format_name == "parquet":
        return _read_parquet(spark, files, schema, is_merged=options.get("mergeSchema", "").lower() == "true")
    refused = [
        name
        for name, value in options.items()
        if (name.lower(), value.lower()) == ("multiline", "true")
        or (name.lower() in ("encoding", "charset") and value.lower() not in ("utf-8", "utf8"))
    ]
    if format_name not in _LINES:
        refused.append(format_name)
    if refused or any(file.partitions for file in files):
        subject = f"`{refused[0]}`" if refused else f"a partition column of `{format_name}`"
        scheme = object_scheme(path)
        connector = _S3_CONNECTOR if scheme == "s3://" else "the connector of that store"
        raise UsageError(
            f"{subject} on `{scheme}` needs Spark's own file system for it; add {connector} to `spark.conf`", path=path
        )
    lines = _map_files(spark, files, _lines_reader(format_name, files, options), "value string")
    reader = spark.read.options(**options)
    reader = reader if schema is None else reader.schema(schema)
    return lines if format_name == "text" else getattr(reader, format_name)(lines)


def _read_parquet(spark: Any, files: Sequence[File], schema: str | None, *, is_merged: bool) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
    from pyspark.sql.types import StructType

    columns: Any = None if schema is None else StructType.fromDDL(schema)
    if columns is None:
        columns = from_arrow_schema(_unify_schemas(files if is_merged else files[:1], files), prefer_timestamp_ntz=True)
    arrow_schema = to_arrow_schema(columns, timezone="UTC")
    values = {file.name: dict(file.partitions) for file in files}
    return _map_files(spark, files, partial(_read_row_groups, arrow_schema, values), columns)


def _unify_schemas(chosen: Sequence[File], files: Sequence[File]) -> pa.Schema:
    """Return the columns of the chosen files, and the partition columns of all."""
    schemas = [pq.read_schema(open_file(file.name)) for file in chosen]
    unified = pa.unify_schemas(schemas, promote_options="permissive").remove_metadata()
    for name in {name: None for file in files for name, _ in file.partitions}:
        unified = unified if name in unified.names else unified.append(pa.field(name, pa.string()))
    return unified


def _map_files(spark: Any, files: Sequence[File], read: ReadFile, schema: Any) -> Any:
    access = graph_access(files[0].name, new_ulid())
    return map_tasks(spark, partial(_read_file, access, read), [file.name for file in files], schema)


def _read_file(access: GraphAccess, read: ReadFile, name: str) -> Iterator[pa.RecordBatch]:
    access.apply_settings()
    yield from read(name)


def _read_row_groups(
    schema: pa.Schema, partitions: dict[str, dict[str, str | None]], name: str
) -> Iterator[pa.RecordBatch]:
    file = pq.ParquetFile(open_file(name))
    for batch in file.iter_batches(PIPELINE_S3_BATCH_ROWS):
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns |= {
            column: pa.repeat(pa.scalar(value, pa.string()), batch.num_rows)
            for column, value in partitions[name].items()
        }
        yield pa.RecordBatch.from_arrays(
            [
                # A file that was written before a column was added has nulls there. Spark has microseconds.
                columns.get(field.name, pa.nulls(batch.num_rows)).cast(
                    field.type, safe=not pa.types.is_temporal(field.type)
                )
                for field in schema
            ],
            schema=schema,
        )


def _lines_reader(format_name: str, files: Sequence[File], options: Mapping[str, str]) -> ReadFile:
    """Return a function that reads the lines of a file; of CSV with a header, it rejects files with another header."""
    lowered = {name.lower(): value.lower() for name, value in options.items()}
    if format_name != "csv" or lowered.get("header") != "true" or lowered.get("enforceschema") == "true":
        return _read_lines
    batches = ((batch, file.name) for file in files for batch in _read_lines(file.name) if batch.num_rows)
    filled = next(batches, None)
    return (
        _read_lines if filled is None else partial(_read_lines_with_header, filled[0].column(0)[0].as_py(), filled[1])
    )


def _read_lines_with_header(header: str, first: str, name: str) -> Iterator[pa.RecordBatch]:
    is_checked = False
    for batch in _read_lines(name):
        if batch.num_rows and not is_checked:
            is_checked = True
            if batch.column(0)[0].as_py() != header:
                raise DataError(
                    f"the header of `{name}` is not that of `{first}`; nothing was published. Read it as a source of"
                    " its own, or take the columns by their position with `enforceSchema: true`"
                )
        yield batch


def _read_lines(name: str) -> Iterator[pa.RecordBatch]:
    """Yield the lines of a text file, without those that are empty."""
    compression = next((kind for ending, kind in COMPRESSIONS.items() if name.endswith(ending)), None)
    rest = b""
    with open_stream(name, compression) as stream:
        while block := stream.read(_LINE_BLOCK_BYTES):
            lines, _, rest = (rest + block).rpartition(b"\n")
            yield _batch_of_lines(lines)
    yield _batch_of_lines(rest)


def _batch_of_lines(block: bytes) -> pa.RecordBatch:
    text = pa.array([block.decode("utf-8-sig", "replace")], pa.large_string())
    lines = pc.utf8_rtrim(pc.list_flatten(pc.split_pattern(text, "\n")), "\r")
    filled = lines.filter(pc.greater(pc.utf8_length(lines), 0)).cast(pa.string())
    return pa.RecordBatch.from_arrays([filled], names=["value"])
