"""HTTP transports on httpx, blocking and asynchronous, over one sans-I/O loop that retries only when that is safe.

httpx is imported on the first connection.

A read is always safe; a write if it surely did nothing, or has an operation id (idempotency key).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from omnigraph.client.messages import Call, Request, Response, get, parse_error
from omnigraph.errors import Effect, GraphError, OmniGraphError
from omnigraph.limits import (
    CLIENT_ATTEMPTS_MAX,
    CLIENT_BACKOFF_MILLISECONDS,
    CLIENT_PART_BYTES,
    CLIENT_WAIT_SECONDS_MAX,
)

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

_RETRYABLE_STATUSES: Final = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait before the next request."""

    seconds: float


@dataclass(frozen=True, slots=True)
class NoResponse:
    """No response arrived. `unsent`: the server has not seen the request."""

    kind: Literal["unsent", "unanswered"]
    reason: str
    address: str = "the server"


Step = Request | Pause
Steps = Generator[Step, Any, T]


def retry_steps(call: Call[T]) -> Steps[T]:
    """Yield requests and pauses; send each request's outcome back. Returns the parsed response, or raises."""
    is_open = False
    for attempt in range(CLIENT_ATTEMPTS_MAX):
        outcome: Response | NoResponse = yield call.request
        if isinstance(outcome, Response) and outcome.status < 400:
            return call.read(outcome)
        if isinstance(outcome, Response) and call.fallback is not None:
            return (yield from retry_steps(call.fallback))
        is_open = is_open or (call.is_write and isinstance(outcome, NoResponse) and outcome.kind == "unanswered")
        error = _attempt_error(call, outcome, is_open)
        if isinstance(outcome, Response) and error.effect is Effect.UNKNOWN:
            yield from _resolve_unknown_effect(error)
        is_open = is_open or error.effect is Effect.UNKNOWN
        wait = _retry_delay(outcome, attempt)
        if attempt + 1 == CLIENT_ATTEMPTS_MAX or wait > CLIENT_WAIT_SECONDS_MAX or not _may_retry(call, outcome, error):
            if is_open and error.effect is not Effect.APPLIED:
                # An earlier attempt may have been applied, even if this one surely failed.
                error.effect = Effect.UNKNOWN
                error.context = {**_operation_context(call), **error.context}
            raise error
        yield Pause(wait)
    raise AssertionError("the last attempt returns or raises")


def _attempt_error(call: Call[T], outcome: Response | NoResponse, is_open: bool) -> OmniGraphError:
    if isinstance(outcome, Response):
        return parse_error(outcome, call.source, is_write=call.is_write)
    if not is_open:
        return GraphError(
            f"cannot reach {outcome.address}: {outcome.reason}; check the address, and that the server is running."
            " Nothing was changed",
            code="server.unreachable",
            effect=Effect.NONE,
            **_operation_context(call),
        )
    if call.operation_id is None:
        advice = "may or may not have been applied; check the newest commits"
    else:
        advice = f"may or may not have been applied; check with `graph.operation('{call.operation_id}')`"
    return GraphError(
        f"no response from the server: {outcome.reason}. The request {advice}",
        code="server.unreachable",
        effect=Effect.UNKNOWN,
        **_operation_context(call),
    )


def _operation_context(call: Call[T]) -> dict[str, str]:
    return {} if call.operation_id is None else {"operation_id": call.operation_id}


def _may_retry(call: Call[T], outcome: Response | NoResponse, error: OmniGraphError) -> bool:
    if isinstance(outcome, NoResponse):
        return outcome.kind == "unsent" or not call.is_write or call.operation_id is not None
    if not call.is_write:
        return error.retryable or outcome.status in _RETRYABLE_STATUSES
    if error.effect is Effect.UNKNOWN:
        return call.operation_id is not None and outcome.status in _RETRYABLE_STATUSES
    return error.effect is Effect.NONE and (error.retryable or outcome.status == 429)


def _retry_delay(outcome: Response | NoResponse, attempt: int) -> float:
    retry_after = outcome.headers.get("retry-after", "") if isinstance(outcome, Response) else ""
    return float(retry_after) if retry_after.isdecimal() else CLIENT_BACKOFF_MILLISECONDS * 2**attempt / 1_000


def _resolve_unknown_effect(error: OmniGraphError) -> Steps[None]:
    """Look up the operation of a write with unknown outcome, and set `effect` of its error."""
    operation_id = error.context.get("operation_id")
    if not isinstance(operation_id, str):
        return
    for attempt in range(CLIENT_ATTEMPTS_MAX):
        outcome: Response | NoResponse = yield get(f"/operations/{operation_id}")
        operation = _operation_fields(outcome)
        if operation.get("outcome") == "applied":
            error.effect = Effect.APPLIED
            # Names of branches and tags change without a commit.
            if operation.get("commit"):
                error.context["graph_commit_id"] = operation["commit"]["graph_commit_id"]
            return
        if operation.get("outcome") == "absent":
            error.effect = Effect.NONE
            return
        if attempt + 1 < CLIENT_ATTEMPTS_MAX:
            yield Pause(min(_retry_delay(outcome, attempt), CLIENT_WAIT_SECONDS_MAX))


def _operation_fields(outcome: Response | NoResponse) -> dict[str, Any]:
    # A proxy may respond instead of the server; ignore what is not JSON.
    with suppress(ValueError):
        if isinstance(outcome, Response) and outcome.status == 200 and isinstance(data := outcome.json(), dict):
            return data
    return {}


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


def _client_options(url: str, token: str | None, timeout: float | None) -> dict[str, Any]:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    # Loading certificates takes longer than a request; skip it without TLS.
    return {"base_url": url, "headers": headers, "timeout": timeout, "verify": not url.startswith("http://")}


def _request_arguments(request: Request, timeout: httpx.Timeout, read_file: Callable[[Path], Any]) -> dict[str, Any]:
    """Return the arguments of httpx; a request that takes long extends only the read timeout, and never shortens it."""
    import httpx

    seconds = timeout.as_dict()
    if request.seconds is not None and seconds["read"] is not None:
        seconds["read"] = max(seconds["read"], request.seconds)
    headers, content = dict(request.headers), request.body
    if isinstance(request.body, Path):
        headers["content-length"], content = str(request.body.stat().st_size), read_file(request.body)
    return {
        "method": request.method,
        "url": request.path,
        "params": request.query or None,
        "headers": headers,
        "content": content,
        "timeout": httpx.Timeout(**seconds),
    }


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
        steps, outcome = retry_steps(call), None
        try:
            while True:
                step = steps.send(outcome)
                outcome = None if isinstance(step, Pause) else self._send(step)
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
        except StopIteration as end:
            result: T = end.value
            return result

    def stream(self, request: Request) -> Iterator[bytes]:
        lines, has_begun = LineBuffer(), False
        try:
            with self._client.stream(**_request_arguments(request, self._client.timeout, _read_chunks)) as response:
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
        try:
            response = self._client.request(**_request_arguments(request, self._client.timeout, _read_chunks))
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
        steps, outcome = retry_steps(call), None
        try:
            while True:
                step = steps.send(outcome)
                outcome = None if isinstance(step, Pause) else await self._send(step)
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
        except StopIteration as end:
            result: T = end.value
            return result

    async def stream(self, request: Request) -> AsyncIterator[bytes]:
        lines, has_begun = LineBuffer(), False
        try:
            arguments = _request_arguments(request, self._client.timeout, _read_chunks_async)
            async with self._client.stream(**arguments) as response:
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
        arguments = _request_arguments(request, self._client.timeout, _read_chunks_async)
        try:
            response = await self._client.request(**arguments)
        except self._transport_errors as error:
            return _no_response(error)
        return _response(response, response.content)
