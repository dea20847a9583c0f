"""The client: graphs of a server, blocking and asynchronous, over the same calls.

The methods are those of an opened graph, with the same words, answers and errors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from types import TracebackType
from typing import Concatenate, Generic, ParamSpec, Self, TypeVar
from urllib.parse import quote, urlsplit

from omnigraph.client.blobs import BlobInfo
from omnigraph.client.endpoints import BranchCalls, GraphCalls, SchemaCalls, TagCalls
from omnigraph.client.request import Call, Request, get
from omnigraph.client.transport import AsyncTransport, Transport
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
    return Graph(Transport(_graph_url(url, graph), token, timeout))


def connect_async(
    url: str, *, token: str | None = None, graph: str | None = None, timeout: float | None = CLIENT_TIMEOUT_SECONDS
) -> AsyncGraph:
    """Return the same as `connect`, for `async` code."""
    return AsyncGraph(AsyncTransport(_graph_url(url, graph), token, timeout))


def served_graphs(
    url: str, *, token: str | None = None, timeout: float | None = CLIENT_TIMEOUT_SECONDS
) -> list[dict[str, str]]:
    """Return the graphs of a server, each with its `graph_id` and `uri`."""
    with Transport(_server_url(url), token, timeout) as transport:
        return transport.run(Call(get("/graphs"), lambda response: list(response.json()["graphs"])))


def _server_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise UsageError(f"`{url}` is not the address of a server; write for example `http://localhost:8080`", url=url)
    return url.rstrip("/")


def _graph_url(url: str, graph: str | None) -> str:
    server = _server_url(url)
    if graph is not None:
        return f"{server}/graphs/{quote(graph, safe='')}"
    if "/graphs/" not in urlsplit(server).path:
        raise UsageError(f"`{url}` may serve several graphs; name one with `graph=`", url=url)
    return server


class _Blocking(Generic[C]):
    """Base of objects whose methods block."""

    def __init__(self, transport: Transport, calls: C) -> None:
        self._transport = transport
        self._calls = calls


class _Awaited(Generic[C]):
    """Base of objects whose methods are awaited."""

    def __init__(self, transport: AsyncTransport, calls: C) -> None:
        self._transport = transport
        self._calls = calls


def _blocking(build: Callable[Concatenate[C, P], Call[T]]) -> Callable[Concatenate[_Blocking[C], P], T]:
    @wraps(build)
    def method(self: _Blocking[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._transport.run(build(self._calls, *args, **kwargs))

    return method


def _awaitable(build: Callable[Concatenate[C, P], Call[T]]) -> Callable[Concatenate[_Awaited[C], P], Awaitable[T]]:
    @wraps(build)
    def method(self: _Awaited[C], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        return self._transport.run(build(self._calls, *args, **kwargs))

    return method


def _blocking_stream(
    build: Callable[Concatenate[C, P], Request],
) -> Callable[Concatenate[_Blocking[C], P], Iterator[bytes]]:
    @wraps(build)
    def method(self: _Blocking[C], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[bytes]:
        return self._transport.stream(build(self._calls, *args, **kwargs))

    return method


def _awaitable_stream(
    build: Callable[Concatenate[C, P], Request],
) -> Callable[Concatenate[_Awaited[C], P], AsyncIterator[bytes]]:
    @wraps(build)
    def method(self: _Awaited[C], /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[bytes]:
        return self._transport.stream(build(self._calls, *args, **kwargs))

    return method


class Branches(_Blocking[BranchCalls]):
    """The branches of a served graph."""

    create = _blocking(BranchCalls.create)
    list = _blocking(BranchCalls.list)
    rename = _blocking(BranchCalls.rename)
    delete = _blocking(BranchCalls.delete)
    merge = _blocking(BranchCalls.merge)


class Tags(_Blocking[TagCalls]):
    """The tags of a served graph."""

    create = _blocking(TagCalls.create)
    list = _blocking(TagCalls.list)
    delete = _blocking(TagCalls.delete)


class Schema(_Blocking[SchemaCalls]):
    """The schema of a served graph."""

    plan = _blocking(SchemaCalls.plan)
    apply = _blocking(SchemaCalls.apply)

    @property
    def source(self) -> str:
        """The text of the accepted schema."""
        return self._transport.run(self._calls.source())


@dataclass(frozen=True, slots=True)
class Blob(BlobInfo):
    """A blob of a served graph, at the state in which it was found."""

    _transport: Transport

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes from `start` up to, not including, `end`; the end of the blob if it is left out."""
        call = self.range(start, end)
        return b"" if call is None else self._transport.run(call)


class Graph(_Blocking[GraphCalls]):
    """A served graph."""

    query = _blocking(GraphCalls.query)
    explain = _blocking(GraphCalls.explain)
    mutate = _blocking(GraphCalls.mutate)
    queries = _blocking(GraphCalls.queries)
    invoke = _blocking(GraphCalls.invoke)
    invoke_mutation = _blocking(GraphCalls.invoke_mutation)
    ingest = _blocking(GraphCalls.ingest)
    snapshot = _blocking(GraphCalls.snapshot)
    commits = _blocking(GraphCalls.commits)
    commit = _blocking(GraphCalls.commit)
    operation = _blocking(GraphCalls.operation)
    revert = _blocking(GraphCalls.revert)
    cherry_pick = _blocking(GraphCalls.cherry_pick)
    diff = _blocking(GraphCalls.diff)
    commit_changes = _blocking(GraphCalls.commit_changes)
    changes = _blocking(GraphCalls.changes)
    export = _blocking_stream(GraphCalls.export)
    baseline = _blocking_stream(GraphCalls.baseline)

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport, GraphCalls())
        self.branches = Branches(transport, BranchCalls())
        self.tags = Tags(transport, TagCalls())
        self.schema = Schema(transport, SchemaCalls())

    @property
    def uri(self) -> str:
        return self._transport.url

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
        info = self._transport.run(calls.head)
        return Blob(*_blob_fields(self._transport.run(calls.probe) if info is None else info), self._transport)

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncBranches(_Awaited[BranchCalls]):
    """The branches of a served graph, for `async` code."""

    create = _awaitable(BranchCalls.create)
    list = _awaitable(BranchCalls.list)
    rename = _awaitable(BranchCalls.rename)
    delete = _awaitable(BranchCalls.delete)
    merge = _awaitable(BranchCalls.merge)


class AsyncTags(_Awaited[TagCalls]):
    """The tags of a served graph, for `async` code."""

    create = _awaitable(TagCalls.create)
    list = _awaitable(TagCalls.list)
    delete = _awaitable(TagCalls.delete)


class AsyncSchema(_Awaited[SchemaCalls]):
    """The schema of a served graph, for `async` code; its text is `await graph.schema.source`."""

    plan = _awaitable(SchemaCalls.plan)
    apply = _awaitable(SchemaCalls.apply)

    @property
    def source(self) -> Awaitable[str]:
        """The text of the accepted schema."""
        return self._transport.run(self._calls.source())


@dataclass(frozen=True, slots=True)
class AsyncBlob(BlobInfo):
    """A blob of a served graph, for `async` code."""

    _transport: AsyncTransport

    async def read(self, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes from `start` up to, not including, `end`; the end of the blob if it is left out."""
        call = self.range(start, end)
        return b"" if call is None else await self._transport.run(call)


class AsyncGraph(_Awaited[GraphCalls]):
    """A served graph, for `async` code: the methods of `Graph`, awaited; streams are iterated with `async for`."""

    query = _awaitable(GraphCalls.query)
    explain = _awaitable(GraphCalls.explain)
    mutate = _awaitable(GraphCalls.mutate)
    queries = _awaitable(GraphCalls.queries)
    invoke = _awaitable(GraphCalls.invoke)
    invoke_mutation = _awaitable(GraphCalls.invoke_mutation)
    ingest = _awaitable(GraphCalls.ingest)
    snapshot = _awaitable(GraphCalls.snapshot)
    commits = _awaitable(GraphCalls.commits)
    commit = _awaitable(GraphCalls.commit)
    operation = _awaitable(GraphCalls.operation)
    revert = _awaitable(GraphCalls.revert)
    cherry_pick = _awaitable(GraphCalls.cherry_pick)
    diff = _awaitable(GraphCalls.diff)
    commit_changes = _awaitable(GraphCalls.commit_changes)
    changes = _awaitable(GraphCalls.changes)
    export = _awaitable_stream(GraphCalls.export)
    baseline = _awaitable_stream(GraphCalls.baseline)

    def __init__(self, transport: AsyncTransport) -> None:
        super().__init__(transport, GraphCalls())
        self.branches = AsyncBranches(transport, BranchCalls())
        self.tags = AsyncTags(transport, TagCalls())
        self.schema = AsyncSchema(transport, SchemaCalls())

    @property
    def uri(self) -> str:
        return self._transport.url

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
        info = await self._transport.run(calls.head)
        return AsyncBlob(
            *_blob_fields(await self._transport.run(calls.probe) if info is None else info), self._transport
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _blob_fields(info: BlobInfo) -> tuple[str | None, int, str, Mapping[str, str]]:
    return info.snapshot_commit_id, info.length, info.etag, info.selector
