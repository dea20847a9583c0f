"""Search functions of the query language: text predicates, BM25 and nearest vectors, returning row ids.

Prepared searches are cached per store and dataset version.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike

from omnigraph.engine.query.budget import check_running
from omnigraph.engine.query.embedders import Embedder, from_settings
from omnigraph.engine.session import View
from omnigraph.errors import DataError, LimitExceeded
from omnigraph.limits import FUZZY_EDITS_MAX, FUZZY_WORDS_MAX, SEARCH_CACHE_MAX, SEARCH_WORDS_MAX
from omnigraph.lru import LruCache
from omnigraph.manifest.kernel import Kernel
from omnigraph.store.index.bm25 import Scores
from omnigraph.store.index.exact_knn import Vectors
from omnigraph.store.index.text_search import NO_HITS, TextCache, TextSearch, describe_texts, distinct_words
from omnigraph.store.index.vector_partitions import PartitionCache
from omnigraph.store.index.vector_search import VectorSearch
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.read.live_rows import RowIds
from omnigraph.store.store import Store

_Key: TypeAlias = tuple[DatasetRef, str]


@dataclass
class _SearchCaches:
    texts: LruCache[_Key, TextSearch] = field(default_factory=lambda: LruCache(SEARCH_CACHE_MAX))
    vectors: LruCache[_Key, VectorSearch] = field(default_factory=lambda: LruCache(SEARCH_CACHE_MAX))
    cache: TextCache = field(default_factory=TextCache)
    partitions: PartitionCache = field(default_factory=PartitionCache)
    embedder: Embedder | None = None


_caches_by_store: Final[WeakKeyDictionary[Store, _SearchCaches]] = WeakKeyDictionary()
_lock: Final = Lock()


def text_search(view: View, node_type: str, name: str) -> TextSearch:
    """Return the search of a String property, prepared at most once per version."""
    dataset = view.dataset(view.catalog.nodes[node_type].table_key)
    prepared = _caches_of(view)
    return prepared.texts.get_or_create((dataset.ref, name), lambda: TextSearch(dataset, name, prepared.cache))


def vector_search(view: View, node_type: str, name: str) -> VectorSearch:
    """Return the search of a Vector property, prepared at most once per version."""
    dataset = view.dataset(view.catalog.nodes[node_type].table_key)
    prepared = _caches_of(view)
    return prepared.vectors.get_or_create((dataset.ref, name), lambda: VectorSearch(dataset, name, prepared.partitions))


def default_embedder(view: View) -> Embedder:
    """Return the embedder of an opened graph; the settings are read when it is first needed, and once."""
    prepared = _caches_of(view)
    with _lock:
        if prepared.embedder is None:
            prepared.embedder = from_settings()
        return prepared.embedder


def set_default_embedder(kernel: Kernel, embedder: Embedder | None) -> None:
    """Set the embedder of an opened graph; None means the one that the settings name."""
    with _lock:
        _caches_by_store.setdefault(kernel.store, _SearchCaches()).embedder = embedder


def _caches_of(view: View) -> _SearchCaches:
    with _lock:
        return _caches_by_store.setdefault(view.kernel.store, _SearchCaches())


def describe_search(view: View, node_type: str, property: str) -> str:  # noqa: A002 - the language's word
    """Describe how the texts of a property would be searched."""
    return describe_texts(view.dataset(view.catalog.nodes[node_type].table_key), property)


def match_text(
    view: View,
    node_type: str,
    property: str,  # noqa: A002 - the language's word
    query: str,
    function: str,
    max_edits: int | None = None,
) -> RowIds:
    """Return the rows, in row id order, whose text holds any word of the query.

    `fuzzy` forgives up to `max_edits` typing errors (inserted, dropped or replaced letters) per word.
    """
    edits = 0 if function != "fuzzy" else 2 if max_edits is None else max_edits
    if not 0 <= edits <= FUZZY_EDITS_MAX:
        raise DataError(
            f"`fuzzy` forgives between 0 and {FUZZY_EDITS_MAX} typing errors, not {edits}", rule="E4", value=edits
        )
    is_fuzzy = function == "fuzzy"
    _check_word_count(query, FUZZY_WORDS_MAX if is_fuzzy else SEARCH_WORDS_MAX)
    search = text_search(view, node_type, property)
    rows = search.matches_misspelt(query, edits, check_running) if is_fuzzy else search.matches(query)
    return np.unique(rows)


def _check_word_count(query: str, words_max: int) -> None:
    """Raise `LimitExceeded` if a query text has too many distinct words."""
    # Scripts without spaces have words of one letter, and Unicode has signs that stand for up to four words.
    if len(query) <= words_max // 4:
        return
    count = len(distinct_words(query))
    if count > words_max:
        raise LimitExceeded(
            f"the text has {count} distinct words, but a search is limited to {words_max}; use fewer",
            resource="search_words",
            limit=words_max,
            actual=count,
        )


def bm25(
    view: View,
    node_type: str,
    property: str,  # noqa: A002 - the language's word
    query: str,
    candidates: RowIds | None = None,
    limit: int | None = None,
) -> tuple[RowIds, Scores]:
    """Return the matching rows among the candidates with their relevance, best first, equal ones in row id order.

    Rows as good as the last one within the limit come along, so that the caller can break the tie.
    """
    if candidates is not None and len(candidates) == 0:
        return NO_HITS.rows, NO_HITS.scores
    _check_word_count(query, SEARCH_WORDS_MAX)
    hits = text_search(view, node_type, property).search(query, candidates, limit)
    return hits.rows, hits.scores


def nearest(
    view: View,
    node_type: str,
    property: str,  # noqa: A002 - the language's word
    vector: ArrayLike,
    candidates: RowIds | None = None,
    limit: int | None = None,
) -> tuple[RowIds, Scores]:
    """Return the rows among the candidates that have a vector, with their distances, nearest first.

    Rows as near as the last one within the limit come along, so that the caller can break the tie.
    """
    search = vector_search(view, node_type, property)
    return search.search(check_vector(vector, search.dimension, property), candidates, limit)


def describe_nearest(view: View, node_type: str, property: str, limit: int | None) -> str:  # noqa: A002
    """Describe how nearest vectors would be found."""
    return vector_search(view, node_type, property).describe(limit)


def check_vector(vector: ArrayLike, dimension: int, property: str) -> Vectors:  # noqa: A002 - the language's word
    """Return a query vector as it is compared, or refuse one that does not fit the property (E4).

    >>> check_vector([1, 2], 2, "vec")
    array([1., 2.], dtype=float32)
    """
    wide = np.asarray(vector, np.float64)
    if wide.shape != (dimension,):
        actual = wide.shape[0] if wide.ndim == 1 else "no list of"
        raise DataError(
            f"`{property}` has vectors of dimension {dimension}, but the query vector has {actual}",
            rule="E4",
            property=property,
            dimension=dimension,
        )
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    if not np.isfinite(narrow).all():
        raise DataError(
            f"the query vector for `{property}` has a number that is not finite as F32",
            rule="E4",
            property=property,
        )
    return narrow
