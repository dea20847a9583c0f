"""`omnigraph lint`: queries, checked against a schema file or against the schema of a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.bind import ReadsUri
from omnigraph.cli.options import Against, Json
from omnigraph.cli.output import plural, print_diagnostics, print_json
from omnigraph.cli.source import catalog_of
from omnigraph.cli.terminal import echo

Queries = Annotated[
    list[Path], typer.Option("--query", metavar="FILE", help="A file of queries; give the option again for more files.")
]


def lint(target: ReadsUri, query: Queries, schema: Against = None, as_json: Json = False) -> int:
    # The compilers are imported here so that `--help` and `version` do not pay for them.
    from omnigraph.files import read_source
    from omnigraph.lang.query import lint_queries

    catalog = catalog_of(target, schema)
    report = lint_queries([read_source(path, "Q000") for path in query], catalog)
    refused = report.status == "error"
    if as_json:
        checked = (
            {"kind": "file", "path": str(schema)} if schema is not None else {"kind": "graph", "uri": target.address}
        )
        print_json({**report.to_json(), "schema_source": checked, "query_path": ", ".join(map(str, query))})
        return int(refused)
    print_diagnostics(report.findings)
    echo(f"{plural(len(report.queries), 'query')}, {plural(len(report.findings), 'finding')}: {report.status}")
    return int(refused)
