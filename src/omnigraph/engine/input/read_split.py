"""Read a split of an input file as chunks of typed rows: lines of NDJSON, or mapped columns of Parquet and CSV.

Holds no more than the size of a split at a time. Lines count from the beginning of the split.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet

from omnigraph.engine.input.column_mapping import ColumnMapper
from omnigraph.engine.input.csv_reader import read_csv
from omnigraph.engine.input.frame_rows import without_origin
from omnigraph.engine.input.frames import check_frame
from omnigraph.engine.input.line_ranges import read_lines
from omnigraph.engine.input.ndjson.blocks import Loaded
from omnigraph.engine.input.ndjson.reader import add_part, decode, read_compatible
from omnigraph.engine.input.ndjson.slow_path import Aliases, Converter, Envelopes
from omnigraph.engine.input.reading import Reading
from omnigraph.engine.input.rows import Rows
from omnigraph.engine.input.splits import Split
from omnigraph.engine.json_text import encode_record
from omnigraph.errors import LimitExceeded, OmniGraphError, UsageError
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import INGEST_CHUNK_RECORDS, LOAD_CSV_ROW_BYTES_MAX, LOAD_LINE_BYTES_MAX, LOAD_REJECTED_CHARACTERS
from omnigraph.rules.delta import Findings

_BATCH_ROWS: Final = 262_144


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some entities of a split by type, the range of their lines, and a lookup of the text of a line."""

    loaded: Mapping[TypeKey, Loaded]
    lines: range
    text: Callable[[int], str]


def read_split(split: Split, reading: Reading, findings: Findings) -> Iterator[Chunk]:
    """Yield the valid entities of a split; add violations of the others to the findings."""
    try:
        if split.format == "records" or reading.is_compatible:
            yield from _read_records(split, reading, findings)
        elif split.format == "ndjson":
            yield from _read_ndjson(split, reading, findings)
        else:
            yield from _read_columns(split, reading, findings)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _unreadable_split(split, str(error).splitlines()[0].rstrip(".")) from error


def _unreadable_split(split: Split, reason: str) -> OmniGraphError:
    # Arrow has no error class for a row that exceeds its block.
    if "straddles two block boundaries" in reason:
        return LimitExceeded(
            f"`{split.file}` has a row of more than {LOAD_CSV_ROW_BYTES_MAX} bytes; close a quote that is left open, or"
            " load the rows as Parquet",
            rule="N11",
            path=split.file,
            resource="bytes of a row",
            limit=LOAD_CSV_ROW_BYTES_MAX,
        )
    return UsageError(f"cannot read `{split.shown_name}`: {reason}; check the file", path=split.shown_name)


def _read_ndjson(split: Split, reading: Reading, findings: Findings) -> Iterator[Chunk]:
    for block in read_lines(split, findings):
        loaded = decode(
            block.complete,
            reading.catalog,
            first_line=block.first,
            findings=findings,
            line_bytes_max=LOAD_LINE_BYTES_MAX if reading.bounds is None else None,
            now_ms=reading.now_ms,
            blobs=reading.blobs,
        )
        yield Chunk(loaded, block.numbers, block.text_of)


def _read_records(split: Split, reading: Reading, findings: Findings) -> Iterator[Chunk]:
    """Yield dictionaries, or the objects of the compatible dialect, whose lines are their numbers."""
    envelopes = Envelopes(reading.catalog, findings)
    aliases = Aliases(findings) if reading.is_compatible else None
    converter = Converter(findings, aliases, reading.now_ms, reading.blobs)
    take = envelopes.take_compatible if reading.is_compatible else envelopes.take
    loaded: dict[TypeKey, Loaded] = {}
    number = 0
    for number, value in read_compatible(split.content, findings):
        gathered = take(number, value)
        if findings.is_full:
            break
        if gathered is not None and len(gathered.members) >= INGEST_CHUNK_RECORDS:
            envelopes.finish(gathered)
            add_part(loaded, converter.convert(gathered))
            if reading.bounds is not None and reading.bounds.are_exceeded(loaded):
                break
    for gathered in envelopes.take_all():
        add_part(loaded, converter.convert(gathered))
    if aliases is not None and not findings.violations:
        aliases.apply(loaded)
    # What cannot be parsed has a number, too.
    last = max([number, *(violation.line or 0 for violation in findings.violations)])
    yield Chunk(dict(sorted(loaded.items())), range(1, last + 1), partial(_text_of_record, split.content))


def _text_of_record(records: Sequence[object], line: int) -> str:
    return encode_record(records[line - 1]).decode()[:LOAD_REJECTED_CHARACTERS].rstrip()


def _read_columns(split: Split, reading: Reading, findings: Findings) -> Iterator[Chunk]:
    assert split.table_key is not None
    assert split.columns is not None
    type_ = reading.catalog.type_of(split.table_key)
    mapper = ColumnMapper(reading.catalog, type_, split.columns, findings, reading.now_ms, reading.blobs)
    for rows, texts in read_tables(split, findings):
        if split.format == "arrow":
            check_frame(rows.table.schema, type_, split.columns)
        loaded = Loaded(type_)
        loaded.add(mapper.part(rows.table, rows.numbers, texts))
        yield Chunk({type_.table_key: loaded}, rows.lines, partial(_text_of_row, rows))


# By format, what reads the rows of a table.
_TABLES: Final[Mapping[str, Callable[[Split, Findings], Iterator[Rows]]]] = {
    "parquet": lambda split, _: read_parquet(split),
    "arrow": lambda split, _: read_arrow(split),
    "csv": lambda split, findings: read_csv(split, findings),
}


def read_tables(split: Split, findings: Findings) -> Iterator[tuple[Rows, Collection[str]]]:
    """Yield the rows of a table with its partition columns, and the columns whose text has to be read."""
    for rows in _TABLES[split.format](split, findings):
        table = rows.table
        partitions = _partition_values(split, table.column_names)
        for name, value in partitions.items():
            table = table.append_column(name, pa.repeat(pa.scalar(value, pa.string()), table.num_rows))
        yield replace(rows, table=table), table.column_names if split.format == "csv" else partitions.keys()


def _partition_values(split: Split, names: Sequence[str]) -> dict[str, str | None]:
    """Return the partition columns of a file; a column that the file has as well is an error."""
    values = dict(split.partitions)
    duplicates = values.keys() & set(names)
    if duplicates:
        raise UsageError(
            f"`{min(duplicates)}` is a column of `{split.file}` and a directory above it; drop one of them",
            path=split.file,
            column=min(duplicates),
        )
    parents = {name: value for name, value in split.parent_partitions if name not in names}
    return parents | values


def _text_of_row(rows: Rows, line: int) -> str:
    if line in rows.malformed:
        return rows.malformed[line][:LOAD_REJECTED_CHARACTERS]
    row = int(np.searchsorted(rows.numbers, line))
    record = orjson.dumps(rows.table.slice(row, 1).to_pylist()[0], default=str)
    return record.decode()[:LOAD_REJECTED_CHARACTERS]


def read_parquet(split: Split) -> Iterator[Rows]:
    with split.open() as opened:
        file = pyarrow.parquet.ParquetFile(opened)
        groups = list(range(split.start, split.stop))
        names = without_origin(file.schema_arrow.names, split)
        batches = file.iter_batches(batch_size=_BATCH_ROWS, row_groups=groups, columns=names, use_threads=False)
        yield from _number_rows(batches, split.first_line)


def read_arrow(split: Split) -> Iterator[Rows]:
    """Yield the rows of a frame in memory: a table, or batches."""
    names = without_origin(split.content.schema.names, split)
    batches = split.content if isinstance(split.content, pa.RecordBatchReader) else split.content.to_batches()
    yield from _number_rows((batch.select(names) for batch in batches), split.first_line)


def _number_rows(batches: Iterable[pa.RecordBatch], line: int) -> Iterator[Rows]:
    for batch in batches:
        lines = range(line, line + batch.num_rows)
        yield Rows(pa.Table.from_batches([batch]), np.arange(lines.start, lines.stop), lines, {})
        line = lines.stop
