"""Runs a server: binds, says where, serves until it is told to stop, and lets requests finish.

With `protocol`, the only module that knows uvicorn.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from types import FrameType
from typing import Final

import uvicorn

from omnigraph import settings
from omnigraph.errors import UsageError
from omnigraph.graph import Graph
from omnigraph.limits import (
    SERVER_ANSWER_SECONDS_MAX,
    SERVER_CANCEL_SECONDS_MAX,
    SERVER_CLOSE_SECONDS_MAX,
    SERVER_CONNECTIONS_MAX,
    SERVER_SHUTDOWN_SECONDS_MAX,
)
from omnigraph.server.admission import read_admission
from omnigraph.server.app import build
from omnigraph.server.hosting import House
from omnigraph.server.protocol import BoundedHttp
from omnigraph.server.service import Service

_log: Final = logging.getLogger("omnigraph.server")
# Whoever has to be answered was by then; what remains are readers of streams, and ending what storage holds.
_GRACEFUL_SECONDS: Final = SERVER_SHUTDOWN_SECONDS_MAX - SERVER_CLOSE_SECONDS_MAX - 2 * SERVER_CANCEL_SECONDS_MAX


class Server(uvicorn.Server):
    """A uvicorn server that ends itself after it was told to, instead of by the signal that told it."""

    def __init__(self, service: Service, when_ready: Callable[[str], None]) -> None:
        config = uvicorn.Config(
            build(service),
            loop="uvloop",
            http=BoundedHttp,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=SERVER_CONNECTIONS_MAX,
            timeout_graceful_shutdown=_GRACEFUL_SECONDS,
        )
        super().__init__(config)
        self._service = service
        self._when_ready = when_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        assert sockets is not None
        self._when_ready(address_of(sockets[0]))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().call_later(SERVER_ANSWER_SECONDS_MAX, self._service.is_late.set)
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, self._stop) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        _log.info("stopping", extra={"signal": signal.Signals(number).name})
        self.stop()

    def stop(self) -> None:
        """Take no more requests and end when those under way have; a second call waits for nobody."""
        self.force_exit = self.should_exit
        self._service.is_stopping = True
        self.should_exit = True


def bind(address: str) -> socket.socket:
    """Return a socket that listens at `host:port`; port 0 is any free one."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and int(port) < 65_536):
        raise UsageError(f"`{address}` is not an address to listen at; write it as `127.0.0.1:8080`", bind=address)
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, int(port)), family=family)
    except OSError as error:
        raise UsageError(
            f"cannot listen at `{address}`: {error.strerror or error}; choose another with `--bind`", bind=address
        ) from None


def address_of(listening: socket.socket) -> str:
    """Return where a socket listens."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def open_service(house: House) -> Service:
    """Return a service over open graphs, in the bounds that the settings name."""
    return Service(house, read_admission(), settings.whole("OMNIGRAPH_SERVER_THREADS", least=1))


def serve(
    house: House, listening: socket.socket, when_ready: Callable[[str], None], *, every: timedelta | None
) -> bool:
    """Serve until the process is told to stop; `when_ready` is told the address, `every` how often to reconcile.

    False when storage still holds threads after the time that a stop may take: then the process has to be ended.
    """
    service = open_service(house)
    if every is not None:
        # What a server does on its own is no actor's work, so no policy is asked.
        handles = (Graph(one.graph.core.kernel) for one in house.hosted.values())
        service.reconcilers = tuple(handle.reconciler(every) for handle in handles)
    try:
        with ExitStack() as running:
            for one in service.reconcilers:
                one.start()
                running.callback(one.stop, SERVER_CANCEL_SECONDS_MAX)
            Server(service, when_ready).run(sockets=[listening])
    finally:
        listening.close()
        has_ended = service.close()
    return has_ended
