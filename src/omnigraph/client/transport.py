"""HTTP transports on httpx, blocking and asynchronous: calls with retries, and streams of lines.

httpx is imported on the first connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.client.request import Call, Request, Response
from omnigraph.client.responses import parse_error
from omnigraph.client.retry import NoResponse, Pause, retry_steps
from omnigraph.errors import GraphError
from omnigraph.limits import CLIENT_PART_BYTES, CLIENT_TIMEOUT_SECONDS

if TYPE_CHECKING:
    import httpx


class LineBuffer:
    """Splits a stream of chunks at line ends.

    >>> lines = LineBuffer()
    >>> [*lines.feed(b"a\\nb"), *lines.feed(b"c\\nd\\n"), *lines.flush()]
    [b'a\\nbc\\n', b'd\\n']
    """

    def __init__(self) -> None:
        self._buffered = b""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield complete lines except the last: a stream may end with a record of another kind."""
        buffered = self._buffered + chunk
        cut = buffered.rfind(b"\n", 0, max(buffered.rfind(b"\n"), 0)) + 1
        self._buffered = buffered[cut:]
        if cut:
            yield buffered[:cut]

    def flush(self) -> Iterator[bytes]:
        """Yield the remaining lines at the end of the stream."""
        if self._buffered:
            yield self._buffered


T = TypeVar("T")


def _client_options(url: str, token: str | None, timeout: float | None) -> dict[str, Any]:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    # Loading certificates takes longer than a request; skip it without TLS.
    return {"base_url": url, "headers": headers, "timeout": timeout, "verify": not url.startswith("http://")}


def _request_arguments(request: Request) -> dict[str, Any]:
    import httpx

    timeout = {}
    if request.seconds is not None:
        timeout = {"timeout": httpx.Timeout(CLIENT_TIMEOUT_SECONDS, read=request.seconds)}
    return {
        "method": request.method,
        "url": request.path,
        "params": request.query or None,
        "headers": dict(request.headers),
        "content": request.body,
        **timeout,
    }


def _file_headers(path: Path) -> dict[str, str]:
    return {"content-length": str(path.stat().st_size)}


def _read_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CLIENT_PART_BYTES):
            yield chunk


async def _read_chunks_async(path: Path) -> AsyncIterator[bytes]:
    for chunk in _read_chunks(path):
        yield chunk


def _no_response(error: httpx.TransportError) -> NoResponse:
    import httpx

    unsent = httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout
    reason = str(error) or type(error).__name__
    address = str(error.request.url.copy_with(raw_path=b"/")).rstrip("/")
    return NoResponse("unsent" if isinstance(error, unsent) else "unanswered", reason, address)


def _response(response: httpx.Response, body: bytes) -> Response:
    return Response(response.status_code, {name.lower(): value for name, value in response.headers.items()}, body)


def _stream_error(error: httpx.TransportError, *, has_begun: bool) -> GraphError:
    event = "the stream was interrupted" if has_begun else "no response from the server"
    return GraphError(f"{event}: {_no_response(error).reason}; retry", code="server.unreachable")


class Transport:
    """A blocking transport; `run` retries as `retry_steps` says, `stream` yields chunks of complete lines."""

    def __init__(self, url: str, token: str | None, timeout: float | None) -> None:
        self.url = url
        import httpx

        self._transport_errors = httpx.TransportError
        self._client = httpx.Client(**_client_options(url, token, timeout))

    def run(self, call: Call[T]) -> T:
        steps = retry_steps(call)
        step = next(steps)
        while True:
            outcome = None
            if isinstance(step, Pause):
                time.sleep(step.seconds)
            else:
                outcome = self._send(step)
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result

    def stream(self, request: Request) -> Iterator[bytes]:
        lines, has_begun = LineBuffer(), False
        try:
            with self._client.stream(**_request_arguments(request)) as response:
                has_begun = True
                if response.status_code >= 400:
                    raise parse_error(_response(response, response.read()))
                for chunk in response.iter_bytes():
                    yield from lines.feed(chunk)
        except self._transport_errors as error:
            raise _stream_error(error, has_begun=has_begun) from error
        yield from lines.flush()

    def close(self) -> None:
        self._client.close()

    def _send(self, request: Request) -> Response | NoResponse:
        arguments = _request_arguments(request)
        if isinstance(request.body, Path):
            arguments["content"] = _read_chunks(request.body)
            arguments["headers"] |= _file_headers(request.body)
        try:
            response = self._client.request(**arguments)
        except self._transport_errors as error:
            return _no_response(error)
        return _response(response, response.content)


class AsyncTransport:
    """The asynchronous counterpart of `Transport`."""

    def __init__(self, url: str, token: str | None, timeout: float | None) -> None:
        self.url = url
        import httpx

        self._transport_errors = httpx.TransportError
        self._client = httpx.AsyncClient(**_client_options(url, token, timeout))

    async def run(self, call: Call[T]) -> T:
        steps = retry_steps(call)
        step = next(steps)
        while True:
            outcome = None
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
            else:
                outcome = await self._send(step)
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result

    async def stream(self, request: Request) -> AsyncIterator[bytes]:
        lines, has_begun = LineBuffer(), False
        try:
            async with self._client.stream(**_request_arguments(request)) as response:
                has_begun = True
                if response.status_code >= 400:
                    raise parse_error(_response(response, await response.aread()))
                async for chunk in response.aiter_bytes():
                    for lines_chunk in lines.feed(chunk):
                        yield lines_chunk
        except self._transport_errors as error:
            raise _stream_error(error, has_begun=has_begun) from error
        for lines_chunk in lines.flush():
            yield lines_chunk

    async def close(self) -> None:
        await self._client.aclose()

    async def _send(self, request: Request) -> Response | NoResponse:
        arguments = _request_arguments(request)
        if isinstance(request.body, Path):
            arguments["content"] = _read_chunks_async(request.body)
            arguments["headers"] |= _file_headers(request.body)
        try:
            response = await self._client.request(**arguments)
        except self._transport_errors as error:
            return _no_response(error)
        return _response(response, response.content)
