"""One request and its response on a connection, as an ASGI application sees them.

Implements what HTTP/1.1 requires of a response, and knows nothing of routes. The connection and the sender enforce
deadlines; the request body waits here in a bounded buffer until it is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from omnigraph import clock
from omnigraph.errors import GraphError, OmniGraphError, UsageError
from omnigraph.limits import SERVER_STREAM_CHUNK_BYTES
from omnigraph.server.admission import Message
from omnigraph.server.observability import App, Scope

if TYPE_CHECKING:
    from omnigraph.server.http.connection import HttpConnection

_STATUS_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
INTERIM: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
# Statuses of responses without a body, whatever their headers say.
_BODILESS: Final = frozenset({204, 304})


class InvalidResponse(Exception):
    """The application sent a response that violates HTTP: a bug in this package."""


class Exchange:
    """One request and its response. `has_begun`: part of the response was sent; `is_complete`: all of it was."""

    def __init__(self, wire: HttpConnection, scope: Scope, *, keeps_alive: bool) -> None:
        self.scope = scope
        self.keeps_alive = keeps_alive
        self.is_received = False
        self.has_begun = False
        self.is_complete = False
        self._wire = wire
        self._expects_continue = any(
            name == b"expect" and value.lower() == b"100-continue" for name, value in scope["headers"]
        )
        self._body = bytearray()
        self._has_delivered_end = False
        self._is_disconnected = False
        self._event = asyncio.Event()
        self._head: bytes | None = None
        self._is_chunked = False
        # Bytes of the response body that are still to come; None without `Content-Length`.
        self._bytes_left: int | None = None
        self._last_part = b""
        self._is_bodiless = False

    async def run(self, app: App, when_done: Callable[[], None]) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        finally:
            when_done()

    # -- request ---------------------------------------------------------------------------------------------------

    def feed(self, part: bytes) -> None:
        """Buffer a part of the body; dropped once the response is complete."""
        if self.is_complete or self._is_disconnected:
            return
        self._body += part
        if len(self._body) > SERVER_STREAM_CHUNK_BYTES:
            self._wire.pause_reading()
        self._event.set()

    def end(self) -> None:
        """Record that the request body is complete."""
        self.is_received = True
        self._event.set()

    def disconnect(self) -> None:
        self._is_disconnected = True
        self._event.set()

    async def receive(self) -> Message:
        """Return the next part of the body; after the last one, wait until the client disconnects."""
        if self._expects_continue and not self.has_begun and not self._is_disconnected:
            self._expects_continue = False
            self._wire.write(INTERIM)
        while True:
            if self._is_disconnected or self.is_complete:
                return {"type": "http.disconnect"}
            if self._body or (self.is_received and not self._has_delivered_end):
                break
            self._event.clear()
            await self._event.wait()
        part, self._body = bytes(self._body), bytearray()
        self._has_delivered_end = self.is_received
        self._wire.resume_reading()
        return {"type": "http.request", "body": part, "more_body": not self.is_received}

    # -- response --------------------------------------------------------------------------------------------------

    async def send(self, message: Message) -> None:
        """Send the head or a part of the response, no faster than the client reads."""
        if self._is_disconnected:
            return
        if message["type"] == "http.response.start":
            self._head = self._compose_head(message["status"], message["headers"])
            return
        if self._head is None or self.is_complete:
            raise InvalidResponse("a part of the body was sent before the head or after the end of the response")
        is_last = not message.get("more_body", False)
        self._write(message.get("body", b""), is_last)
        if is_last:
            self.is_complete = True
            self._event.set()
            self._wire.complete()
        await self._wire.drain()

    def _compose_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        # A client that has not sent all of its request by the time of the response is not read any further.
        self.keeps_alive = self.keeps_alive and self.is_received
        self._is_bodiless = status in _BODILESS or self.scope["method"] == "HEAD"
        lines = [_STATUS_LINES.get(status) or f"HTTP/1.1 {status} \r\n".encode(), b"date: ", _date(), b"\r\n"]
        for name, value in headers:
            if b"\r" in value or b"\n" in value or b"\0" in value:
                raise InvalidResponse(f"header {name!r} has a line break in it")
            if name == b"content-length":
                self._bytes_left = int(value)
            elif name == b"connection":
                self.keeps_alive = self.keeps_alive and value.lower() != b"close"
                continue
            lines += [name, b": ", value, b"\r\n"]
        if self._bytes_left is None and not self._is_bodiless:
            if self.scope["http_version"] == "1.0":
                self.keeps_alive = False
            else:
                self._is_chunked = True
                lines.append(b"transfer-encoding: chunked\r\n")
        if not self.keeps_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        return b"".join(lines)

    def _write(self, body: bytes, is_last: bool) -> None:
        head = b"" if self.has_begun else self._head
        assert head is not None
        self.has_begun = True
        if self._is_bodiless:
            body = b""
        elif self._bytes_left is not None:
            self._bytes_left -= len(body)
            if self._bytes_left < 0 or (is_last and self._bytes_left):
                raise InvalidResponse("the length of the response differs from `Content-Length`")
            body, self._last_part = self._last_part + body, b""
            if self._bytes_left == 0 and not is_last:
                # A client that has all bytes sends its next request at once, while this one has not ended yet.
                body, self._last_part = b"", body
        elif self._is_chunked:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"0\r\n\r\n" if is_last else b"")
        if head or body:
            self._wire.write(head + body)


_date_kept: tuple[int, bytes] = (0, b"")


def _date() -> bytes:
    """Return the header `Date`, composed once a second."""
    global _date_kept
    second = clock.now_us() // 1_000_000
    if second != _date_kept[0]:
        from email.utils import formatdate

        _date_kept = (second, formatdate(second, usegmt=True).encode())
    return _date_kept[1]


Headers = Sequence[tuple[bytes, bytes]]


def check_head(headers: Headers, version: str) -> OmniGraphError | None:
    """Return the error for a request with these headers, names in lower case; None if they are valid.

    >>> check_head([(b"host", b"a"), (b"content-length", b"2")], "1.1") is None
    True
    >>> check_head([(b"host", b"a"), (b"content-length", b"2"), (b"transfer-encoding", b"chunked")], "1.1").code
    'usage.invalid'
    >>> check_head([], "1.1").code, check_head([], "1.0"), check_head([], "0.9").code
    ('usage.invalid', None, 'usage.invalid')
    """
    if version not in ("1.0", "1.1"):
        return UsageError("the request line must name HTTP/1.1 or HTTP/1.0; nothing was done")
    hosts = values_of(headers, b"host")
    if len(hosts) > 1 or (not hosts and version == "1.1"):
        return UsageError("a request needs exactly one `Host` header; nothing was done")
    codings, lengths = values_of(headers, b"transfer-encoding"), values_of(headers, b"content-length")
    if codings and ([coding.strip().lower() for coding in codings] != [b"chunked"] or version == "1.0"):
        return UsageError("the only supported `Transfer-Encoding` is `chunked`, once, in HTTP/1.1; nothing was done")
    if len(lengths) + len(codings) > 1:
        return UsageError("`Content-Length` and `Transfer-Encoding` exclude each other; send one of them, once")
    if values_of(headers, b"content-encoding"):
        return GraphError(
            "encoded bodies are not supported; send the body without `Content-Encoding`", code="request.media_type"
        )
    return None


def framing_head(headers: Headers) -> bytes:
    """Return a minimal request head with the body framing of these headers."""
    framing = [name + b": " + value for name, value in headers if name in (b"content-length", b"transfer-encoding")]
    return b"\r\n".join([b"POST / HTTP/1.1", *framing, b"", b""])


def values_of(headers: Headers, header: bytes) -> list[bytes]:
    return [value for name, value in headers if name == header]
