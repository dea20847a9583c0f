"""`omnigraph queries …`: the stored queries of a directory, listed and checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.bind import Reads
from omnigraph.cli.formats import table
from omnigraph.cli.options import Against, Json
from omnigraph.cli.output import plural, print_diagnostics, print_json
from omnigraph.cli.source import catalog_of
from omnigraph.cli.terminal import echo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph.cli.target import Target
    from omnigraph.lang.diagnostic import Diagnostic
    from omnigraph.stored import StoredParameter, StoredQueries, StoredQuery

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="A directory of `.gq` files, or one such file.")]


def list_queries(target: Reads, directory: Directory, schema: Against = None, as_json: Json = False) -> int:
    from omnigraph.stored import check_queries, read_queries

    found = check_queries(read_queries(directory), catalog_of(target, schema))
    if as_json:
        broken = [one.to_json() for one in found.broken]
        print_json({"queries": [_listed(one) for one in found.queries], "broken": broken})
        return 0
    rows = [
        [one.name, "mutation" if one.mutation else "read", _told(one.params), one.description or ""]
        for one in found.queries
    ]
    rows += [[one.name, "broken", "", one.diagnostics[0].message] for one in found.broken]
    for line in table(["query", "kind", "parameters", "description"], rows):
        echo(line)
    return 0


def _listed(query: StoredQuery) -> dict[str, object]:
    # A tool names the type of a parameter as the query does; every stored query is offered to tools.
    params = [{**one.to_json(), "type": one.type} for one in query.params]
    return {**query.to_json(), "params": params, "mcp_expose": True}


def validate(target: Reads, directory: Directory, schema: Against = None, as_json: Json = False) -> int:
    from omnigraph.lang.diagnostic import LanguageError

    try:
        stored = _load(target, directory, schema)
    except LanguageError as error:
        if not as_json:
            raise
        breakages = [_issue(one) for one in error.diagnostics]
        print_json({**error.to_json(), "ok": False, "breakages": breakages, "warnings": []})
        return error.kind.exit_status
    if as_json:
        warnings = [{**one.to_json(), **_issue(one)} for one in stored.warnings]
        print_json({"ok": True, "queries": len(stored.queries), "breakages": [], "warnings": warnings})
        return 0
    print_diagnostics(stored.warnings)
    echo(f"{plural(len(stored.queries), 'query')}, {plural(len(stored.warnings), 'warning')}: ok")
    return 0


def _issue(finding: Diagnostic) -> dict[str, str]:
    return {"query": getattr(finding, "query", None) or finding.source.name, "message": finding.message}


def _told(params: Sequence[StoredParameter]) -> str:
    return ", ".join(f"{one.name}: {one.kind}" for one in params)


def _load(target: Target, directory: Path, schema: Path | None) -> StoredQueries:
    # The compilers are imported here so that `--help` and `version` do not pay for them.
    from omnigraph.stored import load_queries

    return load_queries(directory, catalog_of(target, schema))
