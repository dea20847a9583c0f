"""Writes the reference of functions into `docs/languages.md`, between its markers."""

from __future__ import annotations

from pathlib import Path

from omnigraph.lang.query.functions import FUNCTIONS, signatures_of

PAGE = Path(__file__).parents[1] / "docs" / "languages.md"
BEGIN, END = "<!-- functions: written by tools/functions.py -->\n", "<!-- end of functions -->\n"


def reference_tables() -> str:
    """Return the tables of functions that `docs/languages.md` holds, one per group."""
    parts: list[str] = []
    for group in dict.fromkeys(item.group for item in FUNCTIONS.values()):
        parts.append(f"\n**{group.capitalize()}**\n\n")
        parts.append("| Function | Types | Meaning | Example | Result |\n|---|---|---|---|---|\n")
        for item in FUNCTIONS.values():
            if item.group == group:
                forms = "; ".join(f"`{form}`" for form in signatures_of(item.name))
                parts.append(f"| `{item.name}` | {forms} | {item.text} | `{item.example}` | `{item.result}` |\n")
    return "".join(parts) + "\n"


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + reference_tables() + END + rest.partition(END)[2])
