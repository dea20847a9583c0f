"""Memory caches of an opened graph: columns and adjacency by dataset version, and physical plans.

One per graph, shared by its threads, bounded in bytes. Everything in it can be read again from storage.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from omnigraph.lang.query import QueryKey
from omnigraph.limits import PLAN_CACHE_BYTES_MAX, PLAN_CACHE_MAX, READ_CACHE_BYTES_MAX, READ_CACHE_VERSIONS_MAX
from omnigraph.lru import LruCache

if TYPE_CHECKING:
    from omnigraph.engine.query.adjacency import Topology
    from omnigraph.engine.query.entities import Entities


class Sized(Protocol):
    """A cache entry that reports its size, which may grow while it is cached."""

    @property
    def nbytes(self) -> int: ...


S = TypeVar("S", bound=Sized)


@dataclass(frozen=True, slots=True)
class ResolvedTypes:
    """Cached entries of one snapshot by type name, to skip the lookup by dataset version."""

    entities: dict[str, Entities] = field(default_factory=dict)
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
            held = self.nbytes
            self._is_tight = held * 2 > self.bytes_max
            if self._is_tight:
                self._resolved.clear()
            while held > self.bytes_max and len(self._entries) > 1:
                _, dropped = self._entries.popitem(last=False)
                held -= dropped.nbytes
            if held > self.bytes_max:
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
