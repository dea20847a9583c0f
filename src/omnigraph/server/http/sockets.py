"""The socket below a transport: its options, its peer, and whether that is still there."""

from __future__ import annotations

import asyncio
import select
from contextlib import suppress


def set_option(transport: asyncio.BaseTransport, level: int, option: int, value: int | bytes) -> None:
    """Set an option of a socket that may be closed already."""
    own = transport.get_extra_info("socket")
    if own is not None and own.fileno() >= 0:
        with suppress(OSError):
            own.setsockopt(level, option, value)


def is_reset(transport: asyncio.BaseTransport) -> bool:
    """Return whether a peer has reset its connection; known to the kernel though nothing is read any more."""
    own = transport.get_extra_info("socket")
    if own is None or own.fileno() < 0:
        return own is not None
    poll = select.poll()
    # Errors and hang-ups are always reported.
    poll.register(own.fileno(), 0)
    return bool(poll.poll(0))


def peer_of(transport: asyncio.BaseTransport) -> str:
    """Return whom a connection is counted for: an address, or the network of 64 bits that one host of IPv6 may use."""
    address = transport.get_extra_info("peername")
    if not address:
        return ""
    host = str(address[0]).partition("%")[0]
    if ":" not in host or host.startswith("::"):
        return host
    from ipaddress import IPv6Network

    return str(IPv6Network((host, 64), strict=False))
