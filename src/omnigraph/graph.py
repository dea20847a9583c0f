"""The public `Graph`: every surface (library, HTTP, command line) calls these methods.

import omnigraph as og
graph = og.init("graph.omni", schema="schema.pg")
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from omnigraph.engine.runners import ThisProcess
from omnigraph.engine.schema import Schema
from omnigraph.engine.session import GraphSession, reports_progress, sweep_on_open
from omnigraph.engine.session import session_of as session_of
from omnigraph.errors import CommitNotFound, UsageError
from omnigraph.graph_reads import GraphAt, GraphHistory
from omnigraph.ids import new_ulid
from omnigraph.lang.schema import compile_schema
from omnigraph.limits import LOAD_ERRORS_MAX
from omnigraph.manifest.create import init as init_graph
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN
from omnigraph.protocol import GraphProtocol
from omnigraph.public_values import MergeReceipt, Mode, MutationReceipt, OnDuplicate
from omnigraph.source_files import SourceInput, query_source, schema_source
from omnigraph.store.objects.backend import NO_METER, Meter
from omnigraph.store.objects.uri import Location
from omnigraph.store.store import Store

# Methods import their part of the engine lazily: most processes only read, and importing all takes longer than a query.
if TYPE_CHECKING:
    from omnigraph.engine.clone import CloneReport
    from omnigraph.engine.embed import EmbedReceipt
    from omnigraph.engine.embed.embed_tasks import Mode as EmbedMode
    from omnigraph.engine.export_files import ExportReport
    from omnigraph.engine.export_files import Format as FileFormat
    from omnigraph.engine.input.ndjson.reader import Data
    from omnigraph.engine.load.load import Dialect, OnError
    from omnigraph.engine.load.report import LoadReport
    from omnigraph.engine.merge.conflicts import ResolutionsInput
    from omnigraph.engine.query.embedders import Embedder
    from omnigraph.engine.tasks import Progress
    from omnigraph.manifest.upgrade import UpgradeReport
    from omnigraph.spark.executors import Engine
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
    sweep_on_open(graph._session.kernel)
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
        return self._with_session(self._session.acting_as(actor, request_id))

    def on(
        self,
        engine: Engine = "auto",
        *,
        spark: Any = None,
        master: str | None = None,
        progress: Progress | None = None,
    ) -> Graph:
        """Return this graph with long operations that run where you say: loads, merges, embeddings, maintenance, and
        changes of the schema.

        Args:
            engine: `local` runs in this process, `spark` on executors, `auto` chooses by size, and does without Spark
                where it is not installed.
            spark: A running Spark session to use; by default the active one, or a new one.
            master: The master of a new Spark session; by default Spark runs on this machine.
            progress: Called with each stage and how much of it is done.

        Returns:
            The graph; caches and background work are shared.

        Raises:
            UsageError: The engine is unknown, or arguments contradict each other.

        Example:
            >>> graph.on("local").maintenance.verify().is_sound
            True
        """
        from omnigraph.spark.executors import RunnerChoice

        runners = RunnerChoice(engine, master, spark)
        return self._with_session(replace(self._session, runners=runners, progress=progress))

    def _with_session(self, session: GraphSession) -> Graph:
        other = Graph.__new__(Graph)
        other._attach(session, self._caches)
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

    @reports_progress
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
        job_id: str | None = None,
        on_error: OnError = "fail",
        max_errors: int = LOAD_ERRORS_MAX,
        report: str | os.PathLike[str] | None = None,
        embed: bool = False,
        message: str | None = None,
    ) -> LoadReport:
        """Load data of any size as one commit: what fits in memory at once, more in parallel, on Spark if need be.

        Args:
            data: NDJSON as a path, a list of paths, a directory, a glob pattern, an address of objects, bytes or a file
                object, or an iterable of dictionaries.
            nodes: By node type: data frames (pandas, polars, Arrow, Spark), or paths of Parquet or CSV files.
            edges: The same by edge type; `"FILE:from_column->to_column"` names the columns of the endpoints.
            job_id: Idempotency key; a load with the same key and input is applied at most once.
            on_error: `fail` raises the violations; `quarantine` leaves wrong entities out and writes them to `report`.
            max_errors: How many entities a quarantine may leave out before the load fails.
            report: Directory for `report.json` and `rejected.ndjson`.
            embed: Make the `@embed` vectors that the input does not have from their texts.

        Returns:
            What was loaded and rejected, and the commit, if there was anything to publish.

        Raises:
            UsageError: An argument or a file cannot be used.
            DataError: The data breaks a rule of the schema; nothing was written.
            JobExists: `job_id` was used for another input.
            PipelineUnavailable: The input needs Spark, which is not installed.
        """
        from omnigraph.engine.load.load import load

        there = self.on() if isinstance(self._session.runners, ThisProcess) else self
        return load(
            there._session.with_message(message),
            data,
            nodes=nodes,
            edges=edges,
            mode=mode,
            on_duplicate=on_duplicate,
            branch=branch,
            from_branch=from_branch,
            job_id=job_id,
            on_error=on_error,
            max_errors=max_errors,
            report=report,
            embed=embed,
        )

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
    ) -> LoadReport:
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
        from omnigraph.engine.load.load import ingest

        return ingest(
            self._session.with_message(message),
            data,
            nodes=nodes,
            edges=edges,
            mode=mode,
            on_duplicate=on_duplicate,
            branch=branch,
            from_branch=from_branch,
            dialect=dialect,
        )

    @reports_progress
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

    @reports_progress
    def export_files(
        self,
        out: str | PathLike[str],
        format: FileFormat = "parquet",  # noqa: A002 - as in every writer
        *,
        types: Sequence[str] | None = None,
        branch: str = MAIN,
        at: AsOf | None = None,
        names: Naming = NOW,
    ) -> ExportReport:
        """Export a state of a graph to files that a load can read back.

        Files are `nodes/Type/part-*` and `edges/Type/part-*`. `_export.json` is written last; an export without it is
        incomplete.

        Args:
            out: A new or empty directory, or the address of a prefix in an object store.
            format: `ndjson`, `parquet` or `csv`.
            types: Only these types; all by default.
            branch: The branch to export.
            at: Export a past state: a commit, tag, manifest version or timestamp.
            names: Whether a past state is exported with current names or its own.

        Returns:
            The commit, the entities by type, and the number of files.

        Raises:
            UsageError: `out` is not empty, or a type or format is unknown.
            BranchNotFound: There is no such branch.
            PipelineUnavailable: The graph needs Spark, which is not installed.

        Example:
            >>> graph.export_files(path + ".parquet").entities
            {'node:Person': 2, 'edge:Knows': 1}
        """
        from omnigraph.engine.export_files import export_files

        return export_files(self._session, out, format, types, branch, at, names)

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
