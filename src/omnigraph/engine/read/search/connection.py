"""Connections to one address over HTTP, kept open between requests; through a proxy where the environment names one.

Knows nothing of embeddings; only `provider` uses it.
"""

from __future__ import annotations

import base64
import ssl
import weakref
from collections.abc import Callable
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from threading import Lock
from typing import TypeVar
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

T = TypeVar("T")
Send = Callable[[HTTPConnection], None]


class Connections:
    """Connections to one address; threads may share them, and each request has one for itself."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url)
        self._proxy = _proxy_of(self._address)
        self._headers = _credentials(self._proxy)
        is_forwarded = self._proxy is not None and self._address.scheme == "http"
        self._base = url if is_forwarded else self._address.path
        self._tls = ssl.create_default_context() if self._address.scheme == "https" else None
        self._idle: list[HTTPConnection] = []
        self._lock = Lock()
        weakref.finalize(self, _close_all, self._idle)

    def post(
        self, path: str, body: bytes, headers: dict[str, str], timeout: float, read: Callable[[HTTPResponse], T]
    ) -> T:
        """Send one request and return what `read` makes of the answer; no redirect is followed."""

        def send(connection: HTTPConnection) -> None:
            connection.timeout = timeout
            if connection.sock is not None:
                connection.sock.settimeout(timeout)
            own = self._headers if self._tls is None else {}
            connection.request("POST", self._base + path, body, headers | own)

        with self._lock:
            kept = self._idle.pop() if self._idle else None
        if kept is not None:
            try:
                return self._exchange(kept, send, read)
            except ConnectionError:
                # The other side ended it while it was idle, which says nothing about a new one.
                pass
        return self._exchange(self._connection(), send, read)

    def _exchange(self, connection: HTTPConnection, send: Send, read: Callable[[HTTPResponse], T]) -> T:
        is_kept = False
        try:
            send(connection)
            with connection.getresponse() as response:
                answer = read(response)
                # What was not read to its end would be taken for the start of the next answer.
                is_kept = not response.will_close and (response.isclosed() or response.length == 0)
            return answer
        finally:
            if is_kept:
                with self._lock:
                    self._idle.append(connection)
            else:
                connection.close()

    def _connection(self) -> HTTPConnection:
        near = self._proxy or self._address
        host, port = near.hostname or "", near.port
        if self._tls is None:
            return HTTPConnection(host, port)
        made = HTTPSConnection(host, port, context=self._tls)
        if self._proxy is not None:
            made.set_tunnel(self._address.hostname or "", self._address.port, self._headers)
        return made


def _proxy_of(address: SplitResult) -> SplitResult | None:
    found = getproxies().get(address.scheme)
    if not found or proxy_bypass(address.netloc):
        return None
    return urlsplit(found if "//" in found else f"//{found}")


def _credentials(proxy: SplitResult | None) -> dict[str, str]:
    if proxy is None or proxy.username is None:
        return {}
    plain = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(plain.encode()).decode()}"}


def _close_all(connections: list[HTTPConnection]) -> None:
    for connection in connections:
        connection.close()
