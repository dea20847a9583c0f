"""Key caches: which ids a version of a type holds, in memory, carried along from one commit of ours to the next.

Exact for one version of one dataset; a version that nobody carried it to is read anew, or looked up id by id.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from omnigraph.limits import KEY_CACHE_BUILD_ENTITIES_MAX, KEY_CACHE_ENTITIES_MAX
from omnigraph.manifest.kernel import Kernel
from omnigraph.rules.delta import NO_IDS, Ids, one_array
from omnigraph.store.dataset import Dataset, DatasetRef
from omnigraph.store.lookup import find

# What commits add or take out is kept apart from the ids that were read, until it has grown to this many.
_OVERLAY_MAX = 4_096


@dataclass(frozen=True, slots=True)
class Keys:
    """The ids of one version: those that were read, except where later commits say otherwise."""

    base: frozenset[str]
    overlay: dict[str, bool] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.base) + len(self.overlay)

    def existing(self, ids: Ids) -> Ids:
        """Return those of the ids that exist."""
        base, overlay = self.base, self.overlay
        found = [one for one in ids.to_pylist() if overlay.get(one, one in base)]
        return pa.array(found, pa.string()) if found else NO_IDS

    def changed(self, added: Ids, removed: Ids) -> Keys:
        """Return the ids of the version that a commit made."""
        overlay = self.overlay | dict.fromkeys(removed.to_pylist(), False) | dict.fromkeys(added.to_pylist(), True)
        if len(overlay) <= _OVERLAY_MAX:
            return Keys(self.base, overlay)
        gone = {one for one, is_there in overlay.items() if not is_there}
        return Keys((self.base - gone) | {one for one, is_there in overlay.items() if is_there})


def _texts(ids: Ids) -> frozenset[str]:
    return frozenset(ids.to_pylist())


class KeyCache:
    """The keys of the versions that were written to last, up to a number of ids."""

    def __init__(self, entities_max: int = KEY_CACHE_ENTITIES_MAX) -> None:
        self._entries: OrderedDict[DatasetRef, Keys] = OrderedDict()
        self._entities_max = entities_max
        self._lock = Lock()

    def existing(self, dataset: Dataset, ids: Ids) -> Ids:
        """Return those of the ids that a version holds, by the cheapest way there is."""
        if len(ids) == 0:
            return NO_IDS
        keys = self._get(dataset.ref)
        if keys is None and dataset.count() <= KEY_CACHE_BUILD_ENTITIES_MAX:
            # An empty dataset is cached as well, so that the first commits to it need not be read back.
            keys = Keys(_texts(one_array(dataset.read(["id"]).column("id"))) if dataset.count() else frozenset())
            self._put(dataset.ref, keys)
        if keys is not None:
            return keys.existing(ids)
        found: Any = find(dataset, ids).column("id").combine_chunks()
        return found

    def advance(self, before: DatasetRef, after: DatasetRef, added: Ids, removed: Ids) -> None:
        """Carry the keys of a version over to the one that a commit made of it."""
        keys = self._get(before)
        if keys is not None:
            self._put(after, keys.changed(added, removed))

    def replace(self, after: DatasetRef, ids: Ids) -> None:
        """Take the ids of a version whose rows were all replaced."""
        self._put(after, Keys(_texts(ids)))

    def _get(self, ref: DatasetRef) -> Keys | None:
        with self._lock:
            if ref in self._entries:
                self._entries.move_to_end(ref)
            return self._entries.get(ref)

    def _put(self, ref: DatasetRef, keys: Keys) -> None:
        with self._lock:
            self._entries[ref] = keys
            # Versions of one dataset share their base, so only the newest counts.
            newest = {(one.path, one.branch): kept for one, kept in self._entries.items()}
            while self._entries and sum(map(len, newest.values())) > self._entities_max:
                old, _ = self._entries.popitem(last=False)
                newest = {(one.path, one.branch): kept for one, kept in self._entries.items()}
            for old in [one for one in self._entries if (one.path, one.branch) == (ref.path, ref.branch)][:-2]:
                del self._entries[old]


_caches: WeakKeyDictionary[Kernel, KeyCache] = WeakKeyDictionary()
_caches_lock = Lock()


def key_cache(kernel: Kernel) -> KeyCache:
    """Return the key cache of an opened graph."""
    with _caches_lock:
        return _caches.setdefault(kernel, KeyCache())
