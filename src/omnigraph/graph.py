"""The public `Graph`: every surface (library, HTTP, command line) calls these methods.

import omnigraph as og
graph = og.init("graph.omni", schema="schema.pg")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from omnigraph.display import html_table
from omnigraph.docstrings import inherit_docs
from omnigraph.engine.arguments import check_type, strip_name
from omnigraph.engine.authorization import ALLOW_ALL, PolicyHook
from omnigraph.engine.branches import Branches, Tags
from omnigraph.engine.maintain.maintenance import Maintenance
from omnigraph.engine.past_schemas import NOW, Naming
from omnigraph.engine.query.context import Caches
from omnigraph.engine.revisions import AsOf
from omnigraph.engine.runners import Runners
from omnigraph.engine.schema import Schema
from omnigraph.engine.session import GraphSession
from omnigraph.errors import CommitNotFound, UsageError
from omnigraph.graph_reads import GraphAt, GraphHistory
from omnigraph.ids import new_ulid
from omnigraph.lang.schema import compile_schema
from omnigraph.manifest.create import init as init_graph
from omnigraph.manifest.intents import has_intents_on_disk
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN
from omnigraph.protocol import GraphProtocol
from omnigraph.public_values import IngestReceipt, MergeReceipt, Mode, MutationReceipt, OnDuplicate
from omnigraph.source_files import SourceInput, query_source, schema_source
from omnigraph.store.objects.backend import NO_METER, Meter
from omnigraph.store.objects.uri import Location
from omnigraph.store.store import Store

# Methods import their part of the engine lazily: most processes only read, and importing all takes longer than a query.
if TYPE_CHECKING:
    from omnigraph.engine.clone import CloneReport
    from omnigraph.engine.embed import EmbedReceipt
    from omnigraph.engine.embed.embed_tasks import Mode as EmbedMode
    from omnigraph.engine.input.ndjson.reader import Data
    from omnigraph.engine.load.ingest import Dialect
    from omnigraph.engine.merge.conflicts import ResolutionsInput
    from omnigraph.engine.query.embedders import Embedder
    from omnigraph.manifest.upgrade import UpgradeReport
    from omnigraph.store.objects.store_checks import StoreReport


def init(uri: str | Path, schema: str | Path, *, actor: str | None = None, force: bool = False) -> Graph:
    """Create a graph and open it.

    Args:
        uri: A path, or an `s3://`, `gs://` or `az://` address.
        schema: The text of a schema, or the path of a `.pg` file.
        actor: Who creates the graph; recorded in its first commit.
        force: Replace a stray schema file at the location, never a graph.

    Returns:
        The open graph; close it, or use it in a `with` statement.

    Raises:
        LanguageError: The schema is invalid; `diagnostics` has positions.
        GraphExists: There is a graph, or part of one.

    Example:
        >>> with og.init(path + ".new", schema="node City { name: String @key }") as graph:
        ...     [type_.name for type_ in graph.schema.types]
        ['City']
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
        uri: A path, or an `s3://`, `gs://` or `az://` address.
        read_only: Reject every write.
        actor: Who uses the graph; required by a policy and recorded in commits.
        policy: Which actor may do what, as `omnigraph.policy.load_bundle(path)` returns it; by default everything is
            allowed.
        meter: Counts storage requests.

    Returns:
        The open graph; close it, or use it in a `with` statement.

    Raises:
        GraphNotFound: There is no graph at this address.
        StorageError: The storage cannot be read.

    Example:
        >>> with og.open(path, read_only=True) as graph:
        ...     graph.get("Person", "Ada")["age"]
        36
    """
    graph = attach(uri, read_only=read_only, actor=actor, policy=policy, meter=meter)
    kernel = graph._session.kernel
    kernel.snapshot()
    if not read_only and has_intents_on_disk(kernel.store):
        from omnigraph.manifest.recovery import sweep_dead_intents

        sweep_dead_intents(kernel)
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
    if not hasattr(policy, "enforce"):
        raise UsageError(
            f"`policy` of a graph is a compiled policy, not {type(policy).__name__}; pass"
            " `omnigraph.policy.load_bundle(path)`, or leave it out to allow everything",
            argument="policy",
        )
    return Graph(Kernel(Store(_location(uri), meter), read_only=read_only), actor=actor, policy=policy)


def upgrade(uri: str | Path, *, actor: str | None = None) -> UpgradeReport:
    """Upgrade a graph to the storage format of this release, in place and with its history.

    Args:
        uri: A path, or an `s3://`, `gs://` or `az://` address.
        actor: Who upgrades; recorded in the audit log.

    Returns:
        The format before and after, and the branches that were rewritten.

    Raises:
        GraphNotFound: There is no graph at this address.

    Example:
        >>> report = og.upgrade(path)
        >>> report.before == report.after
        True
    """
    from omnigraph.manifest.upgrade import upgrade as upgrade_graph

    return upgrade_graph(Store(_location(uri)), actor)


def check_store(uri: str | Path) -> StoreReport:
    """Check whether a store is fit for graphs; a graph at this address is neither read nor changed.

    Tries permissions, conditional puts, a race of concurrent writers, a multipart upload, listings and the clock, with
    temporary objects that it removes.

    Args:
        uri: A path, or an `s3://`, `gs://` or `az://` address, with or without a graph.

    Returns:
        The outcome of each check; `is_fit` is False if commits could fail or be lost there.

    Raises:
        UsageError: The address or a storage setting is invalid.

    Example:
        >>> report = og.check_store(path)
        >>> report.is_fit, report.checks[0].name, report.checks[0].outcome
        (True, 'permissions', 'ok')
    """
    from omnigraph.store.objects.store_checks import check_store as check_location

    return check_location(_location(uri))


def _location(uri: str | Path) -> Location:
    check_type("uri", uri, str | PathLike)
    return Location.parse(str(uri))


def session_of(graph: Graph) -> GraphSession:
    """Return the session of an open graph, for other parts of this package; not a stable interface."""
    return graph._session


def running_on(graph: Graph, runners: Runners) -> Graph:
    """Return a graph whose long operations run where `runners` choose, for other parts of this package."""
    other = Graph.__new__(Graph)
    other._attach(graph._session.running_on(runners), graph._caches)
    return other


@inherit_docs(GraphProtocol)
class Graph(GraphHistory):
    """An open graph.

    `branches`, `tags`, `schema` and `maintenance` manage those parts. A graph is thread-safe, and a context manager.
    `GraphProtocol` has what is missing from the docstrings here.
    """

    branches: Branches
    tags: Tags
    schema: Schema
    maintenance: Maintenance

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

        Args:
            actor: Who uses the graph.
            request_id: A ULID that makes the returned graph good for a single write: it is the idempotency key, and a
                write of the same actor that was already applied under it is rejected.

        Returns:
            The graph.

        Raises:
            UsageError: `request_id` is not a ULID.

        Example:
            >>> graph.acting_as("ann").mutate('query q() { insert Person { name: "Cid" } }').commit.actor
            'ann'
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

    def mutate(
        self,
        source: SourceInput,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str = MAIN,
        if_commit: str | None = None,
        message: str | None = None,
        dry_run: bool = False,
    ) -> MutationReceipt:
        from omnigraph.engine.write.mutate import mutate

        session = self._session.with_message(message)
        queries = query_source(source)
        return mutate(session, queries, name, params, branch, if_commit, caches=self._caches, dry_run=dry_run)

    def load(
        self,
        data: Data = None,
        *,
        nodes: Mapping[str, Any] | None = None,
        edges: Mapping[str, Any] | None = None,
        mode: Mode = "merge",
        on_duplicate: OnDuplicate = "error",
        branch: str = MAIN,
        from_branch: str | None = None,
        message: str | None = None,
    ) -> IngestReceipt:
        """Load data of any size as one commit: a small input in one write, a large one in bulk, on Spark if need be.

        Job ids, quarantine and embeddings are options of `pipeline.load`, whose report says where a load ran.

        Args:
            data: NDJSON as a path, a list of paths, a directory, a glob pattern, an address of objects, bytes or a file
                object, or an iterable of dictionaries.
            nodes: By node type: data frames (pandas, polars, Arrow, Spark), or paths of Parquet or CSV files.

        Raises:
            DataError: The data breaks a rule of the schema; nothing was written.
            PipelineUnavailable: The input needs Spark, which is not installed.
        """
        from omnigraph.engine.load.ingest import load
        from omnigraph.spark.executors import RunnerChoice

        session = self._session.with_message(message).running_on(RunnerChoice("auto"))
        options: dict[str, Any] = {"mode": mode, "on_duplicate": on_duplicate}
        return load(session, data, nodes, edges, branch=branch, from_branch=from_branch, **options)

    def ingest(
        self,
        data: Data = None,
        *,
        nodes: Mapping[str, Any] | None = None,
        edges: Mapping[str, Any] | None = None,
        mode: Mode = "merge",
        on_duplicate: OnDuplicate = "error",
        branch: str = MAIN,
        from_branch: str | None = None,
        dialect: Dialect = "strict",
        message: str | None = None,
    ) -> IngestReceipt:
        """Like `load`, but always in one small write, and of NDJSON, dictionaries or data frames only.

        Args:
            dialect: How lenient the reader of NDJSON is.

        Raises:
            DataError: The data breaks a rule of the schema; nothing was written.
            LimitExceeded: The data is too large for one write; use `load`.

        Example:
            >>> import pyarrow as pa
            >>> graph.ingest(nodes={"Person": pa.table({"name": ["Cid", "Dee"]})}).total_entities
            2
        """
        from omnigraph.engine.input.frames import resolve_input
        from omnigraph.engine.load.ingest import ingest

        session = self._session.with_message(message)
        data = resolve_input(data, nodes, edges)
        return ingest(
            session,
            data,
            mode=mode,
            branch=branch,
            from_branch=from_branch,
            dialect=dialect,
            on_duplicate=on_duplicate,
        )

    def embed(
        self,
        branch: str = MAIN,
        *,
        types: Sequence[str] | None = None,
        mode: EmbedMode = "fill_missing",
        select: Sequence[str] = (),
        embedder: Embedder | None = None,
        message: str | None = None,
    ) -> EmbedReceipt:
        """Compute the vectors of `@embed` properties, as one commit; each distinct text is requested once.

        Args:
            branch: The branch to write.
            types: Only these types.
            mode: `fill_missing` computes missing and outdated vectors, `reembed_all` replaces all of them, also those
                of other models or written by the caller, and `clean` removes them.
            select: Only entities with `field=value`, or `Type:field=value`.
            embedder: Turns texts into vectors; by default the provider configured in the environment.
            message: What the commit is for, shown in its history.

        Returns:
            How many vectors of each property were made, and the commit, unless all were current.

        Raises:
            UsageError: There is no such type, or none has an `@embed` property.
            DataError: The provider refused, or returned vectors of another size; nothing was written.

        Example:
            >>> notes = "node Note { text: String @key  vector: Vector(4)? @embed(text) }"
            >>> with og.init(path + ".notes", schema=notes) as graph:
            ...     graph.embed().commit is None
            True
        """
        from omnigraph.engine.embed import embed

        return embed(self._session.with_message(message), branch, types, mode, select, embedder=embedder)

    def at(self, at: AsOf, branch: str = MAIN, *, names: Naming = NOW) -> GraphAt:
        branch = strip_name(branch)
        snapshot = self._session.view(branch, at, names=names).snapshot
        assert snapshot.head is not None, "every state has a commit that made it"
        state: AsOf = snapshot.head
        try:
            self._session.view(branch, state, names=names)
        except CommitNotFound:
            # The commit was made on a branch that is hidden; on this one it has a number.
            state = snapshot.version
        return GraphAt(self, snapshot.head, branch, names, state)

    def revert(
        self,
        commit_id: str,
        branch: str = MAIN,
        *,
        dry_run: bool = False,
        resolutions: ResolutionsInput = None,
        message: str | None = None,
    ) -> MergeReceipt:
        from omnigraph.engine.merge import revert

        session = self._session.with_message(message)
        return revert(session, commit_id, branch, dry_run=dry_run, resolutions=resolutions)

    def cherry_pick(
        self,
        commit_id: str,
        branch: str = MAIN,
        *,
        dry_run: bool = False,
        resolutions: ResolutionsInput = None,
        message: str | None = None,
    ) -> MergeReceipt:
        from omnigraph.engine.merge import cherry_pick

        session = self._session.with_message(message)
        return cherry_pick(session, commit_id, branch, dry_run=dry_run, resolutions=resolutions)

    def clone(self, target: str | Path, *, update: bool = False) -> CloneReport:
        """Copy the whole graph (history, branches, tags and blobs) and verify the copy.

        Repeating an interrupted call resumes it. To restore a backup, clone it to a new location.

        Args:
            target: A path or address.
            update: Update an earlier clone by copying only missing files: an incremental backup.

        Returns:
            What was copied and verified.

        Raises:
            GraphError: `clone.diverged` if `target` is not an earlier clone of this graph.
            StorageError: A file could not be read or written.

        Example:
            >>> report = graph.clone(path + ".backup")
            >>> og.open(path + ".backup").get("Person", "Ada")["age"]
            36
        """
        from omnigraph.engine.clone import clone_graph

        check_type("target", target, str | PathLike)
        return clone_graph(self._session, str(target), update=update)

    def __repr__(self) -> str:
        actor = "" if self._session.actor is None else f", actor={self._session.actor!r}"
        return f"Graph({self.uri!r}{actor})"

    def _repr_html_(self) -> str:
        view = self._session.view()
        rows = [
            (type_.name, type_.kind, ", ".join(type_.properties), view.snapshot.state.pins[type_.table_key].row_count)
            for type_ in view.catalog.types
        ]
        return html_table(["type", "kind", "properties", "entities"], rows, f"{self!r}, commit {view.snapshot.head}")

    def close(self) -> None:
        self._session.kernel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
