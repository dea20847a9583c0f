"""What an opened graph keeps in memory between queries: columns and adjacency by physical identity, and plans.

One object per graph, shared by its threads. Everything in it can be read again from storage.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Protocol, TypeVar, cast

from omnigraph.engine.core import Lru
from omnigraph.lang.query import QueryKey
from omnigraph.limits import PLAN_CACHE_MAX, READ_CACHE_BYTES_MAX


class Sized(Protocol):
    """Something that knows how much memory it holds; the number may grow while it is kept."""

    @property
    def nbytes(self) -> int: ...


S = TypeVar("S", bound=Sized)


class Caches:
    """Entities and topologies under one byte budget, least recently used first out; and physical plans."""

    def __init__(self, bytes_max: int = READ_CACHE_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.plans: Lru[QueryKey, object] = Lru(PLAN_CACHE_MAX)
        self._entries: OrderedDict[Hashable, Sized] = OrderedDict()
        self._lock = threading.RLock()
        self._has_grown = False

    def grow(self) -> None:
        """Take note that something kept has become larger, so that the next `trim` looks."""
        self._has_grown = True

    def get(self, key: Hashable, make: Callable[[], S]) -> S:
        """Return what is kept under a key, making it when it is not there."""
        with self._lock:
            kept = self._entries.get(key)
            if kept is not None:
                self._entries.move_to_end(key)
                return cast(S, kept)
        made = make()
        self.grow()
        with self._lock:
            # Two threads may make the same thing; all go on with the first, so that its columns are loaded once.
            kept = self._entries.setdefault(key, made)
            self._entries.move_to_end(key)
        return cast(S, kept)

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
