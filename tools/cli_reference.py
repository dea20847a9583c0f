"""Rewrites the generated parts of docs/cli.md: the table of the commands, and the arguments and options of each.

`python tools/cli_reference.py`, with the package on the path. Examples and explanations are written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from omnigraph.cli.app import build
from omnigraph.cli.commands import COMMANDS, Command

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
# Options that all commands share are described once, above.
SHARED = "scope_"
OPTIONS = re.compile(r"^\| Argument or option \| Meaning \|\n(?:\|.*\n)+", re.MULTILINE)
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


def parameters() -> dict[str, list[Any]]:
    """Return the arguments and options of every command by its path."""
    root: Any = typer.main.get_command(build([word for command in COMMANDS for word in command.words]))
    found = {}
    for command in COMMANDS:
        owner = root
        for word in command.words:
            owner = owner.commands[word]
        found[command.path] = [
            item for item in owner.params if not item.name.startswith(SHARED) and "--help" not in item.opts
        ]
    return found


def render_commands() -> str:
    """Return the table of the commands."""
    rows = ["| Command | What it does |", "|---|---|"]
    rows += [f"| [`{c.path}`](#{c.path.replace(' ', '-')}) | {c.summary} |" for c in COMMANDS]
    return "\n".join(rows)


def render_options(items: list[Any]) -> str:
    """Return the table of the arguments and options of a command; empty if it has none."""
    rows = [f"| `{text}` | {meaning} |" for item in items for text, meaning in spellings(item)]
    return "\n".join(["| Argument or option | Meaning |", "|---|---|", *rows]) if rows else ""


def spellings(item: Any) -> Iterator[tuple[str, str]]:
    """Yield how a parameter is typed, and its meaning: an argument as its placeholder, an option by each name."""
    if item.param_type_name == "argument":
        text = item.metavar or item.name.upper()
        yield f"{text if item.required else f'[{text}]'}{'…' if item.nargs == -1 else ''}", item.help
        return
    value = "" if item.is_flag else f" {item.metavar or 'VALUE'}"
    # The first name is the one that help shows; Typer lists long names first.
    first, *others = item.opts
    default = (
        ""
        if item.is_flag or item.default in (None, ())
        else f" Default: {getattr(item.default, 'value', item.default)}."
    )
    yield f"{first}{value}", f"{item.help}{default}"
    yield from ((f"{name}{value}", f"The same as `{first}`.") for name in others)


def render_page(page: str) -> str:
    """Return the page with its generated parts made again."""
    start, sections = split_sections(page)
    items = parameters()
    start = TABLE.sub(lambda match: f"{render_commands()}\n", start, count=1)
    by_path = {command.path: command for command in COMMANDS}
    return start + "".join(
        render_section(section, items[path]) if path in by_path else section for path, section in sections
    )


def split_sections(page: str) -> tuple[str, list[tuple[str, str]]]:
    """Return what comes before the first heading, and the sections by their heading."""
    start, *sections = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    return start, [(section.partition("\n")[0].removeprefix("## "), section) for section in sections]


def render_section(section: str, items: list[Any]) -> str:
    """Return a section with the table of its options, which comes after the first example."""
    fence = re.search(r"^```sh\n.*?^```\n", section, re.MULTILINE | re.DOTALL)
    assert fence is not None, f"an example is missing: {section[:60]}"
    rest = OPTIONS.sub("", section[fence.end() :], count=1)
    parts = [section[: fence.end()].rstrip(), render_options(items), rest.strip("\n")]
    return "\n\n".join(part for part in parts if part) + section[len(section.rstrip("\n")) :]


def missing_sections(page: str) -> Iterator[Command]:
    """Yield the commands that have no section."""
    written = {path for path, _ in split_sections(page)[1]}
    yield from (command for command in COMMANDS if command.path not in written)


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for command in missing_sections(page):
        page = f"{page.rstrip()}\n\n## {command.path}\n\n```sh\n{command.example}\n```\n"
    PAGE.write_text(render_page(page), encoding="utf-8")


if __name__ == "__main__":
    main()
