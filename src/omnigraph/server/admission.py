"""Admission control: limits on writes and bytes in flight per actor, fair slots, export slots, and bounded bodies.

Counts are exact under concurrency, and are released on every exit path.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, Final

from omnigraph import clock, settings
from omnigraph.errors import GraphError, LimitExceeded, UsageError
from omnigraph.limits import (
    SERVER_BODY_BYTES_PER_SECOND_MIN,
    SERVER_BODY_SECONDS_MAX,
    SERVER_EXPORTS_MAX,
    SERVER_EXPORTS_PER_ACTOR_MAX,
    SERVER_LOAD_BODY_BYTES_MAX,
    SERVER_QUEUE_MAX,
    SERVER_QUEUE_SECONDS_MAX,
    SERVER_SPOOL_CHUNK_BYTES,
)

ANONYMOUS = "anonymous"


@dataclass(slots=True)
class Admission:
    """Limits on in-flight writes, by actor."""

    inflight_max: int
    bytes_max: int
    _requests: Counter[str] = field(default_factory=Counter)
    _bytes: Counter[str] = field(default_factory=Counter)
    _lock: Lock = field(default_factory=Lock)

    @contextmanager
    def admit(self, actor: str | None, size: int) -> Iterator[None]:
        """Admit a write of `size` bytes; raises `request.too_many` beyond the actor's limits."""
        name = ANONYMOUS if actor is None else actor
        with self._lock:
            for resource, requested, limit in (
                ("requests", self._requests[name] + 1, self.inflight_max),
                ("bytes", self._bytes[name] + size, self.bytes_max),
            ):
                if requested > limit:
                    raise GraphError(
                        f"this actor may have {limit} {resource} of writes in flight; retry later",
                        code="request.too_many",
                        resource=resource,
                        limit=limit,
                    )
            self._requests[name] += 1
            self._bytes[name] += size
        try:
            yield
        finally:
            with self._lock:
                self._requests[name] -= 1
                self._bytes[name] -= size
                if not self._requests[name]:
                    del self._requests[name], self._bytes[name]

    @property
    def inflight(self) -> int:
        with self._lock:
            return self._requests.total()


def read_admission() -> Admission:
    inflight_max = settings.read_integer("OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX", least=1)
    return Admission(inflight_max, settings.read_integer("OMNIGRAPH_PER_ACTOR_BYTES_MAX", least=1))


class FairSlots:
    """Slots shared fairly by actors: a free slot goes to the waiting actor that holds the fewest."""

    def __init__(
        self, slots: int, *, waiting_max: int = SERVER_QUEUE_MAX, seconds_max: float = SERVER_QUEUE_SECONDS_MAX
    ) -> None:
        self._free = slots
        self._held: Counter[str] = Counter()
        # The arrival numbers of the requests that wait, in order, by actor.
        self._waiting: dict[str, dict[asyncio.Future[None], int]] = {}
        self._arrivals = count()
        self._waiting_max = waiting_max
        self._seconds_max = seconds_max

    async def take(self, actor: str) -> None:
        """Wait for a slot; raises `request.too_many` if the queue of the actor is full, or on timeout."""
        if self.take_now(actor):
            return
        queue = self._waiting.setdefault(actor, {})
        if len(queue) >= self._waiting_max:
            raise _too_many(f"{self._waiting_max} requests of this actor are queued already")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue[turn] = next(self._arrivals)
        self._serve_waiting()
        try:
            async with asyncio.timeout(self._seconds_max):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                # The slot was granted just now.
                self.release(actor)
            else:
                self._leave_queue(actor, turn)
            if isinstance(error, TimeoutError):
                raise _too_many(f"this request got no slot within {self._seconds_max:g} seconds") from None
            raise

    def take_now(self, actor: str) -> bool:
        """Take a slot if the actor may have one without waiting."""
        if actor in self._waiting or not self._may_take(actor):
            return False
        self._grant(actor)
        return True

    def release(self, actor: str) -> None:
        """Return a slot, and let the next caller have it."""
        self._free += 1
        self._held[actor] -= 1
        if not self._held[actor]:
            del self._held[actor]
        self._serve_waiting()

    def _may_take(self, actor: str) -> bool:
        return self._held[actor] < self._free

    def _grant(self, actor: str) -> None:
        self._free -= 1
        self._held[actor] += 1

    def _serve_waiting(self) -> None:
        while self._free:
            eligible = [actor for actor in self._waiting if self._may_take(actor)]
            if not eligible:
                return
            actor = min(eligible, key=lambda name: (self._held[name], next(iter(self._waiting[name].values()))))
            turn = next(iter(self._waiting[actor]))
            self._leave_queue(actor, turn)
            if not turn.done():
                self._grant(actor)
                turn.set_result(None)

    def _leave_queue(self, actor: str, turn: asyncio.Future[None]) -> None:
        queue = self._waiting.get(actor, {})
        queue.pop(turn, None)
        if not queue:
            self._waiting.pop(actor, None)


def _too_many(reason: str) -> GraphError:
    return GraphError(f"{reason}; nothing was done, retry later", code="request.too_many", resource="requests")


Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class ClientDisconnected(Exception):
    """The client has disconnected; no response is needed."""


class BodyTooLarge(LimitExceeded):
    """A body of undeclared length exceeds its limit."""


# The number of digits of the largest signed 64-bit integer.
_LENGTH_DIGITS_MAX: Final = 19


def check_length(declared: str | None, limit: int, resource: str) -> int | None:
    """Return the declared `Content-Length`; raises if it exceeds the limit."""
    if declared is None or not (declared.isascii() and declared.isdigit()):
        return None
    digits = declared.lstrip("0") or "0"
    if len(digits) > _LENGTH_DIGITS_MAX:
        raise UsageError(f"`Content-Length` has more than {_LENGTH_DIGITS_MAX} digits; nothing was done")
    if int(digits) > limit:
        raise _body_limit(LimitExceeded, resource, limit, int(digits))
    return int(digits)


async def read_body(receive: Receive, limit: int, resource: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(SERVER_BODY_SECONDS_MAX):
            while True:
                part, is_last = await _receive_part(receive)
                size += len(part)
                if size > limit:
                    raise _body_limit(BodyTooLarge, resource, limit, size)
                parts.append(part)
                if is_last:
                    return b"".join(parts)
    except TimeoutError:
        raise GraphError(
            f"the request body was not received within {SERVER_BODY_SECONDS_MAX} seconds; retry", code="request.timeout"
        ) from None


async def spool_body(
    receive: Receive, limit: int, resource: str, file: Path, run: Callable[[Callable[[], None]], Awaitable[None]]
) -> bytes | Path:
    """Return the body of a load: its bytes, or the file that it is written to while it arrives if it is larger.

    `run` writes to the file in a thread. The body has a time to arrive, and more of it the more has arrived.
    """
    started, size, waiting = clock.elapsed(), 0, bytearray()

    def write() -> None:
        with file.open("ab") as spool:
            spool.write(waiting)

    while True:
        seconds = SERVER_BODY_SECONDS_MAX + size / SERVER_BODY_BYTES_PER_SECOND_MIN - (clock.elapsed() - started)
        try:
            async with asyncio.timeout(max(min(seconds, SERVER_BODY_SECONDS_MAX), 0)):
                part, is_last = await _receive_part(receive)
        except TimeoutError:
            raise GraphError(
                f"the request body arrived too slowly: nothing for {SERVER_BODY_SECONDS_MAX} seconds, or less than"
                f" {SERVER_BODY_BYTES_PER_SECOND_MIN} bytes a second; retry",
                code="request.timeout",
            ) from None
        waiting += part
        size += len(part)
        if size > limit:
            raise _body_limit(BodyTooLarge, resource, limit, size)
        if size <= SERVER_LOAD_BODY_BYTES_MAX:
            if is_last:
                return bytes(waiting)
        elif is_last or len(waiting) >= SERVER_SPOOL_CHUNK_BYTES:
            await run(write)
            waiting.clear()
            if is_last:
                return file


async def _receive_part(receive: Receive) -> tuple[bytes, bool]:
    """Return the next part of a body, and whether it is the last."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnected
    return message.get("body", b""), not message.get("more_body", False)


def _body_limit(kind: type[LimitExceeded], resource: str, limit: int, actual: int) -> LimitExceeded:
    return kind(
        f"the request body is limited to {limit} bytes; split the request",
        resource=resource,
        limit=limit,
        actual=actual,
    )


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client disconnects; call after the body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


@dataclass(slots=True)
class ExportSlots:
    """In-flight exports of one graph, by caller."""

    slots_max: int = SERVER_EXPORTS_MAX
    per_caller_max: int = SERVER_EXPORTS_PER_ACTOR_MAX
    _in_flight: Counter[str] = field(default_factory=Counter)
    _lock: Lock = field(default_factory=Lock)

    @property
    def in_flight(self) -> int:
        with self._lock:
            return self._in_flight.total()

    def take(self, caller: str) -> Callable[[], None]:
        """Take a slot and return the function that releases it; raises `LimitExceeded` if none is free."""
        with self._lock:
            if self._in_flight[caller] >= self.per_caller_max:
                raise _too_many_exports(self.per_caller_max, "of this caller")
            if self._in_flight.total() >= self.slots_max:
                raise _too_many_exports(self.slots_max, "of this graph")
            self._in_flight[caller] += 1

        def release() -> None:
            with self._lock:
                self._in_flight[caller] -= 1
                if not self._in_flight[caller]:
                    del self._in_flight[caller]

        return release


def _too_many_exports(limit: int, owner: str) -> LimitExceeded:
    return LimitExceeded(
        f"too many exports {owner} are in flight, the limit is {limit}; retry when one has finished",
        resource="stream_export_slots",
        limit=limit,
        actual=limit + 1,
    )
