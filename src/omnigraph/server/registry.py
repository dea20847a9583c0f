"""The graphs of a server: opened once, each with its policy and its stored queries, shared by all requests.

Everything that can be wrong with them is found at the start.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from omnigraph import graph as graphs
from omnigraph.engine.authorization import PolicyHook
from omnigraph.errors import GraphError, OmniGraphError, UsageError
from omnigraph.graph import Graph
from omnigraph.policy import Policy
from omnigraph.server.admission import ExportSlots
from omnigraph.server.auth import Doors, Tokens, is_stranger
from omnigraph.server.reload import Fingerprint, Sources, log
from omnigraph.store.objects.request_meter import Meter
from omnigraph.stored_queries import QueryFolder, StoredQueries, read_queries

GRAPH_ID: Final = re.compile(r"[a-zA-Z0-9-]{1,64}")
_log: Final = logging.getLogger("omnigraph.server")
_TAKEN: Final = frozenset({"policies", "healthz", "openapi", "graphs"})


@dataclass(frozen=True, slots=True)
class Place:
    """A graph to serve: where it is, and the files with its policy and its stored queries."""

    graph_id: str
    uri: str
    policy: Path | None = None
    queries: Path | None = None


@dataclass(frozen=True, slots=True)
class Hosted:
    """A graph that is served."""

    graph_id: str
    graph: Graph
    queries: QueryFolder
    meter: Meter
    exports: ExportSlots = field(default_factory=ExportSlots)
    # The ids that callers chose for writes of theirs that have not ended.
    under_way: list[str] = field(default_factory=list)

    @property
    def checker(self) -> PolicyHook:
        """Who judges what is asked of it."""
        return self.graph.session.policy

    def stored(self) -> StoredQueries:
        """Return the stored queries as the accepted schema has them now, whoever may see what they touch."""
        return self.queries.check(self.graph.session.catalog(self.graph.session.kernel.snapshot()))

    @contextmanager
    def doing(self, operation_id: str) -> Iterator[None]:
        """Say that a write is under way while its request is."""
        self.under_way.append(operation_id)
        try:
            yield
        finally:
            self.under_way.remove(operation_id)


@dataclass(slots=True)
class House:
    """Everything that a server serves, and who may come in; `is_stale` when a change of that could not be used."""

    hosted: dict[str, Hosted]
    sources: Sources
    tokens: Tokens
    server_policy: Policy | None = None
    is_stale: bool = False
    # Of the files as they were when they were last read.
    fingerprint: Fingerprint = ()

    def reload(self) -> None:
        """Read tokens and policies again; requests under way end with those that they began with."""
        # Taken first, so that a change while they are read is noticed as another one.
        self.fingerprint = self.sources.fingerprint()
        try:
            read = self.sources.read()
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not pass unseen
            self.is_stale = True
            code = error.code if isinstance(error, OmniGraphError) else "internal.bug"
            told = str(error) if isinstance(error, OmniGraphError) else type(error).__name__
            log.error("tokens and policies were not reloaded", extra={"code": code, "error": told})
            return
        for graph_id, one in self.hosted.items():
            one.graph.session.policy = read.checkers[graph_id]
        self.tokens, self.server_policy, self.is_stale = read.tokens, read.server_policy, False
        log.info("tokens and policies were reloaded")

    def find(self, graph_id: str, actor: str | None) -> Hosted:
        """Return a graph by its id; to an actor without any rule, and without the right to list, there is none."""
        check_graph_id(graph_id)
        found = self.hosted.get(graph_id)
        if found is None or (is_stranger(found.checker, actor) and not self._may_list(actor)):
            raise GraphError(f"there is no graph `{graph_id}` on this server", code="graph.not_found")
        return found

    def _may_list(self, actor: str | None) -> bool:
        return self.server_policy is not None and self.server_policy.decide(actor, "graph_list").allowed

    def close(self) -> None:
        """Finish the work of all graphs."""
        for one in self.hosted.values():
            one.graph.close()


def check_graph_id(graph_id: str) -> None:
    """Refuse what cannot be the id of a graph."""
    if not GRAPH_ID.fullmatch(graph_id) or graph_id in _TAKEN:
        raise UsageError(
            f"`{graph_id}` cannot be the id of a graph: 1 to 64 letters, digits and `-`, and none of"
            f" {', '.join(sorted(_TAKEN))}",
            graph_id=graph_id,
        )


def open_house(
    places: Sequence[Place],
    tokens: Tokens,
    *,
    is_unauthenticated: bool = False,
    server_policy: Path | None = None,
    read_tokens: Callable[[], Tokens] | None = None,
    token_files: tuple[Path, ...] = (),
) -> House:
    """Open every graph, with its policy and stored queries; refuse to start open unless that is asked for.

    `read_tokens` and `token_files` say how tokens are read again when they change; without them they stay.
    """
    has_policy = server_policy is not None or any(place.policy is not None for place in places)
    doors = Doors(bool(tokens.entries), has_policy, is_unauthenticated)
    doors.check()
    policies = {place.graph_id: place.policy for place in places}
    sources = Sources(read_tokens or (lambda: tokens), token_files, policies, server_policy, doors)
    fingerprint = sources.fingerprint()
    read = sources.read()
    hosted: dict[str, Hosted] = {}
    for place in places:
        check_graph_id(place.graph_id)
        if place.graph_id in hosted:
            raise UsageError(f"there are two graphs `{place.graph_id}`; give each an id of its own")
        hosted[place.graph_id] = _open(place, read.checkers[place.graph_id])
    if not hosted:
        raise UsageError("there is nothing to serve; add `--store URI`, or `--graph ID=URI`")
    return House(hosted, sources, read.tokens, read.server_policy, fingerprint=fingerprint)


def _open(place: Place, checker: PolicyHook) -> Hosted:
    meter = Meter()
    graph = graphs.open(place.uri, policy=checker, meter=meter)
    # What cannot be read is the operator's mistake; what does not compile may be the mistake of a later schema, and
    # must not keep the rest from being served.
    queries = QueryFolder(() if place.queries is None else read_queries(place.queries))
    hosted = Hosted(place.graph_id, graph, queries, meter)
    for one in hosted.stored().broken:
        _log.warning("stored query does not compile", extra={"graph_id": place.graph_id, "query": one.name})
    return hosted
