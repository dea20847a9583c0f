"""Options that several commands share.

Imports nothing but Typer, because every command loads it, `--help` included.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer


class Format(StrEnum):
    """Output formats of query results."""

    TABLE = "table"
    KV = "kv"
    CSV = "csv"
    JSONL = "jsonl"
    JSON = "json"


Mode = Literal["append", "merge", "overwrite"]


def is_query_text(text: str) -> bool:
    """Return True for the text of a query; every query has a brace, but for a `delete … where …`."""
    return "{" in text or text.startswith("delete ")


Store = Annotated[str | None, typer.Option("--store", metavar="URI", help="URI of the graph.")]
Branch = Annotated[str, typer.Option("--branch", metavar="NAME", help="Branch to write to.")]
ReadBranch = Annotated[str | None, typer.Option("--branch", metavar="NAME", help="Branch to read; default `main`.")]
Merging = Annotated[
    Mode,
    typer.Option("--mode", metavar="NAME", help="`append` new entities, `merge` by id, or `overwrite` whole types."),
]
From = Annotated[
    str | None, typer.Option("--from", metavar="NAME", help="If the branch does not exist, create it from this one.")
]
OfCluster = Annotated[
    str | None,
    typer.Option("--cluster", metavar="CLUSTER", help="Take what is applied to this cluster; `--graph` chooses one."),
]
Message = Annotated[
    str | None, typer.Option("-m", "--message", metavar="TEXT", help="Commit message: what the change is for.")
]
Snapshot = Annotated[
    str | None,
    typer.Option("--at", "--snapshot", metavar="ID", help="Read the state at this commit, tag, `HEAD~1` or time."),
]
Names = Annotated[
    Literal["now", "then"],
    typer.Option("--names", metavar="WHEN", help="With `--at`: type and property names of `now` or `then`."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result, or the error, as JSON.")]
Shape = Annotated[
    Format | None, typer.Option("--format", metavar="NAME", help="Output format: table, kv, csv, jsonl or json.")
]

Query = Annotated[
    str | None, typer.Argument(metavar="QUERY", help="A `.gq` file, the text of a query, or `-` for standard input.")
]
Name = Annotated[str | None, typer.Argument(metavar="NAME", help="Name of the query to run, if there are several.")]
QueryFile = Annotated[Path | None, typer.Option("--query", metavar="FILE", help="File with queries, or `-`.")]
QueryText = Annotated[str | None, typer.Option("-e", "--query-string", metavar="GQ", help="Text of a query.")]
Params = Annotated[str | None, typer.Option("--params", metavar="JSON", help="Parameters, as a JSON object.")]
ParamsFile = Annotated[
    Path | None,
    typer.Option("--params-file", metavar="FILE", help="File with the parameters; `-` reads standard input."),
]
SchemaFile = Annotated[Path | None, typer.Option("--schema", metavar="FILE", help="The new schema.")]
SchemaArgument = Annotated[
    str | None, typer.Argument(metavar="SCHEMA", help="The file of the schema, instead of `--schema`.")
]
Against = Annotated[Path | None, typer.Option("--schema", metavar="FILE", help="Schema to check the queries against.")]
DataLoss = Annotated[
    bool, typer.Option("--allow-data-loss", help="Allow steps that delete data for good, in history too.")
]

Drops = Annotated[
    bool, typer.Option("--allow-drops", help="Do not ask before types, properties and rules are dropped.")
]

Where = Annotated[
    Literal["auto", "local", "spark"],
    typer.Option("--engine", metavar="NAME", help="Where to run: auto, local or spark."),
]
Master = Annotated[str | None, typer.Option("--master", metavar="URL", help="Spark master; default `local[*]`.")]

Kinds = Annotated[list[str] | None, typer.Option("--kind", metavar="NAME", help="Only `node` or only `edge` entities.")]
Types = Annotated[list[str] | None, typer.Option("--type", metavar="NAME", help="Only this type; repeatable.")]
Ops = Annotated[
    list[str] | None, typer.Option("--op", metavar="NAME", help="Only `insert`, `update` or `delete`; repeatable.")
]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", help="Show at most N changes.")]
PageToken = Annotated[
    str | None,
    typer.Option("--page-token", metavar="TOKEN", help="Continue where the last page ended; `--json` shows the token."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen; write nothing.")]
ResolutionFile = Annotated[
    Path | None,
    typer.Option("--resolutions", metavar="FILE", help="File with conflict resolutions; `-` reads standard input."),
]
Ours = Annotated[bool, typer.Option("--ours", help="Resolve conflicts with the values of the branch that is written.")]
Theirs = Annotated[bool, typer.Option("--theirs", help="Resolve conflicts with the values that are brought in.")]
Take = Annotated[
    list[str] | None,
    typer.Option(
        "--take",
        metavar="TYPE[:ID][.PROPERTY]=SIDE",
        help="Resolve one conflict, of a schema without an id: ours or theirs; repeatable.",
    ),
]
