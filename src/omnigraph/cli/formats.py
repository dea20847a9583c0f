"""Rows in five formats: a table or key-value blocks for people, CSV, JSON lines or JSON for programs.

Pure text; it takes rows as the engine spells them in JSON.
"""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any, Final

from omnigraph.cli.options import Format
from omnigraph.limits import TABLE_CELL_CHARACTERS_MAX

Row = Mapping[str, Any]
Metadata = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Cells:
    """How wide a cell of a table may be, and whether what does not fit goes on below or is cut."""

    width: int = TABLE_CELL_CHARACTERS_MAX
    wraps: bool = False

    def lines(self, value: object) -> list[str]:
        # A line break or a control character inside a cell would tear the table apart.
        text = "".join(one if one.isprintable() else " " for one in plain(value))
        if not self.wraps:
            return [cut(text, self.width)]
        return [text[start : start + self.width] for start in range(0, max(len(text), 1), self.width)]


CUT: Final = Cells()


def render(
    shape: Format, columns: Sequence[str], rows: Sequence[Row], metadata: Metadata, cells: Cells = CUT
) -> Iterator[str]:
    """Yield the lines of a result in one format; `cells` are those of a table."""
    if shape is Format.TABLE:
        return _table(columns, rows, metadata, cells)
    return _RENDERERS[shape](columns, rows, metadata)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], cells: Cells = CUT) -> Iterator[str]:
    """Yield aligned columns; numbers to the right, long values cut or wrapped.

    >>> print("\\n".join(table(["name", "n"], [["ann", 5], ["bo", None]])))
    name  n
    ----  ----
    ann      5
    bo    null
    """
    values = [list(row) for row in rows]
    texts = [[cells.lines(value) for value in row] for row in values]
    told = ([max(map(_width, one)) for one in row] for row in texts)
    widths = list(map(max, zip(map(_width, columns), *told, strict=True)))
    yield "  ".join(map(_left, columns, widths)).rstrip()
    yield "  ".join("-" * width for width in widths)
    for row, lines in zip(values, texts, strict=True):
        for parts in zip_longest(*lines, fillvalue=""):
            yield "  ".join(map(_aligned, row, parts, widths)).rstrip()


def plain(value: object) -> str:
    """Return a value as people read it: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def cut(text: str, width: int = TABLE_CELL_CHARACTERS_MAX) -> str:
    """Return a text, or the beginning of a long one."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def when(microseconds: object) -> str:
    """Return a point in time as people read it.

    >>> when(1_700_000_000_000_000)
    '2023-11-14T22:13:20.000+00:00'
    """
    assert isinstance(microseconds, int)
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC).isoformat(timespec="milliseconds")


def _table(columns: Sequence[str], rows: Sequence[Row], metadata: Metadata, cells: Cells) -> Iterator[str]:
    yield from table(columns, ([row[name] for name in columns] for row in rows), cells)
    yield f"({metadata['row_count']} row{'' if metadata['row_count'] == 1 else 's'})"


def _kv(columns: Sequence[str], rows: Sequence[Row], metadata: Metadata) -> Iterator[str]:
    width = max(map(_width, columns), default=0)
    for number, row in enumerate(rows):
        if number:
            yield ""
        yield from (f"{_left(name, width)}  {plain(row[name])}" for name in columns)


def _csv(columns: Sequence[str], rows: Sequence[Row], metadata: Metadata) -> Iterator[str]:
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(["" if row[name] is None else plain(row[name]) for name in columns] for row in rows)
    yield lines.getvalue().removesuffix("\n")


def _jsonl(columns: Sequence[str], rows: Sequence[Row], metadata: Metadata) -> Iterator[str]:
    shown = ("query_name", "target", "row_count")
    yield json.dumps({"kind": "metadata", **{name: metadata[name] for name in shown}}, ensure_ascii=False)
    yield from (json.dumps(row, ensure_ascii=False) for row in rows)


def _json(columns: Sequence[str], rows: Sequence[Row], metadata: Metadata) -> Iterator[str]:
    yield json.dumps({**metadata, "columns": list(columns), "rows": list(rows)}, indent=2, ensure_ascii=False)


_RENDERERS: Final[Mapping[Format, Callable[[Sequence[str], Sequence[Row], Metadata], Iterator[str]]]] = {
    Format.KV: _kv,
    Format.CSV: _csv,
    Format.JSONL: _jsonl,
    Format.JSON: _json,
}


def _width(text: str) -> int:
    return sum(0 if unicodedata.combining(one) else 1 + (unicodedata.east_asian_width(one) in "WF") for one in text)


def _left(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def _aligned(value: object, text: str, width: int) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return " " * (width - _width(text)) + text if is_number else _left(text, width)
