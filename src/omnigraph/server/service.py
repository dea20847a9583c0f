"""The request pipeline: authentication, graph lookup, authorization, admission; then the handler in a thread.

Errors are raised with their codes; `app` turns them into responses.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from omnigraph import wire
from omnigraph.engine.query.budget import CancelToken
from omnigraph.errors import (
    ConflictError,
    GraphError,
    OmniGraphError,
    PolicyDenied,
    StorageError,
    StorageKind,
    UsageError,
)
from omnigraph.graph import session_of
from omnigraph.ids import is_ulid
from omnigraph.limits import (
    SERVER_BODY_BYTES_MAX,
    SERVER_CANCEL_SECONDS_MAX,
    SERVER_CLOSE_SECONDS_MAX,
    SERVER_FRONT_THREADS,
    SERVER_LOAD_SECONDS_MAX,
    SERVER_OWN_THREADS,
    SERVER_RELOAD_SECONDS,
    SERVER_SMALL_WRITE_BYTES,
    SERVER_WRITE_SECONDS_MAX,
)
from omnigraph.manifest.publish import Publication, unknown_outcome, watched
from omnigraph.server import observability as names
from omnigraph.server.admission import (
    Admission,
    ClientDisconnected,
    FairSlots,
    Receive,
    check_length,
    read_body,
    spool_body,
    wait_for_disconnect,
)
from omnigraph.server.auth import AllowedHosts, deny_early
from omnigraph.server.observability import Metrics, Scope, request_log
from omnigraph.server.registry import GraphRegistry, Reconcilers, listed
from omnigraph.server.responses import Call, MinimumRate, Response, Streams
from omnigraph.server.routes import Check, Route
from omnigraph.wire import JSON, NDJSON, from_json, from_query

R = TypeVar("R")

_RESOURCES = {"json": "request_body_bytes", "ndjson": "graph_batch_request_bytes"}
_MEDIA = {"json": JSON, "ndjson": NDJSON}
# The metrics that count errors, by code; every code that begins with `conflict.` is a conflict, too.
_COUNTED = {
    "precondition.failed": names.CONFLICTS,
    "policy.denied": names.DENIALS,
    "request.too_many": names.REFUSALS,
}


class Service:
    """A running server: its graphs, thread pools and metrics."""

    def __init__(
        self,
        registry: GraphRegistry,
        admission: Admission,
        threads: int,
        *,
        hosts: AllowedHosts | None = None,
        minimum_rate: MinimumRate | None = None,
        reload_seconds: float = SERVER_RELOAD_SECONDS,
    ) -> None:
        self.registry = registry
        self.hosts = AllowedHosts() if hosts is None else hosts
        self.minimum_rate = MinimumRate() if minimum_rate is None else minimum_rate
        self.admission = admission
        self.reload_seconds = reload_seconds
        self.metrics = Metrics()
        self.streams = Streams()
        self.is_stopping = False
        # Set when in-flight requests have to be answered at once, because the process must exit soon.
        self.is_late = asyncio.Event()
        self.reconcilers = Reconcilers()
        # Writes queue for their branch; separate threads keep them from blocking reads.
        self.readers = ThreadPoolExecutor(threads, "omnigraph-read")
        # A few extra threads for parsing and lookups before a write has its slot.
        self.writers = ThreadPoolExecutor(threads + SERVER_FRONT_THREADS, "omnigraph-write")
        self.read_slots = FairSlots(threads)
        self.write_slots = FairSlots(threads)
        self._reloading: asyncio.Task[None] | None = None
        # Health and metrics have their own threads, so they respond under load.
        self.admin_threads = ThreadPoolExecutor(SERVER_OWN_THREADS, "omnigraph-own")

    async def answer(self, route: Route, scope: Scope, receive: Receive) -> Response:
        log, headers = request_log(scope), headers_by_name(scope)
        log.actor = actor = self.authenticate(headers)
        served = self.registry.find(scope["path_params"]["graph_id"], actor)
        log.graph_id = served.graph_id
        try:
            deny_early(served.checker, actor, route.action)
        except PolicyDenied:
            if route.masks is None:
                raise
            raise route.masks() from None
        operation_id = _operation_id(headers, route)
        # Until the response was sent, so that a graph that is no longer served stays open for its stream.
        in_flight = nullcontext() if operation_id is None else listed(operation_id, served.in_flight_operations)
        with in_flight, ExitStack() as use:
            use.enter_context(listed(object(), served.requests))
            graph = served.for_request(actor, operation_id)
            caller = actor if actor is not None else f"peer {(scope.get('client') or ('',))[0]}"
            path = dict(scope["path_params"])
            call: Call[Any] = Call(served, graph, actor, None, path, headers, caller=caller)
            response = await self._handle(route, call, scope["query_string"], receive)
            return response.releasing(use.pop_all().close)

    async def _handle(self, route: Route, call: Call[Any], query: bytes, receive: Receive) -> Response:
        """Read and authorize a request, and run its handler; writes are admitted per actor."""
        size, resource = 0, _RESOURCES.get(route.body, "")
        if route.body != "none":
            declared = check_length(call.header("content-length"), route.body_bytes_max, resource)
            # A body of unknown length may take all that the actor may have in flight.
            size = min(route.body_bytes_max, self.admission.bytes_max) if declared is None else declared
            _check_media(call, route)
        admitted = self.admission.admit(call.actor, max(size, SERVER_SMALL_WRITE_BYTES))
        # Authorization needs the parsed body, so a JSON write is admitted before its body is read.
        is_admitted_early = route.is_write and route.body == "json"
        with ExitStack() as admission:
            if is_admitted_early:
                admission.enter_context(admitted)
            if route.body == "json":
                body = await read_body(receive, route.body_bytes_max, resource)
                call = replace(call, body=body, input=await self._parse(route, body))
            else:
                call = replace(call, input=from_query(route.takes, query))
            is_write = route.is_write or (route.is_write_now is not None and route.is_write_now(call))
            if route.early_checks is not None:
                await self.run(self.writers, partial(_check_early, route.early_checks, call))
            if is_write and not is_admitted_early:
                admission.enter_context(admitted)
            if route.body == "ndjson":
                folder = Path(admission.enter_context(TemporaryDirectory(prefix="omnigraph-body-")))
                call = replace(call, body=await self._receive_load(receive, size, resource, folder))
            if is_write:
                seconds = SERVER_LOAD_SECONDS_MAX if isinstance(call.body, Path) else SERVER_WRITE_SECONDS_MAX
                return await self._run_write(lambda: route.handle(call), call.caller, seconds)
            return await self._run_watched(lambda: route.handle(call), receive, call)

    async def _receive_load(self, receive: Receive, limit: int, resource: str, folder: Path) -> bytes | Path:
        file = folder / "body.ndjson"
        try:
            return await spool_body(receive, limit, resource, file, lambda write: self.run(self.writers, write))
        except OSError as error:
            raise StorageError(
                f"the server cannot keep the body in its temporary directory: {error.strerror}; nothing was written",
                kind=StorageKind.FULL if error.errno == errno.ENOSPC else StorageKind.PERMANENT,
            ) from None

    async def _parse(self, route: Route, body: bytes) -> object:
        # Parsing a large body would block the event loop.
        if len(body) > SERVER_BODY_BYTES_MAX:
            return await self.run(self.writers, lambda: from_json(route.takes, body))
        return from_json(route.takes, body)

    def authenticate(self, headers: dict[str, tuple[str, ...]]) -> str | None:
        """Return the actor of the bearer token; raises if it is missing or unknown."""
        values = headers.get("authorization", ())
        return self.registry.tokens.actor_of(values[0] if len(values) == 1 else None)

    async def watch_configuration(self) -> None:
        """Read tokens and policies, or the ledger of a cluster, again whenever they change."""
        while True:
            await asyncio.sleep(self.reload_seconds)
            if await self.run(self.admin_threads, self.registry.needs_reload):
                self.reload_soon()
            await self.run(self.admin_threads, self.registry.close_retired)

    def reload_soon(self) -> None:
        """Reload tokens and policies; on errors, which are logged, the old ones stay in force."""
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.get_running_loop().create_task(self._reload())

    async def _reload(self) -> None:
        await self.run(self.admin_threads, self.registry.reload)
        graphs = [served.graph for served in self.registry.served.values()]
        await self.run(self.admin_threads, lambda: self.reconcilers.follow(graphs))

    async def run(self, pool: ThreadPoolExecutor, work: Callable[[], R]) -> R:
        """Run work without writes in a thread; abandoned when the server has to exit."""
        running = asyncio.get_running_loop().run_in_executor(pool, work)
        await self._wait(running)
        if not running.done():
            running.cancel()
            raise server_stopping()
        return running.result()

    async def _run_watched(self, work: Callable[[], Response], receive: Receive, call: Call[Any]) -> Response:
        """Run a read in a thread once it has a slot, and cancel it when the client disconnects.

        The slot is held until the response was sent, because its data stays in memory until then.
        """
        disconnected = asyncio.create_task(wait_for_disconnect(receive))
        with ExitStack() as slot:
            try:
                await self._take_slot(call.caller, disconnected)
                slot.callback(self.read_slots.release, call.caller)
                response = await self._run_cancellable(work, disconnected, call.cancel)
            finally:
                disconnected.cancel()
            return replace(response, disconnected=call.cancel.cancel).releasing(slot.pop_all().close)

    async def _take_slot(self, caller: str, disconnected: asyncio.Task[None]) -> None:
        if self.read_slots.take_now(caller):
            return
        waiting = asyncio.ensure_future(self.read_slots.take(caller))
        try:
            await self._wait_for_any(waiting, disconnected)
            if not waiting.done():
                raise ClientDisconnected if disconnected.done() else server_stopping()
            await waiting
        except BaseException:
            if not waiting.done():
                waiting.cancel()
            elif not waiting.cancelled() and waiting.exception() is None:
                self.read_slots.release(caller)
            raise

    async def _run_cancellable(
        self, work: Callable[[], Response], disconnected: asyncio.Task[None], cancel: CancelToken
    ) -> Response:
        running = asyncio.ensure_future(self.run(self.readers, work))
        try:
            await asyncio.wait((running, disconnected), return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                cancel.cancel()
            return await running
        except BaseException:
            cancel.cancel()
            raise

    async def _run_write(self, work: Callable[[], R], caller: str, seconds: float) -> R:
        """Run a write in a thread; on timeout or shutdown, respond with what is known about its outcome.

        A write that has not reached its commit point by then is closed: its thread can no longer publish it.
        """
        publication = Publication()

        def run() -> R:
            with watched(publication):
                return work()

        running = asyncio.ensure_future(self._run_in_slot(run, caller))
        # The response may be sent before the thread ends; the slot stays taken until it does.
        await self._wait(running, seconds)
        if running.done():
            return running.result()
        operation_id = publication.close()
        running.cancel()
        if operation_id is not None:
            raise unknown_outcome(operation_id, "it was still waiting for storage")
        if self.is_late.is_set():
            raise server_stopping()
        raise ConflictError(
            f"the write timed out after {seconds:g} seconds, in the queue of its branch or in storage;"
            " nothing was written, retry later"
        )

    async def _run_in_slot(self, work: Callable[[], R], caller: str) -> R:
        await self.write_slots.take(caller)
        loop = asyncio.get_running_loop()

        def release(_: object) -> None:
            # With the loop gone there is nothing left to share.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self.write_slots.release, caller)

        try:
            thread = self.writers.submit(work)
        except BaseException:
            self.write_slots.release(caller)
            raise
        thread.add_done_callback(release)
        return await asyncio.wrap_future(thread)

    async def _wait(self, running: asyncio.Future[R], seconds: float | None = None) -> None:
        """Wait for a future, its timeout, or the shutdown deadline and a moment more."""
        await self._wait_for_any(running, seconds=seconds)
        if self.is_late.is_set() and not running.done():
            await asyncio.wait((running,), timeout=SERVER_CANCEL_SECONDS_MAX)

    async def _wait_for_any(self, *running: asyncio.Future[Any], seconds: float | None = None) -> None:
        """Wait for one of some futures, a timeout, or the shutdown deadline."""
        must_exit = asyncio.ensure_future(self.is_late.wait())
        try:
            await asyncio.wait((*running, must_exit), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            must_exit.cancel()

    def count(self, error: OmniGraphError) -> None:
        name = names.CONFLICTS if error.code.startswith("conflict.") else _COUNTED.get(error.code)
        if name is not None:
            self.metrics.count(name)

    def close(self) -> bool:
        """Stop the threads and close the graphs; False if storage blocked some of them for too long."""
        pools = (self.readers, self.writers, self.admin_threads)
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)

        def finish() -> None:
            for pool in pools:
                pool.shutdown(wait=True)
            self.registry.close()

        closing = threading.Thread(target=finish, name="omnigraph-closing", daemon=True)
        closing.start()
        closing.join(SERVER_CLOSE_SECONDS_MAX)
        return not closing.is_alive()


def _check_early(checks: Callable[[Call[Any]], tuple[Check, ...]], call: Call[Any]) -> None:
    """Deny a request before its body is read; its graph remembers the decisions."""
    for action, scope in checks(call):
        session_of(call.graph).require(action, scope)


def server_stopping() -> GraphError:
    """Return the error of a request that a shutdown ends before it had any effect."""
    return GraphError("the server is stopping; nothing was done, retry the request", code="server.stopping")


def headers_by_name(scope: Scope) -> dict[str, tuple[str, ...]]:
    """Return all headers of a request by lower-case name."""
    headers: dict[str, tuple[str, ...]] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        headers[key] = (*headers.get(key, ()), value.decode("latin-1"))
    return headers


def _operation_id(headers: Mapping[str, tuple[str, ...]], route: Route) -> str | None:
    """Return the idempotency key of a write; rejected on routes that would ignore it."""
    values = headers.get(wire.OPERATION_ID.lower(), ())
    if not values:
        return None
    if not route.may_commit:
        raise UsageError(f"`{wire.OPERATION_ID}` is not supported here; this request makes no commit")
    if len(values) != 1 or not is_ulid(values[0].strip()):
        raise UsageError(f"`{wire.OPERATION_ID}` must be sent once and be a ULID")
    return values[0].strip()


def _check_media(call: Call[Any], route: Route) -> None:
    """Reject other media types; a request without a body needs none."""
    expected: Any = _MEDIA[route.body]
    media = (call.header("content-type") or "").partition(";")[0].strip().lower()
    is_empty = call.header("content-length") == "0" or (
        "content-length" not in call.headers and "transfer-encoding" not in call.headers
    )
    if media != expected and not (is_empty and route.body == "json"):
        raise GraphError(f"the body of this request must be `{expected}`", code="request.media_type", expected=expected)
