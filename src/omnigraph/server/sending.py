"""Sends answers part by part, no faster than their reader takes them, and not to a reader that takes too little.

Knows ASGI and nothing of routes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from omnigraph import clock
from omnigraph.errors import GraphError, LimitExceeded
from omnigraph.limits import (
    SERVER_ANSWER_BYTES_PER_SECOND_MIN,
    SERVER_STALL_SECONDS_MAX,
    SERVER_STREAM_BYTES,
    SERVER_STREAM_CHUNK_BYTES,
    SERVER_STREAM_WAIT_SECONDS,
    SERVER_STREAMS_BYTES_MAX,
)
from omnigraph.server.body import Receive, Send, wait_until_gone
from omnigraph.server.call import Answer


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
