"""Reads CSV files as Spark frames with the reader of `load`, so that a file means the same everywhere.

Spark distributes the files; each task reads one with `read_csv`, as RFC 4180 defines it, and Spark converts the text to
the types of `schema`. Dialects that this reader does not have, such as an escape character, are left to Spark.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa

from omnigraph.engine.input.csv_reader import CsvDialect, read_csv, read_csv_header
from omnigraph.engine.input.frame_rows import ORIGIN
from omnigraph.engine.input.splits import File, Split, compression_of
from omnigraph.engine.tasks import GraphAccess, graph_access
from omnigraph.errors import DataError, UsageError
from omnigraph.ids import new_ulid
from omnigraph.limits import PIPELINE_S3_BATCH_ROWS
from omnigraph.pipelines.frame_columns import TIME_TYPES, column_of
from omnigraph.rules.delta import Findings
from omnigraph.spark.executors import map_tasks
from omnigraph.spark.session import run_job

# Options with a meaning here. A source with any other one is left to Spark's own reader.
_OPTIONS: Final = frozenset(
    {"header", "sep", "delimiter", "quote", "escape", "nullvalue", "encoding", "charset", "inferschema", "mode",
     "enforceschema", "columnpruning", "multiline", "dateformat", "timestampformat", "timestampntzformat"}
)  # fmt: skip
# Spark's reader, set to RFC 4180 as far as it goes: a quote is escaped by another one, text in quotes may have line
# ends, and only a field without quotes is null. Spark takes a value that equals `nullValue` as null, so no text may.
RFC_4180: Final = {"escape": '"', "multiLine": "true", "nullValue": "\ue000null\ue000", "emptyValue": ""}
_BOOLEANS: Final = "(?i)true|false"
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """The options of a CSV source.

    `formats` are those of Spark, by type, for dates and times that are not written as in ISO 8601. `is_by_position` if
    columns are taken by their position, whatever the header says.
    """

    dialect: CsvDialect
    schema: str | None
    is_inferring: bool
    is_by_position: bool
    formats: Mapping[str, str]


def parse_csv_options(options: Mapping[str, str], schema: str | None) -> CsvOptions | None:
    """Return the options of a source that this reader reads; None if it is left to Spark."""
    values = {name.lower(): value for name, value in options.items()}
    quote = values.get("quote", '"')
    separator = values.get("sep", values.get("delimiter"))
    separator = "\t" if separator == "\\t" else separator
    encoding = _find_encoding(values.get("encoding", values.get("charset", "utf-8")))
    is_ours = (
        values.keys() <= _OPTIONS
        and values.get("mode", "FAILFAST").upper() == "FAILFAST"
        and values.get("escape", quote) == quote
        and all(len(text) == 1 and text.isascii() for text in (quote, separator or ","))
        and encoding is not None
    )
    if not is_ours:
        return None
    dialect = CsvDialect(
        separator,
        quote,
        values.get("nullvalue"),
        None if encoding == "utf-8" else encoding,
        _is_true(values.get("header")),
    )
    return CsvOptions(
        dialect,
        schema,
        _is_true(values.get("inferschema")),
        _is_true(values.get("enforceschema")),
        {kind: values[name] for kind in TIME_TYPES if (name := f"{kind.replace('_', '')}format") in values},
    )


def _is_true(value: str | None) -> bool:
    return (value or "").lower() == "true"


def _find_encoding(name: str) -> str | None:
    """Return the name that Python has for an encoding; None if it has none."""
    try:
        return codecs.lookup(name).name
    except LookupError:
        return None


def read_csv_files(spark: Any, files: Sequence[File], options: CsvOptions) -> Any:
    """Return the rows of files, with the column `ORIGIN`; reads the header of the first one that has any."""
    from pyspark.sql import functions
    from pyspark.sql.types import StringType, StructField, StructType

    filled = [file for file in files if file.size]
    header = read_csv_header(_split_of(filled[0]), options.dialect)[0] if filled else []
    declared = {} if options.schema is None else {item.name: item.dataType for item in _parse_ddl(options.schema)}
    partitions = _partition_values(files)
    names = _name_columns(header, [name for name in declared if name not in partitions], files, options)
    columns = [*names, *partitions]
    origin = StructField(ORIGIN, _parse_ddl("file string, line long"))
    schema = StructType([*(StructField(name, StringType()) for name in columns), origin])
    checked = None if options.is_by_position or not options.dialect.has_header else (header, files[0].name)
    access = graph_access(files[0].name, new_ulid())
    read = partial(_read_file, access, options.dialect, checked, len(names), tuple(partitions))
    frame = map_tasks(spark, read, filled, schema)
    types = {name: _partition_type(values) for name, values in partitions.items()} | declared
    if options.is_inferring:
        types = _infer_types(spark, frame, [name for name in names if name not in types]) | types
    chosen = [_convert(name, types[name], options) if name in types else column_of(name) for name in columns]
    return frame.select(*chosen, functions.col(ORIGIN))


def _name_columns(
    header: Sequence[str], declared: Sequence[str], files: Sequence[File], options: CsvOptions
) -> Sequence[str]:
    """Return the columns of the files: those of `schema`, which must be those of the header, or else the header's."""
    if not declared:
        if not header:
            raise UsageError(
                f"`{files[0].name}` is empty, so it has no columns; name them in `schema`", path=files[0].name
            )
        return header
    is_checked = options.dialect.has_header and not options.is_by_position
    if header and is_checked and [name.lower() for name in header] != [name.lower() for name in declared]:
        shown, expected = ", ".join(header), ", ".join(declared)
        raise UsageError(
            f"the header of `{files[0].name}` is {shown}, and `schema` is {expected}; correct it,"
            " or take the columns by their position with `enforceSchema: true`",
            path=files[0].name,
        )
    if header and len(header) != len(declared):
        raise UsageError(
            f"`{files[0].name}` has {len(header)} columns, and `schema` {len(declared)}; correct it", path=files[0].name
        )
    return declared


def _split_of(file: File) -> Split:
    return Split(file.name, "csv", 0, 0, file.size, compression_of(file.name))


def _read_file(
    access: GraphAccess,
    dialect: CsvDialect,
    checked: tuple[list[str], str] | None,
    width: int,
    partitions: Sequence[str],
    file: File,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file as text, with its partition columns and the line of each row."""
    access.apply_settings()
    split, findings = _split_of(file), Findings(1)
    header, _ = read_csv_header(split, dialect)
    if (checked is not None and header != checked[0]) or len(header) != width:
        other = "of the first file" if checked is None else f"of `{checked[1]}`"
        raise DataError(
            f"the header of `{file.name}` is not that {other}; nothing was published. Read it as a source of its own,"
            " or take the columns by their position with `enforceSchema: true`"
        )
    values = dict(file.partitions)
    for rows in read_csv(split, findings, dialect):
        for violation in findings.violations:
            # In one line: the last one of a task's error is what is shown.
            raise DataError(f"`{file.name}` line {violation.line}: {violation.message}; nothing was published")
        origin = pa.table(
            {"file": pa.repeat(file.name, rows.table.num_rows), "line": pa.array(rows.numbers, pa.int64())}
        )
        columns: list[Any] = [*rows.table.columns]
        columns += [pa.repeat(pa.scalar(values.get(name), pa.string()), rows.table.num_rows) for name in partitions]
        columns.append(origin.to_struct_array())
        table = pa.table(columns, names=[*map(str, range(len(columns) - 1)), ORIGIN])
        yield from table.to_batches(PIPELINE_S3_BATCH_ROWS)


def _convert(name: str, kind: Any, options: CsvOptions) -> Any:
    """Return a column of text in another type; text that does not fit is an error with its file and line."""
    from pyspark.sql import functions

    text, type_name, origin = column_of(name), kind.typeName(), functions.col(ORIGIN)
    if type_name == "string":
        return text
    pattern, value = options.formats.get(type_name), text.try_cast(kind)
    if type_name == "boolean":
        value = functions.when(text.rlike(f"^(?:{_BOOLEANS})$"), value)
    elif pattern is not None and type_name == "date":
        value = functions.try_to_date(text, pattern).cast(kind)
    elif pattern is not None:
        value = functions.try_to_timestamp(text, functions.lit(pattern)).cast(kind)
    location = [functions.lit("`"), origin["file"], functions.lit("` line "), origin["line"].cast("string")]
    message = [
        functions.lit(f": column `{name}` is `"),
        text,
        functions.lit(f"`, which is not a {kind.simpleString()}"),
    ]
    refused = functions.raise_error(functions.concat(*location, *message))
    return functions.when(text.isNull() | value.isNotNull(), value).otherwise(refused).alias(name)


def _infer_types(spark: Any, frame: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return the types of columns of which no text contradicts them, as Spark infers them; others are text."""
    from pyspark.sql import functions

    kinds = ("int", "bigint", "double", "date", "timestamp", "boolean")
    counts = []
    for index, name in enumerate(names):
        text = column_of(name)
        counts.append(functions.count(text).alias(f"{index}"))
        for kind in kinds:
            fits = text.try_cast(kind).isNotNull()
            fits = fits & text.rlike(f"^(?:{_BOOLEANS})$") if kind == "boolean" else fits
            counts.append(functions.count_if(fits).alias(f"{index} {kind}"))
    if not counts:
        return {}
    [row] = run_job(spark, "inferring the types of CSV", frame.agg(*counts).collect)
    types = {}
    for index, name in enumerate(names):
        total = row[f"{index}"]
        fitting = [kind for kind in kinds if total and row[f"{index} {kind}"] == total]
        if fitting:
            types[name] = _parse_ddl(f"value {fitting[0]}")[0].dataType
    return types


def _parse_ddl(text: str) -> Any:
    from pyspark.sql.types import StructType

    return StructType.fromDDL(text)


def _partition_values(files: Sequence[File]) -> dict[str, set[str | None]]:
    values: dict[str, set[str | None]] = {}
    for file in files:
        for name, value in file.partitions:
            values.setdefault(name, set()).add(value)
    return values


def _partition_type(values: set[str | None]) -> Any:
    """Return the type that Spark gives to a partition column: an integer, a date, or text."""
    from pyspark.sql.types import DateType, LongType, StringType

    texts = [value for value in values if value is not None]
    if texts and all(_INTEGER.fullmatch(text) for text in texts):
        return LongType()
    return DateType() if texts and all(_DATE.fullmatch(text) for text in texts) else StringType()
