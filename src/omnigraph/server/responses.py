"""Requests and responses as handlers see them, and sending of responses with a minimum read rate.

Handlers run in threads and do not touch the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

from omnigraph import clock
from omnigraph.engine.query.budget import CancelToken
from omnigraph.engine.revisions import AsOf
from omnigraph.errors import GraphError, LimitExceeded, UsageError
from omnigraph.graph import Graph, session_of
from omnigraph.lang.diagnostic import Source
from omnigraph.limits import (
    SERVER_ANSWER_BYTES_PER_SECOND_MIN,
    SERVER_STALL_SECONDS_MAX,
    SERVER_STREAM_BYTES,
    SERVER_STREAM_CHUNK_BYTES,
    SERVER_STREAM_WAIT_SECONDS,
    SERVER_STREAMS_BYTES_MAX,
)
from omnigraph.public_values import IngestReceipt, MergeReceipt, MutationReceipt, SchemaReceipt
from omnigraph.server.admission import Receive, Send, wait_for_disconnect
from omnigraph.server.errors import dump
from omnigraph.server.registry import ServedGraph
from omnigraph.wire import JSON, Mutate, NewSchema, Query, arguments_of

I = TypeVar("I")  # noqa: E741 - the input of a route


@dataclass(frozen=True, slots=True)
class Call(Generic[I]):
    """A request: its graph, actor and parsed input. `headers` have lower-case names and all values."""

    served: ServedGraph
    graph: Graph
    actor: str | None
    input: I
    path: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # A load that does not fit into memory is in a file.
    body: bytes | Path = b""
    cancel: CancelToken = field(default_factory=CancelToken)
    # Key for fair sharing: the actor or, without authentication, the peer.
    caller: str = ""

    @property
    def uri(self) -> str:
        """The graph's URI if the actor may see it, else its id."""
        return session_of(self.graph).address_or(self.served.graph_id)

    def header(self, name: str) -> str | None:
        """Return the first value of a header."""
        values = self.headers.get(name.lower())
        return values[0] if values else None


@dataclass(frozen=True, slots=True)
class Response:
    """A response; an iterator body is streamed as it is produced.

    `end` is called once to release resources, `disconnected` before that if the client disconnects while streaming.
    `has_committed`: the request made a commit.
    """

    body: bytes | Iterator[bytes] = b""
    media: str | None = JSON
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    end: Callable[[], None] = lambda: None
    disconnected: Callable[[], None] = lambda: None
    has_committed: bool = False

    def releasing(self, release: Callable[[], None]) -> Response:
        """Return the response with a function that is called first at its end."""

        def end() -> None:
            release()
            self.end()

        return replace(self, end=end)


Handler = Callable[[Call[Any]], Response]


def json_response(value: object, status: int = 200, *, has_committed: bool = False) -> Response:
    return Response(dump(value), status=status, has_committed=has_committed)


def receipt_response(
    receipt: MutationReceipt | IngestReceipt | MergeReceipt | SchemaReceipt, **more: object
) -> Response:
    return json_response({**more, **receipt.to_json()}, has_committed=receipt.commit is not None)


def arguments(request: Any) -> dict[str, Any]:
    """Return the arguments of a graph's method that a request gives; what it leaves out has the default of the method.

    Queries and schemas are always text: of a string, a graph would ask whether it is the path of a file.
    """
    kind: Any = type(request)
    named = {name: getattr(request, member) for member, name in arguments_of(kind).items()}
    # Under these names, `at` was known in earlier releases.
    named = {name: value for name, value in named.items() if value is not None and name not in ("snapshot", "as_of")}
    if (state := requested_state(request)) is not None:
        named["at"] = state
    if "branch" in named:
        named["branch"] = named["branch"].strip()
    if isinstance(request, Query | Mutate):
        named["source"] = Source("query.gq", request.query)
    if isinstance(request, NewSchema):
        named["schema"] = Source("schema.pg", request.schema_source)
    return named


def requested_state(request: Any) -> AsOf | None:
    """Return the state that a request names, by `at` or by one of its earlier names."""
    states = {name: getattr(request, name, None) for name in ("at", "snapshot", "as_of")}
    if isinstance(states["snapshot"], str) and getattr(request, "branch", None) is not None:
        raise UsageError("`branch` and `snapshot` both say what to read; give one of them")
    named = [f"`{name}`" for name, value in states.items() if value is not None]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} both say which state to read; give one of them")
    if states["as_of"] is None:
        return states["snapshot"] if states["at"] is None else states["at"]
    try:
        return datetime.fromisoformat(states["as_of"])
    except ValueError:
        raise UsageError(f"`as_of` must be a timestamp such as 2026-01-31T12:00:00Z, got `{states['as_of']}`") from None


class Streams:
    """The buffer budget that streamed responses share; each reserves its part before its first byte."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(SERVER_STREAMS_BYTES_MAX // SERVER_STREAM_BYTES)

    async def reserve(self) -> None:
        """Reserve buffers; raises `LimitExceeded` if none become free in time."""
        try:
            async with asyncio.timeout(SERVER_STREAM_WAIT_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            raise LimitExceeded(
                "too many streamed responses are in flight on this server; retry later",
                resource="stream_export_transport_bytes",
                limit=SERVER_STREAMS_BYTES_MAX,
                actual=SERVER_STREAMS_BYTES_MAX + SERVER_STREAM_BYTES,
            ) from None

    def release(self) -> None:
        self._free.release()


@dataclass(frozen=True, slots=True)
class MinimumRate:
    """The slowest allowed reader: a maximum stall, and a minimum average rate."""

    stall_seconds: float = SERVER_STALL_SECONDS_MAX
    bytes_per_second_min: int = SERVER_ANSWER_BYTES_PER_SECOND_MIN


async def send_response(
    response: Response, receive: Receive, send: Send, pool: Executor, minimum_rate: MinimumRate | None = None
) -> None:
    """Send a response; a failed stream is left unterminated, so that the client notices."""
    sender = _Sender(send, minimum_rate or MinimumRate())
    if isinstance(response.body, bytes):
        await _send_whole(response, response.body, sender)
        return
    disconnected = asyncio.create_task(wait_for_disconnect(receive))
    disconnected.add_done_callback(lambda task: None if task.cancelled() else response.disconnected())
    try:
        await _send_chunks(response, response.body, sender, pool, disconnected)
        is_complete = not disconnected.done()
    finally:
        disconnected.cancel()
        close = getattr(response.body, "close", None)
        try:
            if close is not None:
                await asyncio.get_running_loop().run_in_executor(pool, close)
        finally:
            # Release the slot before the last chunk: the client may start its next request as soon as it arrives.
            response.end()
    if is_complete:
        await sender.part(b"", is_last=True)


async def _send_whole(response: Response, body: bytes, sender: _Sender) -> None:
    has_length = "Content-Length" in response.headers or response.status == 304
    *starts, last = range(0, max(len(body), 1), SERVER_STREAM_CHUNK_BYTES)
    try:
        await sender.head(_response_start(response, {} if has_length else {"Content-Length": len(body)}))
        for start in starts:
            await sender.part(body[start : start + SERVER_STREAM_CHUNK_BYTES])
    finally:
        # As with streams: before the last part.
        response.end()
    await sender.part(body[last:], is_last=True)


async def _send_chunks(
    response: Response, chunks: Iterator[bytes], sender: _Sender, pool: Executor, disconnected: asyncio.Task[None]
) -> None:
    # Produce the first chunk before the headers, so that an early failure still gets an error status.
    chunk = await _next_chunk(chunks, pool, disconnected)
    await sender.head(_response_start(response, {}))
    while chunk is not None:
        for start in range(0, len(chunk), SERVER_STREAM_CHUNK_BYTES):
            await sender.part(chunk[start : start + SERVER_STREAM_CHUNK_BYTES])
        chunk = await _next_chunk(chunks, pool, disconnected)


class _Sender:
    """Sends the parts of a response, and enforces the minimum read rate."""

    def __init__(self, send: Send, minimum_rate: MinimumRate) -> None:
        self.head = send
        self._send = send
        self._minimum_rate = minimum_rate
        self._sent = 0
        self._waited = 0.0

    async def part(self, part: bytes, *, is_last: bool = False) -> None:
        """Send a part. Only time spent waiting for the client counts, not time spent producing the response."""
        minimum_rate = self._minimum_rate
        earned = minimum_rate.stall_seconds + self._sent / minimum_rate.bytes_per_second_min - self._waited
        started = clock.elapsed()
        try:
            async with asyncio.timeout(max(min(minimum_rate.stall_seconds, earned), 0)):
                await self._send({"type": "http.response.body", "body": part, "more_body": not is_last})
        except TimeoutError:
            raise GraphError(
                f"the response was read too slowly: nothing for {minimum_rate.stall_seconds:g} seconds, or less than"
                f" {minimum_rate.bytes_per_second_min} bytes a second; retry",
                code="request.timeout",
            ) from None
        self._waited += clock.elapsed() - started
        self._sent += len(part)


async def _next_chunk(chunks: Iterator[bytes], pool: Executor, disconnected: asyncio.Task[None]) -> bytes | None:
    """Return the next chunk; None at the end, or if the client has disconnected."""
    if disconnected.done():
        return None
    return await asyncio.get_running_loop().run_in_executor(pool, next, chunks, None)


def _response_start(response: Response, more: Mapping[str, object]) -> dict[str, Any]:
    media = {} if response.media is None else {"Content-Type": response.media}
    headers = {**media, **response.headers, **more}
    pairs = [(name.lower().encode("latin-1"), str(value).encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": response.status, "headers": pairs}
