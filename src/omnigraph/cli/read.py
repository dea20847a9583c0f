"""`omnigraph query` and `omnigraph explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.bind import Reads
from omnigraph.cli.load import Engine, Master, Where
from omnigraph.cli.options import (
    Json,
    Name,
    Names,
    Naming,
    Params,
    ParamsFile,
    QueryFile,
    QueryText,
    ReadBranch,
    Shape,
    Snapshot,
)
from omnigraph.cli.output import print_json
from omnigraph.cli.result import print_result
from omnigraph.cli.source import named, parameters, query_source, stored
from omnigraph.cli.terminal import echo
from omnigraph.errors import UsageError

Profile = Annotated[bool, typer.Option("--profile", help="Run the query, and add what really happened.")]


def query(
    target: Reads,
    name: Name = None,
    query_file: QueryFile = None,
    text: QueryText = None,
    params: Params = None,
    params_file: ParamsFile = None,
    branch: ReadBranch = None,
    snapshot: Snapshot = None,
    names: Names = Naming.NOW,
    engine: Where = Engine.AUTO,
    master: Master = None,
    shape: Shape = None,
    as_json: Json = False,
) -> int:
    values = parameters(params, params_file)
    on_branch = _one_target(branch, snapshot)
    on_spark = engine is Engine.SPARK or master is not None
    if name is not None and query_file is None and text is None:
        if on_spark:
            raise UsageError(
                "a stored query runs on its server; leave `--engine` and `--master` out, or give the query with"
                " `--query FILE` and the storage with `--store URI`"
            )
        with stored(target, name) as served:
            result = served.invoke(name, values, on_branch, snapshot, names=names.value)
        return print_result(result, {"snapshot": snapshot} if snapshot else {"branch": on_branch}, shape, as_json)
    source = query_source(query_file, text)
    if on_spark:
        from omnigraph.pipeline.query import collect
        from omnigraph.pipeline.session import session

        with target.store_to_read() as graph, named(source):
            result = collect(
                graph,
                source.text,
                name,
                values,
                branch=on_branch,
                at=snapshot,
                names=names.value,
                spark=session(master),
            )
    else:
        with target.open_to_read() as opened, named(source):
            result = opened.query(source.text, name, values, branch=on_branch, at=snapshot, names=names.value)
    return print_result(result, {"snapshot": snapshot} if snapshot else {"branch": on_branch}, shape, as_json)


def explain(
    target: Reads,
    name: Name = None,
    query_file: QueryFile = None,
    text: QueryText = None,
    params: Params = None,
    params_file: ParamsFile = None,
    branch: ReadBranch = None,
    snapshot: Snapshot = None,
    names: Names = Naming.NOW,
    profile: Profile = False,
    as_json: Json = False,
) -> int:
    source = query_source(query_file, text)
    values = parameters(params, params_file)
    on_branch = _one_target(branch, snapshot)
    with target.open_to_read() as graph, named(source):
        explanation = graph.explain(
            source.text, name, values, branch=on_branch, at=snapshot, names=names.value, profile=profile
        )
    if as_json:
        print_json(explanation.to_json())
    else:
        echo(explanation.render())
    return 0


def _one_target(branch: str | None, snapshot: str | None) -> str:
    if branch is not None and snapshot is not None:
        raise UsageError("`--branch` and `--snapshot` both say what to read; use one of them")
    return branch or "main"
