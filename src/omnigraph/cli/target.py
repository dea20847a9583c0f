"""Which graph a command works on: found, opened, announced and, before destruction, confirmed.

Imports the engine only when a graph is opened.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from omnigraph.cli.lean import keep_pandas_out
from omnigraph.errors import UsageError

if TYPE_CHECKING:
    from omnigraph.graph import Graph


def address(uri: str | None, store: str | None) -> str:
    """Return the one address that was given."""
    if uri is not None and store is not None and uri != store:
        raise UsageError(f"two graphs were given, `{uri}` and `{store}`; give one of them", uri=uri, store=store)
    found = uri if uri is not None else store
    if found is None:
        raise UsageError("no graph was given; add `--store URI` with its path or `s3://` address")
    return found


def open_to_read(uri: str | None, store: str | None) -> Graph:
    """Open a graph so that nothing can change it."""
    keep_pandas_out()
    from omnigraph.graph import open as open_graph

    return open_graph(address(uri, store), read_only=True)


def open_to_write(uri: str | None, store: str | None, actor: str | None) -> Graph:
    """Open a graph for an actor's changes."""
    keep_pandas_out()
    from omnigraph.graph import open as open_graph

    return open_graph(address(uri, store), actor=actor)


def is_local(uri: str) -> bool:
    """Tell whether an address is a path or `file://` one.

    >>> is_local("graphs/a.omni"), is_local("file:///a.omni"), is_local("S3://lake/a.omni")
    (True, True, False)
    """
    return not uri.strip().lower().startswith("s3:")


def announce(command: str, uri: str, *, quiet: bool) -> None:
    """Say which graph is about to be written; a wrong one is then noticed at once."""
    if not quiet:
        typer.echo(f"omnigraph {command} → {uri} (direct, {'local' if is_local(uri) else 'remote'})", err=True)


def confirm(what: str, uri: str, *, yes: bool, as_json: bool) -> None:
    """Ask before destructive work on a graph that is not local; where nobody can be asked, refuse."""
    if yes or is_local(uri):
        return
    if as_json or not sys.stdin.isatty():
        raise UsageError(f"{what} on `{uri}` destroys data on remote storage; add `--yes` if that is meant", uri=uri)
    answer = str(typer.prompt(f"{what} on {uri} destroys data. Type yes to go on", default="no", err=True))
    if answer.strip().lower() not in ("yes", "y"):
        raise UsageError(f"{what} was not confirmed; nothing was changed", uri=uri)
