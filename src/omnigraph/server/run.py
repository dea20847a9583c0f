"""Runs a server: binds, says where, serves until it is told to stop, and lets requests finish.

The application is ASGI; `host` is what it runs on.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from typing import Final

from omnigraph import clock, settings
from omnigraph.errors import UsageError
from omnigraph.graph import Graph
from omnigraph.limits import (
    SERVER_ANSWER_SECONDS_MAX,
    SERVER_CANCEL_SECONDS_MAX,
    SERVER_CLOSE_SECONDS_MAX,
    SERVER_CONNECTIONS_MAX,
    SERVER_FILES_MAX,
    SERVER_SHUTDOWN_SECONDS_MAX,
    SERVER_SPARE_CONNECTIONS,
)
from omnigraph.server.admission import read_admission
from omnigraph.server.app import build
from omnigraph.server.auth import read_allowed_hosts
from omnigraph.server.handlers.admin import ALWAYS_ANSWERED
from omnigraph.server.http.listener import Host, HostBounds
from omnigraph.server.registry import House
from omnigraph.server.reload import watch_configuration
from omnigraph.server.service import Service

_STOPPING: Final = (signal.SIGINT, signal.SIGTERM)
_log: Final = logging.getLogger("omnigraph.server")
# Whoever has to be answered was by then; what remains are readers of streams, and ending what storage holds.
_GRACEFUL_SECONDS: Final = SERVER_SHUTDOWN_SECONDS_MAX - SERVER_CLOSE_SECONDS_MAX - 2 * SERVER_CANCEL_SECONDS_MAX


class Server:
    """Serves until it is told to stop, and ends itself then, instead of by the signal that told it."""

    def __init__(self, service: Service, when_ready: Callable[[str], None], bounds: HostBounds | None = None) -> None:
        self.host = Host(build(service), read_bounds() if bounds is None else bounds, ALWAYS_ANSWERED)
        self.force_exit = False
        self._service = service
        self._when_ready = when_ready
        self._is_stopping = threading.Event()
        self._stopped: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, sockets: list[socket.socket]) -> None:
        """Serve on sockets that listen."""
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self._serve(sockets))

    async def _serve(self, sockets: list[socket.socket]) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        with self._signals():
            await self.host.listen(sockets)
            watching = asyncio.create_task(watch_configuration(self._service))
            self._when_ready(address_of(sockets[0]))
            if not self._is_stopping.is_set():
                await self._stopped.wait()
            watching.cancel()
            await self._end()

    async def _end(self) -> None:
        late = asyncio.get_running_loop().call_later(SERVER_ANSWER_SECONDS_MAX, self._service.is_late.set)
        self.host.shut_down()
        ending = asyncio.create_task(self.host.wait_until_empty())
        try:
            # A second call to stop waits for nothing.
            deadline = clock.elapsed() + _GRACEFUL_SECONDS
            while not ending.done() and not self.force_exit and clock.elapsed() < deadline:
                await asyncio.wait((ending,), timeout=0.1)
        finally:
            ending.cancel()
            late.cancel()
        await self.host.cancel_requests(SERVER_CANCEL_SECONDS_MAX)
        await self.host.abort_all()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for one in _STOPPING:
            loop.add_signal_handler(one, self._stop_by, one)
        loop.add_signal_handler(signal.SIGHUP, self._service.reload_soon)
        try:
            yield
        finally:
            for one in (*_STOPPING, signal.SIGHUP):
                loop.remove_signal_handler(one)

    def _stop_by(self, number: signal.Signals) -> None:
        _log.info("stopping", extra={"signal": number.name})
        self.stop()

    def stop(self) -> None:
        """Take no more requests and end when those under way have; a second call waits for nothing."""
        self.force_exit = self._is_stopping.is_set()
        self._is_stopping.set()
        self._service.is_stopping = True
        if self._loop is not None and self._stopped is not None:
            # The loop may be gone already; then there is nothing to stop.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopped.set)


def read_bounds() -> HostBounds:
    """Return the bounds that the settings ask for, as far as the process may have files open."""
    per_peer = settings.whole("OMNIGRAPH_SERVER_CONNECTIONS_PER_PEER", least=1)
    return HostBounds(connections_max=_raise_file_limit(SERVER_CONNECTIONS_MAX), connections_per_peer_max=per_peer)


def _raise_file_limit(connections: int) -> int:
    """Let the process have a file open for each connection beside its own; return how many connections fit."""
    try:
        import resource
    except ImportError:  # where files are not counted
        return connections
    wanted = connections + SERVER_SPARE_CONNECTIONS + SERVER_FILES_MAX
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    has_room = soft == resource.RLIM_INFINITY or soft >= wanted
    return connections if has_room else max(soft - SERVER_SPARE_CONNECTIONS - SERVER_FILES_MAX, 1)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the faster event loop, where there is one."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


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
    threads = settings.whole("OMNIGRAPH_SERVER_THREADS", least=1)
    hosts = read_allowed_hosts(has_tokens=bool(house.tokens.entries))
    return Service(house, read_admission(), threads, hosts=hosts)


def serve(
    house: House, listening: socket.socket, when_ready: Callable[[str], None], *, every: timedelta | None
) -> bool:
    """Serve until the process is told to stop; `when_ready` is told the address, `every` how often to reconcile.

    False when storage still holds threads after the time that a stop may take: then the process has to be ended.
    """
    service = open_service(house)
    if every is not None:
        # What a server does on its own is no actor's work, so no policy is asked.
        handles = (Graph(one.graph.session.kernel) for one in house.hosted.values())
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
