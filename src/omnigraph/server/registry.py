"""The graphs of a server: opened once, each with its policy and its stored queries, shared by all requests.

Configuration errors are reported at start-up.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from omnigraph import graph as graphs
from omnigraph.engine.authorization import ALLOW_ALL, PolicyHook
from omnigraph.errors import GraphError, OmniGraphError, UsageError
from omnigraph.graph import Graph, session_of
from omnigraph.policy import Policy, load_bundle
from omnigraph.server.admission import ExportSlots
from omnigraph.server.auth import AuthMode, DecisionCache, Tokens, has_no_rules
from omnigraph.store.objects.request_meter import Meter
from omnigraph.stored_queries import QueryFolder, StoredQueries, read_queries

if TYPE_CHECKING:
    from omnigraph.server.service import Service


log: Final = logging.getLogger("omnigraph.server")
Fingerprint = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class Configuration:
    """The loaded tokens and policies: the actors, the policy of each graph, and the server policy."""

    tokens: Tokens
    checkers: Mapping[str, PolicyHook]
    server_policy: Policy | None


@dataclass(frozen=True, slots=True)
class Sources:
    """The files of tokens and policies; whether the server authenticates is fixed at start-up."""

    read_tokens: Callable[[], Tokens]
    token_files: tuple[Path, ...]
    policies: Mapping[str, Path | None]
    server_policy: Path | None
    doors: AuthMode

    def read(self) -> Configuration:
        """Read all files; raises if one of them is invalid."""
        tokens = self.read_tokens()
        if bool(tokens.entries) != self.doors.has_tokens:
            raise UsageError("tokens cannot be added or removed altogether while the server runs; restart it")
        loaded = {
            graph_id: None if path is None else load_bundle(path, scope="graph", graph_id=graph_id)
            for graph_id, path in self.policies.items()
        }
        checkers = {graph_id: self.doors.checker(policy) for graph_id, policy in loaded.items()}
        policy_file = self.server_policy
        judge = None if policy_file is None else load_bundle(policy_file, scope="server", graph_id="root")
        return Configuration(tokens, checkers, judge)

    def fingerprint(self) -> Fingerprint:
        """Return a value that changes when one of the files changes."""
        paths = (*self.token_files, *self.policies.values(), self.server_policy)
        return tuple(_fingerprints(path for path in paths if path is not None))


def _fingerprints(paths: Iterable[Path]) -> Iterable[tuple[int, int, int] | None]:
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            yield None
        else:
            yield status.st_mtime_ns, status.st_size, status.st_ino


async def watch_configuration(service: Service) -> None:
    """Read tokens and policies again whenever their files change."""
    registry = service.registry
    while True:
        await asyncio.sleep(service.reload_seconds)
        if await service.run(service.admin_threads, registry.sources.fingerprint) != registry.fingerprint:
            service.reload_soon()


GRAPH_ID: Final = re.compile(r"[a-zA-Z0-9-]{1,64}")
_log: Final = logging.getLogger("omnigraph.server")
_RESERVED_IDS: Final = frozenset({"policies", "healthz", "openapi", "graphs"})


@dataclass(frozen=True, slots=True)
class GraphConfig:
    """A graph to serve: its URI, policy file and stored queries."""

    graph_id: str
    uri: str
    policy: Path | None = None
    queries: Path | None = None


@dataclass(frozen=True, slots=True)
class ServedGraph:
    """A graph of the server, open and shared by all requests."""

    graph_id: str
    graph: Graph
    queries: QueryFolder
    meter: Meter
    exports: ExportSlots = field(default_factory=ExportSlots)
    # Operation ids of writes in flight.
    in_flight_operations: list[str] = field(default_factory=list)

    @property
    def checker(self) -> PolicyHook:
        """The policy of the graph."""
        return session_of(self.graph).policy

    def stored(self) -> StoredQueries:
        """Compile the stored queries against the accepted schema, without regard to hidden types."""
        return self.queries.check(session_of(self.graph).catalog(session_of(self.graph).kernel.snapshot()))

    def for_request(self, actor: str | None, operation_id: str | None) -> Graph:
        """Return the graph for a request of an actor, with a policy that makes each decision once."""
        graph = self.graph.acting_as(actor, operation_id)
        session = session_of(graph)
        if session.policy is not ALLOW_ALL:
            session.policy = DecisionCache(session.policy)
        return graph

    @contextmanager
    def track_operation(self, operation_id: str) -> Iterator[None]:
        """Record an operation as in flight for the duration of its request."""
        self.in_flight_operations.append(operation_id)
        try:
            yield
        finally:
            self.in_flight_operations.remove(operation_id)


@dataclass(slots=True)
class GraphRegistry:
    """The graphs, tokens and policies of a server; `is_stale` if the last reload failed."""

    served: dict[str, ServedGraph]
    sources: Sources
    tokens: Tokens
    server_policy: Policy | None = None
    is_stale: bool = False
    # Of the configuration files when they were last read.
    fingerprint: Fingerprint = ()

    def reload(self) -> None:
        """Reload tokens and policies; in-flight requests finish with those they started with."""
        # Taken before reading, so that a concurrent change triggers another reload.
        self.fingerprint = self.sources.fingerprint()
        try:
            read = self.sources.read()
        except Exception as error:  # noqa: BLE001 - every failure is reported
            self.is_stale = True
            code = error.code if isinstance(error, OmniGraphError) else "internal.bug"
            reason = str(error) if isinstance(error, OmniGraphError) else type(error).__name__
            log.error("tokens and policies were not reloaded", extra={"code": code, "error": reason})
            return
        for graph_id, served in self.served.items():
            session_of(served.graph).policy = read.checkers[graph_id]
        self.tokens, self.server_policy, self.is_stale = read.tokens, read.server_policy, False
        log.info("tokens and policies were reloaded")

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
        """Close all graphs."""
        for served in self.served.values():
            served.graph.close()


def check_graph_id(graph_id: str) -> None:
    """Raise `UsageError` for an invalid graph id."""
    if not GRAPH_ID.fullmatch(graph_id) or graph_id in _RESERVED_IDS:
        raise UsageError(
            f"`{graph_id}` cannot be the id of a graph: 1 to 64 letters, digits and `-`, and none of"
            f" {', '.join(sorted(_RESERVED_IDS))}",
            graph_id=graph_id,
        )


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


def _open(config: GraphConfig, checker: PolicyHook) -> ServedGraph:
    meter = Meter()
    graph = graphs.open(config.uri, policy=checker, meter=meter)
    # An unreadable file is a configuration error. A query that does not compile may be due to a later schema, and must
    # not keep the rest from being served.
    queries = QueryFolder(() if config.queries is None else read_queries(config.queries))
    served = ServedGraph(config.graph_id, graph, queries, meter)
    for query in served.stored().broken:
        _log.warning("stored query does not compile", extra={"graph_id": config.graph_id, "query": query.name})
    return served
