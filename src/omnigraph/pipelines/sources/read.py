"""Reads the sources of a pipeline as Spark frames, bounded to what no earlier run has loaded.

An incremental source is read in a window of its column: above the watermark of the last run, up to the largest value
when this run began. Rows that arrive meanwhile belong to the next run, so no row is lost or loaded twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson

from omnigraph import clock
from omnigraph.engine.input.filesystems import object_scheme
from omnigraph.engine.input.frame_rows import ORIGIN
from omnigraph.engine.input.splits import File, find_files
from omnigraph.errors import UsageError
from omnigraph.limits import PIPELINE_AHEAD_SECONDS_MAX
from omnigraph.pipelines.declaration.config import LOOKBACK, PipelineDeclaration, SourceDeclaration, resolve_variables
from omnigraph.pipelines.frame_columns import (
    NUMBER,
    NUMBER_TYPES,
    TEXT_TYPES,
    column_of,
    find_family,
    require_distinct_columns,
    suggest_column,
    type_of,
)
from omnigraph.pipelines.sources.csv_files import RFC_4180, parse_csv_options, read_csv_files
from omnigraph.pipelines.sources.file_ledger import FileLedger, add_known_columns, has_ledger, make_empty
from omnigraph.pipelines.sources.object_files import _NO_FILE_SYSTEM, read_s3_files
from omnigraph.spark.session import first_line, run_job

# A day, or a second: of a text that is one, or of a time as Spark shows it.
_COARSE: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9:]{2,6})?)?$"
# Options that choose among files; Spark lists these.
_LISTING_OPTIONS: Final = ("pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter", "basepath")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Without these, Spark turns what it cannot parse into nulls, looks only at columns that are used, and takes the columns
# of a CSV file in the order of another one, and says nothing.
_STRICT_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "csv": {"mode": "FAILFAST", "columnPruning": "false", "enforceSchema": "false", **RFC_4180},
    "json": {"mode": "FAILFAST"},
    "xml": {"mode": "FAILFAST"},
}


@dataclass(frozen=True, slots=True)
class Window:
    """The values of an incremental column that a run reads: above `low`, up to `high`; None is unbounded.

    `lookback` is how far below `low` rows are read once more.
    """

    low: str | None
    high: str | None
    lookback: str | None = None


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
        is_coarse: Whether several rows must be expected to have the last value: a day, or a second.
        ledger: The files that the source has now, if they are read once.
    """

    frame: Any
    window: Window | None = None
    is_empty: bool = False
    rows_without_value: int = 0
    compared: str | None = None
    is_coarse: bool = False
    ledger: FileLedger | None = None


@dataclass(frozen=True, slots=True)
class _Measure:
    """The largest value of a column above a bound, as text, the rows without a value, and whether values are coarse."""

    high: str | None
    rows_without_value: int
    is_coarse: bool


def read_source(spark: Any, source: SourceDeclaration, folder: Path | None) -> Any:
    """Return all rows of a source. Spark reads no data here, except to infer the schema of some formats."""
    return read_traced_source(spark, source, folder).drop(ORIGIN)


def read_traced_source(
    spark: Any, source: SourceDeclaration, folder: Path | None, files: Sequence[File] | None = None
) -> Any:
    """Return all rows of a source, or of some of its files, with the column `ORIGIN` if its format has files."""
    part = f"sources.{source.name}"
    options = {name: resolve_variables(value, os.environ) for name, value in source.options.items()}
    if source.format == "jdbc" and "table" in options:
        options["dbtable"] = options.pop("table")
    try:
        frame = _load(spark, source, options, folder, files)
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


def _load(
    spark: Any,
    source: SourceDeclaration,
    options: dict[str, str],
    folder: Path | None,
    files: Sequence[File] | None,
) -> Any:
    # Spark has no option of this name, and would ignore it.
    schema = options.pop("schema", None)
    path = None if source.path is None else _locate(source.path, folder)
    if source.format == "csv" and path is not None:
        file_path = path.removeprefix("file://").removeprefix("file:")
        parsed = parse_csv_options(options, schema)
        if parsed is not None and (object_scheme(path) or "://" not in file_path):
            return read_csv_files(spark, _find_data_files(file_path) if files is None else files, parsed)
    named = {name.lower() for name in options}
    strict = _STRICT_OPTIONS.get(source.format, {})
    options |= {name: value for name, value in strict.items() if name.lower() not in named}
    reader = spark.read.format(source.format).options(**options)
    reader = reader if schema is None else reader.schema(schema)
    if path is None:
        return reader.load()
    if files is not None:
        if os.path.isdir(path):
            reader = reader.option("basePath", path)
        return _trace(reader.load([file.name for file in files]))
    try:
        return _trace(reader.load(path))
    except Exception as error:
        if not (object_scheme(path) and _NO_FILE_SYSTEM.search(str(error))):
            raise
        # Lines are read one by one there.
        if "multiline" not in named:
            options.pop("multiLine", None)
        return read_s3_files(spark, source.format, path, options, schema)


def _trace(frame: Any) -> Any:
    """Add the file of each row, and for Parquet its number there; formats that are not files have neither."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions

    for line in ("_metadata.row_index + 1", "NULL"):
        file = "regexp_replace(url_decode(replace(_metadata.file_path, '+', '%2B')), '^file:(//)?', '')"
        origin = functions.expr(f"named_struct('file', {file}, 'line', CAST({line} AS BIGINT))")
        try:
            traced = frame.withColumn(ORIGIN, origin)
            _ = traced.columns
        except PySparkException:
            continue
        return traced
    return frame


def _find_data_files(path: str) -> list[File]:
    """Return the files that Spark would read: of a folder, those in it and in its partitions, not in other folders."""
    files = find_files(path)
    if not os.path.isdir(path):
        return files
    folders = (os.path.relpath(file.name, os.path.abspath(path)).split(os.sep)[:-1] for file in files)
    flat = [file for file, parts in zip(files, folders, strict=True) if all("=" in part for part in parts)]
    if not flat:
        raise UsageError(f"`{path}` has no file; those in its folders are not read. Check the path", path=path)
    return flat


def list_files(source: SourceDeclaration, folder: Path | None) -> list[File] | None:
    """Return the files of a source on a local disk; None where only Spark can list them."""
    path = _locate(str(source.path), folder).removeprefix("file://").removeprefix("file:")
    if "://" in path or any(name.lower() in _LISTING_OPTIONS for name in source.options):
        return None
    try:
        return _find_data_files(path)
    except UsageError:
        # Reading it says what is wrong.
        return None


def open_source(
    spark: Any,
    source: SourceDeclaration,
    pipeline: PipelineDeclaration,
    watermark: Watermark,
    bounds: Window | None,
    ledger: FileLedger | None = None,
) -> OpenSource:
    """Return the rows of a source above a watermark, or within `bounds`, the window of a backfill.

    Files that the ledger of the last run has are not opened again.
    """
    listed = list_files(source, pipeline.folder) if bounds is None and has_ledger(source) else None
    if listed is None:
        return _open_rows(spark, source, pipeline, watermark, bounds, None)
    if ledger is not None:
        # What the run before has read must mean the same, also if there is nothing new.
        empty, column = make_empty(spark, ledger), str(source.incremental)
        is_known = watermark.value is not None and column in empty.columns
        if is_known:
            _require_same_order(source, f"{column} ({find_family(empty, column)})", watermark)
        ledger = ledger if is_known else None
    new = listed if ledger is None else ledger.find_new(listed)
    if ledger is not None and not new:
        low = watermark.value
        opened = OpenSource(empty, Window(low, low), True, 0, watermark.compared)
    else:
        opened = _open_rows(spark, source, pipeline, watermark, bounds, new, ledger)
    schema = orjson.dumps(opened.frame.drop(ORIGIN).schema.jsonValue()).decode()
    return replace(opened, ledger=FileLedger.of(listed, schema))


def _require_same_order(source: SourceDeclaration, compared: str, watermark: Watermark) -> None:
    if watermark.compared not in (None, compared):
        # It would skip rows, and no one would notice.
        raise UsageError(
            f"source `{source.name}` was read up to `{watermark.value}` of {watermark.compared}, and now grows by"
            f" {compared}; run the pipeline with `--full-refresh`, which reads everything again",
            part=f"sources.{source.name}",
        )


def _open_rows(
    spark: Any,
    source: SourceDeclaration,
    pipeline: PipelineDeclaration,
    watermark: Watermark,
    bounds: Window | None,
    files: Sequence[File] | None,
    ledger: FileLedger | None = None,
) -> OpenSource:
    frame = add_known_columns(read_traced_source(spark, source, pipeline.folder, files), source, ledger)
    column, low = source.incremental, watermark.value
    if column is None:
        return OpenSource(frame)
    compared = f"{column} ({find_family(frame, column)})"
    if bounds is not None:
        _require_range(frame, column, bounds)
        return OpenSource(_within(frame, column, bounds), bounds, compared=compared)
    _require_same_order(source, compared, watermark)
    reach = Window(low, None, source.lookback)
    try:
        measure = _measure(spark, frame, column, reach)
    except UsageError as error:
        error.context["part"] = f"sources.{source.name}"
        raise
    _require_no_number_as_text(source.name, compared, measure.high or low)
    missing = measure.rows_without_value
    if measure.high is None:
        return OpenSource(frame.limit(0), Window(low, low), True, missing, compared)
    window = replace(reach, high=measure.high)
    is_coarse = measure.is_coarse and source.lookback is None
    return OpenSource(_within(frame, column, window), window, False, missing, compared, is_coarse)


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


def _measure(spark: Any, frame: Any, column: str, reach: Window) -> _Measure:
    """Measure the values of a column above a bound, in one pass."""
    from pyspark.sql import functions

    value, kind = column_of(column), type_of(frame, column)
    if kind in ("float", "double"):
        # It is above every number, so no later row would be read.
        value = functions.when(~functions.isnan(value), value)
    above, largest = frame, functions.max(value)
    if reach.low is not None:
        above = frame.filter(value.isNull() | (value > _lower_bound(frame, column, reach)))
        # Rows that are read once more do not move the watermark back.
        reached = functions.greatest(largest, _bound(frame, column, reach.low))
        largest = functions.when(largest.isNotNull(), reached)
    is_fine = ~value.cast("string").rlike(_COARSE)
    if kind == "timestamp":
        # A point in time, whatever the time zone of the session is.
        largest = functions.unix_micros(largest)
        is_fine = functions.unix_micros(value) % 1_000_000 != 0
    elif kind in NUMBER_TYPES:
        is_fine = value.isNotNull()
    measured = above.agg(
        largest.cast("string").alias("largest"),
        functions.count_if(value.isNull()).alias("missing"),
        functions.count_if(is_fine).alias("fine"),
    )
    [row] = run_job(spark, "reading watermarks", measured.collect)
    high = row["largest"]
    if high is not None and kind == "timestamp":
        high = _instant(int(high), column)
    return _Measure(high, row["missing"], high is not None and row["fine"] == 0)


def _lower_bound(frame: Any, column: str, window: Window) -> Any:
    """Return the value above which rows are read: the watermark, less the lookback."""
    from pyspark.sql import functions

    bound, kind = _bound(frame, column, str(window.low)), type_of(frame, column)
    match = None if window.lookback in (None, "0") else LOOKBACK.fullmatch(str(window.lookback))
    if match is None:
        return bound
    if kind in NUMBER_TYPES and match[1] is not None:
        return bound - functions.lit(match[1]).cast("decimal(28,9)")
    if kind == "date" and match[3] in ("day", "week"):
        return functions.date_sub(bound, int(match[2]) * (7 if match[3] == "week" else 1))
    if kind in ("timestamp", "timestamp_ntz") and match[3] is not None:
        return bound - functions.expr(f"INTERVAL {match[2]} {match[3]}")
    expected = {"date": "`1 day`", "timestamp": "`2 hours`", "timestamp_ntz": "`2 hours`"}.get(kind, "a number")
    hint = f"write it as {expected}" if kind not in TEXT_TYPES else "cast it to a time with a `schema`"
    raise UsageError(f"`lookback: {window.lookback}` does not fit `{column}`, a {kind}; {hint}", column=column)


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
        frame = frame.filter(value > _lower_bound(frame, column, window))
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
