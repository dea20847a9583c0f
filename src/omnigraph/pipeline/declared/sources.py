"""Reads the sources of a pipeline as Spark frames, bounded to what no earlier run has loaded; S3 without Hadoop's jars.

An incremental source is read in a window of its column: above the watermark of the last run, up to the largest value
when this run began. Rows that arrive meanwhile belong to the next run, so no row is lost or loaded twice.

Tasks read the files with Arrow and the storage settings of the driver, one task for each file. Spark still parses JSON
and CSV, so options mean the same as anywhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph import clock
from omnigraph.engine.tasks import GraphAccess, graph_access
from omnigraph.errors import DataError, UsageError
from omnigraph.ids import new_ulid
from omnigraph.limits import PIPELINE_AHEAD_SECONDS_MAX, PIPELINE_S3_BATCH_ROWS
from omnigraph.pipeline.bulk_load.splits import COMPRESSIONS, File, find_files
from omnigraph.pipeline.declared.columns import (
    NUMBER,
    column_of,
    find_family,
    require_distinct_columns,
    suggest_column,
    type_of,
)
from omnigraph.pipeline.declared.config import PipelineDeclaration, SourceDeclaration, resolve_variables
from omnigraph.pipeline.filesystems import open_file, open_stream
from omnigraph.pipeline.spark.executors import map_tasks
from omnigraph.pipeline.spark.session import first_line, run_job
from omnigraph.rules.arrow_typing import pc

S3: Final = "s3://"
# What Hadoop says if no class is configured for the scheme of an address.
_NO_FILE_SYSTEM: Final = "No FileSystem for scheme"
_LINES: Final = ("csv", "json", "text")
_LINE_BLOCK_BYTES: Final = 8 << 20

ReadFile = Callable[[str], Iterator[pa.RecordBatch]]


def read_s3_files(spark: Any, format_name: str, path: str, options: dict[str, str], schema: str | None = None) -> Any:
    """Return the rows of a file, folder or pattern on S3; reads the footer of a Parquet file for its columns."""
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
        raise UsageError(
            f"{subject} on S3 needs Spark's own file system for it; add `spark.jars.packages:"
            " org.apache.hadoop:hadoop-aws:3.5.0` and `spark.hadoop.fs.s3.impl:"
            " org.apache.hadoop.fs.s3a.S3AFileSystem` to `spark.conf`",
            path=path,
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
    """Return what reads the lines of a file: of CSV with names, only if all files have the same."""
    lowered = {name.lower(): value.lower() for name, value in options.items()}
    if format_name != "csv" or lowered.get("header") != "true" or lowered.get("enforceschema") == "true":
        return _read_lines
    batches = ((batch, file.name) for file in files for batch in _read_lines(file.name) if batch.num_rows)
    filled = next(batches, None)
    return _read_lines if filled is None else partial(_read_lines_below, filled[0].column(0)[0].as_py(), filled[1])


def _read_lines_below(header: str, first: str, name: str) -> Iterator[pa.RecordBatch]:
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


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Without these, Spark turns what it cannot parse into nulls, looks only at columns that are used, and takes the columns
# of a CSV file in the order of another one, and says nothing.
_STRICT_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "csv": {"mode": "FAILFAST", "columnPruning": "false", "enforceSchema": "false"},
    "json": {"mode": "FAILFAST"},
    "xml": {"mode": "FAILFAST"},
}


@dataclass(frozen=True, slots=True)
class Window:
    """The values of an incremental column that a run reads: above `low`, up to `high`; None is unbounded."""

    low: str | None
    high: str | None


@dataclass(frozen=True, slots=True)
class Watermark:
    """What the last run has read of a source: up to `value`, of a column that was `compared` as `updated_at (time)`."""

    value: str | None = None
    compared: str | None = None


@dataclass(frozen=True, slots=True)
class OpenSource:
    """The rows that a run reads of a source.

    Attributes:
        frame: The rows, as a Spark frame.
        window: What they are bounded to; None if the source is read whole.
        is_empty: Whether the window is known to have no rows.
        rows_without_value: Rows that no window has, because their incremental column is null.
        compared: The incremental column, and how its values are compared: `updated_at (time)`.
    """

    frame: Any
    window: Window | None = None
    is_empty: bool = False
    rows_without_value: int = 0
    compared: str | None = None


def read_source(spark: Any, source: SourceDeclaration, folder: Path | None) -> Any:
    """Return all rows of a source. Spark reads no data here, except to infer the schema of some formats."""
    part = f"sources.{source.name}"
    options = {name: resolve_variables(value, os.environ) for name, value in source.options.items()}
    if source.format == "jdbc" and "table" in options:
        options["dbtable"] = options.pop("table")
    for name, value in _STRICT_OPTIONS.get(source.format, {}).items():
        if name.lower() not in {option.lower() for option in options}:
            options[name] = value
    try:
        frame = _load(spark, source, options, folder)
        columns = frame.columns
    except UsageError as error:
        raise UsageError(f"source `{source.name}` cannot be read: {error.message}", part=part) from error
    except Exception as error:
        raise UsageError(f"source `{source.name}` cannot be read: {first_line(error)}", part=part) from error
    require_distinct_columns(frame, f"source `{source.name}`", part)
    if source.incremental is not None and source.incremental not in columns:
        hint = suggest_column(source.incremental, frame)
        if source.format == "csv" and columns[0] == "_c0":
            hint += "; add `header: true` if its first line has the names"
        raise UsageError(f"source `{source.name}` has no column `{source.incremental}`; {hint}", part=part)
    if source.incremental is not None and find_family(frame, source.incremental) is None:
        kind = frame.schema[source.incremental].dataType.simpleString()
        raise UsageError(
            f"`{source.incremental}` of source `{source.name}` is a {kind}, which does not grow; name a number, a time"
            " or a text as `incremental`",
            part=part,
        )
    return frame


def _load(spark: Any, source: SourceDeclaration, options: dict[str, str], folder: Path | None) -> Any:
    # Spark has no option of this name, and would ignore it.
    schema = options.pop("schema", None)
    reader = spark.read.format(source.format).options(**options)
    reader = reader if schema is None else reader.schema(schema)
    if source.path is None:
        return reader.load()
    path = _locate(source.path, folder)
    try:
        return reader.load(path)
    except Exception as error:
        if not (path.startswith(S3) and _NO_FILE_SYSTEM in str(error)):
            raise
        return read_s3_files(spark, source.format, path, options, schema)


def open_source(
    spark: Any,
    source: SourceDeclaration,
    pipeline: PipelineDeclaration,
    watermark: Watermark,
    bounds: Window | None,
) -> OpenSource:
    """Return the rows of a source above a watermark; `bounds` replaces the window of a backfill."""
    frame = read_source(spark, source, pipeline.folder)
    column, low = source.incremental, watermark.value
    if column is None:
        return OpenSource(frame)
    compared = f"{column} ({find_family(frame, column)})"
    if bounds is not None:
        _require_range(frame, column, bounds)
        return OpenSource(_within(frame, column, bounds), bounds, compared=compared)
    if watermark.compared not in (None, compared):
        # It would skip rows, and no one would notice.
        raise UsageError(
            f"source `{source.name}` was read up to `{low}` of {watermark.compared}, and now grows by {compared}; run"
            " the pipeline with `--full-refresh`, which reads everything again",
            part=f"sources.{source.name}",
        )
    high, rows_without_value = _measure(spark, frame, column, low)
    _require_no_number_as_text(source.name, compared, high or low)
    if high is None:
        return OpenSource(frame.limit(0), Window(low, low), True, rows_without_value, compared)
    window = Window(low, high)
    return OpenSource(_within(frame, column, window), window, False, rows_without_value, compared)


def is_ahead(source: OpenSource) -> bool:
    """Return True if a source is read up to a time in the future, so that rows of the present are never read."""
    high = None if source.window is None else source.window.high
    if high is None or source.compared is None or not source.compared.endswith("(time)"):
        return False
    try:
        moment = datetime.fromisoformat(high)
    except ValueError:
        # Spark has years that Python does not have.
        return True
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (moment - _EPOCH).total_seconds() > clock.now_us() / 1_000_000 + PIPELINE_AHEAD_SECONDS_MAX


def _require_no_number_as_text(name: str, compared: str, value: str | None) -> None:
    if value is not None and compared.endswith("(text)") and re.fullmatch(NUMBER, value):
        raise UsageError(
            f"source `{name}` grows by {compared} with numbers such as `{value}`, and as text 10 is below 9; read them"
            " as numbers, with `inferSchema: true`, a `schema`, or a `query` that casts them",
            part=f"sources.{name}",
        )


def _locate(path: str, folder: Path | None) -> str:
    declared, path = path, resolve_variables(path, os.environ)
    if not path.strip():
        raise UsageError(f"`{declared}` is empty, so the source has no `path`; set it and retry")
    is_relative = "://" not in path and not path.startswith(("/", "file:"))
    return str(folder / path) if is_relative and folder is not None else path


def _require_range(frame: Any, column: str, bounds: Window) -> None:
    if bounds.low is None or bounds.high is None:
        return
    is_empty = _bound(frame, column, bounds.low) >= _bound(frame, column, bounds.high)
    if frame.sparkSession.range(1).select(is_empty.alias("is_empty")).first()["is_empty"]:
        advice = "the lower bound is not included, so give a smaller one"
        raise UsageError(f"no value is above `{bounds.low}` and at most `{bounds.high}`; {advice}")


def _measure(spark: Any, frame: Any, column: str, low: str | None) -> tuple[str | None, int]:
    """Return the largest value above a bound, as text, and the number of rows without a value, in one pass."""
    from pyspark.sql import functions

    value = column_of(column)
    if type_of(frame, column) in ("float", "double"):
        # It is above every number, so no later row would be read.
        value = functions.when(~functions.isnan(value), value)
    above = frame if low is None else frame.filter(value.isNull() | (value > _bound(frame, column, low)))
    largest, is_timestamp = functions.max(value), type_of(frame, column) == "timestamp"
    if is_timestamp:
        # A point in time, whatever the time zone of the session is.
        largest = functions.unix_micros(largest)
    measured = above.agg(largest.cast("string").alias("largest"), functions.count_if(value.isNull()).alias("missing"))
    [row] = run_job(spark, "reading watermarks", measured.collect)
    text = row["largest"]
    if text is not None and is_timestamp:
        text = _instant(int(text), column)
    return text, row["missing"]


def _instant(micros: int, column: str) -> str:
    try:
        return (_EPOCH + timedelta(microseconds=micros)).isoformat()
    except OverflowError:
        raise UsageError(
            f"`{column}` has a value after the year 9999, above which no later row would be; leave such rows out of"
            " the source",
            column=column,
        ) from None


def _within(frame: Any, column: str, window: Window) -> Any:
    value = column_of(column)
    if window.low is not None:
        frame = frame.filter(value > _bound(frame, column, window.low))
    if window.high is not None:
        frame = frame.filter(value <= _bound(frame, column, window.high))
    return frame


def _bound(frame: Any, column: str, text: str) -> Any:
    """Return a bound in the type of its column, so that 9 is below 10."""
    from pyspark.sql import functions

    kind = frame.schema[column].dataType
    bound = functions.lit(text).try_cast(kind)
    if frame.sparkSession.range(1).select(bound.isNull().alias("is_null")).first()["is_null"]:
        raise UsageError(f"`{text}` is not a {kind.simpleString()}, the type of `{column}`", column=column, value=text)
    return bound
