"""The reader of CSV: RFC 4180 in UTF-8, or another dialect; every row has its line, and malformed rows are reported."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv

from omnigraph.engine.input.csv_bytes import MarkedBytes, UnsplitLineEnds, find_marked, without_marks
from omnigraph.engine.input.filesystems import open_stream
from omnigraph.engine.input.rows import Rows
from omnigraph.engine.input.splits import Split
from omnigraph.errors import UsageError
from omnigraph.limits import LOAD_CSV_ROW_BYTES_MAX
from omnigraph.rules.arrow_typing import Numbers, pc
from omnigraph.rules.delta import Findings, Violation, one_array

_HEAD_BYTES: Final = 1024 * 1024
_NEWLINE: Final = ord("\n")


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


class _BlankRows(Enum):
    """What rows without any value are: the CSV reader does not distinguish an empty line from a row of empty fields."""

    EMPTY_LINES = "empty lines"
    ROWS = "rows"
    MIXED = "mixed"


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
            source: Any = UnsplitLineEnds(MarkedBytes(stream))
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
            malformed[line] = without_marks(row.text)
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
            for row in find_marked(column):
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


def _format_row(row: pa.Table) -> str:
    values = row.to_pylist()[0]
    return str({name: None if value is None else without_marks(value.decode()) for name, value in values.items()})
