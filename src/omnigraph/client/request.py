"""HTTP requests and responses as values, and the calls that pair a request with the parser of its response.

Pure; shared by the blocking and asynchronous clients.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import orjson

from omnigraph.errors import UsageError
from omnigraph.ids import new_ulid
from omnigraph.server.wire import JSON, OPERATION_ID, TO_WIRE

T = TypeVar("T")

AsOf = str | int | datetime


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request; `path` is relative to the graph's URL and escaped."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    # A file is sent in chunks, and read again for another attempt.
    body: bytes | Path | None = None
    # Seconds to wait for the response; None for the default of the transport.
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response; header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return orjson.loads(self.body)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request and the parser of its response. `source` is the query text that error diagnostics refer to.

    `accepted_statuses` are error statuses that `read` parses, too.
    """

    request: Request
    read: Callable[[Response], T]
    is_write: bool = False
    source: str | None = None
    accepted_statuses: frozenset[int] = frozenset()

    @property
    def operation_id(self) -> str | None:
        """The idempotency key of a write."""
        return self.request.headers.get(OPERATION_ID)


def wire_fields(value: Any) -> dict[str, Any]:
    """Convert a request dataclass to a JSON-ready dict, omitting `None` fields.

    >>> from omnigraph.server.wire import NewBranch
    >>> wire_fields(NewBranch(name="b", from_="main"))
    {'name': 'b', 'from': 'main'}
    """
    values = ((member.name, getattr(value, member.name)) for member in fields(value))
    return {TO_WIRE.get(name, name): member for name, member in values if member is not None}


def get(path: str, value: Any = None, headers: Mapping[str, str] | None = None) -> Request:
    """Return a GET request; lists become repeated query parameters."""
    return Request("GET", path, _query_pairs(value), headers or {})


def post(path: str, value: Any, headers: Mapping[str, str] | None = None) -> Request:
    """Return a POST request with a JSON body."""
    return Request("POST", path, (), {"content-type": JSON, **(headers or {})}, encode(wire_fields(value)))


def post_data(path: str, value: Any, media: str, body: bytes | Path, seconds: float | None = None) -> Request:
    """Return a POST request with a data body and its input in the query string."""
    return Request("POST", path, _query_pairs(value), {"content-type": media}, body, seconds)


def encode(value: Any, option: int = 0) -> bytes:
    """Encode a value as JSON; bytes as base64 blobs.

    >>> encode({"photo": b"hi"})
    b'{"photo":"base64:aGk="}'
    """
    try:
        return orjson.dumps(value, default=_encode_value, option=option | orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:
        raise UsageError(f"the request cannot be encoded as JSON: {error}; convert the value to a string") from None


def with_operation_id(request: Request) -> Request:
    """Add a new operation id, so that the server applies the request at most once."""
    return replace(request, headers={**request.headers, OPERATION_ID: new_ulid()})


@overload
def state_text(at: None) -> None: ...
@overload
def state_text(at: AsOf) -> str | int: ...
def state_text(at: AsOf | None) -> str | int | None:
    """Return a state as JSON names it; None for the newest one.

    >>> state_text(datetime(2026, 1, 31)), state_text(7)
    ('2026-01-31T00:00:00+00:00', 7)
    """
    if not isinstance(at, datetime):
        return at
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).isoformat()


def _query_pairs(value: Any) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    return tuple(
        (name, str(item))
        for name, member in wire_fields(value).items()
        for item in (member if isinstance(member, list) else [member])
    )


def _encode_value(value: object) -> object:
    if isinstance(value, bytes):
        return f"base64:{b64encode(value).decode()}"
    raise TypeError(f"{type(value).__name__} has no JSON form")
