"""Tables of the documentation that follow from a table in the code: limits, settings, errors and routes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from omnigraph import limits
from omnigraph.errors import ERRORS
from omnigraph.server.handlers.admin import SERVER_ROUTES
from omnigraph.server.routes import ROUTES
from omnigraph.settings import SETTINGS
from omnigraph.store.index.text_analysis import STOP_WORDS

LIMIT: Final = re.compile(r"(?P<name>[A-Z0-9_]+): Final = [^#]+?(?:  #: (?P<meaning>.+))?")


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit as its module declares it: below a heading, with a comment that says what it bounds."""

    heading: str
    name: str
    meaning: str


def render_limits() -> str:
    """Return a section for each group of limits, with a table of their values and of what they bound."""
    source = Path(limits.__file__).read_text(encoding="utf-8")
    parts = []
    for heading, group in groupby(read_limits(source), key=lambda limit: limit.heading):
        rows = [(f"`{limit.name}`", str(getattr(limits, limit.name)), limit.meaning) for limit in group]
        parts.append(f"## {heading}\n\n{render_table(('Name', 'Value', 'What it bounds'), rows)}")
    return "\n\n".join(parts)


def read_limits(source: str) -> Iterator[Limit]:
    """Yield the limits of a module: `# Heading`, then lines `NAME: Final = value  #: meaning`, or the meaning above."""
    heading, above = "", ""
    for line in source.splitlines():
        if line.startswith("#: "):
            above += f" {line[3:]}"
        elif line.startswith("# "):
            heading = line[2:]
        elif match := LIMIT.fullmatch(line):
            yield Limit(heading, match["name"], above.strip() or match["meaning"] or "")
            above = ""


def render_settings() -> str:
    """Return the table of environment variables."""
    rows = []
    for setting in SETTINGS.values():
        choices = f" One of {', '.join(f'`{word}`' for word in setting.choices)}." if setting.choices else ""
        rows.append((f"`{setting.name}`", f"`{setting.default}`" if setting.default else "", setting.summary + choices))
    return render_table(("Variable", "Default", "Meaning"), rows)


def render_errors() -> str:
    """Return the table of error codes."""
    rows = [
        (f"`{code}`", str(kind.http_status), str(kind.exit_status), "yes" if kind.retryable else "no", kind.summary)
        for code, kind in ERRORS.items()
    ]
    return render_table(("Code", "HTTP status", "Exit status", "Retry", "Meaning"), rows)


def render_codes(codes: Mapping[str, str]) -> str:
    """Return the table of the diagnostic codes of a language."""
    return render_table(("Code", "Meaning"), codes.items())


def render_routes() -> str:
    """Return the table of the routes of a graph."""
    rows = [
        (
            f"`{route.method} {route.path.removeprefix('/graphs/{graph_id}').replace(':path', '')}`",
            f"`{route.action}`",
            route.summary,
        )
        for route in ROUTES
    ]
    table = render_table(("Route", "Action", "What it does"), rows)
    return f"{table}\n\nTheir inputs and responses are described in [openapi.json](openapi.json)."


def render_server_routes() -> str:
    """Return the table of the routes of the server itself."""
    rows = [(f"`GET {route.path}`", "no" if route.is_open else "yes", route.summary) for route in SERVER_ROUTES]
    return render_table(("Route", "Token", "What it does"), rows)


def render_stop_words() -> str:
    """Return the stop words of the analyser."""
    return textwrap.fill(", ".join(f"`{word}`" for word in sorted(STOP_WORDS)), 120)


def render_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown.

    >>> print(render_table(("a", "b"), [("1", "2")]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = (f"| {' | '.join(cells)} |" for cells in rows)
    return "\n".join([f"| {' | '.join(header)} |", f"|{'---|' * len(header)}", *lines])
