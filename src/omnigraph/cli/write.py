"""`omnigraph mutate` and `omnigraph ingest`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.options import (
    Actor,
    Branch,
    Json,
    Mode,
    Name,
    Params,
    ParamsFile,
    QueryFile,
    QueryText,
    Quiet,
    Store,
    Uri,
    Yes,
)
from omnigraph.cli.output import plural, print_json
from omnigraph.cli.source import named, parameters, query_source
from omnigraph.cli.target import address, announce, confirm, open_to_write

IfCommit = Annotated[
    str | None,
    typer.Option("--if-commit", metavar="ID", help="Write only while this is the newest commit of the branch."),
]
Data = Annotated[Path, typer.Option("--data", metavar="FILE", help="The NDJSON file to read; `-` is standard input.")]
How = Annotated[Mode, typer.Option("--mode", metavar="NAME", help="append, merge or overwrite.")]
From = Annotated[str | None, typer.Option("--from", metavar="NAME", help="Make a missing branch from this one.")]


def mutate(
    name: Name = None,
    store: Store = None,
    query_file: QueryFile = None,
    text: QueryText = None,
    params: Params = None,
    params_file: ParamsFile = None,
    branch: Branch = "main",
    if_commit: IfCommit = None,
    actor: Actor = None,
    as_json: Json = False,
) -> int:
    source = query_source(query_file, text)
    values = parameters(params, params_file)
    with open_to_write(None, store, actor) as graph, named(source):
        receipt = graph.mutate(source.text, name, values, branch=branch, if_commit=if_commit)
    if as_json:
        print_json(receipt.to_json())
        return 0
    touched = f"{plural(receipt.affected_nodes, 'node')} and {plural(receipt.affected_edges, 'edge')}"
    commit = f"commit {receipt.commit.commit_id}" if receipt.commit else "nothing changed, no commit"
    typer.echo(f"{receipt.query_name}: {touched} on {receipt.branch}, {commit}")
    return 0


def ingest(
    data: Data,
    mode: How,
    uri: Uri = None,
    store: Store = None,
    branch: Branch = "main",
    from_branch: From = None,
    actor: Actor = None,
    yes: Yes = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> int:
    place = address(uri, store)
    announce("ingest", place, quiet=quiet)
    if mode is Mode.OVERWRITE:
        confirm("overwriting types", place, yes=yes, as_json=as_json)
    records = sys.stdin.buffer.read() if str(data) == "-" else data
    with open_to_write(uri, store, actor) as graph:
        receipt = graph.ingest(records, mode=mode.value, branch=branch, from_branch=from_branch)
    if as_json:
        print_json({"uri": graph.uri, **receipt.to_json()})
        return 0
    made = f" (new, from {receipt.base_branch})" if receipt.branch_created else ""
    for label, counts in (("node", receipt.nodes), ("edge", receipt.edges)):
        for type_name, count in sorted(counts.items()):
            typer.echo(f"{label} {type_name}: {count}")
    total = plural(receipt.total_entities, "entity")
    typer.echo(f"{total} on {receipt.branch}{made}, commit {receipt.commit.commit_id}")
    return 0
