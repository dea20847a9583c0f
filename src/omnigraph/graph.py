"""The public `Graph`: every surface (library, HTTP, command line) calls these methods.

import omnigraph as og
graph = og.init("graph.omni", schema="schema.pg")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from omnigraph import clock
from omnigraph.display import html_table
from omnigraph.engine import export, history
from omnigraph.engine.arguments import check_type, strip_name
from omnigraph.engine.authorization import ALLOW_ALL, PolicyHook
from omnigraph.engine.blobs import Blob, blob
from omnigraph.engine.branches import Branches, Tags
from omnigraph.engine.maintain.maintenance import Maintenance
from omnigraph.engine.past_names import NOW, Naming
from omnigraph.engine.query import explain as explain_query
from omnigraph.engine.query import run as run_query
from omnigraph.engine.query.budget import DEFAULT_BUDGET, Budget
from omnigraph.engine.query.context import Caches
from omnigraph.engine.query.explain import Explanation
from omnigraph.engine.query.result import Result
from omnigraph.engine.schema import Schema
from omnigraph.engine.session import AsOf, GraphSession, View
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import EdgeType, NodeType
from omnigraph.lang.query import CompiledQuery
from omnigraph.lang.schema import compile_schema
from omnigraph.limits import CHANGE_PAGE_BYTES, CHANGE_PAGE_CHANGES, FEED_COMMITS
from omnigraph.manifest.create import init as init_graph
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, Snapshot
from omnigraph.past_graph import GraphAt
from omnigraph.public_values import Commit, IngestReceipt, MergeReceipt, Mode, MutationReceipt, Operation
from omnigraph.source_files import SourceInput, query_source, schema_source
from omnigraph.store.objects.request_meter import NO_METER, Meter
from omnigraph.store.objects.uri import Location
from omnigraph.store.store import Store

# Methods import their part of the engine lazily: most processes only read, and importing all takes longer than a query.
if TYPE_CHECKING:
    from omnigraph.engine.changes import ChangeSet, CommitPage, FeedPage
    from omnigraph.engine.clone import CloneReport
    from omnigraph.engine.embed import EmbedReceipt
    from omnigraph.engine.embed.plan import Mode as EmbedMode
    from omnigraph.engine.merge.conflicts import ResolutionsInput
    from omnigraph.engine.query.embedders import Embedder
    from omnigraph.engine.write.ingest import Dialect
    from omnigraph.engine.write.ndjson.reader import Data
    from omnigraph.manifest.upgrade import UpgradeReport


def init(uri: str | Path, schema: str | Path, *, actor: str | None = None, force: bool = False) -> Graph:
    """Create a graph and open it.

    Args:
        uri: A path or an `s3://` address.
        schema: The text of a schema, or the path of a `.pg` file.
        actor: Who creates the graph; recorded in its first commit.
        force: Replace a stray schema file at the location, never a graph.

    Raises:
        LanguageError: The schema is invalid; `diagnostics` has positions.
        GraphError: `graph.already_initialized` if there is a graph.
    """
    compiled = compile_schema(schema_source(schema), domain=new_ulid())
    store = Store(_location(uri))
    init_graph(store, compiled, actor=actor, force=force)
    return Graph(Kernel(store), actor=actor)


def open(  # noqa: A001 - `og.open` reads as it should
    uri: str | Path,
    *,
    read_only: bool = False,
    actor: str | None = None,
    policy: PolicyHook = ALLOW_ALL,
    meter: Meter = NO_METER,
) -> Graph:
    """Open an existing graph.

    Args:
        uri: A path or an `s3://` address.
        read_only: Reject every write.
        actor: Who uses the graph; required by a policy and recorded in commits.
        policy: Which actor may do what; by default everything is allowed.
        meter: Counts storage requests.

    Raises:
        GraphError: `graph.not_found` if there is none.
    """
    graph = attach(uri, read_only=read_only, actor=actor, policy=policy, meter=meter)
    graph._session.kernel.snapshot()
    return graph


def attach(
    uri: str | Path,
    *,
    read_only: bool = False,
    actor: str | None = None,
    policy: PolicyHook = ALLOW_ALL,
    meter: Meter = NO_METER,
) -> Graph:
    """Like `open`, without a request: the first call finds out whether there is a graph."""
    return Graph(Kernel(Store(_location(uri), meter), read_only=read_only), actor=actor, policy=policy)


def upgrade(uri: str | Path, *, actor: str | None = None) -> UpgradeReport:
    """Upgrade a graph to the storage format of this release, in place and with its history."""
    from omnigraph.manifest.upgrade import upgrade as upgrade_graph

    return upgrade_graph(Store(_location(uri)), actor)


def _location(uri: str | Path) -> Location:
    check_type("uri", uri, str | PathLike)
    return Location.parse(str(uri))


def session_of(graph: Graph) -> GraphSession:
    """Return the session of an open graph, for other parts of this package; not a stable interface."""
    return graph._session


class Graph:
    """An open graph.

    `branches`, `tags`, `schema` and `maintenance` manage those parts. A graph is thread-safe, and a context manager.
    """

    def __init__(self, kernel: Kernel, *, actor: str | None = None, policy: PolicyHook = ALLOW_ALL) -> None:
        self._attach(GraphSession(kernel, actor, policy), Caches())

    def _attach(self, session: GraphSession, caches: Caches) -> None:
        self._session = session
        self._caches = caches
        self.branches = Branches(session)
        self.tags = Tags(session)
        self.schema = Schema(session)
        self.maintenance = Maintenance(session)

    def acting_as(self, actor: str | None, request_id: str | None = None) -> Graph:
        """Return this graph for another actor; caches and background work are shared.

        With a `request_id`, a ULID, the returned graph is for a single write: the id is its idempotency key, and a
        write of the same actor that was already applied under it is rejected.
        """
        other = Graph.__new__(Graph)
        other._attach(self._session.acting_as(actor, request_id), self._caches)
        return other

    @property
    def uri(self) -> str:
        return self._session.kernel.store.root.uri

    @property
    def cache_bytes(self) -> int:
        """Memory held by caches, in bytes."""
        return self._caches.nbytes

    def snapshot(self, branch: str = MAIN) -> Snapshot:
        """Return the newest snapshot of a branch."""
        return self._session.redact_snapshot(self._session.view(branch).snapshot)

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
            source: One or more queries, as text or as the path of a `.gq` file.
            params: Values of the query's `$parameters`, as Python or JSON values.
            name: Which query to run; may be omitted if `source` has only one.
            branch: The branch to read.
            at: Read a past state: a commit id, a tag, a manifest version or a datetime (naive means UTC).
            names: `now` reads a past state under today's type and property names, `then` under its own.
            budget: Limits on rows, bytes and seconds.
            embedder: Turns query text into vectors; by default the provider configured in the environment.

        Returns:
            An Arrow-backed `Result`: `to_arrow()`, `to_pandas()`, `to_polars()`, `rows()`.

        Raises:
            LanguageError: The query does not parse or type-check; `diagnostics` has positions.
            BudgetExceeded: The query needs more than its budget.
            BranchNotFound: There is no such branch; likewise `CommitNotFound` for `at`.

        Example:
            >>> text = "query older($n: I32) { match { $p: Person  $p.age > $n } return { $p.name as name } }"
            >>> graph.query(text, {"n": 40}).rows()
            [{'name': 'Bob'}]
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

    def get(
        self,
        type_name: str,
        key: object,
        *,
        branch: str = MAIN,
        at: AsOf | None = None,
        names: Naming = NOW,
    ) -> dict[str, Any] | None:
        """Return one entity with its `id` and properties.

        Args:
            type_name: A node type, or else an edge type.
            key: The key of a node, a mapping for a key of several properties; the id of an edge or a keyless node.
            branch: The branch to read.
            at: Read a past state, as in `query`.
            names: Which names a past state has, as in `query`.

        Returns:
            A dictionary, for edges with `from` and `to`, or None if there is no such entity. Blobs are left out; read
            them with `blob`.

        Raises:
            UsageError: There is no such type, or the key does not fit it.

        Example:
            >>> graph.get("Person", "Ada")
            {'id': 'Ada', 'age': 36, 'name': 'Ada'}
        """
        from omnigraph.engine.entities import get_entity

        return get_entity(self._session.view(branch, at, names=names), type_name, key)

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
        from omnigraph.engine.entities import to_networkx

        return to_networkx(self._session.view(branch, at, names=names), types)

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
        """Return the plan of a read with estimates; see `query` for the arguments.

        With `profile`, the query is run and the plan contains actual row counts and times.
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

    def mutate(
        self,
        source: SourceInput,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str = MAIN,
        if_commit: str | None = None,
    ) -> MutationReceipt:
        """Run a mutation as one commit.

        Args:
            source: One or more queries, as text or as the path of a `.gq` file.
            params: Values of the query's `$parameters`.
            name: Which query to run; may be omitted if `source` has only one.
            branch: The branch to write.
            if_commit: Write only if this commit is the head of the branch (optimistic concurrency control).

        Raises:
            LanguageError: The mutation does not parse or type-check.
            DataError: The result would violate a rule of the schema; nothing was written.

        Returns:
            How many nodes and edges changed, and the commit, unless nothing changed.

        Example:
            >>> graph.mutate('query q() { update Person set { age: 37 } where name = "Ada" }').affected_nodes
            1
        """
        from omnigraph.engine.write.mutate import mutate

        return mutate(self._session, query_source(source), name, params, branch, if_commit)

    def ingest(
        self,
        data: Data = None,
        *,
        nodes: Mapping[str, Any] | None = None,
        edges: Mapping[str, Any] | None = None,
        mode: Mode = "merge",
        branch: str = MAIN,
        from_branch: str | None = None,
        dialect: Dialect = "strict",
    ) -> IngestReceipt:
        """Write NDJSON, dictionaries or data frames as one commit.

        Args:
            data: NDJSON as a path, bytes or a file object, or an iterable of dictionaries.
            nodes: Data frames by node type: pandas, polars, Arrow tables or record batch readers, whose columns are
                properties.
            edges: The same by edge type, with the columns `from` and `to`.
            mode: `merge` inserts or replaces entities by id, `append` rejects existing ones, `overwrite` replaces the
                types in the data.
            branch: The branch to write.
            from_branch: Create `branch` from this one if it does not exist.
            dialect: How lenient the reader is.

        Returns:
            How many entities of each type were read, and the commit.

        Raises:
            DataError: The data breaks a rule of the schema; nothing was written.
            LimitExceeded: The data is too large for one write; use `pipeline.load`.

        Example:
            >>> graph.ingest([{"type": "Person", "data": {"name": "Cid"}}]).total_entities
            1
        """
        from omnigraph.engine.write.frames import resolve_input
        from omnigraph.engine.write.ingest import ingest

        data = resolve_input(data, nodes, edges)
        return ingest(self._session, data, mode=mode, branch=branch, from_branch=from_branch, dialect=dialect)

    def embed(
        self,
        branch: str = MAIN,
        *,
        types: Sequence[str] | None = None,
        mode: EmbedMode = "fill_missing",
        select: Sequence[str] = (),
        embedder: Embedder | None = None,
    ) -> EmbedReceipt:
        """Compute the vectors of `@embed` properties, as one commit; each distinct text is requested once.

        Args:
            branch: The branch to write.
            types: Only these types.
            mode: `fill_missing` computes missing and outdated vectors, `reembed_all` replaces all of them, also those
                of other models or written by hand, and `clean` removes them.
            select: Only entities with `field=value`, or `Type:field=value`.
            embedder: Turns texts into vectors; by default the provider configured in the environment.
        """
        from omnigraph.engine.embed import embed

        return embed(self._session, branch, types, mode, select, embedder=embedder)

    def commits(self, branch: str = MAIN, *, limit: int | None = None, before: str | None = None) -> list[Commit]:
        """Return the commits of a branch, newest first and children before parents.

        Args:
            branch: The branch.
            limit: The maximum number of commits.
            before: Start after this commit: pass the last one of the previous page.
        """
        return history.commits(self._session, branch, limit=limit, before=before)

    def commit(self, commit_id: str) -> Commit:
        """Return a commit of any branch by its id."""
        return history.commit(self._session, commit_id)

    def operation(self, operation_id: str) -> Operation:
        """Look up the outcome of a write by the `operation_id` of an error whose `effect` is `unknown`."""
        return history.operation(self._session, operation_id)

    def at(self, at: AsOf, branch: str = MAIN, *, names: Naming = NOW) -> GraphAt:
        """Return a read-only view of a past state: a commit, a tag, a manifest version or a timestamp.

        It has the type and property names that `branch` has today; with `names="then"`, its own.
        """
        branch = strip_name(branch)
        return GraphAt(self, self._session, self._session.view(branch, at, names=names).snapshot, branch, names)

    def revert(
        self, commit_id: str, branch: str = MAIN, *, dry_run: bool = False, resolutions: ResolutionsInput = None
    ) -> MergeReceipt:
        """Revert a commit, given by id or tag, as a new commit. Reverting a merge undoes everything it merged."""
        from omnigraph.engine.merge import revert

        return revert(self._session, commit_id, branch, dry_run=dry_run, resolutions=resolutions)

    def cherry_pick(
        self, commit_id: str, branch: str = MAIN, *, dry_run: bool = False, resolutions: ResolutionsInput = None
    ) -> MergeReceipt:
        """Apply the changes of a commit of another branch, given by id or tag, as a new commit."""
        from omnigraph.engine.merge import cherry_pick

        return cherry_pick(self._session, commit_id, branch, dry_run=dry_run, resolutions=resolutions)

    def export(
        self,
        branch: str = MAIN,
        *,
        at: AsOf | None = None,
        types: Sequence[str] | None = None,
        names: Naming = NOW,
    ) -> Iterator[bytes]:
        """Return the graph as NDJSON that can be loaded again, in chunks of whole lines.

        A line with a large blob spans several chunks. A past state is exported under today's names, so that today's
        schema accepts it; with `names="then"`, under its own.
        """
        return export.export(self._session, branch, at, types, names)

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
    ) -> ChangeSet:
        """Return the differences between two states.

        Args:
            a: The first state: a branch, tag or commit, or a version or timestamp of `branch`.
            b: The second state.
            kinds: Only `node` or `edge`.
            types: Only these types.
            ops: Only `insert`, `update` or `delete`.
            branch: The branch of versions and timestamps.
            names: `now` reads both under today's schema, `then` each under its own.
        """
        from omnigraph.engine import changes

        only = changes.ChangeFilter(kinds, types, ops)
        return changes.diff(self._session, a, b, only=only, branch=branch, names=names)

    def commit_changes(
        self,
        commit_id: str,
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

        Names are those that main has today; with `names="then"`, those of the commit.
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

        Pass one of `start` (`now`, `beginning` or `after:<commit>`), the `cursor` of the last poll, or the
        `page_token` of the last page. `kinds`, `types` and `ops` filter as in `diff` and must stay the same.
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
        """Return a branch as NDJSON whose last record has the cursor at which its change feed continues."""
        from omnigraph.engine import changes

        return changes.baseline(self._session, branch, only=changes.ChangeFilter(kinds, types, ops))

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
        """Find a blob: its length, its ETag, and ranges of its bytes."""
        return blob(
            self._session,
            type_name,
            entity_id,
            property_name,
            entity=entity,
            branch=branch,
            at=at,
            names=names,
        )

    def clone(self, target: str | Path, *, update: bool = False) -> CloneReport:
        """Copy the whole graph to a path or address (history, branches, tags and blobs) and verify the copy.

        With `update`, update an earlier clone by copying only missing files: an incremental backup. Repeating an
        interrupted call resumes it. To restore a backup, clone it to a new location.
        """
        from omnigraph.engine.clone import clone_graph

        check_type("target", target, str | PathLike)
        return clone_graph(self._session, str(target), update=update)

    def __repr__(self) -> str:
        actor = "" if self._session.actor is None else f", actor={self._session.actor!r}"
        return f"Graph({self.uri!r}{actor})"

    def _repr_html_(self) -> str:
        view = self._session.view()
        types: list[NodeType | EdgeType] = [*view.catalog.nodes.values(), *view.catalog.edges.values()]
        rows = [
            (type_.name, type_.kind, ", ".join(type_.properties), view.snapshot.state.pins[type_.table_key].row_count)
            for type_ in types
        ]
        return html_table(["type", "kind", "properties", "entities"], rows, f"{self!r}, commit {view.snapshot.head}")

    def close(self) -> None:
        """Finish background work and release resources."""
        self._session.kernel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
