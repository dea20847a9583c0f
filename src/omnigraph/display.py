"""How values look in an interactive session: tables as text and as HTML, and one-line summaries."""

from __future__ import annotations

import html
import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from omnigraph.limits import COLUMN_CHARACTERS_MIN, TABLE_CELL_CHARACTERS_MAX

SHOWN_ROWS: Final = 20
_CELL_CHARACTERS: Final = 40
_LINE_CHARACTERS: Final = 120


@dataclass(frozen=True, slots=True)
class Cells:
    """The width of table cells, and whether longer values are wrapped or truncated."""

    width: int = TABLE_CELL_CHARACTERS_MAX
    wraps: bool = False

    def lines(self, value: object, width: int | None = None) -> list[str]:
        text = printable(format_value(value))
        width = self.width if width is None else min(width, self.width)
        if not self.wraps:
            return [_fit(truncate(text, self.width), width)]
        return [text[start : start + width] for start in range(0, max(len(text), 1), width)]


TRUNCATED: Final = Cells()


def table_lines(
    columns: Sequence[str], rows: Iterable[Sequence[object]], cells: Cells = TRUNCATED, line_width: int | None = None
) -> Iterator[str]:
    """Yield aligned columns, at most `line_width` wide: numbers to the right, long values cut or wrapped.

    >>> print("\\n".join(table_lines(["name", "n"], [["ann", 5], ["bo", None]])))
    name  n
    ----  ----
    ann      5
    bo    null
    """
    values = [list(row) for row in rows]
    widths = _column_widths(columns, values, cells)
    if line_width is not None:
        widths = _shrink(widths, line_width - 2 * (len(widths) - 1))
    texts = [list(map(cells.lines, row, widths)) for row in values]
    yield "  ".join(map(pad_right, map(_fit, columns, widths), widths)).rstrip()
    yield "  ".join("-" * width for width in widths)
    for row, parts_of_cells in zip(values, texts, strict=True):
        for parts in zip_longest(*parts_of_cells, fillvalue=""):
            yield "  ".join(map(_align, row, parts, widths)).rstrip()


def _column_widths(columns: Sequence[str], rows: Sequence[Sequence[object]], cells: Cells) -> list[int]:
    cell_widths = ([max(map(display_width, cells.lines(value))) for value in row] for row in rows)
    return list(map(max, zip(map(display_width, columns), *cell_widths, strict=True)))


def text_table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows as aligned text; long cells are cut, and columns that do not fit into a line are left out.

    >>> print(text_table(["name", "age"], [["Ada", 36], ["Bob", None]]))
    name  age
    ----  ----
    Ada     36
    Bob   null
    """
    cells = Cells(_CELL_CHARACTERS)
    values = [[cell if cell is None or isinstance(cell, int | float) else str(cell) for cell in row] for row in rows]
    shown, used = 0, 0
    for width in _column_widths(names, values, cells):
        used += width + 2
        if shown and used - 2 > _LINE_CHARACTERS:
            break
        shown += 1
    lines = table_lines(
        [truncate(name, _CELL_CHARACTERS) for name in names[:shown]], (row[:shown] for row in values), cells
    )
    more = [f"… and {count_of(len(names) - shown, 'more column')}"] if shown < len(names) else []
    return "\n".join([*lines, *more])


def html_table(names: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> str:
    """Return rows as an HTML table, with a note below it."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{'' if cell is None else html.escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    below = f"<p>{html.escape(note)}</p>" if note else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"


def html_text(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"


def count_of(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> count_of(1, "row"), count_of(2_000, "row"), count_of(2, "property")
    ('1 row', '2,000 rows', '2 properties')
    """
    return f"{count:,} {inflect(noun, count)}"


def inflect(noun: str, count: int) -> str:
    """Return a noun in the singular or plural.

    >>> inflect("type", 1), inflect("type", 2), inflect("query", 2), inflect("index", 0)
    ('type', 'types', 'queries', 'indexes')
    """
    if count == 1:
        return noun
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}{'es' if noun.endswith('x') else 's'}"


def summarize(value: object, *parts: str | None) -> str:
    """Return a one-line description of a receipt or report; empty parts are left out."""
    return f"<{type(value).__name__}: {', '.join(part for part in parts if part)}>"


def commit_note(commit: object) -> str:
    """Return how a receipt names its commit, which is None if nothing was written."""
    return "nothing written" if commit is None else f"commit {getattr(commit, 'commit_id', commit)}"


def _shrink(widths: Sequence[int], available: int) -> list[int]:
    """Return widths that fit; only the widest columns are cut, all to the same width.

    >>> _shrink([4, 30, 50], 44), _shrink([4, 5], 44)
    ([4, 20, 20], [4, 5])
    """
    if sum(widths) <= available:
        return list(widths)
    shrunk, left = list(widths), max(available, COLUMN_CHARACTERS_MIN * len(widths))
    for rank, index in enumerate(sorted(range(len(widths)), key=widths.__getitem__)):
        shrunk[index] = min(widths[index], left // (len(widths) - rank))
        left -= shrunk[index]
    return shrunk


def _fit(text: str, width: int) -> str:
    """Cut a text to a number of places on the terminal, where some characters take two.

    >>> _fit("ecosystem", 5), _fit("日本語", 5), _fit("name", 4)
    ('ecos…', '日本…', 'name')
    """
    if display_width(text) <= width:
        return text
    while text and display_width(text) >= width:
        text = text[:-1]
    return f"{text}…"


def format_value(value: object) -> str:
    """Format a value: strings unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def printable(text: str) -> str:
    """Return a text on one line, without the control characters that a terminal would obey.

    >>> printable("a\\x1b[31m\\nb")
    'a [31m b'
    """
    return "".join(character if character.isprintable() else " " for character in text)


def truncate(text: str, width: int = TABLE_CELL_CHARACTERS_MAX) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def display_width(text: str) -> int:
    """Return how many places a text takes on a terminal."""
    return sum(
        0 if unicodedata.combining(character) else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )


def pad_right(text: str, width: int) -> str:
    return text + " " * (width - display_width(text))


def _align(value: object, text: str, width: int) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return " " * (width - display_width(text)) + text if is_number else pad_right(text, width)
