"""One request as a handler sees it, and what a handler gives back.

Plain values; handlers run in threads and know nothing of the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from omnigraph.engine.core import Moment
from omnigraph.engine.read import CancelToken
from omnigraph.errors import UsageError
from omnigraph.graph import Graph
from omnigraph.server.envelope import dump
from omnigraph.server.hosting import Hosted
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
        return self.graph.core.address_or(self.hosted.graph_id)

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


def moment_of(given: _OfMoment) -> tuple[str, Moment | None]:
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
