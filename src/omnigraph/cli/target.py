"""The graph that a command works on: found, opened, announced and, before destruction, confirmed.

Imports the engine or the client only when a graph is opened.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import typer

from omnigraph import settings
from omnigraph.cli.config import Config, Profile, read_config, token_for
from omnigraph.cli.startup import keep_pandas_out
from omnigraph.cli.terminal import echo
from omnigraph.errors import OmniGraphError, UsageError

if TYPE_CHECKING:
    from omnigraph.client import Graph as ServedGraph
    from omnigraph.graph import Graph


class Capability(StrEnum):
    """What a command can work on."""

    ANY = "any"
    SERVED = "served"
    DIRECT = "direct"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Flags:
    """What was said on the command line about the place, and about who is there."""

    uri: str | None = None
    store: str | None = None
    server: str | None = None
    graph: str | None = None
    profile: str | None = None
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class Direct:
    """A graph on storage."""

    uri: str


@dataclass(frozen=True, slots=True)
class Served:
    """A server, and which graph of it."""

    url: str
    graph: str | None


Location = Direct | Served

_ACCEPTED_FLAGS: Final[Mapping[Capability, frozenset[str]]] = {
    Capability.ANY: frozenset({"store", "server", "graph", "profile"}),
    Capability.SERVED: frozenset({"server", "profile"}),
    Capability.DIRECT: frozenset({"store", "profile"}),
    Capability.LOCAL: frozenset(),
}
_WORKS_ON: Final[Mapping[Capability, str]] = {
    Capability.ANY: "works on one graph",
    Capability.SERVED: "asks a server; name it with `--server NAME`",
    Capability.DIRECT: "works on the storage of a graph; name that with `--store URI`",
    Capability.LOCAL: "works on no graph",
}


def accepts_flag(capability: Capability, flag: str) -> bool:
    """Tell whether commands of a capability can use a flag."""
    return flag in _ACCEPTED_FLAGS[capability]


def why_rejected(command: str, capability: Capability, option: str) -> str | None:
    """Return why a command does not take an option that others take; None for an option that nobody takes.

    >>> why_not("omnigraph optimize", Capability.DIRECT, "--server")
    '`omnigraph optimize` works on the storage of a graph; name that with `--store URI`. Leave `--server` out'
    """
    if option == "--as":
        return f"`--as` says who writes, and `{command}` writes to no graph; leave it out"
    if option == "--uri":
        option = "--store"
    if option.removeprefix("--") in _ACCEPTED_FLAGS[Capability.ANY]:
        return f"`{command}` {_WORKS_ON[capability]}. Leave `{option}` out"
    return None


def resolve_location(command: str, capability: Capability, flags: Flags, config: Config) -> Location:
    """Return the place of a command: what was named, else that of a profile, else the default."""
    place = _from_flags(flags, config) or _from_profile(flags, config) or _from_defaults(flags, config)
    if place is None:
        raise UsageError(
            f"no graph was given; add {_target_options(capability)}, or write a default into `config.yaml`",
            command=command,
        )
    if isinstance(place, Served) and capability is Capability.DIRECT:
        raise UsageError(f"`{command}` {_WORKS_ON[capability]}, and `{place.url}` is a server", url=place.url)
    if isinstance(place, Direct) and capability is Capability.SERVED:
        raise UsageError(f"`{command}` {_WORKS_ON[capability]}, and `{place.uri}` is storage", uri=place.uri)
    if isinstance(place, Served) and flags.actor is not None:
        raise UsageError("on a server the token says who writes; leave `--as` out", flag="--as")
    return place


def server_url(server: str, config: Config) -> str:
    """Return the address of a server that is given by name or by address."""
    if "://" in server:
        return server.rstrip("/")
    if server not in config.servers:
        known = ", ".join(f"`{name}`" for name in sorted(config.servers)) or "none"
        raise UsageError(
            f"there is no server `{server}` in `config.yaml`, which knows {known}; give its `http://` address",
            server=server,
        )
    return config.servers[server].rstrip("/")


def _from_flags(flags: Flags, config: Config) -> Location | None:
    stores = [one for one in (flags.uri, flags.store) if one is not None]
    for one in stores:
        if one.strip().lower().startswith(("http://", "https://")):
            raise UsageError(
                f"`{one}` is the address of a server; name it with `--server {one}` and `--graph ID`", uri=one
            )
    if len(set(stores)) > 1:
        raise UsageError(f"two graphs were given, `{stores[0]}` and `{stores[1]}`; give one of them")
    if stores and flags.server is not None:
        raise UsageError(f"a graph on storage, `{stores[0]}`, and a server were given; give one of them")
    if stores:
        if flags.graph is not None:
            raise UsageError("`--graph` names a graph of a server, and storage holds one graph; leave it out")
        return Direct(stores[0])
    return None if flags.server is None else Served(server_url(flags.server, config), flags.graph)


def _from_profile(flags: Flags, config: Config) -> Location | None:
    if flags.profile is None:
        return None
    profile = config.profiles.get(flags.profile)
    if profile is None:
        known = ", ".join(f"`{name}`" for name in sorted(config.profiles)) or "none"
        raise UsageError(
            f"there is no profile `{flags.profile}` in `config.yaml`, which knows {known}; see `omnigraph profile"
            " list`",
            profile=flags.profile,
        )
    return _profile_location(profile, flags, config, f"profile `{flags.profile}`")


def _from_defaults(flags: Flags, config: Config) -> Location | None:
    defaults = config.defaults
    if defaults.server is None and defaults.store is None:
        return None
    profile = Profile(server=defaults.server, store=defaults.store, default_graph=defaults.default_graph)
    return _profile_location(profile, flags, config, "the default")


def _profile_location(profile: Profile, flags: Flags, config: Config, what: str) -> Location:
    if profile.server is not None:
        return Served(server_url(profile.server, config), flags.graph or profile.default_graph)
    if profile.store is None:
        raise UsageError(f"{what} is a cluster, which is not a graph; name a server or a store")
    if flags.graph is not None:
        raise UsageError(f"`--graph` names a graph of a server, and {what} is storage; leave it out")
    return Direct(profile.store)


def _target_options(capability: Capability) -> str:
    if capability is Capability.SERVED:
        return "`--server NAME` with its name or address"
    store = "`--store URI` with its path or `s3://` address"
    return f"{store} or `--server NAME --graph ID`" if accepts_flag(capability, "server") else store


@dataclass(frozen=True, slots=True)
class Target:
    """What a command was told about its graph, and what its operator has written down."""

    command: str
    capability: Capability
    flags: Flags
    yes: bool = False
    quiet: bool = False

    @property
    def location(self) -> Location:
        flags = replace(self.flags, profile=self.flags.profile or settings.read("OMNIGRAPH_PROFILE") or None)
        return resolve_location(self.command, self.capability, flags, read_config())

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
        place = self.location
        if isinstance(place, Direct):
            return place.uri
        return place.url if place.graph is None else f"{place.url}/graphs/{place.graph}"

    @property
    def is_served(self) -> bool:
        return isinstance(self.location, Served)

    @property
    def actor(self) -> str | None:
        """Who writes: as was said, or as is written down; a server knows by itself."""
        return self.flags.actor or (None if self.is_served else read_config().actor)

    @property
    def actor_json(self) -> dict[str, str | None]:
        """Who writes, as answers tell it; what a server knows by itself is not told."""
        return {} if self.is_served else {"actor_id": self.actor}

    @property
    def words(self) -> tuple[str, ...]:
        """The options that name this graph, for a command to type next."""
        place = self.location
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
        place = self.location
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
        place = self.location
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
