"""What an opened graph keeps in memory between queries: columns and adjacency by physical identity, and plans.

One object per graph, shared by its threads. Everything in it can be read again from storage.
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
    """Something that knows how much memory it holds; the number may grow while it is kept."""

    @property
    def nbytes(self) -> int: ...


S = TypeVar("S", bound=Sized)


@dataclass(frozen=True, slots=True)
class Resolved:
    """What one snapshot has in the cache, by name, so that queries need not ask for it by physical identity."""

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
        self._resolved: LruCache[Hashable, Resolved] = LruCache(READ_CACHE_VERSIONS_MAX)

    def resolved(self, snapshot: Hashable) -> Resolved:
        """Return what is known to be kept for a snapshot; every query may look there first and add to it."""
        if self._is_tight:
            # Going by names leaves no trace of use, so not while something may soon have to be forgotten.
            return Resolved()
        return self._resolved.get_or_create(snapshot, Resolved)

    def grow(self) -> None:
        """Take note that something kept has become larger, so that the next `trim` looks."""
        self._has_grown = True

    def get(self, key: Hashable, family: Hashable, make: Callable[[S | None], S]) -> S:
        """Return what is kept under a key, making it when it is not there.

        A family is what comes in versions; `make` gets the version of it that was used last, if one is kept.
        """
        with self._lock:
            kept = self._entries.get(key)
            if kept is not None:
                self._touch(key, family)
                return cast(S, kept)
            latest = self._latest(family)
        made = make(cast("S | None", latest))
        self.grow()
        with self._lock:
            # Two threads may make the same thing; all go on with the first, so that its columns are loaded once.
            kept = self._entries.setdefault(key, made)
            self._touch(key, family)
            versions = self._families[family]
            while len(versions) > READ_CACHE_VERSIONS_MAX:
                self._entries.pop(versions.popitem(last=False)[0], None)
        return cast(S, kept)

    def _latest(self, family: Hashable) -> Sized | None:
        versions = self._families.get(family, ())
        return next((self._entries[key] for key in reversed(versions) if key in self._entries), None)

    def _touch(self, key: Hashable, family: Hashable) -> None:
        self._entries.move_to_end(key)
        versions = self._families.setdefault(family, OrderedDict())
        versions[key] = None
        versions.move_to_end(key)

    def peek(self, key: Hashable) -> Sized | None:
        """Return what is kept under a key, or None; nothing is made."""
        with self._lock:
            return self._entries.get(key)

    def trim(self) -> None:
        """Forget what was not used for longest until the budget holds; a running query keeps its own references."""
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
