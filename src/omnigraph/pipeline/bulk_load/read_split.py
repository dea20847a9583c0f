"""Read a split of an input file as chunks of typed rows: lines of NDJSON, or mapped columns of Parquet and CSV.

Holds no more than the size of a split at a time. Lines count from the beginning of the split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet

from omnigraph.engine.write.ingest import reject_other_format
from omnigraph.engine.write.ndjson.blocks import Loaded
from omnigraph.engine.write.ndjson.reader import decode, line_too_long
from omnigraph.errors import LimitExceeded, OmniGraphError, UsageError
from omnigraph.lang.catalog import Catalog, TypeKey
from omnigraph.limits import (
    LOAD_CSV_ROW_BYTES_MAX,
    LOAD_LINE_BYTES_MAX,
    LOAD_REJECTED_CHARACTERS,
    LOAD_SPLIT_BYTES,
)
from omnigraph.pipeline.bulk_load.column_mapping import ColumnMapper
from omnigraph.pipeline.bulk_load.csv_rows import Rows, read_csv
from omnigraph.pipeline.bulk_load.splits import Split
from omnigraph.pipeline.filesystems import open_file, open_stream
from omnigraph.rules.arrow_typing import Numbers
from omnigraph.rules.delta import Findings

_STEP_BYTES: Final = 1024 * 1024
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


def first_line(split: Split) -> int:
    """Return the number of the first line of a split: 1 only at the start of a file, where a byte order mark may be."""
    return 1 if split.is_first else 2


def _read_ndjson(split: Split, catalog: Catalog, findings: Findings, now_ms: int | None) -> Iterator[Chunk]:
    line = first_line(split)
    for buffer, is_cut in read_lines(split):
        first = line
        if first == 1:
            reject_other_format(buffer, split.file)
        line += buffer.count(b"\n") + (not buffer.endswith(b"\n") and bool(buffer))
        complete = buffer
        if is_cut:
            # The last line is truncated.
            complete = buffer[: buffer.rfind(b"\n") + 1]
            findings.add(line_too_long(line - 1, LOAD_LINE_BYTES_MAX))
        loaded = decode(
            complete,
            catalog,
            first_line=first,
            findings=findings,
            line_bytes_max=LOAD_LINE_BYTES_MAX,
            now_ms=now_ms,
        )
        yield Chunk(loaded, range(first, line), _line_text_lookup(buffer, first))


def _line_text_lookup(buffer: bytes, first: int) -> Callable[[int], str]:
    def text(line: int) -> str:
        # Called for rejected lines only, so a linear search is fine.
        raw = buffer.split(b"\n", line - first + 1)[line - first]
        # A character takes at most four bytes.
        return raw[: 4 * LOAD_REJECTED_CHARACTERS].decode(errors="replace").rstrip("\r")[:LOAD_REJECTED_CHARACTERS]

    return text


def read_lines(split: Split) -> Iterator[tuple[bytes, bool]]:
    """Yield blocks of complete lines, and whether the last line is too long and was truncated."""
    if split.compression is None:
        yield _read_byte_range(split)
        return
    if not split.size:
        raise UsageError(f"`{split.file}` is empty, so it is not a compressed file; check it", path=split.file)
    with open_stream(split.file, split.compression) as stream:
        unfinished: list[bytes] = []
        size = 0
        while piece := stream.read(LOAD_SPLIT_BYTES):
            head, end, tail = piece.rpartition(b"\n")
            if end and size > LOAD_LINE_BYTES_MAX:
                yield _truncate_line(unfinished), True
                unfinished, size = [], 0
                _, has_more, head = head.partition(b"\n")
                end = end if has_more else b""
            if end:
                yield b"".join((*unfinished, head, end)), False
                unfinished, size = [], 0
            if size <= LOAD_LINE_BYTES_MAX:
                unfinished.append(tail)
            size += len(tail)
        if size > LOAD_LINE_BYTES_MAX:
            yield _truncate_line(unfinished), True
        elif size:
            yield b"".join(unfinished), False


def _truncate_line(pieces: Sequence[bytes]) -> bytes:
    """Return as much of an oversized line as a report shows."""
    return b"".join(piece[: 4 * LOAD_REJECTED_CHARACTERS] for piece in pieces[:1])


def _read_byte_range(split: Split) -> tuple[bytes, bool]:
    """Return the lines that start within the split, the last one up to its end, and whether that was truncated."""
    with open_file(split.file) as file:
        # The byte before the split says whether a line starts at its first byte.
        begin = max(split.start - 1, 0)
        data: bytes = file.read_at(split.stop - begin, begin)
        if split.start:
            data = data.partition(b"\n")[2]
        if not data or data.endswith(b"\n"):
            return data, False
        end = _find_line_end(file, split.stop)
        if end is None:
            last = data.rfind(b"\n") + 1
            return data[:last] + _truncate_line([data[last:]]), True
        return b"".join((data, file.read_at(end - split.stop, split.stop))), False


def _find_line_end(file: Any, start: int) -> int | None:
    """Return the end of the line that continues at `start`; None if the line is too long."""
    for position in range(start, start + LOAD_LINE_BYTES_MAX + 2, _STEP_BYTES):
        piece: bytes = file.read_at(_STEP_BYTES, position)
        newline = piece.find(b"\n")
        if newline >= 0 or len(piece) < _STEP_BYTES:
            return position + (newline + 1 if newline >= 0 else len(piece))
    return None


def _read_columns(split: Split, catalog: Catalog, findings: Findings, now_ms: int | None) -> Iterator[Chunk]:
    assert split.table_key is not None
    assert split.columns is not None
    type_ = catalog.type_of(split.table_key)
    mapper = ColumnMapper(catalog, type_, split.columns, findings, is_text=split.format == "csv", now_ms=now_ms)
    for rows in read_parquet(split) if split.format == "parquet" else read_csv(split, findings):
        table = rows.table
        partitions = partition_values(split, table.column_names)
        for name, value in partitions.items():
            table = table.append_column(name, pa.repeat(pa.scalar(value, pa.string()), table.num_rows))
        loaded = Loaded(type_)
        loaded.add(mapper.part(table, rows.numbers, partitions.keys()))
        yield Chunk({type_.table_key: loaded}, rows.lines, _row_text_lookup(table, rows.numbers, rows.malformed))


def partition_values(split: Split, names: Sequence[str]) -> dict[str, str | None]:
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


def _row_text_lookup(table: pa.Table, numbers: Numbers, malformed: Mapping[int, str]) -> Callable[[int], str]:
    def text(line: int) -> str:
        if line in malformed:
            return malformed[line][:LOAD_REJECTED_CHARACTERS]
        row = int(np.searchsorted(numbers, line))
        record = orjson.dumps(table.slice(row, 1).to_pylist()[0], default=str)
        return record.decode()[:LOAD_REJECTED_CHARACTERS]

    return text


def read_parquet(split: Split) -> Iterator[Rows]:
    line = first_line(split)
    with open_file(split.file) as opened:
        file = pyarrow.parquet.ParquetFile(opened)
        groups = list(range(split.start, split.stop))
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, row_groups=groups, use_threads=False):
            lines = range(line, line + batch.num_rows)
            yield Rows(pa.Table.from_batches([batch]), np.arange(lines.start, lines.stop), lines, {})
            line = lines.stop
