"""The body of a request, read in bounds: of size, before anything is parsed, and of time.

Knows ASGI and nothing of routes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from omnigraph.errors import GraphError, LimitExceeded
from omnigraph.limits import SERVER_BODY_SECONDS_MAX

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Gone(Exception):
    """The caller has hung up; nobody waits for an answer."""


class Overflow(LimitExceeded):
    """A body that did not say how long it is has become too long; nobody knows when it ends."""


def check_length(declared: str | None, limit: int, resource: str) -> int | None:
    """Return the length that a request declares for its body; refused when it is too large."""
    if declared is None or not (declared.isascii() and declared.isdigit()):
        return None
    if len(declared) > 18 or int(declared) > limit:
        raise too_large(resource, limit, int(declared[:18]))
    return int(declared)


async def read_body(receive: Receive, limit: int, resource: str) -> bytes:
    """Return the whole body."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(SERVER_BODY_SECONDS_MAX):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                part = message.get("body", b"")
                size += len(part)
                if size > limit:
                    raise Overflow(str(too_large(resource, limit, size)), resource=resource, limit=limit, actual=size)
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise GraphError(
            f"the body did not arrive within {SERVER_BODY_SECONDS_MAX} seconds; send it again", code="request.timeout"
        ) from None


def too_large(resource: str, limit: int, actual: int) -> LimitExceeded:
    """Return the refusal of a body."""
    return LimitExceeded(
        f"the body of this request may have {limit} bytes; split what it brings",
        resource=resource,
        limit=limit,
        actual=actual,
    )


async def wait_until_gone(receive: Receive) -> None:
    """Return when the caller hangs up; to be used once the body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass
