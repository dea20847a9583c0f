"""Read a split of an input file as chunks of typed rows: lines of NDJSON, or mapped columns of Parquet and CSV.

Holds no more than the size of a split at a time. Lines count from the beginning of the split.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet

from omnigraph.engine.input.column_mapping import ColumnMapper
from omnigraph.engine.input.csv_reader import read_csv
from omnigraph.engine.input.filesystems import open_file
from omnigraph.engine.input.frame_rows import without_origin
from omnigraph.engine.input.line_ranges import read_lines
from omnigraph.engine.input.ndjson.blocks import Loaded
from omnigraph.engine.input.ndjson.reader import decode
from omnigraph.engine.input.rows import Rows
from omnigraph.engine.input.splits import Split
from omnigraph.errors import LimitExceeded, OmniGraphError, UsageError
from omnigraph.lang.catalog import Catalog, TypeKey
from omnigraph.limits import LOAD_CSV_ROW_BYTES_MAX, LOAD_LINE_BYTES_MAX, LOAD_REJECTED_CHARACTERS
from omnigraph.rules.delta import Findings

_BATCH_ROWS: Final = 262_144


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some entities of a split by type, the range of their lines, and a lookup of the text of a line."""

    loaded: Mapping[TypeKey, Loaded]
    lines: range
    text: Callable[[int], str]


def read_split(split: Split, catalog: Catalog, findings: Findings, now_ms: int | None = None) -> Iterator[Chunk]:
    """Yield the valid entities of a split; add violations of the others to the findings.

    `now_ms` is what the default `now()` means: the same in all splits of a load.
    """
    try:
        if split.format == "ndjson":
            yield from _read_ndjson(split, catalog, findings, now_ms)
        else:
            yield from _read_columns(split, catalog, findings, now_ms)
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
    return UsageError(f"cannot read `{split.file}`: {reason}; check the file", path=split.file)


def _read_ndjson(split: Split, catalog: Catalog, findings: Findings, now_ms: int | None) -> Iterator[Chunk]:
    for block in read_lines(split, findings):
        loaded = decode(
            block.complete,
            catalog,
            first_line=block.first,
            findings=findings,
            line_bytes_max=LOAD_LINE_BYTES_MAX,
            now_ms=now_ms,
        )
        yield Chunk(loaded, block.numbers, block.text_of)


def _read_columns(split: Split, catalog: Catalog, findings: Findings, now_ms: int | None) -> Iterator[Chunk]:
    assert split.table_key is not None
    assert split.columns is not None
    type_ = catalog.type_of(split.table_key)
    mapper = ColumnMapper(catalog, type_, split.columns, findings, now_ms)
    for rows, texts in read_tables(split, findings):
        loaded = Loaded(type_)
        loaded.add(mapper.part(rows.table, rows.numbers, texts))
        yield Chunk({type_.table_key: loaded}, rows.lines, partial(_text_of_row, rows))


def read_tables(split: Split, findings: Findings) -> Iterator[tuple[Rows, Collection[str]]]:
    """Yield the rows of a Parquet or CSV file with its partition columns, and the columns whose text has to be read."""
    for rows in read_parquet(split) if split.format == "parquet" else read_csv(split, findings):
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
    line = split.first_line
    with open_file(split.file) as opened:
        file = pyarrow.parquet.ParquetFile(opened)
        groups = list(range(split.start, split.stop))
        names = without_origin(file.schema_arrow.names, split)
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, row_groups=groups, columns=names, use_threads=False):
            lines = range(line, line + batch.num_rows)
            yield Rows(pa.Table.from_batches([batch]), np.arange(lines.start, lines.stop), lines, {})
            line = lines.stop
