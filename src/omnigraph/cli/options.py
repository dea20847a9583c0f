"""Options that several commands share, each said once.

Nothing here may import more than Typer: every command loads it, `--help` included.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """The ways to print the rows of a query."""

    TABLE = "table"
    KV = "kv"
    CSV = "csv"
    JSONL = "jsonl"
    JSON = "json"


class Naming(StrEnum):
    """The schema that an older state is read with."""

    NOW = "now"
    THEN = "then"


class Mode(StrEnum):
    """What an ingest does to entities that exist."""

    APPEND = "append"
    MERGE = "merge"
    OVERWRITE = "overwrite"


Store = Annotated[str | None, typer.Option("--store", metavar="URI", help="The graph, given as an option.")]
Branch = Annotated[str, typer.Option("--branch", metavar="NAME", help="The branch to work on.")]
ReadBranch = Annotated[
    str | None, typer.Option("--branch", metavar="NAME", help="The branch to read; `main` if unset.")
]
Merging = Annotated[Mode, typer.Option("--mode", metavar="NAME", help="append, merge or overwrite; merge if unset.")]
How = Annotated[Mode, typer.Option("--mode", metavar="NAME", help="append, merge or overwrite.")]
From = Annotated[str | None, typer.Option("--from", metavar="NAME", help="Make a missing branch from this one.")]
FromMain = Annotated[str, typer.Option("--from", metavar="NAME", help="Make a missing branch from this one.")]
Snapshot = Annotated[
    str | None, typer.Option("--snapshot", metavar="ID", help="Read the graph as this commit or tag left it.")
]
Names = Annotated[
    Naming,
    typer.Option("--names", metavar="WHEN", help="Read an older state with the names of `now`, or of `then`."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result, or the error, as JSON.")]
Shape = Annotated[Format | None, typer.Option("--format", metavar="NAME", help="table, kv, csv, jsonl or json.")]

Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Which query of the source to run.")]
QueryFile = Annotated[Path | None, typer.Option("--query", metavar="FILE", help="A file of queries.")]
QueryText = Annotated[str | None, typer.Option("-e", "--query-string", metavar="GQ", help="The text of a query.")]
Params = Annotated[str | None, typer.Option("--params", metavar="JSON", help="Parameters, as a JSON object.")]
ParamsFile = Annotated[
    Path | None,
    typer.Option("--params-file", metavar="FILE", help="A file with the parameters; `-` is standard input."),
]
SchemaFile = Annotated[Path, typer.Option("--schema", metavar="FILE", help="The schema to go to.")]
Against = Annotated[
    Path | None, typer.Option("--schema", metavar="FILE", help="The schema that the queries are written for.")
]
DataLoss = Annotated[
    bool,
    typer.Option("--allow-data-loss", help="Make drops final: unreadable at every commit; cleanup removes the bytes."),
]

Kinds = Annotated[list[str] | None, typer.Option("--kind", metavar="NAME", help="Only `node` or only `edge` entities.")]
Types = Annotated[
    list[str] | None, typer.Option("--type", metavar="NAME", help="Only this type; give the option again for more.")
]
Ops = Annotated[
    list[str] | None,
    typer.Option("--op", metavar="NAME", help="Only `insert`, `update` or `delete`; give the option again for more."),
]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", help="One page of at most this many changes.")]
PageToken = Annotated[
    str | None, typer.Option("--page-token", metavar="TOKEN", help="Go on where a page ended inside a commit.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would come out, and write nothing.")]
ResolutionFile = Annotated[
    Path | None,
    typer.Option("--resolutions", metavar="FILE", help="What was decided about conflicts; `-` is standard input."),
]
