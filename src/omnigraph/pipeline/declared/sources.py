"""Reads the sources of a pipeline as Spark frames, bounded to what no earlier run has loaded.

An incremental source is read in a window of its column: above the watermark of the last run, up to the largest value
when this run began. Rows that arrive meanwhile belong to the next run, so no row is lost or loaded twice.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from omnigraph.errors import UsageError
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.pipeline.declared.config import PipelineDeclaration, SourceDeclaration, resolve_variables
from omnigraph.pipeline.spark.session import run_job

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Window:
    """The values of an incremental column that a run reads: above `low`, up to `high`; None is unbounded."""

    low: str | None
    high: str | None


@dataclass(frozen=True, slots=True)
class OpenSource:
    """The rows that a run reads of a source.

    Attributes:
        frame: The rows, as a Spark frame.
        window: What they are bounded to; None if the source is read whole.
        is_empty: Whether the window is known to have no rows.
        rows_without_value: Rows that no window has, because their incremental column is null.
    """

    frame: Any
    window: Window | None = None
    is_empty: bool = False
    rows_without_value: int = 0


def read_source(spark: Any, source: SourceDeclaration, folder: Path | None) -> Any:
    """Return all rows of a source. Spark reads no data here, except to infer the schema of some formats."""
    options = {name: resolve_variables(value, os.environ) for name, value in source.options.items()}
    if source.format == "jdbc" and "table" in options:
        options["dbtable"] = options.pop("table")
    try:
        schema = options.pop("schema", None)
        reader = spark.read.format(source.format).options(**options)
        reader = reader if schema is None else reader.schema(schema)
        frame = reader.load() if source.path is None else reader.load(_locate(source.path, folder))
        columns = frame.columns
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"source `{source.name}` cannot be read: {first_line(error)}", source=source.name) from error
    if source.incremental is not None and source.incremental not in columns:
        hint = did_you_mean(source.incremental, columns) or f"it has {', '.join(columns)}"
        raise UsageError(f"source `{source.name}` has no column `{source.incremental}`; {hint}", source=source.name)
    return frame


def open_source(
    spark: Any, source: SourceDeclaration, pipeline: PipelineDeclaration, low: str | None, bounds: Window | None
) -> OpenSource:
    """Return the rows of a source above a watermark; `bounds` replaces the window of a backfill."""
    frame = read_source(spark, source, pipeline.folder)
    column = source.incremental
    if column is None:
        return OpenSource(frame)
    if bounds is not None:
        return OpenSource(_within(frame, column, bounds), bounds)
    high, rows_without_value = _measure(spark, frame, column, low)
    if high is None:
        return OpenSource(frame.limit(0), Window(low, low), True, rows_without_value)
    window = Window(low, high)
    return OpenSource(_within(frame, column, window), window, False, rows_without_value)


def first_line(error: Exception) -> str:
    """Return the message of a Spark error without its stack."""
    lines = str(error).strip().splitlines()
    return lines[0][:500] if lines else type(error).__name__


def _locate(path: str, folder: Path | None) -> str:
    path = resolve_variables(path, os.environ)
    is_relative = "://" not in path and not path.startswith(("/", "file:"))
    return str(folder / path) if is_relative and folder is not None else path


def _measure(spark: Any, frame: Any, column: str, low: str | None) -> tuple[str | None, int]:
    """Return the largest value above a bound, as text, and the number of rows without a value, in one pass."""
    from pyspark.sql import functions

    value = functions.col(column)
    above = frame if low is None else frame.filter(value.isNull() | (value > _bound(frame, column, low)))
    largest = functions.max(value)
    if _is_timestamp(frame, column):
        # A point in time, whatever the time zone of the session is.
        largest = functions.unix_micros(largest)
    measured = above.agg(largest.cast("string").alias("largest"), functions.count_if(value.isNull()).alias("missing"))
    [row] = run_job(spark, "reading watermarks", measured.collect, lambda done: None)
    text = row["largest"]
    if text is not None and _is_timestamp(frame, column):
        text = (_EPOCH + timedelta(microseconds=int(text))).isoformat()
    return text, row["missing"]


def _within(frame: Any, column: str, window: Window) -> Any:
    from pyspark.sql import functions

    value = functions.col(column)
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


def _is_timestamp(frame: Any, column: str) -> bool:
    return bool(frame.schema[column].dataType.typeName() == "timestamp")
