"""The reading half of `Graph`: queries, single entities, history and the change feed, and past states (`GraphAt`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from omnigraph import clock
from omnigraph.docstrings import inherit_docs
from omnigraph.engine import export, history
from omnigraph.engine.arguments import check_type
from omnigraph.engine.entity_lookup import Blob, find_blob, find_entity
from omnigraph.engine.export import ExportFormat
from omnigraph.engine.past_schemas import NOW, Naming
from omnigraph.engine.query import explain as explain_query
from omnigraph.engine.query import run as run_query
from omnigraph.engine.query.budget import DEFAULT_BUDGET, Budget
from omnigraph.engine.query.context import Caches
from omnigraph.engine.query.physical_plan import Explanation
from omnigraph.engine.query.result import Result
from omnigraph.engine.revisions import AsOf
from omnigraph.engine.session import GraphSession, View
from omnigraph.lang.query import CompiledQuery
from omnigraph.limits import CHANGE_PAGE_BYTES, CHANGE_PAGE_CHANGES, DRAWN_NODES, ENTITY_LOG_COMMITS, FEED_COMMITS
from omnigraph.manifest.model import MAIN, Snapshot
from omnigraph.protocol import GraphProtocol
from omnigraph.public_values import Commit, EntityLog, Operation, PropertyBlame
from omnigraph.source_files import SourceInput, query_source

if TYPE_CHECKING:
    from omnigraph.engine.changes import ChangeSet, CommitPage, FeedPage
    from omnigraph.engine.drawing import Drawing
    from omnigraph.engine.query.embedders import Embedder
    from omnigraph.graph import Graph


@inherit_docs(GraphProtocol)
class GraphReads(GraphProtocol):
    """The methods of `Graph` that read its entities; `GraphProtocol` has the rest of their docstrings."""

    _session: GraphSession
    _caches: Caches

    def snapshot(self, branch: str = MAIN, *, at: AsOf | None = None, names: Naming = NOW) -> Snapshot:
        return self._session.redact_snapshot(self._session.view(branch, at, names=names).snapshot)

    def query(
        self,
        source: SourceInput,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str = MAIN,
        at: AsOf | None = None,
        names: Naming = NOW,
        budget: Budget = DEFAULT_BUDGET,
        embedder: Embedder | None = None,
    ) -> Result:
        """Run a read query against one snapshot of the graph.

        Args:
            budget: Limits on rows, bytes and seconds.
            embedder: Turns query text into vectors; by default the provider configured in the environment.
        """
        started = clock.elapsed()
        view, compiled = self._prepare_read(source, name, branch, at, names)
        return run_query(
            view,
            compiled,
            params or {},
            started=started,
            now_us=clock.now_us(),
            budget=budget,
            caches=self._caches,
            embedder=embedder,
        )

    def explain(
        self,
        source: SourceInput,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str = MAIN,
        at: AsOf | None = None,
        names: Naming = NOW,
        profile: bool = False,
        budget: Budget = DEFAULT_BUDGET,
        embedder: Embedder | None = None,
    ) -> Explanation:
        """Return the plan of a read query with estimated row counts.

        Args:
            budget: Limits on rows, bytes and seconds, with `profile`.
            embedder: Turns query text into vectors; by default the provider configured in the environment.
        """
        started = clock.elapsed()
        view, compiled = self._prepare_read(source, name, branch, at, names)
        return explain_query(
            view,
            compiled,
            params or {},
            started=started,
            profile=profile,
            now_us=clock.now_us(),
            budget=budget,
            caches=self._caches,
            embedder=embedder,
        )

    def _prepare_read(
        self, source: SourceInput, name: str | None, branch: str, at: AsOf | None, names: Naming
    ) -> tuple[View, CompiledQuery]:
        view = self._session.view(branch, at, names=names)
        return view, self._session.compile(query_source(source), view.catalog, name)

    def get(
        self, type_name: str, key: object, *, branch: str = MAIN, at: AsOf | None = None, names: Naming = NOW
    ) -> dict[str, Any] | None:
        rows = find_entity(self._session.view(branch, at, names=names), type_name, key).rows()
        return rows[0] if rows else None

    def to_networkx(
        self, *, types: Sequence[str] | None = None, branch: str = MAIN, at: AsOf | None = None, names: Naming = NOW
    ) -> Any:
        """Return the graph, or some of its types, as a `networkx.MultiDiGraph`, which must fit into memory.

        Args:
            types: Only these node and edge types.
            branch: The branch to read.
            at: Read a past state, as in `query`.
            names: Which names a past state has, as in `query`.

        Returns:
            A graph whose nodes are `(type, id)`, with properties as attributes; an edge has its id as key.

        Raises:
            UsageError: networkx is not installed, or there is no such type.

        Example:
            >>> graph.to_networkx().number_of_edges()
            1
        """
        return export.to_networkx(self._session.view(branch, at, names=names), types)

    def show(
        self,
        type_name: str | None = None,
        key: object = None,
        *,
        hops: int = 1,
        limit: int = DRAWN_NODES,
        branch: str = MAIN,
        at: AsOf | None = None,
        names: Naming = NOW,
    ) -> Drawing:
        """Draw a small part of the graph; notebooks show the picture.

        Args:
            type_name: The type of a node to draw with its surroundings; by default some edges of every type.
            key: The key of that node, as in `get`.
            hops: How far the surroundings reach.
            limit: The maximum number of nodes.
            branch: The branch to read.
            at: Read a past state, as in `query`.
            names: Which names a past state has, as in `query`.

        Returns:
            A `Drawing`, whose `svg` is the text of the picture; `save(path)` writes it to a file.

        Raises:
            UsageError: There is no such type or node.
            LimitExceeded: `hops` or `limit` is too large for a picture.

        Example:
            >>> graph.show("Person", "Ada")
            <Drawing: 2 nodes, 1 edge>
        """
        from omnigraph.engine.drawing import draw_graph

        check_type("type_name", type_name, str | None)
        return draw_graph(self._session.view(branch, at, names=names), type_name, key, hops, limit)

    def export(
        self,
        branch: str = MAIN,
        *,
        at: AsOf | None = None,
        types: Sequence[str] | None = None,
        names: Naming = NOW,
        format: ExportFormat = "ndjson",  # noqa: A002 - as in `pipeline.export`
    ) -> Iterator[bytes]:
        check_type("format", format, str)
        return export.export(self._session, branch, at, types, names, format)

    def blob(
        self,
        type_name: str,
        entity_id: str,
        property_name: str,
        *,
        entity: str = "node",
        branch: str = MAIN,
        at: AsOf | None = None,
        names: Naming = NOW,
    ) -> Blob:
        check_type("type_name", type_name, str)
        check_type("property_name", property_name, str)
        return find_blob(self._session.view(branch, at, names=names), entity, type_name, entity_id, property_name)


@inherit_docs(GraphProtocol)
class GraphHistory(GraphReads):
    """The methods of `Graph` that read its history; `GraphProtocol` has the rest of their docstrings."""

    def commits(self, branch: str = MAIN, *, limit: int | None = None, before: str | None = None) -> list[Commit]:
        return history.commits(self._session, branch, limit, before)

    def commit(self, at: AsOf, branch: str = MAIN) -> Commit:
        return history.commit(self._session, at, branch)

    def log(
        self,
        type_name: str,
        key: object,
        *,
        branch: str = MAIN,
        at: AsOf | None = None,
        limit: int = ENTITY_LOG_COMMITS,
    ) -> EntityLog:
        from omnigraph.engine.entity_history import log

        return log(self._session, type_name, key, branch, at, limit)

    def blame(self, type_name: str, key: object, *, branch: str = MAIN, at: AsOf | None = None) -> PropertyBlame:
        from omnigraph.engine.entity_history import blame

        return blame(self._session, type_name, key, branch, at)

    def operation(self, operation_id: str) -> Operation:
        return history.operation(self._session, operation_id)

    def diff(
        self,
        a: AsOf,
        b: AsOf,
        *,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        branch: str = MAIN,
        names: Naming = NOW,
        images: bool = False,
    ) -> ChangeSet:
        from omnigraph.engine import changes

        only = changes.ChangeFilter(kinds, types, ops)
        compare = changes.diff_with_images if images else changes.diff
        return compare(self._session, a, b, only=only, branch=branch, names=names)

    def commit_changes(
        self,
        commit_id: AsOf,
        *,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        limit: int = CHANGE_PAGE_CHANGES,
        bytes_max: int = CHANGE_PAGE_BYTES,
        page_token: str | None = None,
        names: Naming = NOW,
    ) -> CommitPage:
        """Return a page of the changes of a commit against its first parent, with images before and after.

        Args:
            commit_id: The commit; see `at` for how to name one.
            bytes_max: The maximum size of the page.
        """
        from omnigraph.engine import changes

        return changes.commit_changes(
            self._session,
            commit_id,
            only=changes.ChangeFilter(kinds, types, ops),
            limit=limit,
            bytes_max=bytes_max,
            page_token=page_token,
            names=names,
        )

    def changes(
        self,
        branch: str = MAIN,
        *,
        start: str | None = None,
        cursor: str | None = None,
        page_token: str | None = None,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        limit: int = CHANGE_PAGE_CHANGES,
        bytes_max: int = CHANGE_PAGE_BYTES,
        commits_max: int = FEED_COMMITS,
    ) -> FeedPage:
        """Return the next page of the change feed of a branch.

        Args:
            bytes_max: The maximum size of the page.
        """
        from omnigraph.engine import changes

        return changes.changes(
            self._session,
            branch,
            start=start,
            cursor=cursor,
            page_token=page_token,
            only=changes.ChangeFilter(kinds, types, ops),
            limit=limit,
            bytes_max=bytes_max,
            commits_max=commits_max,
        )

    def baseline(
        self,
        branch: str = MAIN,
        *,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
    ) -> Iterator[bytes]:
        from omnigraph.engine import changes

        return changes.baseline(self._session, branch, only=changes.ChangeFilter(kinds, types, ops))


@inherit_docs(GraphReads)
class GraphAt:
    """A read-only view of one past state; later writes do not change it.

    Names follow the schema of the branch, unless `names="then"` was requested.
    """

    def __init__(self, graph: Graph, commit_id: str, branch: str, names: Naming, state: AsOf | None = None) -> None:
        self._graph = graph
        self._commit_id = commit_id
        self._state: Any = {"branch": branch, "at": commit_id if state is None else state, "names": names}

    def __repr__(self) -> str:
        return f"<GraphAt: {self._graph.uri} at commit {self._commit_id}, branch {self._state['branch']}>"

    @property
    def commit_id(self) -> str:
        """The commit that made this state."""
        return self._commit_id

    def snapshot(self) -> Snapshot:
        """Return the snapshot of this state.

        Raises:
            PolicyDenied: The actor may not read it any more.

        Example:
            >>> graph.at(2).snapshot().version
            2
        """
        return self._graph.snapshot(**self._state)

    def query(
        self,
        source: SourceInput,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        budget: Budget = DEFAULT_BUDGET,
        embedder: Embedder | None = None,
    ) -> Result:
        """Run a read query on this state.

        Example:
            >>> graph.at(2).query("query q() { match { $p: Person } return { $p.name as name } limit 1 }").columns
            ['name']
        """
        return self._graph.query(source, params, name=name, budget=budget, embedder=embedder, **self._state)

    def explain(
        self,
        source: SourceInput,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        profile: bool = False,
        budget: Budget = DEFAULT_BUDGET,
        embedder: Embedder | None = None,
    ) -> Explanation:
        """Return the plan of a read query on this state.

        Example:
            >>> graph.at(2).explain("query q() { match { $p: Person } return { $p.name } }").query_name
            'q'
        """
        options = self._state | {"profile": profile, "budget": budget, "embedder": embedder}
        return self._graph.explain(source, params, name=name, **options)

    def get(self, type_name: str, key: object) -> dict[str, Any] | None:
        """Return one entity of this state with its `id` and properties.

        Example:
            >>> graph.at(2).get("Person", "Ada")["age"]
            36
        """
        return self._graph.get(type_name, key, **self._state)

    def to_networkx(self, *, types: Sequence[str] | None = None) -> Any:
        """Return this state, or some of its types, as a `networkx.MultiDiGraph`, which must fit into memory.

        Example:
            >>> graph.at(1).to_networkx().number_of_nodes()
            0
        """
        return self._graph.to_networkx(types=types, **self._state)

    def blob(self, type_name: str, entity_id: str, property_name: str, *, entity: str = "node") -> Blob:
        """Find a blob of this state without reading its bytes.

        Example:
            >>> graph.at(2).blob("Person", "Ada", "photo").length
            4
        """
        return self._graph.blob(type_name, entity_id, property_name, entity=entity, **self._state)

    def export(self, types: Sequence[str] | None = None) -> Iterator[bytes]:
        """Return this state as NDJSON that can be loaded again.

        Example:
            >>> b"".join(graph.at(2).export()).count(bytes([10]))
            3
        """
        return self._graph.export(types=types, **self._state)
