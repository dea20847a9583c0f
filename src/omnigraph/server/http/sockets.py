"""The socket below a transport: its options, its peer, and whether that is still there."""

from __future__ import annotations

import asyncio
import select
from contextlib import suppress


def set_option(transport: asyncio.BaseTransport, level: int, option: int, value: int | bytes) -> None:
    """Set an option of a socket that may be closed already."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        with suppress(OSError):
            sock.setsockopt(level, option, value)


def is_reset(transport: asyncio.BaseTransport) -> bool:
    """Return whether a peer has reset its connection; known to the kernel though nothing is read any more."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return sock is not None
    poll = select.poll()
    # Errors and hang-ups are always reported.
    poll.register(sock.fileno(), 0)
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
