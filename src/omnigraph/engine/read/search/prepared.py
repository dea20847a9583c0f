"""What is kept ready to search: one column of one pinned version, for as long as it is among the last used.

Keyed by physical identity, so branches that share a version share it, and nothing is ever out of date.
"""

from __future__ import annotations

from threading import Lock
from typing import TypeAlias
from weakref import WeakKeyDictionary

from omnigraph.engine.core import Lru, View
from omnigraph.limits import SEARCH_CACHE_MAX
from omnigraph.store.dataset import DatasetRef
from omnigraph.store.store import Store
from omnigraph.store.text import TextSearch
from omnigraph.store.vector import VectorSearch

_Key: TypeAlias = tuple[DatasetRef, str]
_Caches: TypeAlias = WeakKeyDictionary[Store, tuple[Lru[_Key, TextSearch], Lru[_Key, VectorSearch]]]

_prepared: _Caches = WeakKeyDictionary()
_lock = Lock()


def text_search(view: View, node_type: str, name: str) -> TextSearch:
    """Return the search of a String property, prepared at most once per version."""
    dataset = view.dataset(view.catalog.nodes[node_type].table_key)
    texts, _ = _caches(view.kernel.store)
    return texts.get((dataset.ref, name), lambda: TextSearch(dataset, name))


def vector_search(view: View, node_type: str, name: str) -> VectorSearch:
    """Return the search of a Vector property, prepared at most once per version."""
    dataset = view.dataset(view.catalog.nodes[node_type].table_key)
    _, vectors = _caches(view.kernel.store)
    return vectors.get((dataset.ref, name), lambda: VectorSearch(dataset, name))


def _caches(store: Store) -> tuple[Lru[_Key, TextSearch], Lru[_Key, VectorSearch]]:
    with _lock:
        return _prepared.setdefault(store, (Lru(SEARCH_CACHE_MAX), Lru(SEARCH_CACHE_MAX)))
