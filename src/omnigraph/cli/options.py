"""Options that several commands share.

Imports nothing but Typer, because every command loads it, `--help` included.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

import typer


class Format(StrEnum):
    """Output formats of query results."""

    TABLE = "table"
    KV = "kv"
    CSV = "csv"
    JSONL = "jsonl"
    JSON = "json"


def option(names: str, metavar: str, text: str, **more: Any) -> Any:
    """Describe an option with a value, by its names and the placeholder of the value."""
    return typer.Option(*names.split(), metavar=metavar, help=text, **more)


def switch(names: str, text: str, **more: Any) -> Any:
    """Describe an option without a value."""
    return typer.Option(*names.split(), help=text, **more)


def argument(metavar: str, text: str) -> Any:
    """Describe an argument by its placeholder."""
    return typer.Argument(metavar=metavar, help=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionGroup:
    """Base of the options that several commands share: a command with a parameter of such a type has its fields."""


def is_query_text(text: str) -> bool:
    """Return True for the text of a query; every query has a brace, but for a `delete … where …`."""
    return "{" in text or text.startswith("delete ")


Branch = Annotated[str, option("--branch", "NAME", "Branch to write to.")]
ReadBranch = Annotated[str | None, option("--branch", "NAME", "Branch to read; default `main`.")]
OfCluster = Annotated[
    str | None, option("--cluster", "CLUSTER", "Take what is applied to this cluster; `--graph` chooses one.")
]
CommitId = Annotated[str, argument("ID", "The commit: an id, a tag, a branch or `HEAD~1`.")]
Message = Annotated[str | None, option("-m --message", "TEXT", "Commit message: what the change is for.")]
Snapshot = Annotated[
    str | None, option("--at --snapshot", "ID", "Read the state at this commit, tag, `HEAD~1` or time.")
]
Names = Annotated[
    Literal["now", "then"], option("--names", "WHEN", "With `--at`: type and property names of `now` or `then`.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadState(OptionGroup):
    """The state that a command reads."""

    branch: ReadBranch = None
    at: Snapshot = None
    names: Names = "now"

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of a graph's method."""
        return {"branch": self.branch or "main", "at": self.at, "names": self.names}


Json = Annotated[bool, switch("--json", "Print the result, or the error, as JSON.")]
Shape = Annotated[Format | None, option("--format", "NAME", "Output format: table, kv, csv, jsonl or json.")]

Where = Annotated[Literal["auto", "local", "spark"], option("--engine", "NAME", "Where to run: auto, local or spark.")]
Master = Annotated[str | None, option("--master", "URL", "Spark master; default `local[*]`.")]
Types = Annotated[list[str] | None, option("--type", "NAME", "Only this type; repeatable.")]
DryRun = Annotated[bool, switch("--dry-run", "Show what would happen; write nothing.")]
