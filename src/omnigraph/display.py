"""How values look in an interactive session: tables as text and as HTML, and one-line summaries."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Final

SHOWN_ROWS: Final = 20
_CELL_CHARACTERS: Final = 40
_LINE_CHARACTERS: Final = 120


def text_table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows as aligned text; long cells are cut, and columns that do not fit into a line are left out.

    >>> print(text_table(["name", "age"], [["Ada", 36], ["Bob", None]]))
    name  age
    ----  ----
    Ada   36
    Bob   null
    """
    cells = [[_cut("null" if cell is None else str(cell)) for cell in row] for row in rows]
    widths = [max(len(text) for text in column) for column in zip([_cut(name) for name in names], *cells, strict=True)]
    shown, used = 0, 0
    while shown < len(names) and (not shown or used + widths[shown] <= _LINE_CHARACTERS):
        used += widths[shown] + 2
        shown += 1
    lines = [[_cut(name) for name in names], ["-" * width for width in widths], *cells]
    texts = ["  ".join(text.ljust(width) for text, width in zip(line[:shown], widths, strict=False)) for line in lines]
    more = [f"… and {count_of(len(names) - shown, 'more column')}"] if shown < len(names) else []
    return "\n".join([*(text.rstrip() for text in texts), *more])


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
    """Return text as preformatted HTML."""
    return f"<pre>{html.escape(text)}</pre>"


def count_of(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun.

    >>> count_of(1, "row"), count_of(2_000, "row"), count_of(2, "property", "properties")
    ('1 row', '2,000 rows', '2 properties')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def summarize(value: object, *parts: str | None) -> str:
    """Return a one-line description of a receipt or report; empty parts are left out."""
    return f"<{type(value).__name__}: {', '.join(part for part in parts if part)}>"


def commit_note(commit: object) -> str:
    """Return how a receipt names its commit, which is None if nothing was written."""
    return "nothing written" if commit is None else f"commit {getattr(commit, 'commit_id', commit)}"


def _cut(text: str) -> str:
    line = text.replace("\n", "⏎")
    return line if len(line) <= _CELL_CHARACTERS else f"{line[: _CELL_CHARACTERS - 1]}…"
