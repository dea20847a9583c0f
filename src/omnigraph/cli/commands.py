"""The table of commands: what the command line has, in one place.

`docs/cli.md` is checked against it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from omnigraph.cli.lint import lint
from omnigraph.cli.schema import plan
from omnigraph.cli.version import version


@dataclass(frozen=True, slots=True)
class Command:
    """One command: the words that call it, the function that does it, and an example."""

    words: tuple[str, ...]
    run: Callable[..., int]
    summary: str
    example: str

    @property
    def path(self) -> str:
        return " ".join(("omnigraph", *self.words))


GROUPS = {"schema": "Look at schemas and plan their changes."}

COMMANDS = (
    Command(
        ("lint",),
        lint,
        "Check a schema and the queries written for it, without a graph.",
        "omnigraph lint --schema schema.pg --query queries.gq",
    ),
    Command(
        ("schema", "plan"),
        plan,
        "Show the steps from one schema to another, without a graph.",
        "omnigraph schema plan --schema new.pg --against old.pg",
    ),
    Command(("version",), version, "Print the release.", "omnigraph version"),
)
