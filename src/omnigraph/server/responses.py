"""One request as a handler sees it, and what a handler gives back.

Plain values; handlers run in threads and know nothing of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from omnigraph import clock
from omnigraph.engine.query.budget import CancelToken
from omnigraph.engine.session import AsOf
from omnigraph.errors import GraphError, LimitExceeded, UsageError
from omnigraph.graph import Graph
from omnigraph.limits import (
    SERVER_ANSWER_BYTES_PER_SECOND_MIN,
    SERVER_STALL_SECONDS_MAX,
    SERVER_STREAM_BYTES,
    SERVER_STREAM_CHUNK_BYTES,
    SERVER_STREAM_WAIT_SECONDS,
    SERVER_STREAMS_BYTES_MAX,
)
from omnigraph.server.admission import Receive, Send, wait_until_gone
from omnigraph.server.errors import dump
from omnigraph.server.registry import Hosted
from omnigraph.server.wire import JSON

I = TypeVar("I")  # noqa: E741 - the input of a route


@dataclass(frozen=True, slots=True)
class Call(Generic[I]):
    """A request: for whom and on what it is, and what it brought. `headers` are lower-case and hold all values."""

    hosted: Hosted
    graph: Graph
    actor: str | None
    given: I
    path: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    body: bytes = b""
    cancel: CancelToken = field(default_factory=CancelToken)
    # Whose share of the server the request takes: the actor's or, where there are no actors, its peer's.
    caller: str = ""

    @property
    def uri(self) -> str:
        """The graph as answers name it: its id, or where it is stored if the actor may know that."""
        return self.graph.session.address_or(self.hosted.graph_id)

    def header(self, name: str) -> str | None:
        """Return a header; of several of one name the first."""
        values = self.headers.get(name.lower())
        return values[0] if values else None


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back. A body of chunks is sent as it is made.

    `end` is called once when no more of it is wanted, and `hung_up` before that if its reader is gone while it is made.
    `has_committed`: what was asked for made a commit.
    """

    body: bytes | Iterator[bytes] = b""
    media: str | None = JSON
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    end: Callable[[], None] = lambda: None
    hung_up: Callable[[], None] = lambda: None
    has_committed: bool = False


Handler = Callable[[Call[Any]], Answer]


def json_answer(value: object, status: int = 200, *, has_committed: bool = False) -> Answer:
    """Return a JSON document as an answer."""
    return Answer(dump(value), status=status, has_committed=has_committed)


class _Receipt(Protocol):
    @property
    def commit(self) -> object: ...
    def to_json(self) -> dict[str, object]: ...


def receipt_answer(receipt: _Receipt, **more: object) -> Answer:
    """Return what a write answers."""
    return json_answer({**more, **receipt.to_json()}, has_committed=receipt.commit is not None)


class _OfMoment(Protocol):
    @property
    def branch(self) -> str | None: ...
    @property
    def snapshot(self) -> str | int | None: ...
    @property
    def as_of(self) -> str | None: ...


def moment_of(given: _OfMoment) -> tuple[str, AsOf | None]:
    """Return the branch and the moment that a request names; versions and instants are those of a branch."""
    if given.snapshot is not None and given.as_of is not None:
        raise UsageError("`snapshot` and `as_of` both say which state to read; give one of them")
    if isinstance(given.snapshot, str) and given.branch is not None:
        raise UsageError("`branch` and `snapshot` both say what to read; give one of them")
    branch = "main" if given.branch is None else given.branch.strip()
    return branch, given.snapshot if given.as_of is None else instant_of(given.as_of)


def instant_of(text: str) -> datetime:
    """Return a point in time that a request names."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"`as_of` takes a point in time such as 2026-01-31T12:00:00Z, not `{text}`") from None


class Streams:
    """The transport that streams of a server share; each reserves its part before its first byte."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(SERVER_STREAMS_BYTES_MAX // SERVER_STREAM_BYTES)

    async def reserve(self) -> None:
        """Wait a moment for room; refused when there is none."""
        try:
            async with asyncio.timeout(SERVER_STREAM_WAIT_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            raise LimitExceeded(
                "too many streams are under way on this server; try again when some have ended",
                resource="stream_export_transport_bytes",
                limit=SERVER_STREAMS_BYTES_MAX,
                actual=SERVER_STREAMS_BYTES_MAX + SERVER_STREAM_BYTES,
            ) from None

    def release(self) -> None:
        self._free.release()


@dataclass(frozen=True, slots=True)
class Pace:
    """How slowly an answer may be read: nothing for so many seconds, and on average not less than so much."""

    stall_seconds: float = SERVER_STALL_SECONDS_MAX
    bytes_per_second_min: int = SERVER_ANSWER_BYTES_PER_SECOND_MIN


async def send_answer(answer: Answer, receive: Receive, send: Send, pool: Executor, pace: Pace | None = None) -> None:
    """Send an answer; one that breaks off is left without its end, so that its reader notices."""
    sender = _Sender(send, pace or Pace())
    if isinstance(answer.body, bytes):
        await _send_whole(answer, answer.body, sender)
        return
    gone = asyncio.create_task(wait_until_gone(receive))
    gone.add_done_callback(lambda task: None if task.cancelled() else answer.hung_up())
    try:
        await _send_chunks(answer, answer.body, sender, pool, gone)
        is_whole = not gone.done()
    finally:
        gone.cancel()
        close = getattr(answer.body, "close", None)
        try:
            if close is not None:
                await asyncio.get_running_loop().run_in_executor(pool, close)
        finally:
            # A reader that has the end may begin again at once, so what was held is returned before it is sent.
            answer.end()
    if is_whole:
        await sender.part(b"", is_last=True)


async def _send_whole(answer: Answer, body: bytes, sender: _Sender) -> None:
    is_told = "Content-Length" in answer.headers or answer.status == 304
    parts = max(1, -(-len(body) // SERVER_STREAM_CHUNK_BYTES))
    try:
        await sender.head(_start(answer, {} if is_told else {"Content-Length": len(body)}))
        for place in range(parts - 1):
            start = place * SERVER_STREAM_CHUNK_BYTES
            await sender.part(body[start : start + SERVER_STREAM_CHUNK_BYTES])
    finally:
        # As with streams: before the last part.
        answer.end()
    await sender.part(body[(parts - 1) * SERVER_STREAM_CHUNK_BYTES :] if parts > 1 else body, is_last=True)


async def _send_chunks(
    answer: Answer, chunks: Iterator[bytes], sender: _Sender, pool: Executor, gone: asyncio.Task[None]
) -> None:
    # The first chunk is made before the headers go out, so that what fails at once still has a status.
    chunk = await _next(chunks, pool, gone)
    await sender.head(_start(answer, {}))
    while chunk is not None:
        for start in range(0, len(chunk), SERVER_STREAM_CHUNK_BYTES):
            await sender.part(chunk[start : start + SERVER_STREAM_CHUNK_BYTES])
        chunk = await _next(chunks, pool, gone)


class _Sender:
    """Sends the parts of one answer and keeps the clock of its reader."""

    def __init__(self, send: Send, pace: Pace) -> None:
        self.head = send
        self._send = send
        self._pace = pace
        self._sent = 0
        self._waited = 0.0

    async def part(self, part: bytes, *, is_last: bool = False) -> None:
        """Send a part. Only the time counts that the reader lets pass, not the time that making the answer takes."""
        pace = self._pace
        earned = pace.stall_seconds + self._sent / pace.bytes_per_second_min - self._waited
        started = clock.elapsed()
        try:
            async with asyncio.timeout(max(min(pace.stall_seconds, earned), 0)):
                await self._send({"type": "http.response.body", "body": part, "more_body": not is_last})
        except TimeoutError:
            raise GraphError(
                f"this answer was read too slowly: nothing for {pace.stall_seconds:g} seconds, or less than"
                f" {pace.bytes_per_second_min} bytes a second; ask again",
                code="request.timeout",
            ) from None
        self._waited += clock.elapsed() - started
        self._sent += len(part)


async def _next(chunks: Iterator[bytes], pool: Executor, gone: asyncio.Task[None]) -> bytes | None:
    """Return the next chunk; None at the end, or when the reader has hung up."""
    if gone.done():
        return None
    return await asyncio.get_running_loop().run_in_executor(pool, next, chunks, None)


def _start(answer: Answer, more: Mapping[str, object]) -> dict[str, Any]:
    media = {} if answer.media is None else {"Content-Type": answer.media}
    headers = {**media, **answer.headers, **more}
    pairs = [(name.lower().encode("latin-1"), str(value).encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": answer.status, "headers": pairs}
