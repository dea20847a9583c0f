"""`omnigraph lint`: queries, checked against a schema file or against the schema of a graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.bind import ReadsUri
from omnigraph.cli.options import Json
from omnigraph.cli.output import plural, print_diagnostics, print_json
from omnigraph.errors import UsageError

if TYPE_CHECKING:
    from omnigraph.cli.target import Target
    from omnigraph.lang.catalog import Catalog

Schema = Annotated[
    Path | None, typer.Option("--schema", metavar="FILE", help="The schema that the queries are written for.")
]
Queries = Annotated[
    list[Path], typer.Option("--query", metavar="FILE", help="A file of queries; give the option again for more files.")
]


def lint(target: ReadsUri, query: Queries, schema: Schema = None, as_json: Json = False) -> int:
    # The compilers are imported here so that `--help` and `version` do not pay for them.
    from omnigraph.files import read_source
    from omnigraph.lang.query import lint_queries

    catalog = _catalog(target, schema)
    report = lint_queries([read_source(path, "Q000") for path in query], catalog)
    refused = report.status == "error"
    if as_json:
        print_json(report.to_json())
        return int(refused)
    print_diagnostics(report.findings)
    typer.echo(f"{plural(len(report.queries), 'query')}, {plural(len(report.findings), 'finding')}: {report.status}")
    return int(refused)


def _catalog(target: Target, schema: Path | None) -> Catalog:
    from omnigraph.files import read_source
    from omnigraph.ids import new_ulid
    from omnigraph.lang.schema import compile_schema

    if target.is_named if schema is not None else not target.is_known:
        raise UsageError("say what to check against: a schema with `--schema FILE`, or a graph with `--store URI`")
    if schema is not None:
        return compile_schema(read_source(schema, "S1"), domain=new_ulid()).catalog
    with target.store_to_read() as graph:
        return graph.core.view().catalog
