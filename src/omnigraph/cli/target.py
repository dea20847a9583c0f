"""The graph that a command works on: found, opened, announced and, before destruction, confirmed.

Imports the engine or the client only when a graph is opened.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import typer

from omnigraph import settings
from omnigraph.cli.config import Config, read_config
from omnigraph.cli.credentials import token_for
from omnigraph.cli.lean import keep_pandas_out
from omnigraph.cli.scope import Capability, Direct, Flags, Place, Served, resolve
from omnigraph.cli.terminal import echo
from omnigraph.errors import OmniGraphError, UsageError

if TYPE_CHECKING:
    from omnigraph.client import Graph as ServedGraph
    from omnigraph.graph import Graph


@dataclass(frozen=True, slots=True)
class Target:
    """What a command was told about its graph, and what its operator has written down."""

    command: str
    capability: Capability
    flags: Flags
    yes: bool = False
    quiet: bool = False

    @property
    def place(self) -> Place:
        flags = replace(self.flags, profile=self.flags.profile or settings.read("OMNIGRAPH_PROFILE") or None)
        return resolve(self.command, self.capability, flags, read_config())

    @property
    def is_named(self) -> bool:
        """Whether a graph was named on the command line."""
        flags = self.flags
        return any(one is not None for one in (flags.uri, flags.store, flags.server, flags.profile))

    @property
    def is_known(self) -> bool:
        """Whether there is a graph to work on, named or by default."""
        defaults = read_config().defaults
        return self.is_named or any((settings.read("OMNIGRAPH_PROFILE"), defaults.server, defaults.store))

    @property
    def address(self) -> str:
        """The graph as people name it: a path, an address of storage, or one of a server."""
        place = self.place
        if isinstance(place, Direct):
            return place.uri
        return place.url if place.graph is None else f"{place.url}/graphs/{place.graph}"

    @property
    def is_served(self) -> bool:
        return isinstance(self.place, Served)

    @property
    def actor(self) -> str | None:
        """Who writes: as was said, or as is written down; a server knows by itself."""
        return self.flags.actor or (None if self.is_served else read_config().actor)

    @property
    def who(self) -> dict[str, str | None]:
        """Who writes, as answers tell it; what a server knows by itself is not told."""
        return {} if self.is_served else {"actor_id": self.actor}

    @property
    def words(self) -> tuple[str, ...]:
        """The options that name this graph, for a command to type next."""
        place = self.place
        if isinstance(place, Direct):
            return "--store", place.uri
        return ("--server", place.url, *(() if place.graph is None else ("--graph", place.graph)))

    def open_to_read(self) -> Graph | ServedGraph:
        """Open the graph so that nothing can change it, or connect to its server."""
        return self.connect() if self.is_served else self.store_to_read()

    def open_to_write(self) -> Graph | ServedGraph:
        """Open the graph for an actor's changes, or connect to its server."""
        return self.connect() if self.is_served else self.store_to_write()

    def connect(self) -> ServedGraph:
        """Connect to the server of the graph."""
        place = self.place
        if isinstance(place, Direct):
            raise UsageError(f"this needs a server, and `{place.uri}` is storage; add `--server NAME --graph ID`")
        return _connect(place, read_config())

    def store_to_read(self) -> Graph:
        """Open a graph on storage so that nothing can change it."""
        keep_pandas_out()
        from omnigraph.graph import open as open_graph

        return open_graph(self._storage(), read_only=True, actor=self.actor)

    def store_to_write(self) -> Graph:
        """Open a graph on storage for an actor's changes."""
        keep_pandas_out()
        from omnigraph.graph import open as open_graph

        return open_graph(self._storage(), actor=self.actor)

    def announce(self) -> None:
        """Say which graph is about to be written; a wrong one is then noticed at once."""
        if self.quiet:
            return
        how = "served" if self.is_served else "direct, local" if is_local(self.address) else "direct, remote"
        echo(f"{self.command} → {self.address} ({how})", err=True)

    def confirm(self, what: str, *, as_json: bool) -> None:
        """Ask before destructive work on a graph that is not local; where nobody can be asked, refuse."""
        address = self.address
        if self.yes or (not self.is_served and is_local(address)):
            return
        if as_json or not sys.stdin.isatty():
            raise UsageError(f"{what} on `{address}` destroys data that is not local; add `--yes` if that is meant")
        answer = str(typer.prompt(f"{what} on {address} destroys data. Type yes to go on", default="no", err=True))
        if answer.strip().lower() not in ("yes", "y"):
            raise UsageError(f"{what} was not confirmed; nothing was changed")

    def _storage(self) -> str:
        place = self.place
        if isinstance(place, Served):
            raise UsageError(f"this needs the storage of a graph, and `{place.url}` is a server; add `--store URI`")
        return place.uri


def _connect(place: Served, config: Config) -> ServedGraph:
    from omnigraph.client import connect, served_graphs

    token = token_for(place.url, config)
    if place.graph is not None or "/graphs/" in place.url:
        return connect(place.url, token=token, graph=place.graph)
    try:
        ids = ", ".join(f"`{one['graph_id']}`" for one in served_graphs(place.url, token=token))
    except OmniGraphError as error:
        if error.code == "server.unreachable":
            raise
        ids = "graphs that it does not list for you"
    raise UsageError(f"`{place.url}` has {ids}; choose one with `--graph ID`", url=place.url)


def is_local(uri: str) -> bool:
    """Tell whether an address is a path or `file://` one.

    >>> is_local("graphs/a.omni"), is_local("file:///a.omni"), is_local("S3://lake/a.omni")
    (True, True, False)
    """
    return not uri.strip().lower().startswith("s3:")
