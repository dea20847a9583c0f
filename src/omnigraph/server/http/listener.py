"""The listener: accepts connections within limits, in total and per peer, and closes them on shutdown.

Written here because uvicorn, hypercorn and granian fail a quarter to a third of the tests of hostile clients, and most
lines are limits that any of them would need: see `CONTRIBUTING.md`, "Libraries we chose". httptools (llhttp) parses.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from omnigraph.limits import (
    SERVER_CONNECTIONS_MAX,
    SERVER_CONNECTIONS_PER_PEER_MAX,
    SERVER_HEADER_BYTES_MAX,
    SERVER_HEADER_SECONDS_MAX,
    SERVER_IDLE_SECONDS_MAX,
    SERVER_LINGER_SECONDS_MAX,
    SERVER_LOAD_BODY_BYTES_MAX,
    SERVER_SPARE_CONNECTIONS,
    SERVER_STALL_SECONDS_MAX,
)
from omnigraph.server.http.connection import HttpConnection
from omnigraph.server.http.exchange import Exchange
from omnigraph.server.observability import App

_BACKLOG: Final = 1_024


@dataclass(frozen=True, slots=True)
class HostBounds:
    """The limits of connections; the defaults are named limits, tests use smaller ones."""

    connections_max: int = SERVER_CONNECTIONS_MAX
    connections_per_peer_max: int = SERVER_CONNECTIONS_PER_PEER_MAX
    spare_connections: int = SERVER_SPARE_CONNECTIONS
    header_bytes_max: int = SERVER_HEADER_BYTES_MAX
    header_seconds: float = SERVER_HEADER_SECONDS_MAX
    idle_seconds: float = SERVER_IDLE_SECONDS_MAX
    linger_seconds: float = SERVER_LINGER_SECONDS_MAX
    linger_bytes_max: int = SERVER_LOAD_BODY_BYTES_MAX
    stall_seconds: float = SERVER_STALL_SECONDS_MAX


class Host:
    """The connections of a server. `always_answered` are the paths that are served on spare connections."""

    def __init__(self, app: App, bounds: HostBounds, always_answered: frozenset[str]) -> None:
        self.bounds = bounds
        self.always_answered = always_answered
        self.is_stopping = False
        self.connections: set[HttpConnection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self._app = app
        self._peers: Counter[str] = Counter()
        # Connections that wait for a request, or for the rest of its head, oldest first; the first is closed first.
        self._idle: OrderedDict[HttpConnection, None] = OrderedDict()
        self._spare: OrderedDict[HttpConnection, None] = OrderedDict()
        self._servers: list[asyncio.Server] = []

    async def listen(self, sockets: list[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        for listening in sockets:
            self._servers.append(
                await loop.create_server(lambda: HttpConnection(self), sock=listening, backlog=_BACKLOG)
            )

    # -- connections -----------------------------------------------------------------------------------------------

    def enter(self, connection: HttpConnection) -> None:
        """Add a new connection; beyond the limit, close an idle one, or mark the new one as spare."""
        peer = connection.peer
        if self._peers[peer] >= self.bounds.connections_per_peer_max:
            self._close_idle(lambda candidate: candidate.peer == peer)
        elif len(self.connections) - len(self._spare) >= self.bounds.connections_max:
            self._close_idle(lambda candidate: True)
        is_full = len(self.connections) - len(self._spare) >= self.bounds.connections_max
        self.connections.add(connection)
        if is_full or self._peers[peer] >= self.bounds.connections_per_peer_max:
            connection.is_spare = True
            if len(self._spare) >= self.bounds.spare_connections:
                # The newest one replaces the oldest, so that holding spare connections gains nothing.
                oldest, _ = self._spare.popitem(last=False)
                self.connections.discard(oldest)
                oldest.abort()
            self._spare[connection] = None
            return
        self._peers[peer] += 1
        self._idle[connection] = None

    def leave(self, connection: HttpConnection) -> None:
        self.connections.discard(connection)
        self._idle.pop(connection, None)
        if connection.is_spare:
            self._spare.pop(connection, None)
            return
        self._peers[connection.peer] -= 1
        if not self._peers[connection.peer]:
            del self._peers[connection.peer]

    def set_idle(self, connection: HttpConnection, *, is_idle: bool) -> None:
        """Record whether a connection waits for a request or for the rest of its head."""
        self._idle.pop(connection, None)
        if is_idle and not connection.is_spare:
            self._idle[connection] = None

    def _close_idle(self, is_eligible: Callable[[HttpConnection], bool]) -> None:
        chosen = next((connection for connection in self._idle if is_eligible(connection)), None)
        if chosen is not None:
            # Release its slot now instead of when its transport has closed.
            chosen.abort()
            self.leave(chosen)
            chosen.is_spare = True

    # -- requests --------------------------------------------------------------------------------------------------

    def start(self, exchange: Exchange, when_done: Callable[[], None]) -> None:
        task = asyncio.get_running_loop().create_task(exchange.run(self._app, when_done))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # -- the end ---------------------------------------------------------------------------------------------------

    def shut_down(self) -> None:
        """Stop accepting connections; requests in flight are answered."""
        self.is_stopping = True
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.shut_down()

    async def wait_until_empty(self) -> None:
        """Return when the last connection and the last request have ended."""
        while self.connections or self.tasks:
            await asyncio.sleep(0.02)

    async def cancel_requests(self, seconds: float) -> None:
        """Cancel the requests in flight; their clients get an error."""
        if self.tasks:
            for task in list(self.tasks):
                task.cancel()
            await asyncio.wait(list(self.tasks), timeout=seconds)

    async def abort_all(self) -> None:
        while self.connections:
            for connection in list(self.connections):
                connection.abort()
            await asyncio.sleep(0)
