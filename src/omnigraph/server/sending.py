"""Sends answers: at once, or chunk by chunk as they are made, no faster than their reader takes them.

Knows ASGI and nothing of routes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from typing import Any

from omnigraph.errors import GraphError, LimitExceeded
from omnigraph.limits import (
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


async def send_answer(answer: Answer, receive: Receive, send: Send, pool: Executor) -> None:
    """Send an answer; one that breaks off is left without its end, so that its reader notices."""
    if isinstance(answer.body, bytes):
        is_told = "Content-Length" in answer.headers or answer.status == 304
        await send(_start(answer, {} if is_told else {"Content-Length": len(answer.body)}))
        await send({"type": "http.response.body", "body": answer.body})
        return
    gone = asyncio.create_task(wait_until_gone(receive))
    try:
        await _send_chunks(answer, answer.body, send, pool, gone)
        is_whole = not gone.done()
    finally:
        gone.cancel()
        close = getattr(answer.body, "close", None)
        try:
            if close is not None:
                await asyncio.get_running_loop().run_in_executor(pool, close)
        finally:
            # Whoever has read the end may begin anew at once, so what was held is given back before it is sent.
            answer.end()
    if is_whole:
        await send({"type": "http.response.body", "body": b""})


async def _send_chunks(
    answer: Answer, chunks: Iterator[bytes], send: Send, pool: Executor, gone: asyncio.Task[None]
) -> None:
    # The first chunk is made before the headers go out, so that what fails at once still has a status.
    chunk = await _next(chunks, pool, gone)
    await send(_start(answer, {}))
    while chunk is not None:
        for start in range(0, len(chunk), SERVER_STREAM_CHUNK_BYTES):
            await _send_part(chunk[start : start + SERVER_STREAM_CHUNK_BYTES], send)
        chunk = await _next(chunks, pool, gone)


async def _send_part(part: bytes, send: Send) -> None:
    try:
        async with asyncio.timeout(SERVER_STALL_SECONDS_MAX):
            await send({"type": "http.response.body", "body": part, "more_body": True})
    except TimeoutError:
        raise GraphError(
            f"nothing of this answer was read for {SERVER_STALL_SECONDS_MAX} seconds; ask again", code="request.timeout"
        ) from None


async def _next(chunks: Iterator[bytes], pool: Executor, gone: asyncio.Task[None]) -> bytes | None:
    """Return the next chunk; None at the end, or when nobody reads any more."""
    if gone.done():
        return None
    return await asyncio.get_running_loop().run_in_executor(pool, next, chunks, None)


def _start(answer: Answer, more: Mapping[str, object]) -> dict[str, Any]:
    media = {} if answer.media is None else {"Content-Type": answer.media}
    headers = {**media, **answer.headers, **more}
    pairs = [(name.lower().encode("latin-1"), str(value).encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": answer.status, "headers": pairs}
