"""Read a CSV file as string columns, with the line on which each row starts; malformed rows become violations.

Knows the format, not the schema. A file is read block by block.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv

from omnigraph.errors import UsageError
from omnigraph.limits import LOAD_CSV_ROW_BYTES_MAX
from omnigraph.pipeline.bulk_load.splits import Split, delimiter_of
from omnigraph.pipeline.filesystems import open_stream
from omnigraph.rules.arrow_typing import Column, Numbers, pc
from omnigraph.rules.delta import Findings, Violation

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


def read_csv(split: Split, findings: Findings) -> Iterator[Rows]:
    """Yield the rows of a file; add ragged rows and invalid UTF-8 to the findings."""
    reading = _CsvReader(split, findings, _read_header(split))
    yield from reading.batches()


def _read_header(split: Split) -> list[str]:
    with open_stream(split.file, split.compression) as stream:
        first = stream.read(_HEAD_BYTES)
    if not first.strip():
        raise UsageError(f"`{split.file}` is empty; a CSV file begins with the names of its columns", path=split.file)
    parse = pyarrow.csv.ParseOptions(delimiter=delimiter_of(split.file))
    return list(pyarrow.csv.read_csv(io.BytesIO(first.partition(b"\n")[0] + b"\n"), parse_options=parse).column_names)


@dataclass
class _CsvReader:
    """One pass over a file: the next row and line, the ragged rows not yet reported, and what blank rows are."""

    split: Split
    findings: Findings
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
            null_values=[""],
        )
        read = pyarrow.csv.ReadOptions(use_threads=False, block_size=LOAD_CSV_ROW_BYTES_MAX)
        parse = pyarrow.csv.ParseOptions(
            delimiter=delimiter_of(self.split.file),
            newlines_in_values=True,
            ignore_empty_lines=is_skipping_empty,
            invalid_row_handler=on_ragged,
        )
        with open_stream(self.split.file, self.split.compression) as stream:
            source: Any = _UnsplitLineEnds(stream)
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
        skipped, self.ragged = self.ragged[: int(is_ragged.sum())], self.ragged[int(is_ragged.sum()) :]
        line_counts = np.ones(len(row_numbers), np.int64)
        line_counts[~is_ragged] += _count_newlines(table)
        line_counts[is_ragged] += np.array([row.text.count("\n") for row in skipped], np.int64)
        starts = self.next_line + np.cumsum(line_counts) - line_counts
        self.next_row += len(row_numbers)
        self.next_line += int(line_counts.sum())
        for row, line in zip(skipped, starts[is_ragged].tolist(), strict=True):
            message = f"this row has {row.actual_columns} fields, and the header has {row.expected_columns}; correct it"
            self.findings.add(Violation("N1", message, self.split.table_key, line=line))
        return starts[~is_ragged], {
            line: row.text for row, line in zip(skipped, starts[is_ragged].tolist(), strict=True)
        }

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
    for column in table.columns:
        for start, chunk in _chunks(column):
            if (_bytes_of(chunk) == _NEWLINE).any():
                counts = pc.fill_null(pc.count_substring(chunk, "\n"), 0)
                total[start : start + len(chunk)] += counts.to_numpy(zero_copy_only=False)
    return total


def _chunks(column: Any) -> Iterator[tuple[int, Column]]:
    start = 0
    for chunk in column.chunks:
        yield start, chunk
        start += len(chunk)


def _bytes_of(chunk: Column) -> Any:
    """Return the concatenated bytes of all values of an array."""
    data = chunk.buffers()[2]
    return np.frombuffer(data if data is not None else b"", np.uint8)


def _is_blank(rows: pa.Table | pa.RecordBatch) -> Any:
    """Return a mask of the rows without any value."""
    masks = [np.asarray(pc.is_null(column), bool) for column in rows.columns]
    return np.logical_and.reduce(masks)


def _invalid_utf8_rows(column: Any) -> list[int]:
    """Return the rows of a column that are not UTF-8; decodes value by value only if there are any."""
    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:
        return [row for row, value in enumerate(column.to_pylist()) if value is not None and not _is_utf8(value)]
    return []


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _format_row(row: pa.Table) -> str:
    values = row.to_pylist()[0]
    return str({name: value if value is None else value.decode(errors="replace") for name, value in values.items()})
