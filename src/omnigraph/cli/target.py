"""The target graph of a command: resolved from options and `config.yaml`, opened, announced and confirmed.

Imports the engine or the client only when a graph is opened.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Final

import typer

from omnigraph import settings
from omnigraph.cli.config import Config, Profile, read_config, token_for
from omnigraph.cli.output import echo
from omnigraph.errors import UsageError

if TYPE_CHECKING:
    from omnigraph.client import Graph as ServedGraph
    from omnigraph.cluster.ledger import Ledger
    from omnigraph.graph import Graph


class Capability(StrEnum):
    """Which kinds of targets a command supports."""

    ANY = "any"
    SERVED = "served"
    DIRECT = "direct"
    MAINTENANCE = "maintenance"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Flags:
    """Target options of the command line."""

    uri: str | None = None
    store: str | None = None
    server: str | None = None
    graph: str | None = None
    profile: str | None = None
    actor: str | None = None
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class Direct:
    """A graph on storage."""

    uri: str


@dataclass(frozen=True, slots=True)
class Served:
    """A graph of a server."""

    url: str
    graph: str | None


Location = Direct | Served

_ACCEPTED_FLAGS: Final[Mapping[Capability, frozenset[str]]] = {
    Capability.ANY: frozenset({"store", "server", "graph", "profile"}),
    Capability.SERVED: frozenset({"server", "profile"}),
    Capability.DIRECT: frozenset({"store", "profile"}),
    Capability.MAINTENANCE: frozenset({"store", "profile", "cluster", "graph"}),
    Capability.LOCAL: frozenset(),
}
_WORKS_ON: Final[Mapping[Capability, str]] = {
    Capability.ANY: "works on one graph",
    Capability.SERVED: "needs a server; name it with `--server NAME`",
    Capability.DIRECT: "works on the storage of a graph; name that with `--store URI`",
    Capability.MAINTENANCE: "works on the storage of a graph; name that with `--store URI` or `--cluster NAME`",
    Capability.LOCAL: "works on no graph",
}


def accepts_flag(capability: Capability, flag: str) -> bool:
    return flag in _ACCEPTED_FLAGS[capability]


def why_rejected(command: str, capability: Capability, option: str) -> str | None:
    """Explain why a command rejects a target option; None for other options.

    >>> why_rejected("omnigraph optimize", Capability.DIRECT, "--server")
    '`omnigraph optimize` works on the storage of a graph; name that with `--store URI`. Leave `--server` out'
    """
    if option == "--as":
        return f"`--as` sets the actor of a write, but `{command}` does not write to a graph; leave it out"
    if option == "--uri":
        option = "--store"
    if any(accepts_flag(other, option.removeprefix("--")) for other in Capability):
        return f"`{command}` {_WORKS_ON[capability]}. Leave `{option}` out"
    return None


def resolve_location(command: str, capability: Capability, flags: Flags, config: Config) -> Location:
    """Return the target of a command: from its options, else the profile, else the default."""
    if flags.profile is not None and accepts_flag(capability, "cluster"):
        flags = _with_profile_cluster(flags, config)
    location = _from_flags(flags, config) or _from_profile(flags, config) or _from_defaults(flags, config)
    if location is None:
        raise UsageError(
            f"no graph was given; add {_target_options(capability)}, or set a default in `config.yaml`", command=command
        )
    if isinstance(location, Served) and capability in (Capability.DIRECT, Capability.MAINTENANCE):
        raise UsageError(f"`{command}` {_WORKS_ON[capability]}, and `{location.url}` is a server", url=location.url)
    if isinstance(location, Direct) and capability is Capability.SERVED:
        raise UsageError(f"`{command}` {_WORKS_ON[capability]}, and `{location.uri}` is storage", uri=location.uri)
    if isinstance(location, Served) and flags.actor is not None:
        raise UsageError("on a server the token determines the actor; leave `--as` out", flag="--as")
    return location


def server_url(server: str, config: Config) -> str:
    """Return the URL of a server, given its name or URL."""
    if "://" in server:
        return server.rstrip("/")
    if server not in config.servers:
        names = ", ".join(f"`{name}`" for name in sorted(config.servers)) or "none"
        raise UsageError(
            f"there is no server `{server}` in `config.yaml`, it has {names}; give the server's `http://` address",
            server=server,
        )
    return config.servers[server].rstrip("/")


def open_ledger(cluster: str) -> Ledger:
    """Return the ledger of a cluster, by its name in `config.yaml` or its location."""
    from omnigraph.cluster.applied_state import storage_of
    from omnigraph.cluster.ledger import Ledger

    return Ledger(storage_of(read_config().clusters.get(cluster, cluster)))


def _with_profile_cluster(flags: Flags, config: Config) -> Flags:
    """Return flags with the cluster of their profile, unless another graph was named."""
    profile = config.profiles.get(flags.profile or "")
    if profile is None or profile.cluster is None or any((flags.uri, flags.store, flags.server, flags.cluster)):
        return flags
    return replace(flags, cluster=profile.cluster, graph=flags.graph or profile.default_graph)


def _from_flags(flags: Flags, config: Config) -> Location | None:
    stores = [store for store in (flags.uri, flags.store) if store is not None]
    for store in stores:
        if store.strip().lower().startswith(("http://", "https://")):
            raise UsageError(
                f"`{store}` is the address of a server; name it with `--server {store}` and `--graph ID`", uri=store
            )
    if len(set(stores)) > 1:
        raise UsageError(f"two graphs were given, `{stores[0]}` and `{stores[1]}`; give one of them")
    if flags.cluster is not None:
        if stores:
            raise UsageError(f"a graph, `{stores[0]}`, and a cluster were given; give one of them")
        from omnigraph.cluster.applied_state import locate_graph

        return Direct(locate_graph(config.clusters.get(flags.cluster, flags.cluster), flags.graph))
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
        names = ", ".join(f"`{name}`" for name in sorted(config.profiles)) or "none"
        raise UsageError(
            f"there is no profile `{flags.profile}` in `config.yaml`, it has {names}; see `omnigraph profile list`",
            profile=flags.profile,
        )
    return _profile_location(profile, flags, config, f"profile `{flags.profile}`")


def _from_defaults(flags: Flags, config: Config) -> Location | None:
    defaults = config.defaults
    if defaults.server is None and defaults.store is None:
        return None
    profile = Profile(server=defaults.server, store=defaults.store, default_graph=defaults.default_graph)
    return _profile_location(profile, flags, config, "the default")


def _profile_location(profile: Profile, flags: Flags, config: Config, origin: str) -> Location:
    if profile.server is not None:
        return Served(server_url(profile.server, config), flags.graph or profile.default_graph)
    if profile.store is None:
        raise UsageError(f"{origin} is a cluster; this command needs a server or a store")
    if flags.graph is not None:
        raise UsageError(f"`--graph` names a graph of a server, and {origin} is storage; leave it out")
    return Direct(profile.store)


def _target_options(capability: Capability) -> str:
    if capability is Capability.SERVED:
        return "`--server NAME` with its name or address, set OMNIGRAPH_PROFILE"
    server = " or `--server NAME --graph ID`" if accepts_flag(capability, "server") else ""
    return f"`--store URI` with its path or address{server}, set OMNIGRAPH_STORE"


@dataclass(frozen=True)
class Target:
    """The target of a command, from its options and `config.yaml`; resolved once."""

    command: str
    capability: Capability
    flags: Flags
    yes: bool = False
    quiet: bool = False
    as_json: bool = False

    @cached_property
    def location(self) -> Location:
        flags = self.flags
        if not self.is_named:
            # Only one of them is needed, and the graph itself is the nearer answer.
            store = settings.read("OMNIGRAPH_STORE") or None
            flags = replace(flags, store=store, profile=settings.read("OMNIGRAPH_PROFILE") or None)
        return resolve_location(self.command, self.capability, flags, read_config())

    @property
    def is_named(self) -> bool:
        """Whether a graph was named on the command line."""
        flags = self.flags
        return {flags.uri, flags.store, flags.server, flags.profile, flags.cluster} != {None}

    @property
    def is_known(self) -> bool:
        """Whether there is a graph to work on, named or by default."""
        defaults = read_config().defaults
        return (
            self.is_named
            or any(map(settings.read, ("OMNIGRAPH_STORE", "OMNIGRAPH_PROFILE")))
            or any((defaults.server, defaults.store))
        )

    @property
    def address(self) -> str:
        """The graph's URI, or its URL on a server."""
        location = self.location
        if isinstance(location, Direct):
            return location.uri
        return location.url if location.graph is None else f"{location.url}/graphs/{location.graph}"

    @property
    def is_served(self) -> bool:
        return isinstance(self.location, Served)

    @property
    def actor(self) -> str | None:
        """The actor: from `--as` or `config.yaml`; None on a server, where the token decides."""
        return self.flags.actor or (None if self.is_served else read_config().actor)

    @property
    def actor_json(self) -> dict[str, str | None]:
        """The actor as JSON output has it; empty on a server."""
        return {} if self.is_served else {"actor_id": self.actor}

    @property
    def words(self) -> tuple[str, ...]:
        """The options that name this graph, for a command to type next."""
        location = self.location
        if isinstance(location, Direct):
            return "--store", location.uri
        return ("--server", location.url, *(() if location.graph is None else ("--graph", location.graph)))

    def open_to_read(self) -> Graph | ServedGraph:
        """Open the graph read-only, or connect to its server."""
        if self.is_served:
            return self.connect()
        from omnigraph.graph import attach

        # The read refreshes the head anyway; opening would do it twice.
        return attach(self._storage(), read_only=True, actor=self.actor)

    def open_to_write(self) -> Graph | ServedGraph:
        """Open the graph for writes of the actor, or connect to its server."""
        return self.connect() if self.is_served else self.store_to_write()

    def connect(self) -> ServedGraph:
        location = self.location
        if isinstance(location, Direct):
            raise UsageError(f"this needs a server, but `{location.uri}` is storage; add `--server NAME --graph ID`")
        from omnigraph.client import connect

        token = token_for(location.url, read_config())
        try:
            return connect(location.url, token=token, graph=location.graph)
        except UsageError as error:
            if location.graph is not None or "/graphs/" in location.url:
                raise
            # The library names its own argument.
            raise UsageError(error.message.replace("name one with `graph=`", "choose one with `--graph ID`")) from None

    def store_to_read(self) -> Graph:
        from omnigraph.graph import open as open_graph

        return open_graph(self._storage(), read_only=True, actor=self.actor)

    def store_to_write(self) -> Graph:
        from omnigraph.graph import open as open_graph

        return open_graph(self._storage(), actor=self.actor)

    def announce(self, address: str | None = None) -> None:
        """Print the target graph, or another, to standard error, so that a wrong one is noticed."""
        if not self.quiet:
            echo(f"{self.command} → {address or self.address}", err=True)

    def confirm(self, action: str) -> None:
        """Ask before destructive work on a remote graph; without a terminal, raise."""
        address = self.address
        if self.yes or (not self.is_served and is_on_this_machine(address)):
            return
        if self.as_json or not sys.stdin.isatty():
            raise UsageError(f"{action} on `{address}` destroys data of a remote graph; add `--yes` to confirm")
        answer = str(typer.prompt(f"{action} on {address} destroys data. Type yes to continue", default="no", err=True))
        if answer.strip().lower() not in ("yes", "y"):
            raise UsageError(f"{action} was not confirmed; nothing was changed")

    def _storage(self) -> str:
        location = self.location
        if isinstance(location, Served):
            raise UsageError(f"this needs the storage of a graph, but `{location.url}` is a server; add `--store URI`")
        return location.uri


def is_on_this_machine(uri: str) -> bool:
    """Return True for paths and `file://` URIs; what cannot be read as an address is none.

    >>> is_on_this_machine("graphs/a.omni"), is_on_this_machine("file:///a.omni"), is_on_this_machine("GS://lake/a")
    (True, True, False)
    """
    from omnigraph.store.objects.uri import Location

    try:
        return Location.parse(uri).has_paths
    except UsageError:
        return False
