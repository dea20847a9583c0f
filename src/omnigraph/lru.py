"""A thread-safe LRU cache, bounded by entries and, optionally, by bytes.

Ground layer: no imports from the package.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

# A value that takes more than this fraction of the byte budget is not cached: it would evict all others.
_LARGE_SHARE: Final = 4


class LruCache(Generic[K, V]):
    """Evicts the least recently used entry.

    >>> cache: LruCache[str, int] = LruCache(2)
    >>> cache.put("a", 1); cache.put("b", 2); cache.get("a"); cache.put("c", 3)
    1
    >>> cache.get("b"), cache.get_or_create("b", lambda: 4), cache.values()
    (None, 4, [3, 4])
    """

    def __init__(self, entries_max: int, bytes_max: int | None = None) -> None:
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._lock = Lock()
        self.nbytes = 0

    def get(self, key: K) -> V | None:
        with self._lock:
            if (entry := self._entries.get(key)) is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V, size: int = 0) -> None:
        """Add or replace an entry; `size` is its approximate number of bytes. The newest entry stays, however large."""
        with self._lock:
            self._store(key, value, size)

    def get_or_create(self, key: K, create: Callable[[], V], size: int = 0) -> V:
        """Return the value of a key, created on a miss; `size` is its approximate number of bytes."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key][0]
        # Created without the lock: when two threads create the same value, both get the one stored first.
        value = create()
        if self._bytes_max is not None and size * _LARGE_SHARE > self._bytes_max:
            return value
        with self._lock:
            if key in self._entries:
                return self._entries[key][0]
            self._store(key, value, size)
        return value

    def _store(self, key: K, value: V, size: int) -> None:
        _, replaced = self._entries.pop(key, (None, 0))
        self._entries[key] = (value, size)
        self.nbytes += size - replaced
        while len(self._entries) > self._entries_max or (
            len(self._entries) > 1 and (self._bytes_max or self.nbytes) < self.nbytes
        ):
            _, (_, dropped) = self._entries.popitem(last=False)
            self.nbytes -= dropped

    def remove(self, *keys: K) -> None:
        """Remove entries as far as they are cached."""
        with self._lock:
            for key in keys:
                _, size = self._entries.pop(key, (None, 0))
                self.nbytes -= size

    def values(self) -> list[V]:
        with self._lock:
            return [value for value, _ in self._entries.values()]

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self.nbytes = 0
