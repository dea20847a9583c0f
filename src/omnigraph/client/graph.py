"""Served graphs, blocking and awaited: both make the same calls, and differ only in how they wait.

The methods are those of an opened graph, with the same words, answers and errors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from types import TracebackType
from typing import Concatenate, Generic, ParamSpec, Self, TypeVar
from urllib.parse import quote, urlsplit

from omnigraph.client.endpoints import BranchCalls, GraphCalls, SchemaCalls, TagCalls
from omnigraph.client.request import Call, Request, get
from omnigraph.client.transport import AsyncLine, Line
from omnigraph.client.values import BlobPlace
from omnigraph.errors import UsageError
from omnigraph.limits import CLIENT_TIMEOUT_SECONDS
from omnigraph.server.wire import Naming

T = TypeVar("T")
P = ParamSpec("P")
C = TypeVar("C")


def connect(
    url: str, *, token: str | None = None, graph: str | None = None, timeout: float | None = CLIENT_TIMEOUT_SECONDS
) -> Graph:
    """Return a graph of a server. `url` is the server's, with `graph` as the id, or that of the graph itself."""
    return Graph(Line(_address(url, graph), token, timeout))


def connect_async(
    url: str, *, token: str | None = None, graph: str | None = None, timeout: float | None = CLIENT_TIMEOUT_SECONDS
) -> AsyncGraph:
    """Return the same as `connect`, for `async` code."""
    return AsyncGraph(AsyncLine(_address(url, graph), token, timeout))


def served_graphs(
    url: str, *, token: str | None = None, timeout: float | None = CLIENT_TIMEOUT_SECONDS
) -> list[dict[str, str]]:
    """Return the graphs of a server, each with its `graph_id` and `uri`."""
    with Line(_server(url), token, timeout) as line:
        return line.run(Call(get("/graphs"), lambda reply: list(reply.json()["graphs"])))


def _server(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise UsageError(f"`{url}` is not the address of a server; write for example `http://localhost:8080`", url=url)
    return url.rstrip("/")


def _address(url: str, graph: str | None) -> str:
    server = _server(url)
    if graph is not None:
        return f"{server}/graphs/{quote(graph, safe='')}"
    if "/graphs/" not in urlsplit(server).path:
        raise UsageError(f"`{url}` may serve several graphs; name one with `graph=`", url=url)
    return server


class _Blocking(Generic[C]):
    """Something whose calls block."""

    def __init__(self, line: Line, calls: C) -> None:
        self._line = line
        self._calls = calls


class _Awaited(Generic[C]):
    """Something whose calls are awaited."""

    def __init__(self, line: AsyncLine, calls: C) -> None:
        self._line = line
        self._calls = calls


def _now(build: Callable[Concatenate[C, P], Call[T]]) -> Callable[Concatenate[_Blocking[C], P], T]:
    @wraps(build)
    def method(self: _Blocking[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._line.run(build(self._calls, *args, **kwargs))

    return method


def _later(build: Callable[Concatenate[C, P], Call[T]]) -> Callable[Concatenate[_Awaited[C], P], Awaitable[T]]:
    @wraps(build)
    def method(self: _Awaited[C], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        return self._line.run(build(self._calls, *args, **kwargs))

    return method


def _lines_now(
    build: Callable[Concatenate[C, P], Request],
) -> Callable[Concatenate[_Blocking[C], P], Iterator[bytes]]:
    @wraps(build)
    def method(self: _Blocking[C], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[bytes]:
        return self._line.stream(build(self._calls, *args, **kwargs))

    return method


def _lines_later(
    build: Callable[Concatenate[C, P], Request],
) -> Callable[Concatenate[_Awaited[C], P], AsyncIterator[bytes]]:
    @wraps(build)
    def method(self: _Awaited[C], /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[bytes]:
        return self._line.stream(build(self._calls, *args, **kwargs))

    return method


class Branches(_Blocking[BranchCalls]):
    """The branches of a served graph."""

    create = _now(BranchCalls.create)
    list = _now(BranchCalls.list)
    rename = _now(BranchCalls.rename)
    delete = _now(BranchCalls.delete)
    merge = _now(BranchCalls.merge)


class Tags(_Blocking[TagCalls]):
    """The tags of a served graph."""

    create = _now(TagCalls.create)
    list = _now(TagCalls.list)
    delete = _now(TagCalls.delete)


class Schema(_Blocking[SchemaCalls]):
    """The schema of a served graph."""

    plan = _now(SchemaCalls.plan)
    apply = _now(SchemaCalls.apply)

    @property
    def source(self) -> str:
        """The text of the accepted schema."""
        return self._line.run(self._calls.source())


@dataclass(frozen=True, slots=True)
class Blob(BlobPlace):
    """A blob of a served graph, at the state in which it was found."""

    _line: Line

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes from `start` up to, not including, `end`; the end of the blob if it is left out."""
        call = self.range(start, end)
        return b"" if call is None else self._line.run(call)


class Graph(_Blocking[GraphCalls]):
    """A served graph."""

    query = _now(GraphCalls.query)
    explain = _now(GraphCalls.explain)
    mutate = _now(GraphCalls.mutate)
    queries = _now(GraphCalls.queries)
    invoke = _now(GraphCalls.invoke)
    invoke_mutation = _now(GraphCalls.invoke_mutation)
    ingest = _now(GraphCalls.ingest)
    snapshot = _now(GraphCalls.snapshot)
    commits = _now(GraphCalls.commits)
    commit = _now(GraphCalls.commit)
    operation = _now(GraphCalls.operation)
    revert = _now(GraphCalls.revert)
    cherry_pick = _now(GraphCalls.cherry_pick)
    diff = _now(GraphCalls.diff)
    commit_changes = _now(GraphCalls.commit_changes)
    changes = _now(GraphCalls.changes)
    export = _lines_now(GraphCalls.export)
    baseline = _lines_now(GraphCalls.baseline)

    def __init__(self, line: Line) -> None:
        super().__init__(line, GraphCalls())
        self.branches = Branches(line, BranchCalls())
        self.tags = Tags(line, TagCalls())
        self.schema = Schema(line, SchemaCalls())

    @property
    def uri(self) -> str:
        return self._line.url

    def blob(
        self,
        type_name: str,
        entity_id: str,
        property_name: str,
        *,
        entity: str = "node",
        branch: str = "main",
        at: str | None = None,
        names: Naming = "now",
    ) -> Blob:
        """Find a blob: its length, its tag, and ranges of its bytes."""
        calls = self._calls.blob(type_name, entity_id, property_name, entity=entity, branch=branch, at=at, names=names)
        place = self._line.run(calls.look)
        return Blob(*_known(self._line.run(calls.ask) if place is None else place), self._line)

    def close(self) -> None:
        """Give the connections back."""
        self._line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncBranches(_Awaited[BranchCalls]):
    """The branches of a served graph, for `async` code."""

    create = _later(BranchCalls.create)
    list = _later(BranchCalls.list)
    rename = _later(BranchCalls.rename)
    delete = _later(BranchCalls.delete)
    merge = _later(BranchCalls.merge)


class AsyncTags(_Awaited[TagCalls]):
    """The tags of a served graph, for `async` code."""

    create = _later(TagCalls.create)
    list = _later(TagCalls.list)
    delete = _later(TagCalls.delete)


class AsyncSchema(_Awaited[SchemaCalls]):
    """The schema of a served graph, for `async` code; its text is `await graph.schema.source`."""

    plan = _later(SchemaCalls.plan)
    apply = _later(SchemaCalls.apply)

    @property
    def source(self) -> Awaitable[str]:
        """The text of the accepted schema."""
        return self._line.run(self._calls.source())


@dataclass(frozen=True, slots=True)
class AsyncBlob(BlobPlace):
    """A blob of a served graph, for `async` code."""

    _line: AsyncLine

    async def read(self, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes from `start` up to, not including, `end`; the end of the blob if it is left out."""
        call = self.range(start, end)
        return b"" if call is None else await self._line.run(call)


class AsyncGraph(_Awaited[GraphCalls]):
    """A served graph, for `async` code: the methods of `Graph`, awaited; streams are iterated with `async for`."""

    query = _later(GraphCalls.query)
    explain = _later(GraphCalls.explain)
    mutate = _later(GraphCalls.mutate)
    queries = _later(GraphCalls.queries)
    invoke = _later(GraphCalls.invoke)
    invoke_mutation = _later(GraphCalls.invoke_mutation)
    ingest = _later(GraphCalls.ingest)
    snapshot = _later(GraphCalls.snapshot)
    commits = _later(GraphCalls.commits)
    commit = _later(GraphCalls.commit)
    operation = _later(GraphCalls.operation)
    revert = _later(GraphCalls.revert)
    cherry_pick = _later(GraphCalls.cherry_pick)
    diff = _later(GraphCalls.diff)
    commit_changes = _later(GraphCalls.commit_changes)
    changes = _later(GraphCalls.changes)
    export = _lines_later(GraphCalls.export)
    baseline = _lines_later(GraphCalls.baseline)

    def __init__(self, line: AsyncLine) -> None:
        super().__init__(line, GraphCalls())
        self.branches = AsyncBranches(line, BranchCalls())
        self.tags = AsyncTags(line, TagCalls())
        self.schema = AsyncSchema(line, SchemaCalls())

    @property
    def uri(self) -> str:
        return self._line.url

    async def blob(
        self,
        type_name: str,
        entity_id: str,
        property_name: str,
        *,
        entity: str = "node",
        branch: str = "main",
        at: str | None = None,
        names: Naming = "now",
    ) -> AsyncBlob:
        """Find a blob: its length, its tag, and ranges of its bytes."""
        calls = self._calls.blob(type_name, entity_id, property_name, entity=entity, branch=branch, at=at, names=names)
        place = await self._line.run(calls.look)
        return AsyncBlob(*_known(await self._line.run(calls.ask) if place is None else place), self._line)

    async def close(self) -> None:
        """Give the connections back."""
        await self._line.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _known(place: BlobPlace) -> tuple[str | None, int, str, Mapping[str, str]]:
    return place.snapshot_commit_id, place.length, place.etag, place.which
