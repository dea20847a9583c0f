"""Writes the reference of functions into `docs/languages.md`, between its markers."""

from __future__ import annotations

from pathlib import Path

from omnigraph.lang.query.functions import reference_tables

PAGE = Path(__file__).parents[1] / "docs" / "languages.md"
BEGIN, END = "<!-- functions: written by tools/functions.py -->\n", "<!-- end of functions -->\n"

if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + reference_tables() + END + rest.partition(END)[2])
