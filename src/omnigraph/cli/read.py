"""`omnigraph query` and `omnigraph explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.formats import render
from omnigraph.cli.load import Engine, Master, Where
from omnigraph.cli.options import (
    Format,
    Json,
    Name,
    Params,
    ParamsFile,
    QueryFile,
    QueryText,
    ReadBranch,
    Shape,
    Snapshot,
    Store,
)
from omnigraph.cli.output import print_json
from omnigraph.cli.source import named, parameters, query_source
from omnigraph.cli.target import open_to_read
from omnigraph.errors import UsageError

Profile = Annotated[bool, typer.Option("--profile", help="Run the query, and add what really happened.")]


def query(
    name: Name = None,
    store: Store = None,
    query_file: QueryFile = None,
    text: QueryText = None,
    params: Params = None,
    params_file: ParamsFile = None,
    branch: ReadBranch = None,
    snapshot: Snapshot = None,
    engine: Where = Engine.AUTO,
    master: Master = None,
    shape: Shape = Format.TABLE,
    as_json: Json = False,
) -> int:
    source = query_source(query_file, text)
    values = parameters(params, params_file)
    on_branch = _one_target(branch, snapshot)
    with open_to_read(None, store) as graph, named(source):
        if engine is Engine.SPARK or master is not None:
            from omnigraph.pipeline.query import collect
            from omnigraph.pipeline.session import session

            result = collect(graph, source.text, name, values, branch=on_branch, at=snapshot, spark=session(master))
        else:
            result = graph.query(source.text, name, values, branch=on_branch, at=snapshot)
        rows = result.to_json_rows()
        metadata = {
            "query_name": result.query_name,
            "target": {"snapshot": snapshot} if snapshot else {"branch": on_branch},
            "row_count": len(rows),
            "graph_commit_id": result.graph_commit_id,
        }
    for line in render(Format.JSON if as_json else shape, list(result.columns), rows, metadata):
        typer.echo(line)
    return 0


def explain(
    name: Name = None,
    store: Store = None,
    query_file: QueryFile = None,
    text: QueryText = None,
    params: Params = None,
    params_file: ParamsFile = None,
    branch: ReadBranch = None,
    snapshot: Snapshot = None,
    profile: Profile = False,
    as_json: Json = False,
) -> int:
    source = query_source(query_file, text)
    values = parameters(params, params_file)
    on_branch = _one_target(branch, snapshot)
    with open_to_read(None, store) as graph, named(source):
        explanation = graph.explain(source.text, name, values, branch=on_branch, at=snapshot, profile=profile)
    if as_json:
        print_json(explanation.to_json())
    else:
        typer.echo(explanation.render())
    return 0


def _one_target(branch: str | None, snapshot: str | None) -> str:
    if branch is not None and snapshot is not None:
        raise UsageError("`--branch` and `--snapshot` both say what to read; use one of them")
    return branch or "main"
