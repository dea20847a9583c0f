"""What an opened graph keeps ready to search: columns of pinned versions while they are used, and its embedder.

Columns are keyed by physical identity, so branches that share a version share them, and nothing is ever out of date.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from omnigraph.engine.core import Lru, View
from omnigraph.engine.read.search.embed import Embedder, from_settings
from omnigraph.limits import SEARCH_CACHE_MAX
from omnigraph.store.dataset import DatasetRef
from omnigraph.store.partitions import PartitionCache
from omnigraph.store.store import Store
from omnigraph.store.text import TextCache, TextSearch
from omnigraph.store.vector import VectorSearch

_Key: TypeAlias = tuple[DatasetRef, str]


@dataclass
class _Prepared:
    texts: Lru[_Key, TextSearch] = field(default_factory=lambda: Lru(SEARCH_CACHE_MAX))
    vectors: Lru[_Key, VectorSearch] = field(default_factory=lambda: Lru(SEARCH_CACHE_MAX))
    cache: TextCache = field(default_factory=TextCache)
    partitions: PartitionCache = field(default_factory=PartitionCache)
    embedder: Embedder | None = None


_prepared: Final[WeakKeyDictionary[Store, _Prepared]] = WeakKeyDictionary()
_lock: Final = Lock()


def text_search(view: View, node_type: str, name: str) -> TextSearch:
    """Return the search of a String property, prepared at most once per version."""
    dataset = view.dataset(view.catalog.nodes[node_type].table_key)
    prepared = _of(view)
    return prepared.texts.get((dataset.ref, name), lambda: TextSearch(dataset, name, prepared.cache))


def vector_search(view: View, node_type: str, name: str) -> VectorSearch:
    """Return the search of a Vector property, prepared at most once per version."""
    dataset = view.dataset(view.catalog.nodes[node_type].table_key)
    prepared = _of(view)
    return prepared.vectors.get((dataset.ref, name), lambda: VectorSearch(dataset, name, prepared.partitions))


def embedder_of(view: View) -> Embedder:
    """Return the embedder of an opened graph; the settings are read when it is first needed, and once."""
    prepared = _of(view)
    with _lock:
        if prepared.embedder is None:
            prepared.embedder = from_settings()
        return prepared.embedder


def _of(view: View) -> _Prepared:
    with _lock:
        return _prepared.setdefault(view.kernel.store, _Prepared())
