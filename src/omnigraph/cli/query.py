"""`omnigraph query`, `explain`, `lint` and `queries …`: run, explain and check queries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.app import Reads, ReadsUri
from omnigraph.cli.config import read_config
from omnigraph.cli.load import Engine, Master, Where
from omnigraph.cli.options import (
    Against,
    Format,
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
from omnigraph.cli.output import Cells, echo, metadata_line, plural, print_diagnostics, print_json, render, table
from omnigraph.cli.query_source import (
    connect_stored_queries,
    name_diagnostics,
    query_source,
    read_catalog,
    read_parameters,
)
from omnigraph.cli.revisions import resolve_at
from omnigraph.errors import UsageError
from omnigraph.limits import TABLE_CELL_CHARACTERS_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph.cli.target import Target
    from omnigraph.engine.query.result import Result
    from omnigraph.lang.diagnostic import Diagnostic
    from omnigraph.stored_queries import StoredParameter, StoredQueries, StoredQuery


def print_result(
    result: Result, target: dict[str, object], shape: Format | None, as_json: bool, *, with_metadata: bool = False
) -> int:
    """Print a result and return the exit status."""
    defaults = read_config().defaults
    rows = result.to_json_rows()
    metadata = {
        "query_name": result.query_name,
        "target": target,
        "row_count": len(rows),
        "graph_commit_id": result.graph_commit_id,
    }
    format_ = Format.JSON if as_json else shape or Format(defaults.output)
    width = defaults.table_max_column_width or TABLE_CELL_CHARACTERS_MAX
    cells = Cells(width, defaults.table_cell_layout == "wrap")
    if with_metadata and format_ is Format.JSONL:
        echo(metadata_line(metadata))
    for line in render(format_, list(result.columns), rows, metadata, cells):
        echo(line)
    return 0


WithMetadata = Annotated[bool, typer.Option("--metadata", help="Begin `jsonl` with a line about the result.")]
Profile = Annotated[bool, typer.Option("--profile", help="Run the query, and add measurements.")]


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
    with_metadata: WithMetadata = False,
    as_json: Json = False,
) -> int:
    values = read_parameters(params, params_file)
    on_branch = _branch_to_read(branch, snapshot)
    read: dict[str, object] = {"snapshot": snapshot} if snapshot else {"branch": on_branch}
    on_spark = engine is Engine.SPARK or master is not None
    if name is not None and query_file is None and text is None:
        if on_spark:
            raise UsageError(
                "a stored query runs on its server; leave `--engine` and `--master` out, or give the query with"
                " `--query FILE` and the storage with `--store URI`"
            )
        with connect_stored_queries(target, name) as stored_queries:
            at = resolve_at(stored_queries, snapshot, branch)
            result = stored_queries.invoke(name, values, branch=on_branch, at=at, names=names.value)
        return print_result(result, read, shape, as_json, with_metadata=with_metadata)
    source = query_source(query_file, text)
    if on_spark:
        from omnigraph.pipeline.query import collect
        from omnigraph.pipeline.spark.session import session

        with target.store_to_read() as graph, name_diagnostics(source):
            result = collect(
                graph,
                source,
                values,
                name=name,
                branch=on_branch,
                at=resolve_at(graph, snapshot, branch),
                names=names.value,
                spark=session(master),
            )
    else:
        with target.open_to_read() as opened, name_diagnostics(source):
            at = resolve_at(opened, snapshot, branch)
            result = opened.query(source, values, name=name, branch=on_branch, at=at, names=names.value)
    return print_result(result, read, shape, as_json, with_metadata=with_metadata)


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
    values = read_parameters(params, params_file)
    on_branch = _branch_to_read(branch, snapshot)
    with target.open_to_read() as graph, name_diagnostics(source):
        at = resolve_at(graph, snapshot, branch)
        explanation = graph.explain(
            source, values, name=name, branch=on_branch, at=at, names=names.value, profile=profile
        )
    if as_json:
        print_json(explanation.to_json())
    else:
        echo(explanation.render())
    return 0


def _branch_to_read(branch: str | None, snapshot: str | None) -> str:
    if branch is not None and snapshot is not None:
        raise UsageError("`--branch` and `--at` both say what to read; use one of them")
    return branch or "main"


Directory = Annotated[Path, typer.Argument(metavar="DIR", help="A `.gq` file, or a directory of them.")]


def list_queries(target: Reads, directory: Directory, schema: Against = None, as_json: Json = False) -> int:
    from omnigraph.stored_queries import check_queries, read_queries

    checked = check_queries(read_queries(directory), read_catalog(target, schema))
    if as_json:
        broken = [query.to_json() for query in checked.broken]
        print_json({"queries": [_query_json(query) for query in checked.queries], "broken": broken})
        return 0
    rows = [
        [
            query.name,
            "mutation" if query.mutation else "read",
            _format_parameters(query.params),
            query.description or "",
        ]
        for query in checked.queries
    ]
    rows += [[query.name, "broken", "", query.diagnostics[0].message] for query in checked.broken]
    for line in table(["query", "kind", "parameters", "description"], rows):
        echo(line)
    return 0


def _query_json(query: StoredQuery) -> dict[str, object]:
    # A tool names the type of a parameter as the query does; every stored query is offered to tools.
    params = [{**param.to_json(), "type": param.type} for param in query.params]
    return {**query.to_json(), "params": params, "mcp_expose": True}


def validate(target: Reads, directory: Directory, schema: Against = None, as_json: Json = False) -> int:
    from omnigraph.lang.diagnostic import LanguageError

    try:
        stored = _load(target, directory, schema)
    except LanguageError as error:
        if not as_json:
            raise
        breakages = [_issue_json(diagnostic) for diagnostic in error.diagnostics]
        print_json({**error.to_json(), "ok": False, "breakages": breakages, "warnings": []})
        return error.kind.exit_status
    if as_json:
        warnings = [{**diagnostic.to_json(), **_issue_json(diagnostic)} for diagnostic in stored.warnings]
        print_json({"ok": True, "queries": len(stored.queries), "breakages": [], "warnings": warnings})
        return 0
    print_diagnostics(stored.warnings)
    echo(f"{plural(len(stored.queries), 'query')}, {plural(len(stored.warnings), 'warning')}: ok")
    return 0


def _issue_json(diagnostic: Diagnostic) -> dict[str, str]:
    return {"query": getattr(diagnostic, "query", None) or diagnostic.source.name, "message": diagnostic.message}


def _format_parameters(params: Sequence[StoredParameter]) -> str:
    return ", ".join(f"{param.name}: {param.kind}" for param in params)


def _load(target: Target, directory: Path, schema: Path | None) -> StoredQueries:
    # The compilers are imported here so that `--help` and `version` do not pay for them.
    from omnigraph.stored_queries import load_queries

    return load_queries(directory, read_catalog(target, schema))


Queries = Annotated[list[Path], typer.Option("--query", metavar="FILE", help="File with queries; repeatable.")]


def lint(target: ReadsUri, query: Queries, schema: Against = None, as_json: Json = False) -> int:
    # The compilers are imported here so that `--help` and `version` do not pay for them.
    from omnigraph.lang.query import lint_queries
    from omnigraph.source_files import read_source

    catalog = read_catalog(target, schema)
    report = lint_queries([read_source(path, "Q000") for path in query], catalog)
    has_errors = report.status == "error"
    if as_json:
        schema_source = (
            {"kind": "file", "path": str(schema)} if schema is not None else {"kind": "graph", "uri": target.address}
        )
        print_json({**report.to_json(), "schema_source": schema_source, "query_path": ", ".join(map(str, query))})
        return int(has_errors)
    print_diagnostics(report.findings)
    echo(f"{plural(len(report.queries), 'query')}, {plural(len(report.findings), 'finding')}: {report.status}")
    return int(has_errors)
