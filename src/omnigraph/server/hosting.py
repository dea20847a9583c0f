"""The graphs of a server: opened once, each with its policy and its stored queries, shared by all requests.

Everything that can be wrong with them is found at the start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Final

from omnigraph import graph as graphs
from omnigraph.engine.scope import Checker
from omnigraph.errors import GraphError, UsageError
from omnigraph.graph import Graph
from omnigraph.policy import Policy, load_bundle
from omnigraph.server.access import Doors, is_stranger
from omnigraph.server.tokens import Tokens
from omnigraph.store.meter import Meter
from omnigraph.stored import StoredQueries, load_queries

GRAPH_ID: Final = re.compile(r"[a-zA-Z0-9-]{1,64}")
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
    stored: StoredQueries
    meter: Meter
    # An export holds a cut of the graph for as long as its reader takes, so there is one at a time.
    cut: Lock = field(default_factory=Lock)
    # The ids that callers chose for writes of theirs that have not ended.
    under_way: list[str] = field(default_factory=list)

    @property
    def checker(self) -> Checker:
        """Who judges what is asked of it."""
        return self.graph.core.policy

    @contextmanager
    def doing(self, operation_id: str) -> Iterator[None]:
        """Say that a write is under way while its request is."""
        self.under_way.append(operation_id)
        try:
            yield
        finally:
            self.under_way.remove(operation_id)


@dataclass(frozen=True, slots=True)
class House:
    """Everything that a server serves, and who may come in."""

    hosted: dict[str, Hosted]
    tokens: Tokens
    server_policy: Policy | None = None

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
    places: Sequence[Place], tokens: Tokens, *, is_unauthenticated: bool = False, server_policy: Path | None = None
) -> House:
    """Open every graph, with its policy and stored queries; refuse to start open unless that is asked for."""
    has_policy = server_policy is not None or any(place.policy is not None for place in places)
    doors = Doors(bool(tokens.entries), has_policy, is_unauthenticated)
    doors.check()
    judge = None if server_policy is None else load_bundle(server_policy, scope="server", graph_id="root")
    hosted: dict[str, Hosted] = {}
    for place in places:
        check_graph_id(place.graph_id)
        if place.graph_id in hosted:
            raise UsageError(f"there are two graphs `{place.graph_id}`; give each an id of its own")
        hosted[place.graph_id] = _open(place, doors)
    if not hosted:
        raise UsageError("there is nothing to serve; add `--store URI`, or `--graph ID=URI`")
    return House(hosted, tokens, judge)


def _open(place: Place, doors: Doors) -> Hosted:
    policy = None if place.policy is None else load_bundle(place.policy, scope="graph", graph_id=place.graph_id)
    meter = Meter()
    graph = graphs.open(place.uri, policy=doors.checker(policy), meter=meter)
    # The files are checked against what is there, whoever may see it.
    catalog = graph.core.catalog(graph.core.kernel.snapshot())
    stored = StoredQueries() if place.queries is None else load_queries(place.queries, catalog)
    return Hosted(place.graph_id, graph, stored, meter)
