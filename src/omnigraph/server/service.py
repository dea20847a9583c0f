"""The way of a request: who asks, of which graph, may they, is there room; then its handler, off the event loop.

Decides nothing about data; refusals are raised as coded errors and told in one place.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from typing import Any, TypeVar

from omnigraph.engine.maintain.reconcile import Reconciler
from omnigraph.engine.query.budget import CancelToken
from omnigraph.errors import ConflictError, GraphError, OmniGraphError, PolicyDenied, UsageError
from omnigraph.ids import is_ulid
from omnigraph.limits import (
    SERVER_BODY_BYTES_MAX,
    SERVER_CANCEL_SECONDS_MAX,
    SERVER_CLOSE_SECONDS_MAX,
    SERVER_FRONT_THREADS,
    SERVER_OWN_THREADS,
    SERVER_RELOAD_SECONDS,
    SERVER_SMALL_WRITE_BYTES,
    SERVER_WRITE_SECONDS_MAX,
)
from omnigraph.manifest.publication import Publication, unknown_outcome, watched
from omnigraph.server import observability as names
from omnigraph.server import wire
from omnigraph.server.admission import Admission, FairSlots, Gone, Receive, check_length, read_body, wait_until_gone
from omnigraph.server.auth import AllowedHosts, refuse_hopeless
from omnigraph.server.inputs import from_json, from_query
from omnigraph.server.observability import Metrics, Scope, note_of
from omnigraph.server.registry import House
from omnigraph.server.responses import Answer, Call, Pace, Streams
from omnigraph.server.routes import Check, Route
from omnigraph.server.wire import JSON, NDJSON

R = TypeVar("R")

_RESOURCES = {"json": "request_body_bytes", "ndjson": "graph_batch_request_bytes"}
_MEDIA = {"json": JSON, "ndjson": NDJSON}


class Service:
    """A running server: its graphs, its threads and its numbers."""

    def __init__(
        self,
        house: House,
        admission: Admission,
        threads: int,
        *,
        hosts: AllowedHosts | None = None,
        pace: Pace | None = None,
        reload_seconds: float = SERVER_RELOAD_SECONDS,
    ) -> None:
        self.house = house
        self.hosts = AllowedHosts() if hosts is None else hosts
        self.pace = Pace() if pace is None else pace
        self.admission = admission
        self.reload_seconds = reload_seconds
        self.metrics = Metrics()
        self.streams = Streams()
        self.is_stopping = False
        # Set when whatever is still under way has to be answered, because the process must be gone soon.
        self.is_late = asyncio.Event()
        self.reconcilers: tuple[Reconciler, ...] = ()
        # Writes wait for each other's turn on a branch, and must not keep reads from their threads meanwhile.
        self.readers = ThreadPoolExecutor(threads, "omnigraph-read")
        # A few more for what comes before a write has its slot: parsing, and looking up what it names.
        self.writers = ThreadPoolExecutor(threads + SERVER_FRONT_THREADS, "omnigraph-write")
        self.read_slots = FairSlots(threads)
        self.write_slots = FairSlots(threads)
        self._reloading: asyncio.Task[None] | None = None
        # Whoever asks for the server itself does so when it is busy, too.
        self.own = ThreadPoolExecutor(SERVER_OWN_THREADS, "omnigraph-own")

    async def answer(self, route: Route, scope: Scope, receive: Receive) -> Answer:
        """Return what a request is answered with."""
        note, headers = note_of(scope), headers_of(scope)
        note.actor = actor = self.authenticate(headers)
        hosted = self.house.find(scope["path_params"]["graph_id"], actor)
        note.graph_id = hosted.graph_id
        try:
            refuse_hopeless(hosted.checker, actor, route.action)
        except PolicyDenied:
            if route.masks is None:
                raise
            raise route.masks() from None
        operation_id = _operation_of(headers, route)
        with hosted.doing(operation_id) if operation_id is not None else nullcontext():
            graph = hosted.graph.acting_as(actor, operation_id)
            caller = actor if actor is not None else f"peer {(scope.get('client') or ('',))[0]}"
            path = dict(scope["path_params"])
            call: Call[Any] = Call(hosted, graph, actor, None, path, headers, caller=caller)
            return await self._handled(route, call, scope["query_string"], receive)

    async def _handled(self, route: Route, call: Call[Any], query: bytes, receive: Receive) -> Answer:
        """Read what a request brings and judge it, and give it to its handler; writes hold a place meanwhile."""
        size = 0
        if route.body != "none":
            declared = check_length(_one(call.headers, "content-length"), route.body_bytes_max, _resource(route))
            size = route.body_bytes_max if declared is None else declared
            _check_media(call.headers, route)
        place = self.admission.admit(call.actor, max(size, SERVER_SMALL_WRITE_BYTES))
        # What a body names is judged once it was read; until then it takes its writer's room.
        is_held_early = route.is_write and route.body == "json"
        with ExitStack() as held:
            if is_held_early:
                held.enter_context(place)
            if route.body == "json":
                call = replace(call, body=await read_body(receive, route.body_bytes_max, _resource(route)))
                call = replace(call, given=await self._parsed(route, call.body))
            else:
                call = replace(call, given=from_query(route.takes, query))
            is_write = await self._judged(route, call)
            if is_write and not is_held_early:
                held.enter_context(place)
            if route.body == "ndjson":
                call = replace(call, body=await read_body(receive, route.body_bytes_max, _resource(route)))
            if is_write:
                return await self._run_write(lambda: route.handle(call), call.caller)
            return await self._run_watched(lambda: route.handle(call), receive, call)

    async def _parsed(self, route: Route, body: bytes) -> object:
        # A large body would keep the event loop, and with it every other request, for as long as it takes to parse.
        if len(body) > SERVER_BODY_BYTES_MAX:
            return await self.run(self.writers, lambda: from_json(route.takes, body))
        return from_json(route.takes, body)

    async def _judged(self, route: Route, call: Call[Any]) -> bool:
        """Refuse what the actor may do on no branch at all; return whether a request writes.

        Which branch it is about is the engine's to judge, by the branch itself: names alone would mislead. Only before
        a large body is read, the engine is asked here already.
        """

        def judge() -> tuple[Check, ...]:
            checks = route.checks(call)
            for action, where in checks:
                refuse_hopeless(call.hosted.checker, call.actor, action)
                if route.body == "ndjson":
                    call.graph.session.require(action, where)
            return checks

        checks = await self.run(self.writers, judge) if route.looks_up else judge()
        return route.is_write or any(action == "change" for action, _ in checks)

    def authenticate(self, headers: dict[str, tuple[str, ...]]) -> str | None:
        """Return who asks; refused unless a known token says so."""
        given = headers.get("authorization", ())
        return self.house.tokens.actor_of(given[0] if len(given) == 1 else None)

    def reload_soon(self) -> None:
        """Read tokens and policies again; what is wrong with them is logged, and the old ones stay."""
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.get_running_loop().create_task(self._reload())

    async def _reload(self) -> None:
        await self.run(self.own, self.house.reload)

    async def run(self, pool: ThreadPoolExecutor, work: Callable[[], R]) -> R:
        """Run work that writes nothing in a thread; given up when the server has to be gone soon."""
        running = self._start(pool, work)
        await self._wait(running)
        if not running.done():
            running.cancel()
            raise stopping()
        return running.result()

    async def _run_watched(self, work: Callable[[], Answer], receive: Receive, call: Call[Any]) -> Answer:
        """Run a read in a thread when it has its slot, and cancel it when its caller hangs up.

        The slot is held until the answer was sent, because what the answer is made from is in memory until then.
        """
        gone = asyncio.create_task(wait_until_gone(receive))
        try:
            await self._take_slot(call.caller, gone)
            give_back = _once(lambda: self.read_slots.give_back(call.caller))
            try:
                answer = await self._run_cancellable(work, gone, call.cancel)
            except BaseException:
                give_back()
                raise
        finally:
            gone.cancel()

        def end() -> None:
            give_back()
            answer.end()

        return replace(answer, end=_once(end), hung_up=call.cancel.cancel)

    async def _take_slot(self, caller: str, gone: asyncio.Task[None]) -> None:
        if self.read_slots.take_now(caller):
            return
        waiting = asyncio.ensure_future(self.read_slots.take(caller))
        late = asyncio.ensure_future(self.is_late.wait())
        try:
            await asyncio.wait((waiting, gone, late), return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                raise Gone if gone.done() else stopping()
            await waiting
        except BaseException:
            if not waiting.done():
                waiting.cancel()
            elif not waiting.cancelled() and waiting.exception() is None:
                self.read_slots.give_back(caller)
            raise
        finally:
            late.cancel()

    async def _run_cancellable(
        self, work: Callable[[], Answer], gone: asyncio.Task[None], cancel: CancelToken
    ) -> Answer:
        running = asyncio.ensure_future(self.run(self.readers, work))
        try:
            await asyncio.wait((running, gone), return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                cancel.cancel()
            return await running
        except BaseException:
            cancel.cancel()
            raise

    async def _run_write(self, work: Callable[[], R], caller: str) -> R:
        """Run a write in a thread. Past its time, or that of the server, it is answered by what can be said of it.

        One that has not come to its commit point then is closed: it will not be published, whatever its thread does.
        """
        publication = Publication()

        def run() -> R:
            with watched(publication):
                return work()

        running = asyncio.ensure_future(self._run_in_slot(run, caller))
        # Whoever asks may be answered before the thread has ended; the slot stays taken until then.
        await self._wait(running, SERVER_WRITE_SECONDS_MAX)
        if running.done():
            return running.result()
        operation_id = publication.close()
        running.cancel()
        if operation_id is not None:
            raise unknown_outcome(operation_id, "it was still waiting for storage")
        if self.is_late.is_set():
            raise stopping()
        raise ConflictError(
            f"the write did not get its turn, or storage did not answer it, within {SERVER_WRITE_SECONDS_MAX} seconds;"
            " nothing was written, retry later"
        )

    async def _run_in_slot(self, work: Callable[[], R], caller: str) -> R:
        await self.write_slots.take(caller)
        loop = asyncio.get_running_loop()

        def give_back(_: object) -> None:
            # With the loop gone there is nothing left to share.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self.write_slots.give_back, caller)

        try:
            thread = self.writers.submit(work)
        except BaseException:
            self.write_slots.give_back(caller)
            raise
        thread.add_done_callback(give_back)
        return await asyncio.wrap_future(thread)

    def _start(self, pool: ThreadPoolExecutor, work: Callable[[], R]) -> asyncio.Future[R]:
        return asyncio.get_running_loop().run_in_executor(pool, work)

    async def _wait(self, running: asyncio.Future[R], seconds: float | None = None) -> None:
        """Wait until something is done, its time is over, or that of the server is."""
        late = asyncio.ensure_future(self.is_late.wait())
        try:
            await asyncio.wait((running, late), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if late.done() and not running.done():
                await asyncio.wait((running,), timeout=SERVER_CANCEL_SECONDS_MAX)
        finally:
            late.cancel()

    def count(self, error: OmniGraphError) -> None:
        """Count a refusal."""
        if error.code.startswith("conflict.") or error.code == "precondition.failed":
            self.metrics.count(names.CONFLICTS)
        elif error.code == "policy.denied":
            self.metrics.count(names.DENIALS)
        elif error.code == "request.too_many":
            self.metrics.count(names.REFUSALS)

    def close(self) -> bool:
        """End the threads and finish the work of the graphs; False when storage kept some of them for too long."""
        pools = (self.readers, self.writers, self.own)
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)

        def finish() -> None:
            for pool in pools:
                pool.shutdown(wait=True)
            self.house.close()

        closing = threading.Thread(target=finish, name="omnigraph-closing", daemon=True)
        closing.start()
        closing.join(SERVER_CLOSE_SECONDS_MAX)
        return not closing.is_alive()


def _once(do: Callable[[], object]) -> Callable[[], None]:
    """Return a function that does something the first time that it is called."""
    left = [do]

    def run() -> None:
        if left:
            left.pop()()

    return run


def stopping() -> GraphError:
    """Return the answer to a request that the end of the server cuts off before it did anything."""
    return GraphError(
        "the server is being stopped; nothing of this request was done, send it again", code="server.stopping"
    )


def headers_of(scope: Scope) -> dict[str, tuple[str, ...]]:
    """Return all headers of a request by lower-case name."""
    found: dict[str, tuple[str, ...]] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        found[key] = (*found.get(key, ()), value.decode("latin-1"))
    return found


def _one(headers: Mapping[str, tuple[str, ...]], name: str) -> str | None:
    values = headers.get(name)
    return values[0] if values else None


def _operation_of(headers: Mapping[str, tuple[str, ...]], route: Route) -> str | None:
    """Return the id that the caller chose for a write; refused where it would not be looked at."""
    values = headers.get(wire.OPERATION_ID.lower(), ())
    if not values:
        return None
    if not route.may_commit:
        raise UsageError(f"`{wire.OPERATION_ID}` is not taken here; this request makes no commit that could bear it")
    if len(values) != 1 or not is_ulid(values[0].strip()):
        raise UsageError(f"`{wire.OPERATION_ID}` is given once, and is a ULID")
    return values[0].strip()


def _resource(route: Route) -> str:
    return _RESOURCES.get(route.body, "request_body_bytes")


def _check_media(headers: Mapping[str, tuple[str, ...]], route: Route) -> None:
    """Refuse a body of another type; a request without a body needs no type."""
    wanted: Any = _MEDIA[route.body]
    given = (_one(headers, "content-type") or "").partition(";")[0].strip().lower()
    is_empty = _one(headers, "content-length") == "0" or (
        "content-length" not in headers and "transfer-encoding" not in headers
    )
    if given != wanted and not (is_empty and route.body == "json"):
        raise GraphError(f"the body of this request has to be `{wanted}`", code="request.media_type", expected=wanted)
