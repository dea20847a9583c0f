"""Which place a command works on: what was said on the command line, else by a profile, else by defaults.

Pure. A flag that a command cannot use is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from omnigraph.cli.config import Config, Profile
from omnigraph.errors import UsageError


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


Place = Direct | Served

_TAKES: Final[Mapping[Capability, frozenset[str]]] = {
    Capability.ANY: frozenset({"store", "server", "graph", "profile"}),
    Capability.SERVED: frozenset({"server", "profile"}),
    Capability.DIRECT: frozenset({"store", "profile"}),
    Capability.LOCAL: frozenset(),
}
_WHY: Final[Mapping[Capability, str]] = {
    Capability.ANY: "works on one graph",
    Capability.SERVED: "asks a server; name it with `--server NAME`",
    Capability.DIRECT: "works on the storage of a graph; name that with `--store URI`",
    Capability.LOCAL: "works on no graph",
}


def takes(capability: Capability, flag: str) -> bool:
    """Tell whether commands of a capability can use a flag."""
    return flag in _TAKES[capability]


def why_not(command: str, capability: Capability, option: str) -> str | None:
    """Return why a command does not take an option that others take; None for an option that nobody takes.

    >>> why_not("omnigraph optimize", Capability.DIRECT, "--server")
    '`omnigraph optimize` works on the storage of a graph; name that with `--store URI`. Leave `--server` out'
    """
    if option == "--as":
        return f"`--as` says who writes, and `{command}` writes to no graph; leave it out"
    if option == "--uri":
        option = "--store"
    if option.removeprefix("--") in _TAKES[Capability.ANY]:
        return f"`{command}` {_WHY[capability]}. Leave `{option}` out"
    return None


def resolve(command: str, capability: Capability, flags: Flags, config: Config) -> Place:
    """Return the place of a command: what was named, else that of a profile, else the default."""
    place = _named(flags, config) or _of_profile(flags, config) or _default(flags, config)
    if place is None:
        raise UsageError(
            f"no graph was given; add {_ways(capability)}, or write a default into `config.yaml`", command=command
        )
    if isinstance(place, Served) and capability is Capability.DIRECT:
        raise UsageError(f"`{command}` {_WHY[capability]}, and `{place.url}` is a server", url=place.url)
    if isinstance(place, Direct) and capability is Capability.SERVED:
        raise UsageError(f"`{command}` {_WHY[capability]}, and `{place.uri}` is storage", uri=place.uri)
    if isinstance(place, Served) and flags.actor is not None:
        raise UsageError("on a server the token says who writes; leave `--as` out", flag="--as")
    return place


def url_of(server: str, config: Config) -> str:
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


def _named(flags: Flags, config: Config) -> Place | None:
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
    return None if flags.server is None else Served(url_of(flags.server, config), flags.graph)


def _of_profile(flags: Flags, config: Config) -> Place | None:
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
    return _place(profile, flags, config, f"profile `{flags.profile}`")


def _default(flags: Flags, config: Config) -> Place | None:
    defaults = config.defaults
    if defaults.server is None and defaults.store is None:
        return None
    profile = Profile(server=defaults.server, store=defaults.store, default_graph=defaults.default_graph)
    return _place(profile, flags, config, "the default")


def _place(profile: Profile, flags: Flags, config: Config, what: str) -> Place:
    if profile.server is not None:
        return Served(url_of(profile.server, config), flags.graph or profile.default_graph)
    if profile.store is None:
        raise UsageError(f"{what} is a cluster, which is not a graph; name a server or a store")
    if flags.graph is not None:
        raise UsageError(f"`--graph` names a graph of a server, and {what} is storage; leave it out")
    return Direct(profile.store)


def _ways(capability: Capability) -> str:
    if capability is Capability.SERVED:
        return "`--server NAME` with its name or address"
    store = "`--store URI` with its path or `s3://` address"
    return f"{store} or `--server NAME --graph ID`" if takes(capability, "server") else store
