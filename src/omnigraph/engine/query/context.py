"""Execution context of one query: view, parameters, budget and caches, shared by its operators.

Created per execution; what outlives it is in `caches`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from omnigraph import settings
from omnigraph.engine.params import Value, missing_parameter_error
from omnigraph.engine.query.adjacency import Topology
from omnigraph.engine.query.budget import BudgetUsage
from omnigraph.engine.query.caches import Caches
from omnigraph.engine.query.entities import Entities
from omnigraph.engine.query.vectors import Ids
from omnigraph.engine.session import View
from omnigraph.store.read.dataset import DatasetRef

if TYPE_CHECKING:
    from omnigraph.engine.query.embedders import Embedder
    from omnigraph.engine.query.operators import PlanStep
    from omnigraph.engine.query.vectors import Rows


class Observer(Protocol):
    """Runs plan steps and records their figures; only profiled queries have one."""

    def observe(self, run: QueryRun, step: PlanStep, rows: Rows) -> Rows: ...
    def note(self, key: str, value: object) -> None: ...


@dataclass
class QueryRun:
    """One query being run."""

    view: View
    params: Mapping[str, Value]
    now_ms: int
    spending: BudgetUsage
    caches: Caches
    embedder: Embedder | None
    observer: Observer | None = None
    scratch: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        state = self.view.snapshot.state
        # One state can be read with several schemas, and with types hidden.
        self._resolved = self.caches.resolved((self.view.snapshot.ref, state.schema.ir_hash))

    @cached_property
    def traversal_mode(self) -> str:
        """How edges are walked, by `OMNIGRAPH_TRAVERSAL_MODE`; read when the first of them is."""
        return settings.read("OMNIGRAPH_TRAVERSAL_MODE")

    def parameter(self, name: str) -> Value:
        if name not in self.params:
            raise missing_parameter_error(name)
        return self.params[name]

    def nodes(self, name: str) -> Entities:
        return self.entities(f"node:{name}")

    def edges(self, name: str) -> Entities:
        return self.entities(f"edge:{name}")

    def entities(self, table_key: str) -> Entities:
        """Return all entities of a type at the version that the view pins."""
        entities = self._resolved.entities.get(table_key)
        if entities is None:
            ref, caches = self.ref(table_key), self.caches
            entities = caches.get(
                ref, ref.path, lambda previous: Entities(self.view.dataset(table_key), caches.grow, previous)
            )
            self._resolved.entities[table_key] = entities
        return entities

    def topology(self, edge: str) -> Topology:
        """Return the adjacency of an edge type, which may still have to be built."""
        topology = self._resolved.topologies.get(edge)
        if topology is None:
            type_ = self.view.catalog.edges[edge]
            entities = (self.edges(edge), self.nodes(type_.source), self.nodes(type_.target))
            caches, family = self.caches, (Topology, self.ref(f"edge:{edge}").path)
            topology = caches.get(
                self._topology_key(edge), family, lambda previous: Topology(*entities, caches.grow, previous)
            )
            self._resolved.topologies[edge] = topology
        return topology

    def has_topology(self, edge: str) -> bool:
        """True if the adjacency of an edge type is in memory."""
        topology = self._resolved.topologies.get(edge) or self.caches.peek(self._topology_key(edge))
        return isinstance(topology, Topology) and topology.is_loaded

    def _topology_key(self, edge: str) -> tuple[DatasetRef, DatasetRef, DatasetRef]:
        type_ = self.view.catalog.edges[edge]
        return self.ref(f"edge:{edge}"), self.ref(f"node:{type_.source}"), self.ref(f"node:{type_.target}")

    def ref(self, table_key: str) -> DatasetRef:
        return self.view.snapshot.state.pins[table_key].ref

    def row_count(self, table_key: str) -> int:
        """Return how many entities a type has, without opening it."""
        return self.view.snapshot.state.pins[table_key].row_count

    def note(self, key: str, value: object) -> None:
        if self.observer is not None:
            self.observer.note(key, value)

    def check(self, where: str) -> None:
        self.spending.check(where)


def null_ids(count: int) -> Ids:
    """Return a binding that is null in every row."""
    return np.full(count, -1, np.int32)
