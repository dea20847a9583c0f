"""Read a split of an input file as chunks of typed rows: lines of NDJSON, or mapped columns of Parquet and CSV.

Holds no more than the size of a split at a time. Lines count from the beginning of the split.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from omnigraph.engine.input.column_mapping import ColumnMapper
from omnigraph.engine.input.filesystems import open_file, open_stream
from omnigraph.engine.input.formats import reject_other_format
from omnigraph.engine.input.frame_rows import without_origin
from omnigraph.engine.input.ndjson.blocks import Loaded
from omnigraph.engine.input.ndjson.reader import decode, line_too_long
from omnigraph.engine.input.splits import Split
from omnigraph.errors import LimitExceeded, OmniGraphError, UsageError
from omnigraph.lang.catalog import Catalog, TypeKey
from omnigraph.limits import (
    LOAD_CSV_ROW_BYTES_MAX,
    LOAD_LINE_BYTES_MAX,
    LOAD_REJECTED_CHARACTERS,
    LOAD_SPLIT_BYTES,
)
from omnigraph.rules.arrow_typing import Numbers, pc
from omnigraph.rules.delta import Findings, Violation, one_array

_HEAD_BYTES: Final = 1024 * 1024
_NEWLINE: Final = ord("\n")


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows, the line on which each starts, the range of their lines, and the text of malformed rows by line."""

    table: pa.Table
    numbers: Numbers
    lines: range
    malformed: dict[int, str]


class _BlankRows(Enum):
    """What rows without any value are: the CSV reader does not distinguish an empty line from a row of empty fields."""

    EMPTY_LINES = "empty lines"
    ROWS = "rows"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """How a CSV file is written: by default as in RFC 4180, with a header, in UTF-8, separated as its name says.

    A field without quotes that is empty, or that is `null_text`, is null; text in quotes never is.
    """

    separator: str | None = None
    quote: str = '"'
    null_text: str | None = None
    encoding: str | None = None
    has_header: bool = True

    def parse_options(self, split: Split, **options: Any) -> Any:
        separator = split.delimiter if self.separator is None else self.separator
        return pyarrow.csv.ParseOptions(delimiter=separator, quote_char=self.quote, newlines_in_values=True, **options)

    def open(self, split: Split) -> Any:
        """Open a file as a stream of UTF-8."""
        stream = open_stream(split.file, split.compression)
        return stream if self.encoding is None else pa.transcoding_input_stream(stream, self.encoding, "utf-8")


STANDARD_CSV: Final = CsvDialect()


def read_csv(split: Split, findings: Findings, dialect: CsvDialect = STANDARD_CSV) -> Iterator[Rows]:
    """Yield the rows of a file; add ragged rows and invalid UTF-8 to the findings."""
    header, line_count = read_csv_header(split, dialect)
    first = 1 + line_count if dialect.has_header else 1
    return _CsvReader(split, findings, dialect, header, 2 if dialect.has_header else 1, first).batches()


def read_csv_header(split: Split, dialect: CsvDialect = STANDARD_CSV) -> tuple[list[str], int]:
    """Return the names of the columns, `_c0` and so on without a header, and the number of lines of the header."""
    with dialect.open(split) as stream:
        first = bytes(stream.read(_HEAD_BYTES))
    if not first.strip():
        raise UsageError(f"`{split.file}` is empty; a CSV file begins with the names of its columns", path=split.file)
    record = _first_record(first, dialect.quote.encode())
    read = pyarrow.csv.read_csv(io.BytesIO(record + b"\n"), parse_options=dialect.parse_options(split))
    line_count = 1 + record.count(b"\n")
    if not dialect.has_header:
        return [f"_c{index}" for index in range(read.num_columns)], line_count
    try:
        return list(read.column_names), line_count
    except UnicodeDecodeError:
        raise UsageError(
            f"cannot read `{split.file}`: its header is not UTF-8 text; save the file as UTF-8", path=split.file
        ) from None


def _first_record(data: bytes, quote: bytes) -> bytes:
    """Return the first record without its line end; a newline between quotes belongs to a field."""
    end = data.find(b"\n")
    quotes = data.count(quote, 0, max(end, 0))
    while end >= 0 and quotes % 2:
        start, end = end, data.find(b"\n", end + 1)
        quotes += data.count(quote, start, max(end, start))
    return data if end < 0 else data[:end]


@dataclass
class _CsvReader:
    """One pass over a file: the next row and line, the ragged rows not yet reported, and what blank rows are."""

    split: Split
    findings: Findings
    dialect: CsvDialect
    header: list[str]
    next_row: int = 2
    next_line: int = 2
    ragged: list[Any] = field(default_factory=list)
    blank_rows: _BlankRows | None = None

    def batches(self) -> Iterator[Rows]:
        first = 1
        for batch in self._open(self._skip_ragged, is_skipping_empty=False):
            rows = self._rows(pa.Table.from_batches([batch]), first)
            first = rows.lines.stop
            yield rows
        if self.ragged:
            nothing = pa.schema([pa.field(name, pa.binary()) for name in self.header]).empty_table()
            yield self._rows(nothing, first, is_last=True)

    def _open(self, on_ragged: Any, *, is_skipping_empty: bool) -> Iterator[Any]:
        # The schema decides the types, so no type inference; bytes are decoded below to report invalid UTF-8 by row.
        options = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(self.header, pa.binary()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=["", *([] if self.dialect.null_text is None else [self.dialect.null_text])],
        )
        names = None if self.dialect.has_header else self.header
        read = pyarrow.csv.ReadOptions(use_threads=False, block_size=LOAD_CSV_ROW_BYTES_MAX, column_names=names)
        parse = self.dialect.parse_options(
            self.split, ignore_empty_lines=is_skipping_empty, invalid_row_handler=on_ragged
        )
        with self.dialect.open(self.split) as stream:
            source: Any = _UnsplitLineEnds(_MarkedBytes(stream))
            yield from pyarrow.csv.open_csv(source, read, parse, options)

    def _skip_ragged(self, row: Any) -> str:
        self.ragged.append(row)
        return "skip"

    def _rows(self, table: pa.Table, first: int, *, is_last: bool = False) -> Rows:
        numbers, malformed = self._number(table, is_last=is_last)
        rows = Rows(table, numbers, range(first, self.next_line), malformed)
        return self._decode_utf8(self._without_blank(rows))

    def _number(self, table: pa.Table, *, is_last: bool) -> tuple[Numbers, dict[int, str]]:
        """Return the line on which each row starts, and the ragged rows among them by line."""
        # The reader may be ahead of its batch: ragged rows after the batch are left for the next one.
        count = table.num_rows + len(self.ragged)
        row_numbers = np.arange(self.next_row, self.next_row + count)
        is_ragged = np.isin(row_numbers, [row.number for row in self.ragged])
        if not is_last:
            stop = int(np.searchsorted(np.cumsum(~is_ragged), table.num_rows)) + 1 if table.num_rows else 0
            row_numbers, is_ragged = row_numbers[:stop], is_ragged[:stop]
        ragged_count = int(is_ragged.sum())
        skipped, self.ragged = self.ragged[:ragged_count], self.ragged[ragged_count:]
        line_counts = np.ones(len(row_numbers), np.int64)
        line_counts[~is_ragged] += _count_newlines(table)
        line_counts[is_ragged] += np.array([row.text.count("\n") for row in skipped], np.int64)
        starts = self.next_line + np.cumsum(line_counts) - line_counts
        self.next_row += len(row_numbers)
        self.next_line += int(line_counts.sum())
        malformed = {}
        for row, line in zip(skipped, starts[is_ragged].tolist(), strict=True):
            message = f"this row has {row.actual_columns} fields, and the header has {row.expected_columns}; correct it"
            self.findings.add(Violation("N1", message, self.split.table_key, line=line))
            malformed[line] = _MARKED_TEXT.sub("\ufffd", row.text)
        return starts[~is_ragged], malformed

    # -- blank rows --------------------------------------------------------------------------------------------

    def _without_blank(self, rows: Rows) -> Rows:
        """Drop empty lines; if a file has both empty lines and blank rows, report all of them."""
        mask = _is_blank(rows.table)
        if not mask.any():
            return rows
        if self.blank_rows is None:
            self.blank_rows = self._classify_blank_rows()
        if self.blank_rows is _BlankRows.ROWS:
            return rows
        lines = rows.numbers[mask].tolist() if self.blank_rows is _BlankRows.MIXED else []
        for line in lines:
            message = (
                "this is an empty line or a row without any value; the file has both, and they cannot be distinguished."
                " Remove the empty lines"
            )
            self.findings.add(Violation("N1", message, self.split.table_key, line=line))
        return Rows(
            rows.table.filter(pa.array(~mask)),
            rows.numbers[~mask],
            rows.lines,
            rows.malformed | dict.fromkeys(lines, ""),
        )

    def _classify_blank_rows(self) -> _BlankRows:
        """Read the file twice more, with and without empty lines: blank rows remain in both."""

        def skip(_: Any) -> str:
            return "skip"

        with_lines, without = (
            sum(int(_is_blank(batch).sum()) for batch in self._open(skip, is_skipping_empty=is_skipping))
            for is_skipping in (False, True)
        )
        if without == 0:
            return _BlankRows.EMPTY_LINES
        return _BlankRows.ROWS if with_lines == without else _BlankRows.MIXED

    # -- encoding ----------------------------------------------------------------------------------------------

    def _decode_utf8(self, rows: Rows) -> Rows:
        """Decode bytes as UTF-8; report and drop rows that are not."""
        is_bad = np.zeros(rows.table.num_rows, bool)
        for name, column in zip(rows.table.column_names, rows.table.columns, strict=True):
            for row in _invalid_utf8_rows(column):
                if not is_bad[row]:
                    message = f"column `{name}` is not UTF-8 text; save the file as UTF-8"
                    line = int(rows.numbers[row])
                    self.findings.add(Violation("N1", message, self.split.table_key, property=name, line=line))
                is_bad[row] = True
        malformed = rows.malformed | {
            int(rows.numbers[row]): _format_row(rows.table.slice(row, 1)) for row in np.flatnonzero(is_bad).tolist()
        }
        table = rows.table.filter(pa.array(~is_bad)) if is_bad.any() else rows.table
        texts = pa.schema([pa.field(name, pa.string()) for name in table.column_names])
        return Rows(table.cast(texts), rows.numbers[~is_bad], rows.lines, malformed)


# Bytes that are not UTF-8 are marked by characters of the last private plane, which no text has a use for.
_MARK: Final = 0x10FF00
_MARKED: Final = re.compile(rb"\xf4\x8f[\xbe\xbf]")
_MARKED_TEXT: Final = re.compile("[\U0010ff80-\U0010ffff]")
_MARK_ERRORS: Final = "omnigraph-mark"


def _mark_bytes(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "".join(chr(_MARK + byte) for byte in error.object[error.start : error.end]), error.end


codecs.register_error(_MARK_ERRORS, _mark_bytes)


class _MarkedBytes:
    """A stream of UTF-8 in which every byte that is not UTF-8 became a mark.

    Arrow decodes a row with too many or too few fields before it reports it, and fails if it cannot.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")(_MARK_ERRORS)

    def read(self, size: int) -> bytes:
        text = ""
        # The decoder keeps the beginning of a character, and an empty answer would be the end.
        while not text:
            piece = bytes(self._stream.read(size))
            text = self._decoder.decode(piece, final=not piece)
            if not piece:
                break
        return text.encode()


class _UnsplitLineEnds(io.RawIOBase):
    """A stream whose chunks never end between `\\r` and `\\n`.

    Arrow drops a `\\n` that begins a block after a `\\r`, also inside quotes, where both belong to the value.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._carriage_return = b""

    def read(self, size: int = -1) -> bytes:
        piece = self._carriage_return + bytes(self._stream.read(max(size - len(self._carriage_return), 1)))
        self._carriage_return = b""
        if piece.endswith(b"\r") and len(piece) > 1:
            piece, self._carriage_return = piece[:-1], b"\r"
        return piece

    def readable(self) -> bool:
        return True


def _count_newlines(table: pa.Table) -> Numbers:
    """Return the number of newlines within the values of each row."""
    total = np.zeros(table.num_rows, np.int64)
    for values in map(one_array, table.columns):
        data = values.buffers()[2]
        # Most columns have no newline at all, which their bytes show at once.
        if data is not None and (np.frombuffer(data, np.uint8) == _NEWLINE).any():
            total += pc.fill_null(pc.count_substring(values, "\n"), 0).to_numpy(zero_copy_only=False)
    return total


def _is_blank(rows: pa.Table | pa.RecordBatch) -> Any:
    """Return a mask of the rows without any value."""
    masks = [np.asarray(pc.is_null(column), bool) for column in rows.columns]
    return np.logical_and.reduce(masks)


def _invalid_utf8_rows(column: Any) -> list[int]:
    """Return the rows of a column that were not UTF-8; looks at each value only if there are any."""
    data = [chunk.buffers()[2] for chunk in (column.chunks if isinstance(column, pa.ChunkedArray) else [column])]
    if not any(buffer is not None and _MARKED.search(buffer) for buffer in data):
        return []
    return [row for row, value in enumerate(column.to_pylist()) if value is not None and _MARKED.search(value)]


def _format_row(row: pa.Table) -> str:
    values = row.to_pylist()[0]
    return str(
        {name: None if value is None else _MARKED_TEXT.sub("\ufffd", value.decode()) for name, value in values.items()}
    )


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
        yield Chunk(loaded, range(first, line), partial(_text_of_line, buffer, first))


def _text_of_line(buffer: bytes, first: int, line: int) -> str:
    # Called for rejected lines only, so a linear search is fine.
    raw = buffer.split(b"\n", line - first + 1)[line - first]
    # A character takes at most four bytes.
    return raw[: 4 * LOAD_REJECTED_CHARACTERS].decode(errors="replace").rstrip("\r")[:LOAD_REJECTED_CHARACTERS]


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
    line = first_line(split)
    with open_file(split.file) as opened:
        file = pyarrow.parquet.ParquetFile(opened)
        groups = list(range(split.start, split.stop))
        names = without_origin(file.schema_arrow.names, split)
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, row_groups=groups, columns=names, use_threads=False):
            lines = range(line, line + batch.num_rows)
            yield Rows(pa.Table.from_batches([batch]), np.arange(lines.start, lines.stop), lines, {})
            line = lines.stop
