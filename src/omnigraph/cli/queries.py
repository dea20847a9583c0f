"""`omnigraph queries …`: the stored queries of a directory, listed and checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.formats import table
from omnigraph.cli.options import Json
from omnigraph.cli.output import plural, print_diagnostics, print_json
from omnigraph.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph.lang.catalog import Catalog
    from omnigraph.stored import StoredParameter, StoredQueries

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="A directory of `.gq` files, or one such file.")]
Schema = Annotated[
    Path | None, typer.Option("--schema", metavar="FILE", help="The schema that the queries are written for.")
]
Store = Annotated[str | None, typer.Option("--store", metavar="URI", help="The graph that they are written for.")]


def list_queries(directory: Directory, schema: Schema = None, store: Store = None, as_json: Json = False) -> int:
    found = _load(directory, schema, store).list()
    if as_json:
        print_json({"queries": [one.to_json() for one in found]})
        return 0
    rows = (
        [one.name, "mutation" if one.mutation else "read", _told(one.params), one.description or ""] for one in found
    )
    for line in table(["query", "kind", "parameters", "description"], rows):
        typer.echo(line)
    return 0


def validate(directory: Directory, schema: Schema = None, store: Store = None, as_json: Json = False) -> int:
    stored = _load(directory, schema, store)
    if as_json:
        warnings = [one.to_json() for one in stored.warnings]
        print_json({"ok": True, "queries": len(stored.queries), "warnings": warnings})
        return 0
    print_diagnostics(stored.warnings)
    typer.echo(f"{plural(len(stored.queries), 'query')}, {plural(len(stored.warnings), 'warning')}: ok")
    return 0


def _told(params: Sequence[StoredParameter]) -> str:
    return ", ".join(f"{one.name}: {one.kind}" for one in params)


def _load(directory: Path, schema: Path | None, store: str | None) -> StoredQueries:
    # The compilers are imported here so that `--help` and `version` do not pay for them.
    from omnigraph.stored import load_queries

    return load_queries(directory, _catalog(schema, store))


def _catalog(schema: Path | None, store: str | None) -> Catalog:
    from omnigraph.files import read_source
    from omnigraph.ids import new_ulid
    from omnigraph.lang.schema import compile_schema

    if (schema is None) == (store is None):
        raise UsageError("say what to check against: a schema with `--schema FILE`, or a graph with `--store URI`")
    if schema is not None:
        return compile_schema(read_source(schema, "S1"), domain=new_ulid()).catalog
    from omnigraph.graph import open as open_graph

    assert store is not None
    with open_graph(store, read_only=True) as graph:
        return graph.core.view().catalog
