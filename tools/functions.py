"""The reference of functions and aggregates in the documentation of the query language."""

from __future__ import annotations

from omnigraph.lang.query.functions import AGGREGATES, FUNCTIONS, SAMPLE, show_forms
from tools.tables import render_table


def render_functions() -> str:
    """Return the tables of functions, one for each group."""
    header = ("Function", "Types", "Meaning", "Example", "Result")
    parts = []
    for group in dict.fromkeys(item.group for item in FUNCTIONS.values()):
        rows = [
            (f"`{item.name}`", show_forms(item.signatures), item.text, f"`{item.example}`", f"`{item.result}`")
            for item in FUNCTIONS.values()
            if item.group == group
        ]
        parts.append(f"**{group.capitalize()}**\n\n{render_table(header, rows)}")
    return "\n\n".join(parts)


def render_aggregates() -> str:
    """Return the table of aggregates."""
    header = ("Aggregate", "Types", "Meaning", "`distinct`", f"Of {', '.join(map(str, SAMPLE))}", "Of nothing")
    rows = [
        (
            f"`{item.usage}`",
            show_forms(item.signatures),
            item.text[0].upper() + item.text[1:],
            "yes" if item.allows_distinct else "no",
            f"`{item.result}`",
            f"`{item.empty}`",
        )
        for item in AGGREGATES.values()
    ]
    return render_table(header, rows)
