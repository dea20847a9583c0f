"""Reads the query, parameters and catalog that the options of a command name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.cli.options import is_query_text
from omnigraph.errors import UsageError

if TYPE_CHECKING:
    from omnigraph.cli.target import Target
    from omnigraph.client import Graph as ServedGraph
    from omnigraph.lang.catalog import Catalog
    from omnigraph.lang.diagnostic import Source
    from omnigraph.lang.schema import CompiledSchema


def query_source(argument: str | None, file: Path | None, text: str | None) -> Source:
    """Return the source of a query from an argument, `--query` or `-e`, of which one must be there."""
    from omnigraph.lang.diagnostic import Source
    from omnigraph.source_files import read_source

    options = {"the argument": argument, "`--query`": file, "`-e`": text}
    names = [name for name, value in options.items() if value is not None]
    if len(names) > 1:
        raise UsageError(f"{names[0]} and {names[1]} both give a query; use one of them")
    if not names:
        raise UsageError("no query was given; name a `.gq` file, or write the query itself in quotes")
    if argument is not None and not is_query_text(argument):
        file = Path(argument)
    if file is not None:
        return Source("standard input", sys.stdin.read()) if str(file) == "-" else read_source(file, "Q000")
    return Source("-e", text) if text is not None else Source("query", argument or "")


def connect_stored_queries(target: Target, name: str) -> ServedGraph:
    """Connect to the server that has the stored query; raises for graphs on storage, which have none."""
    if not target.is_served:
        raise UsageError(
            f"`{target.address}` is storage, and only servers have stored queries such as `{name}`; name a"
            " `.gq` file, or write the query itself in quotes"
        )
    return target.connect()


def read_parameters(text: str | None, file: Path | None) -> dict[str, object]:
    """Return the parameters of a query, from the command line or from a file."""
    import orjson

    from omnigraph.engine.json_members import find_repeated_member

    if text is not None and file is not None:
        raise UsageError("`--params` and `--params-file` both give parameters; use one of them")
    if file is not None:
        text = _read_text(file)
    if text is None:
        return {}
    try:
        members = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise UsageError(f'the parameters are not JSON: {error}; write for example {{"name": "x"}}') from None
    if not isinstance(members, dict):
        raise UsageError('the parameters are not a JSON object; write for example {"name": "x"}')
    if (name := find_repeated_member(text.encode(), members)) is not None:
        raise UsageError(f"duplicate member `{name}` in an object of the parameters; keep one of them", name=name)
    return members


def compile_new_schema(source: Source) -> CompiledSchema:
    """Compile a schema as that of a new graph."""
    # The compilers are imported here so that `--help` and `version` do not pay for them.
    from omnigraph.ids import new_ulid
    from omnigraph.lang.schema import compile_schema

    return compile_schema(source, domain=new_ulid())


def read_catalog(target: Target, schema: Path | None) -> Catalog:
    """Return the catalog of a schema file or of a graph."""
    from omnigraph.source_files import read_source

    if target.is_named if schema is not None else not target.is_known:
        raise UsageError(
            "no schema to check against; give a schema with `--schema FILE`, or a graph with `--store URI`"
        )
    if schema is not None:
        return compile_new_schema(read_source(schema, "S1")).catalog
    with target.store_to_read() as graph:
        return graph.schema.catalog


def _read_text(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"cannot read `{file}`: {reason.lower()}; check the path", path=str(file)) from None


@contextmanager
def name_diagnostics(source: Source) -> Iterator[None]:
    """Attribute diagnostics to the query file; the engine knows only its text."""
    from omnigraph.lang.diagnostic import LanguageError

    try:
        yield
    except LanguageError as error:
        diagnostics = tuple(
            replace(diagnostic, source=source) if diagnostic.source.text == source.text else diagnostic
            for diagnostic in error.diagnostics
        )
        raise LanguageError(error.message, effect=error.effect, diagnostics=diagnostics) from None
