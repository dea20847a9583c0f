"""HTTP/1.1 on one connection, with a bound on every byte and second that a peer can make it last.

| A peer that | meets |
|---|---|
| sends headers slowly, or without end | one deadline from the first byte on, and a bound on their bytes |
| holds many connections with unfinished headers | the end of the oldest of them, when connections run out |
| sends trailers or extensions of chunks without end | a bound on all bytes that are neither headers nor body |
| goes on with its body after it was answered | `Connection: close` and one deadline; nothing of it is kept |
| sends the next request before this one is answered | the answer, and then the end of the connection |
| does not read its answer | the minimum read rate; then the connection is reset, with all that waits in it |
| hangs up | its request is cancelled, whatever else it had sent |
| closes its half after a whole request | the answer, and then the end of the connection |
| asks for another protocol | the answer in this one |
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


# A chunk of one byte takes five more on the wire; what takes more than this is no chunk for the sake of its bytes.
_FRAMING_PER_BODY_BYTE: Final = 8
# What is parsed before it is held against bounds.
_SLICE_BYTES: Final = 16 * 1024
# Closing sends a reset, and waits for nothing.
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
        # From here on nothing that arrives is looked at.
        self._is_discarding = False
        self._discarded = 0
        self.peer = ""
        # A spare connection is one too many: it is there for the routes that always answer, and for one request.
        self.is_spare = False
        self.exchange: Exchange | None = None
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._has_headers = False
        self._header_bytes = 0
        self._body_bytes = 0
        self._framing_bytes = 0
        self._expects_continue = False
        self._trailer_bytes = 0
        # The request asks for another protocol, and its body is still to be read; then the parser is given its framing.
        self._is_upgrade = False
        self._is_resuming = False
        self._is_half_closed = False
        self._is_lost = False

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        return self.exchange is not None and not self.exchange.is_complete

    @property
    def is_full(self) -> bool:
        """Whether the peer does not take what is sent to it."""
        return not self._writable.is_set()

    # -- the transport ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.peer = peer_of(transport)
        if _NOTSENT is not None:
            # What a reader does not take waits here, where it is counted, and not in megabytes of the kernel's.
            set_option(transport, socket.IPPROTO_TCP, _NOTSENT, SERVER_STREAM_CHUNK_BYTES)
        self._host.enter(self)
        bounds = self._host.bounds
        self._set_deadline(bounds.linger_seconds if self.is_spare else bounds.header_seconds, self._close)

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
        # Its request is whole, and it may still read the answer; or it has hung up, which looks the same from here.
        self._is_half_closed = True
        self._discard()
        if not exchange.has_begun and exchange.scope["http_version"] == "1.1":
            # Any client skips this. One that has hung up answers with a reset.
            self.write(INTERIM)
        self._watch_half_closed()
        return True

    def _watch_half_closed(self) -> None:
        """End the connection, and with it the request, when the peer turns out to have closed both halves."""
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
        # In slices, so that bounds hold within what arrives at once, too.
        for start in range(0, len(data), _SLICE_BYTES):
            if not self._parse(data[start : start + _SLICE_BYTES]):
                return

    def _parse(self, data: bytes) -> bool:
        """Parse a part of what has arrived; return whether to go on with what comes after it."""
        was_in_headers = not self._has_headers
        before = self._body_bytes
        try:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                if not self._is_discarding:
                    self._go_on_without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            # A request that was refused already is not answered twice for what follows it.
            if not self._is_discarding:
                self._refuse(UsageError("this is not a well-formed request of HTTP/1.1; nothing was done"))
        else:
            self._count(data, was_in_headers, self._body_bytes - before)
        return not self._is_discarding

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        """Read the body of a request that asks for another protocol; the parser leaves it to that one."""
        self._parser = httptools.HttpRequestParser(self)
        self._is_upgrade, self._is_resuming = False, True
        self._parser.feed_data(framing_head(self._headers))
        self._is_resuming = False
        self._parser.feed_data(rest)

    def _count(self, data: bytes, was_in_headers: bool, body_bytes: int) -> None:
        """Hold what has arrived, and is no body, against its bounds."""
        if self._is_discarding:
            return
        if self._has_headers and not was_in_headers:
            self._framing_bytes += len(data) - body_bytes
            self._check_framing()
        elif not self._has_headers:
            # The parser keeps to itself what it has not seen the end of.
            self._count_header(len(data))

    # -- the parser ------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._is_resuming:
            return
        if self.is_busy:
            self._discard()
        if self._is_discarding:
            return
        self._host.set_idle(self, is_idle=True)
        self._url, self._headers, self._expects_continue = b"", [], False
        self._trailer_bytes, self._is_upgrade = 0, False
        self._has_headers, self._header_bytes, self._framing_bytes, self._body_bytes = False, 0, 0, 0
        bounds = self._host.bounds
        self._set_deadline(bounds.linger_seconds if self.is_spare else bounds.header_seconds, self._close)

    def on_url(self, url: bytes) -> None:
        if not self._is_discarding and not self._is_resuming:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_discarding or self._is_resuming:
            return
        if self._has_headers:
            # After the headers come trailers, which nothing here asks for.
            self._trailer_bytes += len(name) + len(value) + 4
            if self._trailer_bytes > self._host.bounds.header_bytes_max:
                self._refuse(_too_long(self._host.bounds.header_bytes_max, self._trailer_bytes))
            return
        name = name.lower()
        self._expects_continue |= name == b"expect" and value.lower() == b"100-continue"
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._is_discarding or self._is_resuming:
            return
        size = len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)
        if size > self._host.bounds.header_bytes_max:
            self._refuse(_too_long(self._host.bounds.header_bytes_max, size))
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
            # What follows belongs to the next request.
            self._has_headers = False
            self._header_bytes = 0

    def _count_header(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > self._host.bounds.header_bytes_max and not self.is_busy:
            self._refuse(_too_long(self._host.bounds.header_bytes_max, self._header_bytes))

    def _check_framing(self) -> None:
        most = self._host.bounds.header_bytes_max + _FRAMING_PER_BODY_BYTE * self._body_bytes
        if self._framing_bytes > most:
            self.abort()

    # -- requests --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        try:
            scope = self._compose_scope()
        except (httptools.HttpParserError, UnicodeDecodeError):
            self._refuse(UsageError("the address of this request cannot be read"))
            return
        if self.is_spare and scope["path"] not in self._host.always_answered:
            self._refuse(
                GraphError("the server has too many connections; nothing was done, retry later", code="server.busy")
            )
            return
        is_last = self.is_spare or self._host.is_stopping or scope["http_version"] == "1.0"
        self.exchange = exchange = Exchange(
            self,
            scope,
            keeps_alive=self._parser.should_keep_alive() and not is_last,
            expects_continue=self._expects_continue,
        )
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
        """Look after a request whose application has returned."""
        if exchange is self.exchange and not exchange.is_complete:
            # Only a reader that sees no end knows that the answer broke off. One that does not read sees nothing.
            if self.is_full or not exchange.has_begun:
                self.abort()
            else:
                self._close()

    def _refuse(self, error: OmniGraphError) -> None:
        """Answer what never becomes a request of the application, and end the connection."""
        if self.is_busy:
            assert self.exchange is not None
            if self.exchange.is_received or self.exchange.has_begun:
                # A request that is whole is answered, whatever comes after it.
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
        if not self._writable.is_set():
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
        """Go on after the last byte of an answer was written."""
        exchange = self.exchange
        assert exchange is not None
        if not exchange.is_received or self._is_discarding:
            self._linger()
        elif not exchange.keeps_alive or self._host.is_stopping:
            self._close()
        elif self.is_full:
            # Answers must not pile up: the next request is not read before this one's answer is.
            self.pause_reading()
            self._set_deadline(self._host.bounds.stall_seconds, self.abort)
        else:
            self.resume_reading()
            self._await_next()

    def _await_next(self) -> None:
        self._host.set_idle(self, is_idle=True)
        self._set_deadline(self._host.bounds.idle_seconds, self._close)

    # -- the end ---------------------------------------------------------------------------------------------------

    def shut_down(self) -> None:
        """Take no more requests; one that is under way is answered first."""
        if self.is_busy:
            assert self.exchange is not None
            self.exchange.keeps_alive = False
        else:
            self._close()

    def abort(self) -> None:
        """End the connection at once, and drop what was not sent yet, in the kernel, too."""
        if not self._is_lost:
            set_option(self._transport, socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()

    def _discard(self) -> None:
        """Look at nothing more that arrives, and end the connection after the answer that is under way."""
        self._is_discarding = True
        if self.exchange is not None:
            self.exchange.keeps_alive = False

    def _linger(self) -> None:
        """End the connection, and let the peer read its answer though it may still be sending."""
        self._is_discarding = True
        self.resume_reading()
        self._host.set_idle(self, is_idle=False)
        if not self._transport.is_closing():
            self._transport.write_eof()
        self._set_deadline(self._host.bounds.linger_seconds, self.abort)

    def _close(self) -> None:
        """End the connection when all is sent, or after the time that a reader may take nothing."""
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


def _too_long(limit: int, actual: int) -> LimitExceeded:
    return LimitExceeded(
        f"the headers of a request may have {limit} bytes; send fewer or shorter ones",
        resource="request_header_bytes",
        limit=limit,
        actual=actual,
    )
