"""What opened and served graphs have in common, and `connect`, which returns either."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from omnigraph.limits import CLIENT_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from omnigraph.engine.changes import ChangeSet, CommitPage, FeedPage
    from omnigraph.engine.query.explain import Explanation
    from omnigraph.engine.query.result import Result
    from omnigraph.public_values import IngestReceipt, MergeReceipt, MutationReceipt
    from omnigraph.source_files import SourceInput

_Params = Mapping[str, object] | None
_Names = Sequence[str] | None


class GraphProtocol(Protocol):
    """The methods that `og.Graph` and a served graph share, with the same arguments, results and errors.

    Commits, tags and snapshots of a served graph are plain values with the same members as those of an opened one.

    Example:
        >>> def count_people(graph: "og.GraphProtocol") -> int:
        ...     return len(graph.query("query q() { match { $p: Person } return { $p } }"))
        >>> count_people(graph)
        2
    """

    branches: Any
    tags: Any
    schema: Any

    @property
    def uri(self) -> str: ...

    def query(
        self,
        source: SourceInput,
        params: _Params = None,
        *,
        name: str | None = None,
        branch: str = "main",
        at: Any = None,
    ) -> Result: ...

    def explain(
        self,
        source: SourceInput,
        params: _Params = None,
        *,
        name: str | None = None,
        branch: str = "main",
        at: Any = None,
    ) -> Explanation: ...

    def mutate(
        self,
        source: SourceInput,
        params: _Params = None,
        *,
        name: str | None = None,
        branch: str = "main",
        if_commit: str | None = None,
    ) -> MutationReceipt: ...

    def ingest(
        self,
        data: Any = None,
        *,
        nodes: Mapping[str, Any] | None = None,
        edges: Mapping[str, Any] | None = None,
        mode: Literal["append", "merge", "overwrite"] = "merge",
        branch: str = "main",
        from_branch: str | None = None,
    ) -> IngestReceipt: ...

    def snapshot(self, branch: str = "main") -> Any: ...

    def commits(self, branch: str = "main", *, limit: int | None = None, before: str | None = None) -> Any: ...

    def commit(self, commit_id: str) -> Any: ...

    def operation(self, operation_id: str) -> Any: ...

    def revert(self, commit_id: str, branch: str = "main", *, dry_run: bool = False) -> MergeReceipt: ...

    def cherry_pick(self, commit_id: str, branch: str = "main", *, dry_run: bool = False) -> MergeReceipt: ...

    def export(self, branch: str = "main", *, at: Any = None, types: _Names = None) -> Iterator[bytes]: ...

    def diff(
        self, a: Any, b: Any, *, kinds: _Names = None, types: _Names = None, ops: _Names = None, branch: str = "main"
    ) -> ChangeSet: ...

    def commit_changes(
        self, commit_id: str, *, kinds: _Names = None, types: _Names = None, ops: _Names = None
    ) -> CommitPage: ...

    def changes(
        self,
        branch: str = "main",
        *,
        start: str | None = None,
        cursor: str | None = None,
        page_token: str | None = None,
    ) -> FeedPage: ...

    def baseline(self, branch: str = "main", *, types: _Names = None) -> Iterator[bytes]: ...

    def blob(self, type_name: str, entity_id: str, property_name: str, *, branch: str = "main") -> Any: ...

    def close(self) -> None: ...

    def __enter__(self) -> Any: ...

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None: ...


def connect(
    address: str | Path,
    *,
    token: str | None = None,
    graph: str | None = None,
    timeout: float | None = CLIENT_TIMEOUT_SECONDS,
    actor: str | None = None,
) -> Any:
    """Open a graph wherever it is: at a path, in an object store, or on a server.

    Args:
        address: A path or `s3://` address, as for `og.open`, or the `http://` or `https://` address of a server or of
            one of its graphs.
        token: The bearer token for a server.
        graph: The id of a graph, if `address` is that of a server.
        timeout: Seconds to wait for a response of a server.
        actor: Who uses a graph that is opened here; a server knows the actor by the token.

    Returns:
        A `GraphProtocol`: an `og.Graph`, or a served graph, which has `queries` and `invoke` as well.

    Raises:
        GraphNotFound: There is no graph at this address.
        UsageError: An argument does not fit the address.

    Example:
        >>> with og.connect(path) as opened:
        ...     opened.get("Person", "Ada")["age"]
        36
    """
    if str(address).startswith(("http://", "https://")):
        from omnigraph import client

        if actor is not None:
            raise _misplaced("actor", "a server knows the actor by the token")
        return client.connect(str(address), token=token, graph=graph, timeout=timeout)
    from omnigraph.graph import open as open_graph

    for argument, value in (("token", token), ("graph", graph)):
        if value is not None:
            raise _misplaced(argument, "it is for servers, whose addresses look like `http://localhost:8080`")
    return open_graph(address, actor=actor)


def _misplaced(argument: str, reason: str) -> Exception:
    from omnigraph.errors import UsageError

    return UsageError(f"`{argument}` does not fit this address: {reason}; omit it", argument=argument)
