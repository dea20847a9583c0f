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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph.cli.target import Target
    from omnigraph.stored import StoredParameter, StoredQueries

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="A directory of `.gq` files, or one such file.")]


def list_queries(target: Reads, directory: Directory, schema: Against = None, as_json: Json = False) -> int:
    from omnigraph.stored import check_queries, read_queries

    found = check_queries(read_queries(directory), catalog_of(target, schema))
    if as_json:
        print_json(
            {
                "queries": [one.to_json() for one in found.queries],
                "broken": [one.to_json() for one in found.broken],
            }
        )
        return 0
    rows = [
        [one.name, "mutation" if one.mutation else "read", _told(one.params), one.description or ""]
        for one in found.queries
    ]
    rows += [[one.name, "broken", "", one.diagnostics[0].message] for one in found.broken]
    for line in table(["query", "kind", "parameters", "description"], rows):
        typer.echo(line)
    return 0


def validate(target: Reads, directory: Directory, schema: Against = None, as_json: Json = False) -> int:
    stored = _load(target, directory, schema)
    if as_json:
        warnings = [one.to_json() for one in stored.warnings]
        print_json({"ok": True, "queries": len(stored.queries), "warnings": warnings})
        return 0
    print_diagnostics(stored.warnings)
    typer.echo(f"{plural(len(stored.queries), 'query')}, {plural(len(stored.warnings), 'warning')}: ok")
    return 0


def _told(params: Sequence[StoredParameter]) -> str:
    return ", ".join(f"{one.name}: {one.kind}" for one in params)


def _load(target: Target, directory: Path, schema: Path | None) -> StoredQueries:
    # The compilers are imported here so that `--help` and `version` do not pay for them.
    from omnigraph.stored import load_queries

    return load_queries(directory, catalog_of(target, schema))
