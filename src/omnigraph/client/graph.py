"""The client: graphs of a server, blocking and asynchronous, over the same calls.

The methods, results and errors are those of an opened graph.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial, wraps
from inspect import Signature, getdoc, signature
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, NamedTuple, ParamSpec, Self, TypeVar
from urllib.parse import quote, urlsplit

from omnigraph.client.endpoints import ENDPOINTS, ServedGraph
from omnigraph.client.messages import BlobInfo, Call, find_blob, get
from omnigraph.client.transport import AsyncTransport, Transport
from omnigraph.docstrings import inherit_docs
from omnigraph.errors import PolicyDenied, UsageError
from omnigraph.limits import CLIENT_TIMEOUT_SECONDS
from omnigraph.part_protocols import AsOf, BlobProtocol, BranchesProtocol, SchemaProtocol, TagsProtocol
from omnigraph.protocol.reads import Naming, Params
from omnigraph.public_values import Snapshot
from omnigraph.source_files import SourceInput

if TYPE_CHECKING:
    from omnigraph.engine.query.physical_plan import Explanation
    from omnigraph.engine.query.result import Result
    from omnigraph.lang.catalog import Catalog, EdgeType, NodeType

T = TypeVar("T")
P = ParamSpec("P")
X = TypeVar("X")
K = TypeVar("K", bound=type)
G = TypeVar("G", bound="Graph | AsyncGraph")


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
    return Graph(Transport(_graph_url(url, graph), token, timeout))  # type: ignore[abstract]  # see `_implement`


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


class _Served(Generic[X]):
    """Base of what is served: the transport that runs the calls of its methods, blocking or asynchronous."""

    def __init__(self, transport: X) -> None:
        self._transport = transport


class _Style(NamedTuple):
    """How the methods of a graph look for one kind of code: their results, their streams, and lines of examples."""

    result: str
    stream: str
    example: str


_BLOCKING: Final = _Style("{}", "{}", ">>> ")
_AWAITED: Final = _Style("Awaitable[{}]", "Async{}", "await ")


def _implement(protocol: type, style: _Style) -> Callable[[K], K]:
    """Return a class decorator that makes those members of a protocol which the class leaves out, from their endpoints.

    A type checker takes the class for abstract.
    """

    def implement(kind: K) -> K:
        inherit_docs(protocol)(kind)
        for name in (name for name in dir(protocol) if not name.startswith("_")):
            if name not in vars(kind):
                setattr(kind, name, _member(getattr(protocol, name), style))
            member = vars(kind)[name]
            if member.__doc__:
                member.__doc__ = member.__doc__.replace(">>> ", style.example)
        return kind

    return implement


def _member(documented: Any, style: _Style) -> Any:
    """Return the method or property of an endpoint, with the signature and documentation of a protocol."""
    endpoint, is_property = ENDPOINTS[documented], isinstance(documented, property)
    function = documented.fget if is_property else documented
    parameters = signature(function)

    @wraps(function)
    def method(self: _Served[Transport | AsyncTransport], /, *args: Any, **kwargs: Any) -> Any:
        call = endpoint.call(parameters.bind(self, *args, **kwargs).arguments)
        return self._transport.stream(call.request) if endpoint.read is None else self._transport.run(call)

    method.__module__, method.__doc__ = __name__, getdoc(documented)
    _show_result(method, parameters, style.stream if endpoint.read is None else style.result)
    return property(method) if is_property else method


def _show_result(method: Any, parameters: Signature, template: str) -> None:
    method.__signature__ = parameters.replace(return_annotation=template.format(parameters.return_annotation))


def _awaitable(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Awaitable[T]]:
    """Return the asynchronous counterpart of a blocking method."""
    return _awaited(method, _AWAITED.result)


def _awaitable_stream(
    method: Callable[Concatenate[Any, P], Iterator[bytes]],
) -> Callable[Concatenate[Any, P], AsyncIterator[bytes]]:
    return _awaited(method, _AWAITED.stream)


def _awaited(method: Callable[..., Any], template: str) -> Callable[..., Any]:
    if method in ENDPOINTS:
        member: Callable[..., Any] = _member(method, _AWAITED)
        return member

    @wraps(method)
    def passed_on(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    _show_result(passed_on, signature(method), template)
    return passed_on


@_implement(BranchesProtocol, _BLOCKING)
class Branches(_Served[Transport], BranchesProtocol):
    """The branches of a served graph."""


@_implement(TagsProtocol, _BLOCKING)
class Tags(_Served[Transport], TagsProtocol):
    """The tags of a served graph."""


@_implement(SchemaProtocol, _BLOCKING)
class Schema(_Served[Transport], SchemaProtocol):
    """The schema of a served graph."""


@dataclass(frozen=True, slots=True)
@_implement(BlobProtocol, _BLOCKING)
class Blob(BlobInfo):
    """A blob of a served graph, at the state in which it was found."""

    _transport: Transport

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        call = self._range_call(start, end)
        return b"" if call is None else self._transport.run(call)


@_implement(ServedGraph, _BLOCKING)
class Graph(_Served[Transport], ServedGraph):
    """A served graph, with the methods of `GraphProtocol` and its stored queries."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self.branches = Branches(transport)  # type: ignore[abstract]  # see `_implement`
        self.tags = Tags(transport)  # type: ignore[abstract]
        self.schema = Schema(transport)  # type: ignore[abstract]

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
        which = {"entity": entity, "type": type_name, "id": entity_id, "property": property_name}
        return self._transport.run(find_blob(partial(Blob, _transport=self._transport), which, branch, at, names))

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


class _PastState(Generic[G]):
    """Base of the views of one past state of a served graph, with the arguments that name the state."""

    def __init__(self, graph: G, commit_id: str, branch: str, names: Naming) -> None:
        self._graph = graph
        self._state: Any = {"branch": branch, "at": commit_id, "names": names}
        self.commit_id = commit_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._graph.uri} at commit {self.commit_id}, branch {self._state['branch']}>"


class GraphAt(_PastState[Graph]):
    """A read-only view of one past state of a served graph; later writes do not change it."""

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


@_implement(BranchesProtocol, _AWAITED)
class AsyncBranches(_Served[AsyncTransport]):
    """The branches of a served graph, for `async` code."""

    create = _awaitable(BranchesProtocol.create)
    list = _awaitable(BranchesProtocol.list)
    rename = _awaitable(BranchesProtocol.rename)
    delete = _awaitable(BranchesProtocol.delete)
    merge = _awaitable(BranchesProtocol.merge)


@_implement(TagsProtocol, _AWAITED)
class AsyncTags(_Served[AsyncTransport]):
    """The tags of a served graph, for `async` code."""

    create = _awaitable(TagsProtocol.create)
    list = _awaitable(TagsProtocol.list)
    delete = _awaitable(TagsProtocol.delete)


@_implement(SchemaProtocol, _AWAITED)
class AsyncSchema(_Served[AsyncTransport]):
    """The schema of a served graph, for `async` code; its text is `await graph.schema.source`."""

    read = _awaitable(SchemaProtocol.read)
    plan = _awaitable(SchemaProtocol.plan)
    apply = _awaitable(SchemaProtocol.apply)
    source: Awaitable[str]
    catalog: Awaitable[Catalog]
    nodes: Awaitable[Mapping[str, NodeType]]
    edges: Awaitable[Mapping[str, EdgeType]]
    types: Awaitable[tuple[NodeType | EdgeType, ...]]


@dataclass(frozen=True, slots=True)
@_implement(BlobProtocol, _AWAITED)
class AsyncBlob(BlobInfo):
    """A blob of a served graph, for `async` code."""

    _transport: AsyncTransport

    async def read(self, start: int = 0, end: int | None = None) -> bytes:
        call = self._range_call(start, end)
        return b"" if call is None else await self._transport.run(call)


@_implement(ServedGraph, _AWAITED)
class AsyncGraph(_Served[AsyncTransport]):
    """A served graph, for `async` code: the methods of `Graph`, awaited; streams are iterated with `async for`."""

    query = _awaitable(ServedGraph.query)
    explain = _awaitable(ServedGraph.explain)
    mutate = _awaitable(ServedGraph.mutate)
    queries = _awaitable(ServedGraph.queries)
    invoke = _awaitable(ServedGraph.invoke)
    invoke_mutation = _awaitable(ServedGraph.invoke_mutation)
    load = _awaitable(ServedGraph.load)
    ingest = _awaitable(ServedGraph.ingest)
    snapshot = _awaitable(ServedGraph.snapshot)
    commits = _awaitable(ServedGraph.commits)
    commit = _awaitable(ServedGraph.commit)
    get = _awaitable(ServedGraph.get)
    log = _awaitable(ServedGraph.log)
    blame = _awaitable(ServedGraph.blame)
    operation = _awaitable(ServedGraph.operation)
    revert = _awaitable(ServedGraph.revert)
    cherry_pick = _awaitable(ServedGraph.cherry_pick)
    diff = _awaitable(ServedGraph.diff)
    commit_changes = _awaitable(ServedGraph.commit_changes)
    changes = _awaitable(ServedGraph.changes)
    export = _awaitable_stream(ServedGraph.export)
    baseline = _awaitable_stream(ServedGraph.baseline)

    def __init__(self, transport: AsyncTransport) -> None:
        super().__init__(transport)
        self.branches = AsyncBranches(transport)
        self.tags = AsyncTags(transport)
        self.schema = AsyncSchema(transport)

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
        which = {"entity": entity, "type": type_name, "id": entity_id, "property": property_name}
        call = find_blob(partial(AsyncBlob, _transport=self._transport), which, branch, at, names)
        return await self._transport.run(call)

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


class AsyncGraphAt(_PastState[AsyncGraph]):
    """A read-only view of one past state of a served graph, for `async` code: the methods of `GraphAt`, awaited."""

    snapshot = _awaitable(GraphAt.snapshot)
    query = _awaitable(GraphAt.query)
    explain = _awaitable(GraphAt.explain)
    get = _awaitable(GraphAt.get)
    export = _awaitable_stream(GraphAt.export)

    def blob(self, type_name: str, entity_id: str, property_name: str, *, entity: str = "node") -> Awaitable[AsyncBlob]:
        """Find a blob of this state."""
        return self._graph.blob(type_name, entity_id, property_name, entity=entity, **self._state)
