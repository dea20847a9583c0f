"""The reference of the command line: the table of the commands, and the arguments and options of each.

Explanations are written by hand in `docs/cli.md`, below the path of their command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from omnigraph.cli.app import build
from omnigraph.cli.commands import COMMANDS, Command
from tools.tables import render_table

# Options that all commands share are described once, by hand.
SHARED = "scope_"
EXAMPLE = re.compile(r"\A\n```sh\n.*?^```\n", re.MULTILINE | re.DOTALL)


def render_commands() -> str:
    """Return the table of the commands."""
    rows = [(f"[`{c.path}`](#{c.path.replace(' ', '-')})", c.summary) for c in COMMANDS]
    return render_table(("Command", "What it does"), rows)


def add_sections(page: str) -> str:
    """Return the page with a section for every command, in the order of the table, after what is not about one."""
    start, *sections = re.split(r"^## (?=omnigraph )", page, flags=re.MULTILINE)
    notes = {path: text for path, _, text in (section.partition("\n") for section in sections)}
    if unknown := notes.keys() - {command.path for command in COMMANDS}:
        raise ValueError(f"these are no commands: {', '.join(sorted(unknown))}")
    items = parameters()
    return start + "\n\n".join(
        render_section(command, items[command.path], notes.get(command.path, "")) for command in COMMANDS
    )


def render_section(command: Command, items: list[Any], notes: str) -> str:
    """Return the section of a command: an example, its options, and what is written about it.

    Notes may begin with a block of examples, which takes the place of the example.
    """
    example = EXAMPLE.match(notes)
    parts = [
        f"## {command.path}",
        example[0].strip() if example else f"```sh\n{command.example}\n```",
        render_options(items),
        notes[example.end() if example else 0 :].strip(),
    ]
    return "\n\n".join(part for part in parts if part)


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


def render_options(items: list[Any]) -> str:
    """Return the table of the arguments and options of a command; empty if it has none."""
    rows = [(f"`{text}`", meaning) for item in items for text, meaning in spellings(item)]
    return render_table(("Argument or option", "Meaning"), rows) if rows else ""


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
        if item.is_flag or item.default in (None, (), "")
        else f" Default: `{getattr(item.default, 'value', item.default)}`."
    )
    yield f"{first}{value}", f"{item.help}{default}"
    yield from ((f"{name}{value}", f"The same as `{first}`.") for name in others)
