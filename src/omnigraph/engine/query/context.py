"""Execution context of one query: view, parameters, budget and caches, shared by its operators.

Created per execution; what outlives it is in `caches`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from omnigraph import settings
from omnigraph.engine.arguments import Value, missing_parameter_error
from omnigraph.engine.query.adjacency import Topology, UnionEntities, UnionTopology, convert_ids
from omnigraph.engine.query.budget import BudgetUsage
from omnigraph.engine.query.entities import Entities
from omnigraph.engine.query.vectors import Ids
from omnigraph.engine.session import View
from omnigraph.errors import DataError
from omnigraph.lang.catalog import TypeKey
from omnigraph.lang.query import QueryKey
from omnigraph.lang.query.ir import Leg, ParameterRef, is_union, join_types, split_type
from omnigraph.limits import PLAN_CACHE_BYTES_MAX, PLAN_CACHE_MAX, READ_CACHE_BYTES_MAX, READ_CACHE_VERSIONS_MAX
from omnigraph.lru import LruCache
from omnigraph.store.read.dataset import DatasetRef

if TYPE_CHECKING:
    from omnigraph.engine.query.embedders import Embedder
    from omnigraph.engine.query.physical_plan import Profile


class Sized(Protocol):
    """A cache entry that reports its size, which may grow while it is cached."""

    @property
    def nbytes(self) -> int: ...


S = TypeVar("S", bound=Sized)


@dataclass(frozen=True, slots=True)
class ResolvedTypes:
    """Cached entries of one snapshot by type name, to skip the lookup by dataset version."""

    entities: dict[TypeKey, Entities] = field(default_factory=dict)
    topologies: dict[str, Topology] = field(default_factory=dict)


class Caches:
    """Entities and topologies, a few versions of each and all under one byte budget, least recently used first out;
    and physical plans.
    """

    def __init__(self, bytes_max: int = READ_CACHE_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.plans: LruCache[QueryKey, object] = LruCache(PLAN_CACHE_MAX, PLAN_CACHE_BYTES_MAX)
        self._entries: OrderedDict[Hashable, Sized] = OrderedDict()
        # The keys of the versions of one thing, the one used last at the end; some may be forgotten already.
        self._families: dict[Hashable, OrderedDict[Hashable, None]] = {}
        self._lock = threading.RLock()
        self._has_grown = False
        self._is_tight = False
        self._resolved: LruCache[Hashable, ResolvedTypes] = LruCache(READ_CACHE_VERSIONS_MAX)

    def resolved(self, snapshot: Hashable) -> ResolvedTypes:
        """Return the by-name entries of a snapshot; queries check there first and add to it."""
        if self._is_tight:
            # Lookups by name do not update recency, so avoid them when eviction is near.
            return ResolvedTypes()
        return self._resolved.get_or_create(snapshot, ResolvedTypes)

    def grow(self) -> None:
        """Record that an entry grew, so that the next `trim` checks the budget."""
        self._has_grown = True

    def get(self, key: Hashable, family: Hashable, make: Callable[[S | None], S]) -> S:
        """Return the entry of a key, building it on a miss.

        A family groups the versions of one dataset; `make` gets the most recently used version, or None.
        """
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._touch(key, family)
                return cast(S, entry)
            latest = self._latest(family)
        new_entry = make(cast("S | None", latest))
        self.grow()
        with self._lock:
            # Two threads may build the same entry; the first wins, so that its columns are loaded once.
            entry = self._entries.setdefault(key, new_entry)
            self._touch(key, family)
            versions = self._families[family]
            while len(versions) > READ_CACHE_VERSIONS_MAX:
                self._entries.pop(versions.popitem(last=False)[0], None)
        return cast(S, entry)

    def _latest(self, family: Hashable) -> Sized | None:
        versions = self._families.get(family, ())
        return next((self._entries[key] for key in reversed(versions) if key in self._entries), None)

    def _touch(self, key: Hashable, family: Hashable) -> None:
        self._entries.move_to_end(key)
        versions = self._families.setdefault(family, OrderedDict())
        versions[key] = None
        versions.move_to_end(key)

    def peek(self, key: Hashable) -> Sized | None:
        """Return the entry of a key, or None; never builds it."""
        with self._lock:
            return self._entries.get(key)

    def trim(self) -> None:
        """Evict least recently used entries until the budget holds; running queries keep their own references."""
        if not self._has_grown:
            return
        with self._lock:
            self._has_grown = False
            cached_bytes = self.nbytes
            self._is_tight = cached_bytes * 2 > self.bytes_max
            if self._is_tight:
                self._resolved.clear()
            while cached_bytes > self.bytes_max and len(self._entries) > 1:
                _, dropped = self._entries.popitem(last=False)
                cached_bytes -= dropped.nbytes
            if cached_bytes > self.bytes_max:
                self._entries.clear()

    @property
    def nbytes(self) -> int:
        with self._lock:
            return sum(entry.nbytes for entry in self._entries.values())

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._families.clear()
            self._resolved.clear()


@dataclass
class QueryRun:
    """One query being run."""

    view: View
    params: Mapping[str, Value]
    now_ms: int
    spending: BudgetUsage
    caches: Caches
    embedder: Embedder | None
    observer: Profile | None = None
    scratch: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        state = self.view.snapshot.state
        # One state can be read with several schemas, and with types hidden.
        self._resolved = self.caches.resolved((self.view.snapshot.ref, state.schema.ir_hash))

    @cached_property
    def traversal_mode(self) -> str:
        """How edges are walked, by `OMNIGRAPH_TRAVERSAL_MODE`; read when the first of them is."""
        return settings.read("OMNIGRAPH_TRAVERSAL_MODE")

    def fork(self) -> QueryRun:
        """Return a run of a part of the query: the same budget and caches, and room of its own for what it keeps."""
        return replace(self, scratch={})

    def parameter(self, name: str) -> Value:
        if name not in self.params:
            raise missing_parameter_error(name)
        return self.params[name]

    def nodes(self, name: str) -> Entities:
        return self.entities(TypeKey.of("node", name))

    def edges(self, name: str) -> Entities:
        return self.entities(TypeKey.of("edge", name))

    def entities(self, table_key: TypeKey) -> Entities:
        entities = self._resolved.entities.get(table_key)
        if entities is None:
            entities = self._union(table_key) if is_union(table_key.name) else self._single(table_key)
            self._resolved.entities[table_key] = entities
        return entities

    def _single(self, table_key: TypeKey) -> Entities:
        ref, caches = self.ref(table_key), self.caches
        return caches.get(ref, ref.path, lambda previous: Entities(self.view.dataset(table_key), caches.grow, previous))

    def _union(self, table_key: TypeKey) -> UnionEntities:
        names, caches = split_type(table_key.name), self.caches
        keys = [TypeKey.of(table_key.kind, name) for name in names]
        refs = tuple(self.ref(key) for key in keys)
        members = [self.entities(key) for key in keys]
        family = (UnionEntities, *(ref.path for ref in refs))
        # A rename keeps the versions, but the union knows its members by their names.
        key = (UnionEntities, names, refs)
        return caches.get(key, family, lambda previous: UnionEntities(names, members, caches.grow))

    def union_topology(self, legs: tuple[Leg, ...], near: str, far: str) -> UnionTopology:
        edges = self.edges(join_types(leg.edge for leg in legs))
        spaces = (self.nodes(near), self.nodes(far))
        topologies = {leg.edge: self.topology(leg.edge) for leg in legs}
        refs = tuple(self._topology_key(leg.edge) for leg in legs)
        names = (UnionTopology, legs, near, far)
        return self.caches.get(
            (*names, refs), names, lambda previous: UnionTopology(legs, topologies, edges, *spaces, self.caches.grow)
        )

    def convert_ids(self, ids: Ids, source_type: str, target_type: str) -> Ids:
        if source_type == target_type:
            return ids
        return convert_ids(ids, self.nodes(source_type), source_type, self.nodes(target_type), target_type)

    def bound(self, bound: int | ParameterRef, word: str, *, least: int = 0) -> int:
        """Return the value of a row or hop bound, or of a number of paths; one from a parameter may be too small."""
        if isinstance(bound, int):
            return bound
        value = self.parameter(bound.name)
        assert isinstance(value, int)
        if value < least:
            rule = "not be negative" if least == 0 else f"be at least {least}"
            message = f"`{word} ${bound.name}` is {value}; it must {rule}"
            raise DataError(message, rule="E4", parameter=bound.name, value=value)
        return value

    def topology(self, edge: str) -> Topology:
        """Return the adjacency of an edge type, which may still have to be built."""
        topology = self._resolved.topologies.get(edge)
        if topology is None:
            type_ = self.view.catalog.edges[edge]
            entities = (self.edges(edge), self.nodes(type_.source), self.nodes(type_.target))
            caches, family = self.caches, (Topology, self.ref(TypeKey.of("edge", edge)).path)
            topology = caches.get(
                self._topology_key(edge), family, lambda previous: Topology(*entities, caches.grow, previous)
            )
            self._resolved.topologies[edge] = topology
        return topology

    def has_topology(self, edge: str) -> bool:
        topology = self._resolved.topologies.get(edge) or self.caches.peek(self._topology_key(edge))
        return isinstance(topology, Topology) and topology.is_loaded

    def _topology_key(self, edge: str) -> tuple[DatasetRef, DatasetRef, DatasetRef]:
        type_ = self.view.catalog.edges[edge]
        source, target = (self.ref(TypeKey.of("node", name)) for name in (type_.source, type_.target))
        return self.ref(type_.table_key), source, target

    def ref(self, table_key: TypeKey) -> DatasetRef:
        return self.view.snapshot.state.pins[table_key].ref

    def row_count(self, table_key: TypeKey) -> int:
        """Return how many entities a type has, without opening it."""
        pins = self.view.snapshot.state.pins
        return sum(pins[TypeKey.of(table_key.kind, name)].row_count for name in split_type(table_key.name))

    def note(self, key: str, value: object) -> None:
        if self.observer is not None:
            self.observer.note(key, value)

    def check(self, where: str) -> None:
        self.spending.check(where)
