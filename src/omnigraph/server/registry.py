"""The graphs of a server: opened once, each with its policy, stored queries and background maintenance.

Configuration errors are reported at start-up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Final, Protocol, TypeVar

from omnigraph import graph as graphs
from omnigraph.engine.authorization import ALLOW_ALL, PolicyHook
from omnigraph.engine.external_blobs import BlobRules
from omnigraph.engine.maintain.maintenance import Maintenance, Reconciler
from omnigraph.engine.query.embedders import Embedder
from omnigraph.engine.query.ranking import set_default_embedder
from omnigraph.errors import GraphError, GraphNotFound, OmniGraphError, StorageError, UsageError
from omnigraph.findings import ClusterError, error
from omnigraph.graph import Graph, session_of
from omnigraph.ids import check_graph_id
from omnigraph.lang.diagnostic import Source
from omnigraph.limits import SERVER_CANCEL_SECONDS_MAX, SERVER_OPENING_GRAPHS, SERVER_RELOAD_LOOKS_MAX
from omnigraph.policy import Policy, load_bundle
from omnigraph.server.admission import ExportSlots
from omnigraph.server.auth import AuthMode, DecisionCache, Tokens, has_no_rules
from omnigraph.store.objects.backend import Meter
from omnigraph.stored_queries import QueryFolder, StoredQueries, read_queries

T = TypeVar("T")
log: Final = logging.getLogger("omnigraph.server")


@dataclass(frozen=True, slots=True)
class GraphConfig:
    """A graph to serve: its URI, policy file and stored queries, in a folder or as sources."""

    graph_id: str
    uri: str
    policy: Path | None = None
    queries: Path | tuple[Source, ...] | None = None
    embedder: Embedder | None = None
    external_blobs: BlobRules | None = None
    # Differs between two graphs that have had this id, one after the other.
    incarnation: str | None = None

    def read_queries(self) -> QueryFolder:
        """Read the stored queries; they are compiled later, against the schema of the graph."""
        if self.queries is None or isinstance(self.queries, tuple):
            return QueryFolder(self.queries or ())
        return QueryFolder(read_queries(self.queries))


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Why a graph of a cluster is not served; `is_kept` if a server that has it open keeps serving it."""

    code: str
    message: str
    is_kept: bool = False


@dataclass(frozen=True, slots=True)
class Configuration:
    """The loaded tokens and policies: the actors, the policy of each graph, and the server policy.

    A cluster also declares its `graphs`, of which some may be `quarantined`.
    """

    tokens: Tokens
    checkers: Mapping[str, PolicyHook]
    server_policy: Policy | None
    graphs: Mapping[str, GraphConfig] | None = None
    quarantined: Mapping[str, Quarantine] = field(default_factory=dict)


class Configurable(Protocol):
    """Where a configuration comes from: files, or the ledger of a cluster."""

    def read(self) -> Configuration:
        """Read the configuration; raises if it is invalid."""

    def fingerprint(self) -> Hashable:
        """Return a value that changes when the configuration changes."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The files of tokens and policies; whether the server authenticates is fixed at start-up."""

    read_tokens: Callable[[], Tokens]
    token_files: tuple[Path, ...]
    policies: Mapping[str, Path | None]
    server_policy: Path | None
    auth_mode: AuthMode

    def read(self) -> Configuration:
        """Read all files; raises if one of them is invalid."""
        tokens = self.read_tokens()
        if bool(tokens.entries) != self.auth_mode.has_tokens:
            raise UsageError("tokens cannot be added or removed altogether while the server runs; restart it")
        checkers = load_checkers(self.policies, self.auth_mode)
        return Configuration(tokens, checkers, load_server_policy(self.server_policy))

    def fingerprint(self) -> Hashable:
        paths = (*self.token_files, *self.policies.values(), self.server_policy)
        return tuple(fingerprint_files(path for path in paths if path is not None))


def load_checkers(policies: Mapping[str, str | Path | None], auth_mode: AuthMode) -> dict[str, PolicyHook]:
    """Return what enforces the policy of each graph, from the file or the text of its bundle."""
    return {
        graph_id: auth_mode.checker(None if bundle is None else load_bundle(bundle, scope="graph", graph_id=graph_id))
        for graph_id, bundle in policies.items()
    }


def load_server_policy(bundle: str | Path | None) -> Policy | None:
    """Return the policy of the server, from the file or the text of its bundle."""
    return None if bundle is None else load_bundle(bundle, scope="server", graph_id="root")


def fingerprint_files(paths: Iterable[Path]) -> Iterable[tuple[int, int, int] | None]:
    """Yield a value for each file that changes when the file does."""
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            yield None
        else:
            yield status.st_mtime_ns, status.st_size, status.st_ino


@dataclass(frozen=True, slots=True)
class ServedGraph:
    """A graph of the server, open and shared by all requests."""

    graph_id: str
    graph: Graph
    queries: QueryFolder
    meter: Meter
    exports: ExportSlots = field(default_factory=ExportSlots)
    # Its schema is changed by `cluster apply` alone.
    is_managed: bool = False
    incarnation: str | None = None
    # Operation ids of writes in flight.
    in_flight_operations: list[str] = field(default_factory=list)
    # The requests that use the graph, each until its response was sent.
    requests: list[object] = field(default_factory=list)

    @property
    def checker(self) -> PolicyHook:
        return session_of(self.graph).policy

    def stored(self) -> StoredQueries:
        """Compile the stored queries against the accepted schema, without regard to hidden types."""
        return self.queries.check(session_of(self.graph).catalog(session_of(self.graph).kernel.snapshot()))

    def for_request(self, actor: str | None, operation_id: str | None) -> Graph:
        """Return the graph for a request of an actor, with a policy that makes each decision once."""
        graph = self.graph.acting_as(actor, operation_id)
        session = session_of(graph)
        session.schema_check = self.queries.reject_breakage
        if session.policy is not ALLOW_ALL:
            session.policy = DecisionCache(session.policy)
        return graph


@contextmanager
def listed(item: T, items: list[T]) -> Iterator[None]:
    """Keep an item in a list, such as that of the requests in flight, while it lasts."""
    items.append(item)
    try:
        yield
    finally:
        items.remove(item)


@dataclass(slots=True)
class GraphRegistry:
    """The graphs, tokens and policies of a server; `is_stale` if the last reload failed."""

    served: dict[str, ServedGraph]
    sources: Configurable
    tokens: Tokens
    server_policy: Policy | None = None
    is_stale: bool = False
    # Of the configuration when it was last read.
    fingerprint: Hashable = ()
    # With a cluster, every declared graph must be served.
    requires_all: bool = False
    retired: list[ServedGraph] = field(default_factory=list)
    # What a cluster applies and this server cannot serve, by graph.
    quarantined: Mapping[str, Quarantine] = field(default_factory=dict)
    # Looks since the last reload, and reloads in a row that left something to try again.
    _looks: int = 0
    _attempts: int = 0

    def needs_reload(self) -> bool:
        """Return True if the configuration has changed, or if a part of it could not be read and is due again."""
        try:
            is_changed = self.sources.fingerprint() != self.fingerprint
        except OmniGraphError as failure:
            # Storage may be away for a while; the next look tries again.
            log.warning("the configuration cannot be looked at", extra={"code": failure.code, "error": failure.message})
            return False
        self._looks += 1
        is_due = self._attempts > 0 and self._looks >= min(2**self._attempts, SERVER_RELOAD_LOOKS_MAX)
        return is_changed or is_due

    def reload(self) -> None:
        """Reload tokens and policies; in-flight requests finish with those they started with."""
        self._looks = 0
        try:
            # Taken before reading, so that a concurrent change triggers another reload.
            self.fingerprint = self.sources.fingerprint()
            read = self.sources.read()
            served, quarantined = self.served, read.quarantined
            if read.graphs is not None:
                served, quarantined = open_revision(read, self.served, requires_all=self.requires_all)
        except Exception as failure:  # noqa: BLE001 - every failure is reported
            self.is_stale = True
            code = failure.code if isinstance(failure, OmniGraphError) else "internal.bug"
            reason = str(failure) if isinstance(failure, OmniGraphError) else type(failure).__name__
            log.error("tokens and policies were not reloaded", extra={"code": code, "error": reason})
            self._attempts = self._attempts + 1 if _is_transient(failure) else 0
            return
        self.quarantined = quarantined
        self._attempts = self._attempts + 1 if has_unavailable(self.quarantined) else 0
        for graph_id, item in served.items():
            session_of(item.graph).policy = read.checkers[graph_id]
        # Requests in flight may still use a graph that is no longer served, so it is closed after the last of them.
        opened = {item.graph for item in served.values()}
        self.retired += [item for item in self.served.values() if item.graph not in opened]
        self.served = served
        self.tokens, self.server_policy, self.is_stale = read.tokens, read.server_policy, False
        log.info("tokens and policies were reloaded")

    def close_retired(self) -> None:
        """Close the graphs that are no longer served and that no request uses any more."""
        idle = [item for item in self.retired if not item.requests]
        self.retired = [item for item in self.retired if item.requests]
        for item in idle:
            item.graph.close()

    def find(self, graph_id: str, actor: str | None) -> ServedGraph:
        """Return a graph by its id; not found for actors that have no rule for it and may not list graphs."""
        check_graph_id(graph_id)
        served = self.served.get(graph_id)
        if served is None or (has_no_rules(served.checker, actor) and not self._may_list(actor)):
            raise GraphError(f"there is no graph `{graph_id}` on this server", code="graph.not_found")
        return served

    def _may_list(self, actor: str | None) -> bool:
        return self.server_policy is not None and self.server_policy.decide(actor, "graph_list").allowed

    def close(self) -> None:
        for served in (*self.served.values(), *self.retired):
            served.graph.close()


def open_registry(
    configs: Sequence[GraphConfig],
    tokens: Tokens,
    *,
    is_unauthenticated: bool = False,
    server_policy: Path | None = None,
    read_tokens: Callable[[], Tokens] | None = None,
    token_files: tuple[Path, ...] = (),
) -> GraphRegistry:
    """Open every graph with its policy and stored queries; raises without tokens unless `is_unauthenticated`.

    `read_tokens` and `token_files` are used to reload tokens when they change.
    """
    has_policy = server_policy is not None or any(config.policy is not None for config in configs)
    auth_mode = AuthMode(bool(tokens.entries), has_policy, is_unauthenticated)
    auth_mode.check()
    policies = {config.graph_id: config.policy for config in configs}
    sources = Sources(read_tokens or (lambda: tokens), token_files, policies, server_policy, auth_mode)
    fingerprint = sources.fingerprint()
    read = sources.read()
    served: dict[str, ServedGraph] = {}
    for config in configs:
        check_graph_id(config.graph_id)
        if config.graph_id in served:
            raise UsageError(f"two graphs have the id `{config.graph_id}`; give them different ids")
        served[config.graph_id] = _open(config, read.checkers[config.graph_id])
    if not served:
        raise UsageError("no graph to serve; add `--store URI` or `--graph ID=URI`")
    return GraphRegistry(served, sources, read.tokens, read.server_policy, fingerprint=fingerprint)


def open_cluster_registry(sources: Configurable, *, requires_all: bool = False) -> GraphRegistry:
    """Open every healthy graph of a cluster; those that cannot be served are quarantined: logged, and not found."""
    fingerprint = sources.fingerprint()
    read = sources.read()
    served, quarantined = open_revision(read, {}, requires_all=requires_all)
    return GraphRegistry(
        served,
        sources,
        read.tokens,
        read.server_policy,
        fingerprint=fingerprint,
        requires_all=requires_all,
        quarantined=quarantined,
        _attempts=int(has_unavailable(quarantined)),
    )


def has_unavailable(quarantined: Mapping[str, Quarantine]) -> bool:
    """Return True if a graph could not be opened: unlike other reasons, that can end without a new revision."""
    return any(reason.code == "graph_unavailable" for reason in quarantined.values())


def open_revision(
    read: Configuration, before: Mapping[str, ServedGraph], *, requires_all: bool
) -> tuple[dict[str, ServedGraph], dict[str, Quarantine]]:
    """Return the served and the quarantined graphs of a revision; open graphs are kept, with their new queries.

    Raises:
        ClusterError: No graph can be served, or not all of them where all are required, or the revision would take a
            graph out of service that is served now.
    """
    configs = dict(read.graphs or {})
    kept = {graph_id for graph_id, reason in read.quarantined.items() if reason.is_kept and graph_id in before}
    quarantined = {graph_id: reason for graph_id, reason in read.quarantined.items() if graph_id not in kept}
    served = {graph_id: before[graph_id] for graph_id in kept}
    to_open = [config for graph_id, config in configs.items() if graph_id not in read.quarantined]
    with ThreadPoolExecutor(SERVER_OPENING_GRAPHS) as pool:
        for config, opened in zip(to_open, pool.map(lambda item: _try_open(item, read, before), to_open), strict=True):
            if isinstance(opened, ServedGraph):
                served[config.graph_id] = opened
            else:
                quarantined[config.graph_id] = opened
    for graph_id, reason in quarantined.items():
        log.error("graph is quarantined", extra={"graph_id": graph_id, "code": reason.code, "error": reason.message})
    deleted = {graph_id for graph_id, reason in quarantined.items() if reason.code == "cluster_recovery_pending"}
    lost = (quarantined.keys() & before.keys()) - deleted
    if not served or lost or (requires_all and quarantined):
        for item in served.values():
            if item.graph_id not in before or before[item.graph_id].graph is not item.graph:
                item.graph.close()
        raise _refuse(quarantined, is_empty=not served)
    for graph_id in served.keys() - kept:
        session = session_of(served[graph_id].graph)
        set_default_embedder(session.kernel, configs[graph_id].embedder)
        session.external_blobs = configs[graph_id].external_blobs
    return dict(sorted(served.items())), quarantined


def _is_transient(failure: Exception) -> bool:
    """Return True for failures that can end by themselves; a bad file or revision has to be replaced first."""
    findings = failure.findings if isinstance(failure, ClusterError) else ()
    return isinstance(failure, StorageError) or any(item.code == "graph_unavailable" for item in findings)


def _refuse(quarantined: Mapping[str, Quarantine], *, is_empty: bool) -> ClusterError:
    findings = [error(item.code, f"graph.{graph_id}", item.message) for graph_id, item in sorted(quarantined.items())]
    if is_empty:
        message = "no graph of the cluster can be served; see the other errors"
        findings.append(error("cluster_no_healthy_graphs", "graphs", message))
    return ClusterError.of(findings)


def _try_open(config: GraphConfig, read: Configuration, before: Mapping[str, ServedGraph]) -> ServedGraph | Quarantine:
    """Return a served graph, or why it cannot be served."""
    known = before.get(config.graph_id)
    if known is not None and known.incarnation != config.incarnation:
        # Another graph has taken its place; what the open one has cached is gone.
        known = None
    try:
        check_graph_id(config.graph_id)
        if known is not None:
            served = replace(known, queries=config.read_queries())
        else:
            opened = _open(config, read.checkers[config.graph_id])
            served = replace(opened, is_managed=True, incarnation=config.incarnation)
    except GraphNotFound:
        remedy = "restore it, or run `omnigraph cluster refresh` and `apply`, which create an empty one"
        return Quarantine("graph_unavailable", f"there is no graph at `{config.uri}`; {remedy}")
    except OmniGraphError as failure:
        return Quarantine("graph_unavailable", failure.message)
    try:
        broken = served.stored().broken
        if not broken:
            return served
        reason = Quarantine("query_invalid", f"a stored query does not compile: {broken[0].render()}")
    except OmniGraphError as failure:
        reason = Quarantine("query_invalid", failure.message)
    if known is None:
        served.graph.close()
    return reason


def _open(config: GraphConfig, checker: PolicyHook) -> ServedGraph:
    meter = Meter()
    graph = graphs.open(config.uri, policy=checker, meter=meter)
    # An unreadable file is a configuration error. A query that does not compile may be due to a later schema, and must
    # not keep the rest from being served.
    served = ServedGraph(config.graph_id, graph, config.read_queries(), meter)
    for query in served.stored().broken:
        log.warning("stored query does not compile", extra={"graph_id": config.graph_id, "query": query.name})
    return served


class Reconcilers:
    """A reconciler for each served graph; none without an interval."""

    def __init__(self, every: timedelta | None = None) -> None:
        self._every = every
        self._running: dict[Graph, Reconciler] = {}
        # Of graphs that are no longer served.
        self._ended_rounds = 0
        self._ended_failures = 0

    @property
    def rounds(self) -> int:
        return self._ended_rounds + sum(item.rounds for item in self._running.values())

    @property
    def failures(self) -> int:
        return self._ended_failures + sum(item.failures for item in self._running.values())

    def follow(self, graphs: Iterable[Graph]) -> None:
        """Maintain these graphs and no others."""
        if self._every is None:
            return
        served = set(graphs)
        for graph in self._running.keys() - served:
            reconciler = self._running.pop(graph)
            reconciler.stop(SERVER_CANCEL_SECONDS_MAX)
            self._ended_rounds += reconciler.rounds
            self._ended_failures += reconciler.failures
        for graph in served - self._running.keys():
            # It has no actor, so no policy applies.
            reconciler = Maintenance(session_of(graph).without_policy()).reconciler(self._every)
            self._running[graph] = reconciler
            reconciler.start()

    def stop(self) -> None:
        """Stop all of them, and wait a moment for the rounds that run."""
        for reconciler in self._running.values():
            reconciler.stop(SERVER_CANCEL_SECONDS_MAX)
