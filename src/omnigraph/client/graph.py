"""The client: graphs of a server, blocking and asynchronous, over the same calls.

The methods, results and errors are those of an opened graph.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar
from urllib.parse import quote, urlsplit

from omnigraph.client.endpoints import BranchCalls, GraphCalls, Params, SchemaCalls, TagCalls
from omnigraph.client.messages import AsOf, BlobInfo, Call, Request, get
from omnigraph.client.transport import AsyncTransport, Transport
from omnigraph.docstrings import inherit_docs
from omnigraph.errors import PolicyDenied, UsageError
from omnigraph.limits import CLIENT_TIMEOUT_SECONDS
from omnigraph.part_protocols import BlobProtocol, BranchesProtocol, SchemaProtocol, TagsProtocol
from omnigraph.protocol import GraphProtocol
from omnigraph.public_values import Snapshot
from omnigraph.source_files import SourceInput
from omnigraph.wire import Naming

if TYPE_CHECKING:
    from omnigraph.engine.query.physical_plan import Explanation
    from omnigraph.engine.query.result import Result
    from omnigraph.lang.catalog import Catalog, EdgeType, NodeType

T = TypeVar("T")
P = ParamSpec("P")
C = TypeVar("C")
X = TypeVar("X")


def connect(
    url: str, *, token: str | None = None, graph: str | None = None, timeout: float | None = CLIENT_TIMEOUT_SECONDS
) -> Graph:
    """Return a graph of a server; `og.connect` does the same.

    Args:
        url: The URL of the graph, or of the server.
        token: The bearer token.
        graph: The id of the graph, if `url` is that of a server; omit it if that lists a single graph.
        timeout: Seconds to wait for a response.

    Returns:
        The served graph; close it, or use it in a `with` statement.

    Raises:
        UsageError: The URL is not that of a server, or names no graph.

    Example:
        >>> connect("http://localhost:8080", graph="people").uri
        'http://localhost:8080/graphs/people'
    """
    if graph is None and "/graphs/" not in urlsplit(_server_url(url)).path:
        graph = _only_graph(url, token, timeout)
    return Graph(Transport(_graph_url(url, graph), token, timeout))


def _only_graph(url: str, token: str | None, timeout: float | None) -> str:
    """Return the id of the graph of a server that lists just one."""
    try:
        ids = [str(item["graph_id"]) for item in served_graphs(url, token=token, timeout=timeout)]
    except PolicyDenied:
        raise UsageError(f"`{url}` does not list its graphs for you; name one with `graph=`", url=url) from None
    if len(ids) != 1:
        listed = ", ".join(f"`{graph_id}`" for graph_id in ids) or "no graphs"
        raise UsageError(f"`{url}` has {listed}; name one with `graph=`", url=url)
    return ids[0]


def connect_async(
    url: str, *, token: str | None = None, graph: str | None = None, timeout: float | None = CLIENT_TIMEOUT_SECONDS
) -> AsyncGraph:
    """Return a graph of a server for `async` code.

    Args:
        url: The URL of the graph, or of the server.
        token: The bearer token.
        graph: The id of the graph, if `url` is that of a server.
        timeout: Seconds to wait for a response.

    Returns:
        The served graph, whose methods are awaited; close it, or use it in an `async with` statement.

    Raises:
        UsageError: The URL is not that of a server, or names no graph.

    Example:
        >>> connect_async("http://localhost:8080", graph="people").uri
        'http://localhost:8080/graphs/people'
    """
    return AsyncGraph(AsyncTransport(_graph_url(url, graph), token, timeout))


def served_graphs(
    url: str, *, token: str | None = None, timeout: float | None = CLIENT_TIMEOUT_SECONDS
) -> list[dict[str, str]]:
    """Return the graphs of a server.

    Args:
        url: The URL of the server.
        token: The bearer token.
        timeout: Seconds to wait for a response.

    Returns:
        Each graph with its `graph_id` and `uri`.

    Raises:
        ServerUnreachable: There is no response.
        PolicyDenied: The actor may not list graphs.

    Example:
        >>> served_graphs("https://graphs.example.org", token="…")  # doctest: +SKIP
        [{'graph_id': 'people', 'uri': 's3://bucket/people.omni'}]
    """
    with closing(Transport(_server_url(url), token, timeout)) as transport:
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


class _Served(Generic[X, C]):
    """Base of what is served: the calls of its methods, and the transport that runs them, blocking or asynchronous."""

    def __init__(self, transport: X, calls: C) -> None:
        self._transport = transport
        self._calls = calls


# What a call is built from is not what its method returns.
_RETURNED: Final = re.compile(r"^Call\[(.*)\]$")
F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K", bound=type)


def _await_examples(kind: K) -> K:
    """Write `await` into the examples of methods that a class for `async` code inherited."""
    for member in vars(kind).values():
        if callable(member) and member.__doc__:
            member.__doc__ = member.__doc__.replace(">>> ", "await ")
    return kind


def _returning(method: F, build: Callable[..., Any], template: str = "{}") -> F:
    returned = template.format(_RETURNED.sub(r"\1", str(signature(build).return_annotation)))
    method.__module__ = __name__
    method.__signature__ = signature(build).replace(return_annotation=returned)  # type: ignore[attr-defined]
    return method


def _blocking(build: Callable[Concatenate[C, P], Call[T]]) -> Callable[Concatenate[_Served[Transport, C], P], T]:
    @wraps(build)
    def method(self: _Served[Transport, C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._transport.run(build(self._calls, *args, **kwargs))

    return _returning(method, build)


def _awaitable(
    build: Callable[Concatenate[C, P], Call[T]],
) -> Callable[Concatenate[_Served[AsyncTransport, C], P], Awaitable[T]]:
    @wraps(build)
    def method(self: _Served[AsyncTransport, C], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        return self._transport.run(build(self._calls, *args, **kwargs))

    return _returning(method, build, "Awaitable[{}]")


def _blocking_stream(
    build: Callable[Concatenate[C, P], Request],
) -> Callable[Concatenate[_Served[Transport, C], P], Iterator[bytes]]:
    @wraps(build)
    def method(self: _Served[Transport, C], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[bytes]:
        return self._transport.stream(build(self._calls, *args, **kwargs))

    return _returning(method, build, "Iterator[bytes]")


def _awaitable_stream(
    build: Callable[Concatenate[C, P], Request],
) -> Callable[Concatenate[_Served[AsyncTransport, C], P], AsyncIterator[bytes]]:
    @wraps(build)
    def method(self: _Served[AsyncTransport, C], /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[bytes]:
        return self._transport.stream(build(self._calls, *args, **kwargs))

    return _returning(method, build, "AsyncIterator[bytes]")


@inherit_docs(BranchesProtocol)
class Branches(_Served[Transport, BranchCalls]):
    """The branches of a served graph."""

    create = _blocking(BranchCalls.create)
    list = _blocking(BranchCalls.list)
    rename = _blocking(BranchCalls.rename)
    delete = _blocking(BranchCalls.delete)
    merge = _blocking(BranchCalls.merge)


@inherit_docs(TagsProtocol)
class Tags(_Served[Transport, TagCalls]):
    """The tags of a served graph."""

    create = _blocking(TagCalls.create)
    list = _blocking(TagCalls.list)
    delete = _blocking(TagCalls.delete)


@inherit_docs(SchemaProtocol)
class Schema(_Served[Transport, SchemaCalls]):
    """The schema of a served graph."""

    read = _blocking(SchemaCalls.read)
    plan = _blocking(SchemaCalls.plan)
    apply = _blocking(SchemaCalls.apply)

    @property
    def source(self) -> str:
        return self._transport.run(self._calls.read())

    @property
    def catalog(self) -> Catalog:
        return self._transport.run(self._calls.catalog())

    @property
    def nodes(self) -> Mapping[str, NodeType]:
        return self._transport.run(self._calls.nodes())

    @property
    def edges(self) -> Mapping[str, EdgeType]:
        return self._transport.run(self._calls.edges())

    @property
    def types(self) -> tuple[NodeType | EdgeType, ...]:
        return self._transport.run(self._calls.types())


@dataclass(frozen=True, slots=True)
@inherit_docs(BlobProtocol)
class Blob(BlobInfo):
    """A blob of a served graph, at the state in which it was found."""

    _transport: Transport

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        call = self._range_call(start, end)
        return b"" if call is None else self._transport.run(call)


@inherit_docs(GraphProtocol)
class Graph(_Served[Transport, GraphCalls]):
    """A served graph, with the methods of `GraphProtocol` and its stored queries."""

    query = _blocking(GraphCalls.query)
    explain = _blocking(GraphCalls.explain)
    mutate = _blocking(GraphCalls.mutate)
    queries = _blocking(GraphCalls.queries)
    invoke = _blocking(GraphCalls.invoke)
    invoke_mutation = _blocking(GraphCalls.invoke_mutation)
    load = _blocking(GraphCalls.load)
    ingest = _blocking(GraphCalls.ingest)
    snapshot = _blocking(GraphCalls.snapshot)
    commits = _blocking(GraphCalls.commits)
    commit = _blocking(GraphCalls.commit)
    get = _blocking(GraphCalls.get)
    log = _blocking(GraphCalls.log)
    blame = _blocking(GraphCalls.blame)
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
        at: AsOf | None = None,
        names: Naming = "now",
    ) -> Blob:
        call = self._calls.blob(type_name, entity_id, property_name, entity=entity, branch=branch, at=at, names=names)
        return Blob(*_blob_fields(self._transport.run(call)), self._transport)

    def at(self, at: AsOf, branch: str = "main", *, names: Naming = "now") -> GraphAt:
        return GraphAt(self, self.commit(at, branch).commit_id, branch, names)

    def __repr__(self) -> str:
        return f"Graph({self.uri!r})"

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class GraphAt:
    """A read-only view of one past state of a served graph; later writes do not change it."""

    def __init__(self, graph: Graph, commit_id: str, branch: str, names: Naming) -> None:
        self._graph = graph
        self._state: Any = {"branch": branch, "at": commit_id, "names": names}
        self.commit_id = commit_id

    def __repr__(self) -> str:
        return f"<GraphAt: {self._graph.uri} at commit {self.commit_id}, branch {self._state['branch']}>"

    def snapshot(self) -> Snapshot:
        """Return the snapshot of this state."""
        return self._graph.snapshot(**self._state)

    def query(self, source: SourceInput, params: Params = None, *, name: str | None = None) -> Result:
        """Run a read query on this state."""
        return self._graph.query(source, params, name=name, **self._state)

    def explain(
        self, source: SourceInput, params: Params = None, *, name: str | None = None, profile: bool = False
    ) -> Explanation:
        """Return the plan of a read on this state."""
        return self._graph.explain(source, params, name=name, profile=profile, **self._state)

    def get(self, type_name: str, key: Any) -> dict[str, Any] | None:
        """Return one entity of this state."""
        return self._graph.get(type_name, key, **self._state)

    def blob(self, type_name: str, entity_id: str, property_name: str, *, entity: str = "node") -> Blob:
        """Find a blob of this state."""
        return self._graph.blob(type_name, entity_id, property_name, entity=entity, **self._state)

    def export(self, types: Sequence[str] | None = None) -> Iterator[bytes]:
        """Return this state as NDJSON that can be loaded again."""
        return self._graph.export(types=types, **self._state)


@_await_examples
@inherit_docs(BranchesProtocol)
class AsyncBranches(_Served[AsyncTransport, BranchCalls]):
    """The branches of a served graph, for `async` code."""

    create = _awaitable(BranchCalls.create)
    list = _awaitable(BranchCalls.list)
    rename = _awaitable(BranchCalls.rename)
    delete = _awaitable(BranchCalls.delete)
    merge = _awaitable(BranchCalls.merge)


@_await_examples
@inherit_docs(TagsProtocol)
class AsyncTags(_Served[AsyncTransport, TagCalls]):
    """The tags of a served graph, for `async` code."""

    create = _awaitable(TagCalls.create)
    list = _awaitable(TagCalls.list)
    delete = _awaitable(TagCalls.delete)


@_await_examples
@inherit_docs(SchemaProtocol)
class AsyncSchema(_Served[AsyncTransport, SchemaCalls]):
    """The schema of a served graph, for `async` code; its text is `await graph.schema.source`."""

    read = _awaitable(SchemaCalls.read)
    plan = _awaitable(SchemaCalls.plan)
    apply = _awaitable(SchemaCalls.apply)

    @property
    def source(self) -> Awaitable[str]:
        return self._transport.run(self._calls.read())

    @property
    def catalog(self) -> Awaitable[Catalog]:
        return self._transport.run(self._calls.catalog())

    @property
    def nodes(self) -> Awaitable[Mapping[str, NodeType]]:
        return self._transport.run(self._calls.nodes())

    @property
    def edges(self) -> Awaitable[Mapping[str, EdgeType]]:
        return self._transport.run(self._calls.edges())

    @property
    def types(self) -> Awaitable[tuple[NodeType | EdgeType, ...]]:
        return self._transport.run(self._calls.types())


@dataclass(frozen=True, slots=True)
@_await_examples
@inherit_docs(BlobProtocol)
class AsyncBlob(BlobInfo):
    """A blob of a served graph, for `async` code."""

    _transport: AsyncTransport

    async def read(self, start: int = 0, end: int | None = None) -> bytes:
        call = self._range_call(start, end)
        return b"" if call is None else await self._transport.run(call)


@_await_examples
@inherit_docs(GraphProtocol)
class AsyncGraph(_Served[AsyncTransport, GraphCalls]):
    """A served graph, for `async` code: the methods of `Graph`, awaited; streams are iterated with `async for`."""

    query = _awaitable(GraphCalls.query)
    explain = _awaitable(GraphCalls.explain)
    mutate = _awaitable(GraphCalls.mutate)
    queries = _awaitable(GraphCalls.queries)
    invoke = _awaitable(GraphCalls.invoke)
    invoke_mutation = _awaitable(GraphCalls.invoke_mutation)
    load = _awaitable(GraphCalls.load)
    ingest = _awaitable(GraphCalls.ingest)
    snapshot = _awaitable(GraphCalls.snapshot)
    commits = _awaitable(GraphCalls.commits)
    commit = _awaitable(GraphCalls.commit)
    get = _awaitable(GraphCalls.get)
    log = _awaitable(GraphCalls.log)
    blame = _awaitable(GraphCalls.blame)
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
        at: AsOf | None = None,
        names: Naming = "now",
    ) -> AsyncBlob:
        call = self._calls.blob(type_name, entity_id, property_name, entity=entity, branch=branch, at=at, names=names)
        return AsyncBlob(*_blob_fields(await self._transport.run(call)), self._transport)

    async def at(self, at: AsOf, branch: str = "main", *, names: Naming = "now") -> AsyncGraphAt:
        return AsyncGraphAt(self, (await self.commit(at, branch)).commit_id, branch, names)

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncGraphAt:
    """A read-only view of one past state of a served graph, for `async` code: the methods of `GraphAt`, awaited."""

    def __init__(self, graph: AsyncGraph, commit_id: str, branch: str, names: Naming) -> None:
        self._graph = graph
        self._state: Any = {"branch": branch, "at": commit_id, "names": names}
        self.commit_id = commit_id

    def snapshot(self) -> Awaitable[Snapshot]:
        """Return the snapshot of this state."""
        return self._graph.snapshot(**self._state)

    def query(self, source: SourceInput, params: Params = None, *, name: str | None = None) -> Awaitable[Result]:
        """Run a read query on this state."""
        return self._graph.query(source, params, name=name, **self._state)

    def explain(
        self, source: SourceInput, params: Params = None, *, name: str | None = None, profile: bool = False
    ) -> Awaitable[Explanation]:
        """Return the plan of a read on this state."""
        return self._graph.explain(source, params, name=name, profile=profile, **self._state)

    def get(self, type_name: str, key: Any) -> Awaitable[dict[str, Any] | None]:
        """Return one entity of this state."""
        return self._graph.get(type_name, key, **self._state)

    def blob(self, type_name: str, entity_id: str, property_name: str, *, entity: str = "node") -> Awaitable[AsyncBlob]:
        """Find a blob of this state."""
        return self._graph.blob(type_name, entity_id, property_name, entity=entity, **self._state)

    def export(self, types: Sequence[str] | None = None) -> AsyncIterator[bytes]:
        """Return this state as NDJSON that can be loaded again."""
        return self._graph.export(types=types, **self._state)


def _blob_fields(info: BlobInfo) -> tuple[str | None, int, str, Mapping[str, str]]:
    return info.snapshot_commit_id, info.length, info.etag, info.selector
