"""`omnigraph mutate`, and the load of one file in one small write."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.app import Writes
from omnigraph.cli.options import (
    Branch,
    DryRun,
    Json,
    Message,
    Mode,
    Name,
    Params,
    ParamsFile,
    Query,
    QueryFile,
    QueryText,
)
from omnigraph.cli.output import echo, plural, print_json
from omnigraph.cli.query_source import connect_stored_queries, name_diagnostics, query_source, read_parameters
from omnigraph.errors import UsageError

if TYPE_CHECKING:
    from omnigraph.cli.target import Target

EMPTY = "the input has no entities to write, no commit"
IfCommit = Annotated[
    str | None,
    typer.Option("--if-commit", metavar="ID", help="Write only if this is the head of the branch."),
]


def mutate(
    target: Writes,
    query: Query = None,
    name: Name = None,
    query_file: QueryFile = None,
    text: QueryText = None,
    params: Params = None,
    params_file: ParamsFile = None,
    branch: Branch = "main",
    if_commit: IfCommit = None,
    message: Message = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> int:
    values = read_parameters(params, params_file)
    if name is not None and query is None and query_file is None and text is None:
        if dry_run:
            raise UsageError("a stored mutation has no dry run; give its text or file")
        with connect_stored_queries(target, name) as served:
            receipt = served.invoke_mutation(name, values, branch=branch, if_commit=if_commit, message=message)
    else:
        source = query_source(query, query_file, text)
        with target.open_to_write() as graph, name_diagnostics(source):
            receipt = graph.mutate(
                source, values, name=name, branch=branch, if_commit=if_commit, message=message, dry_run=dry_run
            )
    if as_json:
        print_json(receipt.to_json())
        return 0
    touched = f"{plural(receipt.affected_nodes, 'node')} and {plural(receipt.affected_edges, 'edge')}"
    nothing = "dry run, nothing was written" if dry_run else "nothing changed, no commit"
    commit = f"commit {receipt.commit.commit_id}" if receipt.commit else nothing
    echo(f"{receipt.query_name}: {touched} on {receipt.branch}, {commit}")
    return 0


def ingest_file(
    target: Target,
    files: Sequence[str],
    mode: Mode,
    branch: str,
    from_branch: str | None,
    message: str | None,
    *,
    as_json: bool,
) -> int:
    """Load one NDJSON file in one small write, and print the receipt."""
    if len(files) != 1:
        raise UsageError(
            f"one file is loaded at a time, but {len(files)} were given; write `load GRAPH FILE`, or join the files"
        )
    records = sys.stdin.buffer.read() if files[0] == "-" else Path(files[0])
    with target.open_to_write() as graph:
        receipt = graph.ingest(records, mode=mode.value, branch=branch, from_branch=from_branch, message=message)
    if as_json:
        print_json({"uri": graph.uri, **receipt.to_json()})
        return 0
    created = f" (new, from {receipt.base_branch})" if receipt.branch_created else ""
    for label, counts in (("node", receipt.nodes), ("edge", receipt.edges)):
        for type_name, count in sorted(counts.items()):
            echo(f"{label} {type_name}: {count}")
    total = plural(receipt.total_entities, "entity")
    commit = f"commit {receipt.commit.commit_id}" if receipt.commit else EMPTY
    echo(f"{total} on {receipt.branch}{created}, {commit}")
    return 0
