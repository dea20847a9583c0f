"""One call as data: what is sent, how its answer is read, and when it may be sent again.

Pure: the same calls serve blocking and asynchronous graphs.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import orjson

from omnigraph.errors import UsageError
from omnigraph.ids import new_ulid
from omnigraph.server.wire import JSON, OPERATION_ID, TO_WIRE

T = TypeVar("T")

AsOf = str | int | datetime


@dataclass(frozen=True, slots=True)
class Request:
    """What goes out; `path` is below the address of the graph, its parts already escaped."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back; `headers` are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return orjson.loads(self.body)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request and the reading of its reply. `source` is the text that diagnostics of a refusal speak of.

    `also` are statuses of refusals that are answers here. A read may be sent again whenever no answer came; a write
    only when it surely did nothing, or when it has an id under which it is done only once.
    """

    request: Request
    read: Callable[[Reply], T]
    is_write: bool = False
    source: str | None = None
    also: frozenset[int] = frozenset()

    @property
    def operation_id(self) -> str | None:
        """The id under which a write is done at most once."""
        return self.request.headers.get(OPERATION_ID)


def members(value: Any) -> dict[str, Any]:
    """Return an input of the wire as the members that travel; what is unset stays at home.

    >>> from omnigraph.server.wire import NewBranch
    >>> members(NewBranch(name="b", from_="main"))
    {'name': 'b', 'from': 'main'}
    """
    given = ((one.name, getattr(value, one.name)) for one in fields(value))
    return {TO_WIRE.get(name, name): member for name, member in given if member is not None}


def get(path: str, value: Any = None, headers: Mapping[str, str] | None = None) -> Request:
    """Return a request that asks; members of lists are given again and again."""
    return Request("GET", path, _pairs(value), headers or {})


def post(path: str, value: Any, headers: Mapping[str, str] | None = None) -> Request:
    """Return a request with a JSON body."""
    return Request("POST", path, (), {"content-type": JSON, **(headers or {})}, encode(members(value)))


def send(path: str, value: Any, media: str, body: bytes) -> Request:
    """Return a request whose body is data, and whose input is in the address."""
    return Request("POST", path, _pairs(value), {"content-type": media}, body)


def encode(value: Any, option: int = 0) -> bytes:
    """Return a value as JSON; bytes travel as a blob's do.

    >>> encode({"photo": b"hi"})
    b'{"photo":"base64:aGk="}'
    """
    try:
        return orjson.dumps(value, default=_spell, option=option | orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:
        raise UsageError(f"the request cannot be written as JSON: {error}; give it as text") from None


def once(request: Request) -> Request:
    """Return a request with an id of its own, under which the server does it at most once."""
    return replace(request, headers={**request.headers, OPERATION_ID: new_ulid()})


def moment(branch: str, at: AsOf | None) -> dict[str, Any]:
    """Return a branch, or a moment of it, as requests name it; a commit or tag stands for itself.

    >>> moment("main", "release-1"), moment("main", 7)
    ({'snapshot': 'release-1'}, {'branch': 'main', 'snapshot': 7})
    """
    if isinstance(at, str):
        return {"snapshot": at}
    if isinstance(at, datetime):
        instant = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return {"branch": branch, "as_of": instant.isoformat()}
    return {"branch": branch} if at is None else {"branch": branch, "snapshot": at}


def _pairs(value: Any) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    return tuple(
        (name, str(one))
        for name, member in members(value).items()
        for one in (member if isinstance(member, list) else [member])
    )


def _spell(value: object) -> object:
    if isinstance(value, bytes):
        return f"base64:{b64encode(value).decode()}"
    raise TypeError(f"{type(value).__name__} has no form in JSON")
