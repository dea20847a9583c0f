"""`omnigraph lint`: a schema and its queries, checked offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.output import plural, print_diagnostics, print_json

Schema = Annotated[Path, typer.Option("--schema", metavar="FILE", help="The schema the queries are written for.")]
Queries = Annotated[
    list[Path], typer.Option("--query", metavar="FILE", help="A file of queries; give the option again for more files.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


def lint(schema: Schema, query: Queries, as_json: Json = False) -> int:
    # The compilers are imported here so that `--help` and `version` do not pay for them.
    from omnigraph.files import read_source
    from omnigraph.ids import new_ulid
    from omnigraph.lang.query import lint_queries
    from omnigraph.lang.schema import compile_schema

    compiled = compile_schema(read_source(schema, "S1"), domain=new_ulid())
    report = lint_queries([read_source(path, "Q000") for path in query], compiled.catalog)
    refused = report.status == "error"
    if as_json:
        print_json(report.to_json())
        return int(refused)
    print_diagnostics(report.findings)
    typer.echo(f"{plural(len(report.queries), 'query')}, {plural(len(report.findings), 'finding')}: {report.status}")
    return int(refused)
