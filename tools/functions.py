"""Writes the reference of functions and aggregates into `docs/languages.md`, between its markers."""

from __future__ import annotations

from pathlib import Path

from omnigraph.lang.query.functions import AGGREGATES, FUNCTIONS, SAMPLE, show_forms

PAGE = Path(__file__).parents[1] / "docs" / "languages.md"


def function_tables() -> str:
    """Return the tables of functions that `docs/languages.md` holds, one per group."""
    parts: list[str] = []
    for group in dict.fromkeys(item.group for item in FUNCTIONS.values()):
        parts.append(f"\n**{group.capitalize()}**\n\n")
        parts.append("| Function | Types | Meaning | Example | Result |\n|---|---|---|---|---|\n")
        for item in FUNCTIONS.values():
            if item.group == group:
                forms = show_forms(item.signatures)
                parts.append(f"| `{item.name}` | {forms} | {item.text} | `{item.example}` | `{item.result}` |\n")
    return "".join(parts) + "\n"


def aggregate_table() -> str:
    """Return the table of aggregates that `docs/languages.md` holds."""
    sample = ", ".join(map(str, SAMPLE))
    parts = [f"\n| Aggregate | Types | Meaning | `distinct` | Of {sample} | Of nothing |\n|---|---|---|---|---|---|\n"]
    for item in AGGREGATES.values():
        text = item.text[0].upper() + item.text[1:]
        distinct = "yes" if item.allows_distinct else "no"
        row = (f"`{item.usage}`", show_forms(item.signatures), text, distinct, f"`{item.result}`", f"`{item.empty}`")
        parts.append(f"| {' | '.join(row)} |\n")
    return "".join(parts) + "\n"


TABLES = {"functions": function_tables, "aggregates": aggregate_table}


def split_page(page: str, name: str) -> tuple[str, str, str]:
    """Return the text before a generated part with its first marker, the part, and the rest with its last marker."""
    begin, end = f"<!-- {name}: written by tools/functions.py -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = page.partition(begin)
    part, _, after = rest.partition(end)
    return before + begin, part, end + after


if __name__ == "__main__":
    text = PAGE.read_text()
    for table_name, render in TABLES.items():
        start, _, stop = split_page(text, table_name)
        text = start + render() + stop
    PAGE.write_text(text)
