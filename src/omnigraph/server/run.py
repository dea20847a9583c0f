"""Runs a server: binds, serves until SIGINT or SIGTERM, and drains in-flight requests.

The ASGI application runs on `http.listener.Host`.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Final

from omnigraph import clock, settings
from omnigraph.errors import UsageError
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
from omnigraph.server.registry import GraphRegistry, Reconcilers
from omnigraph.server.service import Service

_STOPPING: Final = (signal.SIGINT, signal.SIGTERM)
_log: Final = logging.getLogger("omnigraph.server")
# By then all requests have their response; streams are still read, and storage may hold threads.
_GRACEFUL_SECONDS: Final = SERVER_SHUTDOWN_SECONDS_MAX - SERVER_CLOSE_SECONDS_MAX - 2 * SERVER_CANCEL_SECONDS_MAX

# A tenth of Python's own interval.
_SWITCH_SECONDS: Final = 0.0005


class Server:
    """Serves until stopped; exits with status 0 on SIGINT and SIGTERM instead of re-raising the signal."""

    def __init__(self, service: Service, when_ready: Callable[[str], None], bounds: HostBounds | None = None) -> None:
        self.host = Host(build(service), read_bounds() if bounds is None else bounds, ALWAYS_ANSWERED)
        self.force_exit = False
        self._service = service
        self._when_ready = when_ready
        self._is_stopping = threading.Event()
        self._stopped: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, sockets: list[socket.socket]) -> None:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self._serve(sockets))

    async def _serve(self, sockets: list[socket.socket]) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        with self._signals():
            await self.host.listen(sockets)
            watching = asyncio.create_task(self._service.watch_configuration())
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
            # A second `stop` skips the wait.
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
        for number in _STOPPING:
            loop.add_signal_handler(number, self._stop_by, number)
        loop.add_signal_handler(signal.SIGHUP, self._service.reload_soon)
        try:
            yield
        finally:
            for number in (*_STOPPING, signal.SIGHUP):
                loop.remove_signal_handler(number)

    def _stop_by(self, number: signal.Signals) -> None:
        _log.info("stopping", extra={"signal": number.name})
        self.stop()

    def stop(self) -> None:
        """Stop accepting requests and exit once in-flight ones finish; a second call exits immediately."""
        self.force_exit = self._is_stopping.is_set()
        self._is_stopping.set()
        self._service.is_stopping = True
        if self._loop is not None and self._stopped is not None:
            # The loop may be gone already; then there is nothing to stop.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopped.set)


def read_bounds() -> HostBounds:
    """Return the configured bounds, reduced to what the open-file limit allows."""
    per_peer = settings.read_integer("OMNIGRAPH_SERVER_CONNECTIONS_PER_PEER", least=1)
    return HostBounds(connections_max=_raise_file_limit(SERVER_CONNECTIONS_MAX), connections_per_peer_max=per_peer)


def _raise_file_limit(connections: int) -> int:
    """Raise the soft open-file limit; return how many connections fit."""
    try:
        import resource
    except ImportError:  # where files are not counted
        return connections
    needed = connections + SERVER_SPARE_CONNECTIONS + SERVER_FILES_MAX
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    has_room = soft == resource.RLIM_INFINITY or soft >= needed
    return connections if has_room else max(soft - SERVER_SPARE_CONNECTIONS - SERVER_FILES_MAX, 1)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the uvloop factory, if installed."""
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
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def open_service(registry: GraphRegistry) -> Service:
    threads = settings.read_integer("OMNIGRAPH_SERVER_THREADS", least=1)
    hosts = read_allowed_hosts(has_tokens=bool(registry.tokens.entries))
    return Service(registry, read_admission(), threads, hosts=hosts)


@contextmanager
def _switching_threads_often() -> Iterator[None]:
    """Let threads take the interpreter from each other after less time than Python gives them.

    A request changes threads several times. Each time it waits for every thread that computes, such as those that
    compile the long queries of another caller, and each of these may go on for the whole interval.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def serve(
    registry: GraphRegistry, listening: socket.socket, when_ready: Callable[[str], None], *, every: timedelta | None
) -> bool:
    """Serve until stopped; calls `when_ready` with the address, and reconciles at the interval `every`.

    Returns False if storage still blocks threads after the shutdown deadline: the process then has to be killed.
    """
    service = open_service(registry)
    service.reconcilers = Reconcilers(every)
    try:
        service.reconcilers.follow(served.graph for served in registry.served.values())
        try:
            with _switching_threads_often():
                Server(service, when_ready).run(sockets=[listening])
        finally:
            service.reconcilers.stop()
    finally:
        listening.close()
        has_ended = service.close()
    return has_ended
