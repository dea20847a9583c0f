"""Options that several commands share.

Imports nothing but Typer, because every command loads it, `--help` included.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """Output formats of query results."""

    TABLE = "table"
    KV = "kv"
    CSV = "csv"
    JSONL = "jsonl"
    JSON = "json"


class Naming(StrEnum):
    """Which type and property names a past state is read with."""

    NOW = "now"
    THEN = "then"


class Mode(StrEnum):
    """How an ingest treats existing entities."""

    APPEND = "append"
    MERGE = "merge"
    OVERWRITE = "overwrite"


Store = Annotated[str | None, typer.Option("--store", metavar="URI", help="URI of the graph.")]
Branch = Annotated[str, typer.Option("--branch", metavar="NAME", help="Branch to work on.")]
ReadBranch = Annotated[str | None, typer.Option("--branch", metavar="NAME", help="Branch to read; default `main`.")]
Merging = Annotated[Mode, typer.Option("--mode", metavar="NAME", help="append, merge or overwrite; default merge.")]
From = Annotated[str | None, typer.Option("--from", metavar="NAME", help="Create a missing branch from this one.")]
Snapshot = Annotated[
    str | None, typer.Option("--at", "--snapshot", metavar="ID", help="Read the state at this commit, tag or time.")
]
Names = Annotated[
    Naming,
    typer.Option("--names", metavar="WHEN", help="Read a past state with the names of `now` or of `then`."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result or error as JSON.")]
Shape = Annotated[Format | None, typer.Option("--format", metavar="NAME", help="table, kv, csv, jsonl or json.")]

Name = Annotated[str | None, typer.Argument(metavar="NAME", help="Name of the query to run.")]
QueryFile = Annotated[Path | None, typer.Option("--query", metavar="FILE", help="File with queries.")]
QueryText = Annotated[str | None, typer.Option("-e", "--query-string", metavar="GQ", help="Query text.")]
Params = Annotated[str | None, typer.Option("--params", metavar="JSON", help="Parameters, as a JSON object.")]
ParamsFile = Annotated[
    Path | None,
    typer.Option("--params-file", metavar="FILE", help="File with the parameters; `-` reads standard input."),
]
SchemaFile = Annotated[Path, typer.Option("--schema", metavar="FILE", help="The new schema.")]
Against = Annotated[Path | None, typer.Option("--schema", metavar="FILE", help="Schema to check the queries against.")]
DataLoss = Annotated[
    bool,
    typer.Option("--allow-data-loss", help="Drop data for good, also from history; cleanup deletes the bytes."),
]

Kinds = Annotated[list[str] | None, typer.Option("--kind", metavar="NAME", help="Only `node` or only `edge` entities.")]
Types = Annotated[list[str] | None, typer.Option("--type", metavar="NAME", help="Only this type; repeatable.")]
Ops = Annotated[
    list[str] | None,
    typer.Option("--op", metavar="NAME", help="Only `insert`, `update` or `delete`; repeatable."),
]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", help="Return one page of at most N changes.")]
PageToken = Annotated[
    str | None,
    typer.Option("--page-token", metavar="TOKEN", help="Continue inside a commit, from the token of the last page."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Report what would happen; write nothing.")]
ResolutionFile = Annotated[
    Path | None,
    typer.Option("--resolutions", metavar="FILE", help="File with conflict resolutions; `-` reads standard input."),
]
Ours = Annotated[bool, typer.Option("--ours", help="Resolve conflicts with the values of the branch merged into.")]
Theirs = Annotated[bool, typer.Option("--theirs", help="Resolve conflicts with the values of the merged branch.")]
Take = Annotated[
    list[str] | None,
    typer.Option("--take", metavar="TYPE:ID[.PROPERTY]=SIDE", help="Resolve one conflict: ours or theirs; repeatable."),
]
