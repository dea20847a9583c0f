"""Which names a server answers to: a page from elsewhere that had its own name point here must not be answered.

DNS rebinding lets a browser send requests to a local server under the name of a foreign page. Such a request shows no
token, so a server with tokens is safe; one without answers only to addresses and to names that are its own.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from omnigraph import settings
from omnigraph.errors import GraphError

SETTING = "OMNIGRAPH_SERVER_ALLOWED_HOSTS"


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The names in lower case, without ports; `*` allows any, and `.example.org` all names below one."""

    names: frozenset[str] = frozenset({"*"})
    allows_addresses: bool = True

    def check(self, headers: Sequence[str]) -> None:
        """Refuse a request whose header `Host` names another server."""
        if "*" in self.names:
            return
        name = host_name(headers[0]) if len(headers) == 1 else ""
        parents = (name[place:] for place, character in enumerate(name) if character == ".")
        if name in self.names or self.names.intersection(parents) or (self.allows_addresses and _is_address(name)):
            return
        raise GraphError(
            f"this server does not answer to the name of the header `Host`; name it in {SETTING}", code="request.host"
        )


def host_name(header: str) -> str:
    """Return the name in a header `Host`, without its port.

    >>> host_name("Example.org:8080"), host_name("[::1]:8080"), host_name("::1")
    ('example.org', '::1', '::1')
    """
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def read_allowed_hosts(*, has_tokens: bool) -> AllowedHosts:
    """Return what the setting says; without it, any name with tokens, and without tokens the names of this machine."""
    listed = frozenset(name.strip().lower() for name in settings.read(SETTING).split(",") if name.strip())
    if listed:
        return AllowedHosts(listed, allows_addresses=False)
    if has_tokens:
        return AllowedHosts()
    return AllowedHosts(frozenset({"localhost", ".localhost", socket.gethostname().lower(), socket.getfqdn().lower()}))
