"""An HTTP/1.1 connection, with limits on the bytes and time that a peer can cost.

| A peer that | gets |
|---|---|
| sends headers slowly or endlessly | a deadline from the first byte on, and a limit on their size |
| holds many connections with unfinished headers | its oldest connections closed when connections run out |
| sends endless trailers or chunk extensions | a limit on all bytes that are neither headers nor body |
| continues its body after the response | `Connection: close` and a deadline; the bytes are discarded |
| sends the next request before the response | the response, then the connection is closed |
| does not read the response | a minimum read rate, then a reset that drops unsent bytes |
| disconnects | its request cancelled, whatever else it had sent |
| half-closes after a complete request | the response, then the connection is closed |
| requests a protocol upgrade | a response in HTTP/1.1 |
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import unquote

import httptools

from omnigraph.errors import GraphError, LimitExceeded, OmniGraphError, UsageError
from omnigraph.limits import SERVER_HALF_CLOSED_SECONDS, SERVER_STREAM_CHUNK_BYTES
from omnigraph.server.errors import dump, error_body
from omnigraph.server.http.exchange import INTERIM, Exchange, check_head, framing_head

if TYPE_CHECKING:
    from omnigraph.server.http.listener import Host


def set_option(transport: asyncio.BaseTransport, level: int, option: int, value: int | bytes) -> None:
    """Set an option of a socket that may be closed already."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        with suppress(OSError):
            sock.setsockopt(level, option, value)


def is_reset(transport: asyncio.BaseTransport) -> bool:
    """Return True if the peer has reset the connection; the kernel knows it even when nothing is read."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return sock is not None
    poll = select.poll()
    # Errors and hang-ups are always reported.
    poll.register(sock.fileno(), 0)
    return bool(poll.poll(0))


def peer_of(transport: asyncio.BaseTransport) -> str:
    """Return the key to count connections by: the IPv4 address, or the IPv6 /64 network, which one host may own."""
    address = transport.get_extra_info("peername")
    if not address:
        return ""
    host = str(address[0]).partition("%")[0]
    if ":" not in host or host.startswith("::"):
        return host
    from ipaddress import IPv6Network

    return str(IPv6Network((host, 64), strict=False))


# A chunk of one byte has five bytes of framing; more than this is not used to transfer data.
_FRAMING_PER_BODY_BYTE: Final = 8
# How many bytes are parsed between two checks of the limits.
_SLICE_BYTES: Final = 16 * 1024
# Closing sends a reset and does not linger.
_RESET: Final = struct.pack("ii", 1, 0)
_NOTSENT: Final[int | None] = getattr(socket, "TCP_NOTSENT_LOWAT", None)


class HttpConnection(asyncio.Protocol):
    """One connection of a host."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._deadline: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._is_reading = True
        # Set once incoming bytes are ignored.
        self._is_discarding = False
        self._discarded = 0
        self.peer = ""
        # A connection beyond the limit: it gets one request, to the routes that are always answered.
        self.is_spare = False
        self.exchange: Exchange | None = None
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._has_headers = False
        self._header_bytes = 0
        self._body_bytes = 0
        self._framing_bytes = 0
        self._trailer_bytes = 0
        # The request asks for an upgrade, and its body is still to be read; the parser then needs its framing again.
        self._is_upgrade = False
        self._is_resuming = False
        self._is_half_closed = False
        self._is_lost = False

    @property
    def is_busy(self) -> bool:
        """Whether a request is in flight."""
        return self.exchange is not None and not self.exchange.is_complete

    @property
    def is_full(self) -> bool:
        """Whether the send buffer is full because the peer does not read."""
        return not self._writable.is_set()

    # -- the transport ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.peer = peer_of(transport)
        if _NOTSENT is not None:
            # Unread bytes wait in the transport, where they are counted, and not in megabytes of kernel buffers.
            set_option(transport, socket.IPPROTO_TCP, _NOTSENT, SERVER_STREAM_CHUNK_BYTES)
        self._host.enter(self)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._clear_deadline()
        self._host.leave(self)
        if self.exchange is not None:
            self.exchange.disconnect()
        self._writable.set()

    def eof_received(self) -> bool:
        exchange = self.exchange
        if self._is_discarding or exchange is None or exchange.is_complete or not exchange.is_received:
            return False
        # The request is complete: the peer may still read the response, or has disconnected, which looks the same.
        self._is_half_closed = True
        self._discard()
        if not exchange.has_begun and exchange.scope["http_version"] == "1.1":
            # Clients ignore this interim response. A peer that has disconnected sends a reset.
            self.write(INTERIM)
        self._watch_half_closed()
        return True

    def _watch_half_closed(self) -> None:
        """Close the connection and cancel the request if the peer turns out to have closed both directions."""
        if self._transport.is_closing():
            return
        if is_reset(self._transport):
            self.abort()
        elif self.is_busy:
            self._loop.call_later(SERVER_HALF_CLOSED_SECONDS, self._watch_half_closed)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
        if self.exchange is not None and self.exchange.is_complete and not self._is_discarding:
            self.resume_reading()
            self._await_next()

    def data_received(self, data: bytes) -> None:
        if self._is_discarding:
            self._discarded += len(data)
            bounds = self._host.bounds
            if self._discarded > (bounds.header_bytes_max if self.is_busy else bounds.linger_bytes_max):
                self.abort()
            return
        # In slices, so that limits also apply within one large read.
        for start in range(0, len(data), _SLICE_BYTES):
            if not self._parse(data[start : start + _SLICE_BYTES]):
                return

    def _parse(self, data: bytes) -> bool:
        """Parse a slice of the received bytes; return whether to continue with the next one."""
        was_in_headers = not self._has_headers
        before = self._body_bytes
        try:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                if not self._is_discarding:
                    self._go_on_without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            # A request that was rejected already gets no second response.
            if not self._is_discarding:
                self._refuse(UsageError("malformed HTTP/1.1 request; nothing was done"))
        else:
            self._count(data, was_in_headers, self._body_bytes - before)
        return not self._is_discarding

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        """Read the body of a request that asks for an upgrade; the parser leaves it to the new protocol."""
        self._parser = httptools.HttpRequestParser(self)
        self._is_upgrade, self._is_resuming = False, True
        self._parser.feed_data(framing_head(self._headers))
        self._is_resuming = False
        self._parser.feed_data(rest)

    def _count(self, data: bytes, was_in_headers: bool, body_bytes: int) -> None:
        """Check received bytes that are not body against their limits."""
        if self._is_discarding:
            return
        if self._has_headers and not was_in_headers:
            self._framing_bytes += len(data) - body_bytes
            most = self._host.bounds.header_bytes_max + _FRAMING_PER_BODY_BYTE * self._body_bytes
            if self._framing_bytes > most:
                self.abort()
        elif not self._has_headers:
            # The parser buffers incomplete elements without reporting them.
            self._header_bytes += len(data)
            if not self.is_busy:
                self._refuse_too_long(self._header_bytes)

    # -- the parser ------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._is_resuming:
            return
        if self.is_busy:
            self._discard()
        if self._is_discarding:
            return
        self._host.set_idle(self, is_idle=True)
        self._url, self._headers = b"", []
        self._trailer_bytes, self._is_upgrade = 0, False
        self._has_headers, self._header_bytes, self._framing_bytes, self._body_bytes = False, 0, 0, 0
        self._await_head()

    def on_url(self, url: bytes) -> None:
        if not self._is_discarding and not self._is_resuming:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_discarding or self._is_resuming:
            return
        if self._has_headers:
            # Trailers, after the body, are ignored.
            self._trailer_bytes += len(name) + len(value) + 4
            self._refuse_too_long(self._trailer_bytes)
            return
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._is_discarding or self._is_resuming:
            return
        size = len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)
        if self._refuse_too_long(size):
            return
        refusal = check_head(self._headers, self._parser.get_http_version())
        if refusal is not None:
            self._refuse(refusal)
            return
        self._has_headers = True
        self._is_upgrade = self._parser.should_upgrade()
        self._host.set_idle(self, is_idle=False)
        self._clear_deadline()
        self._begin()

    def on_body(self, body: bytes) -> None:
        if not self._is_discarding and self.exchange is not None:
            self._body_bytes += len(body)
            self.exchange.feed(body)

    def on_message_complete(self) -> None:
        if self._is_upgrade:
            return
        if not self._is_discarding and self.exchange is not None:
            self.exchange.end()
            # Any further bytes belong to the next request.
            self._has_headers = False
            self._header_bytes = 0

    # -- requests --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        try:
            scope = self._compose_scope()
        except (httptools.HttpParserError, UnicodeDecodeError):
            self._refuse(UsageError("malformed request target"))
            return
        if self.is_spare and scope["path"] not in self._host.always_answered:
            self._refuse(
                GraphError("the server has too many connections; nothing was done, retry later", code="server.busy")
            )
            return
        is_last = self.is_spare or self._host.is_stopping or scope["http_version"] == "1.0"
        keeps_alive = self._parser.should_keep_alive() and not is_last
        self.exchange = exchange = Exchange(self, scope, keeps_alive=keeps_alive)
        self._host.start(exchange, lambda: self._end(exchange))

    def _compose_scope(self) -> dict[str, object]:
        url = httptools.parse_url(self._url)
        raw_path = url.path or b"/"
        path = raw_path.decode("ascii")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": self._parser.get_http_version(),
            "method": self._parser.get_method().decode("ascii"),
            "scheme": "http",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": url.query or b"",
            "root_path": "",
            "headers": self._headers,
            "client": (self.peer, 0),
            "server": None,
        }

    def _end(self, exchange: Exchange) -> None:
        """Finish a request whose application has returned."""
        if exchange is self.exchange and not exchange.is_complete:
            # A missing end is the only sign of a truncated response. A peer that does not read sees nothing anyway.
            if self.is_full or not exchange.has_begun:
                self.abort()
            else:
                self._close()

    def _refuse_too_long(self, size: int) -> bool:
        """Refuse headers or trailers of more bytes than the limit; return whether they were."""
        limit = self._host.bounds.header_bytes_max
        if size <= limit:
            return False
        self._refuse(
            LimitExceeded(
                f"request headers are limited to {limit} bytes; send fewer or shorter ones",
                resource="request_header_bytes",
                limit=limit,
                actual=size,
            )
        )
        return True

    def _refuse(self, error: OmniGraphError) -> None:
        """Send an error for a request that never reaches the application, and close the connection."""
        if self.is_busy:
            assert self.exchange is not None
            if self.exchange.is_received or self.exchange.has_begun:
                # A complete request is answered, whatever follows it.
                self._discard()
                if not self.exchange.is_received:
                    self.abort()
                return
            self.exchange.disconnect()
            self.exchange = None
        body = dump(error_body(error))
        status = error.kind.http_status
        head = f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self._linger()

    # -- the wire of an exchange -----------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    async def drain(self) -> None:
        await self._writable.wait()

    def pause_reading(self) -> None:
        if self._is_reading and not self._is_half_closed and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._is_reading and not self._is_half_closed and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()

    def complete(self) -> None:
        """Continue after the last byte of a response was written."""
        exchange = self.exchange
        assert exchange is not None
        if not exchange.is_received or self._is_discarding:
            self._linger()
        elif not exchange.keeps_alive or self._host.is_stopping:
            self._close()
        elif self.is_full:
            # Responses must not pile up: the next request is read once this response has been sent.
            self.pause_reading()
            self._set_deadline(self._host.bounds.stall_seconds, self.abort)
        else:
            self.resume_reading()
            self._await_next()

    def _await_head(self) -> None:
        bounds = self._host.bounds
        self._set_deadline(bounds.linger_seconds if self.is_spare else bounds.header_seconds, self._close)

    def _await_next(self) -> None:
        self._host.set_idle(self, is_idle=True)
        self._set_deadline(self._host.bounds.idle_seconds, self._close)

    # -- the end ---------------------------------------------------------------------------------------------------

    def shut_down(self) -> None:
        """Accept no more requests; one in flight is answered first."""
        if self.is_busy:
            assert self.exchange is not None
            self.exchange.keeps_alive = False
        else:
            self._close()

    def abort(self) -> None:
        """Close the connection at once, and drop unsent bytes, including those in kernel buffers."""
        if not self._is_lost:
            set_option(self._transport, socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()

    def _discard(self) -> None:
        """Ignore further input, and close the connection after the response in flight."""
        self._is_discarding = True
        if self.exchange is not None:
            self.exchange.keeps_alive = False

    def _linger(self) -> None:
        """Close the connection, but let a peer that is still sending read its response."""
        self._is_discarding = True
        self.resume_reading()
        self._host.set_idle(self, is_idle=False)
        if not self._transport.is_closing():
            self._transport.write_eof()
        self._set_deadline(self._host.bounds.linger_seconds, self.abort)

    def _close(self) -> None:
        """Close the connection once everything is sent, or after the maximum stall of a reader."""
        self._is_discarding = True
        self._host.set_idle(self, is_idle=False)
        self._transport.close()
        self._set_deadline(self._host.bounds.stall_seconds, self.abort)

    def _set_deadline(self, seconds: float, do: Callable[[], None]) -> None:
        self._clear_deadline()
        if self._is_lost:
            return
        self._deadline = self._loop.call_later(seconds, do)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
