"""Search and ranking: row ids of text predicates, BM25 and nearest vectors, and entities in the order of their scores.

Calls the searches; candidates and row order are decided in `physical_plan` and `projection`.

Prepared searches are cached per store and dataset version.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike

from omnigraph.engine.query.budget import check_running
from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.embedders import Embedder, Purpose, check_model, from_settings
from omnigraph.engine.query.entities import Entities
from omnigraph.engine.query.expressions import compile_constant
from omnigraph.engine.query.ordering import string_ranks
from omnigraph.engine.query.vectors import Ids, Numbers, Strings, flag_positions
from omnigraph.engine.session import View
from omnigraph.errors import DataError, LimitExceeded
from omnigraph.lang.catalog import TypeKey
from omnigraph.lang.query import ir
from omnigraph.limits import (
    FUZZY_EDITS_MAX,
    FUZZY_WORDS_MAX,
    RANK_WINDOW_DEFAULT,
    SEARCH_CACHE_MAX,
    SEARCH_WORDS_MAX,
)
from omnigraph.lru import LruCache
from omnigraph.manifest.kernel import Kernel
from omnigraph.store.index.exact_knn import Vectors
from omnigraph.store.index.text_analysis import Scores
from omnigraph.store.index.text_search import NO_HITS, TextCache, TextSearch, describe_texts, distinct_words
from omnigraph.store.index.vector_search import PartitionCache, VectorSearch
from omnigraph.store.read.dataset import Dataset, DatasetRef
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
    dataset = _dataset(view, node_type)
    prepared = _caches_of(view)
    return prepared.texts.get_or_create((dataset.ref, name), lambda: TextSearch(dataset, name, prepared.cache))


def vector_search(view: View, node_type: str, name: str) -> VectorSearch:
    """Return the search of a Vector property, prepared at most once per version."""
    dataset = _dataset(view, node_type)
    prepared = _caches_of(view)
    return prepared.vectors.get_or_create((dataset.ref, name), lambda: VectorSearch(dataset, name, prepared.partitions))


def _dataset(view: View, node_type: str) -> Dataset:
    return view.dataset(TypeKey.of("node", node_type))


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


def describe_search(view: View, node_type: str, name: str) -> str:
    return describe_texts(_dataset(view, node_type), name)


def match_text(
    view: View, node_type: str, name: str, query: str, function: str, max_edits: int | None = None
) -> RowIds:
    """Return the rows, in row id order, whose text holds any word of the query.

    `fuzzy` forgives up to `max_edits` typing errors (inserted, dropped or replaced letters) per word.
    """
    is_fuzzy = function == "fuzzy"
    edits = 0 if not is_fuzzy else 2 if max_edits is None else max_edits
    if not 0 <= edits <= FUZZY_EDITS_MAX:
        raise DataError(
            f"`fuzzy` forgives between 0 and {FUZZY_EDITS_MAX} typing errors, not {edits}", rule="E4", value=edits
        )
    _check_word_count(query, FUZZY_WORDS_MAX if is_fuzzy else SEARCH_WORDS_MAX)
    search = text_search(view, node_type, name)
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
    view: View, node_type: str, name: str, query: str, candidates: RowIds | None = None, limit: int | None = None
) -> tuple[RowIds, Scores]:
    """Return the matching rows among the candidates with their relevance, best first, equal ones in row id order.

    Rows as good as the last one within the limit come along, so that the caller can break the tie.
    """
    if candidates is not None and len(candidates) == 0:
        return NO_HITS.rows, NO_HITS.scores
    _check_word_count(query, SEARCH_WORDS_MAX)
    hits = text_search(view, node_type, name).search(query, candidates, limit)
    return hits.rows, hits.scores


def nearest(
    view: View, node_type: str, name: str, vector: ArrayLike, candidates: RowIds | None = None, limit: int | None = None
) -> tuple[RowIds, Scores]:
    """Return the rows among the candidates that have a vector, with their distances, nearest first.

    Rows as near as the last one within the limit come along, so that the caller can break the tie.
    """
    search = vector_search(view, node_type, name)
    return search.search(check_vector(vector, search.dimension, name), candidates, limit)


def describe_nearest(view: View, node_type: str, name: str, limit: int | None) -> str:
    return vector_search(view, node_type, name).describe(limit)


def check_vector(vector: ArrayLike, dimension: int, name: str) -> Vectors:
    """Return a query vector as it is compared, or refuse one that does not fit the property (E4).

    >>> check_vector([1, 2], 2, "vec")
    array([1., 2.], dtype=float32)
    """
    wide = np.asarray(vector, np.float64)
    if wide.shape != (dimension,):
        actual = wide.shape[0] if wide.ndim == 1 else "no list of"
        raise DataError(
            f"`{name}` has vectors of dimension {dimension}, but the query vector has {actual}",
            rule="E4",
            property=name,
            dimension=dimension,
        )
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    if not np.isfinite(narrow).all():
        raise DataError(
            f"the query vector for `{name}` has a number that is not finite as F32", rule="E4", property=name
        )
    return narrow


@dataclass(frozen=True, slots=True)
class Ranked:
    """Entities, best first, with their scores."""

    ids: Ids
    scores: Scores

    def among(self, ids: Ids, count: int) -> Ranked:
        mask = flag_positions(ids, count)[self.ids]
        return Ranked(self.ids[mask], self.scores[mask])

    def first(self, limit: int | None) -> Ranked:
        return Ranked(self.ids[:limit], self.scores[:limit])


class Ranking:
    """A compiled rank call."""

    def __init__(self, rank: ir.Rank) -> None:
        self.rank = rank
        field = rank.first.field if isinstance(rank, ir.Rrf) else rank.field
        self.variable, self.node_type = field.variable, field.owner
        self._arms = [_RankCall(arm) for arm in ((rank.first, rank.second) if isinstance(rank, ir.Rrf) else (rank,))]
        self._k = compile_constant(rank.k) if isinstance(rank, ir.Rrf) else None
        self._window = compile_constant(rank.window) if isinstance(rank, ir.Rrf) else None

    def narrow(self, run: QueryRun, candidates: Ids, limit: int | None) -> list[Ranked] | None:
        """Rank candidates by each call before the pattern is matched; None if that would leave hardly any of them out.

        `limit` bounds how many `nearest` takes, when it is not fused with another. The windows of a fusion hold the
        best that the pattern leaves, so here its lists are whole; with `nearest` they would hold nearly everything.
        """
        if self._window is not None and any(call.is_nearest for call in self._arms):
            return None
        most = limit if isinstance(self.rank, ir.Nearest) else None
        return [call.rank(run, candidates, most) for call in self._arms]

    def arms(self, run: QueryRun, present: Ids, limit: int | None) -> list[Ranked]:
        """Rank by each call what the pattern has left: the best `limit` of `nearest`, the window of a fused call."""
        most = self._window_size(run)
        if isinstance(self.rank, ir.Nearest):
            most = limit
        return [call.rank(run, present, most) for call in self._arms]

    def best(self, run: QueryRun, candidates: Ids, limit: int | None) -> Ranked:
        """Return the best of the candidates (None: of all); only those that can be among the best are sorted."""
        if self._k is None:
            return self._arms[0].rank(run, candidates, limit)
        return self.fuse(run, self.arms(run, candidates, limit)).first(limit)

    def rank_present(self, run: QueryRun, arms: list[Ranked], present: Ids, limit: int | None) -> Ranked:
        """Return the fused ranking of those that are present; of all that match, if it is by relevance."""
        count, window = run.nodes(self.node_type).count, self._window_size(run)
        ranked = self.fuse(run, [arm.among(present, count).first(window) for arm in arms])
        return ranked if isinstance(self.rank, ir.Bm25) else ranked.first(limit)

    def fuse(self, run: QueryRun, ranked_lists: list[Ranked]) -> Ranked:
        """Return the fused ranking of all arms (reciprocal rank fusion)."""
        if self._k is None:
            return ranked_lists[0]
        k = _positive(self._k(run), "k", 60)
        first, second = ranked_lists
        scores = np.zeros(max(int(ranked.ids.max(initial=-1)) for ranked in ranked_lists) + 1)
        scores[first.ids] = 1.0 / (k + np.arange(len(first.ids)) + 1.0)
        ids = np.concatenate([first.ids, second.ids[scores[second.ids] == 0.0]])
        scores[second.ids] += 1.0 / (k + np.arange(len(second.ids)) + 1.0)
        # Equal scores keep the first call's order, and what only the second found comes after.
        order = np.argsort(-scores[ids], kind="stable")
        return Ranked(ids[order], scores[ids][order])

    def _window_size(self, run: QueryRun) -> int | None:
        """Return how many of each list are fused; None if there is only one list."""
        return None if self._window is None else _positive(self._window(run), "window", RANK_WINDOW_DEFAULT)

    def describe(self, run: QueryRun, limit: int | None) -> dict[str, object]:
        """Describe how vectors would be compared and texts searched."""
        window = self._window_size(run)
        details: dict[str, object] = {} if window is None else {"window": window}
        for call in self._arms:
            if call.is_nearest:
                details["vectors"] = describe_nearest(run.view, *call.column, limit if window is None else window)
            else:
                details["texts"] = describe_search(run.view, *call.column)
        return details

    def scores(self, run: QueryRun, ids: Ids) -> Numbers:
        """Return the score of each row's entity, null without one; no row is dropped."""
        present = np.unique(ids[ids >= 0])
        ranked = self.fuse(run, self.arms(run, present, None))
        return scores_by_id(ranked, ids, run.nodes(self.node_type).count)


def _positive(value: object, name: str, default: int) -> int:
    if not isinstance(value, int) or value <= 0:
        message = f"`{name}` of `rrf` must be greater than zero; leave it out for {default}"
        raise DataError(message, rule="E4", value=value)
    return value


def union_of_ids(ranked_lists: list[Ranked]) -> Ids:
    return np.unique(np.concatenate([ranked.ids for ranked in ranked_lists]))


def scores_by_id(ranked: Ranked, ids: Ids, count: int) -> Numbers:
    scores = np.zeros(count + 1)
    scores[ranked.ids] = ranked.scores
    return Numbers(scores[ids], flag_positions(ranked.ids, count + 1)[ids])


class _RankCall:
    """A compiled ranking call: its query text or vector, and its parameters."""

    def __init__(self, call: ir.Nearest | ir.Bm25) -> None:
        self.is_nearest = isinstance(call, ir.Nearest)
        self._query = compile_constant(call.query)
        self.column = (call.field.owner, call.field.property)
        self._dimension = call.field.type.dimension or 0
        self._model = call.model if isinstance(call, ir.Nearest) else None

    def rank(self, run: QueryRun, candidates: Ids, limit: int | None) -> Ranked:
        """Return the candidates that match, all when there is no `limit`."""
        query, entities = self._query(run), run.nodes(self.column[0])
        # An invalid query is an error even if there is nothing to rank.
        embedder = self._check(run, query) if self.is_nearest and query is not None else None
        if query is None or len(candidates) == 0:
            return Ranked(np.empty(0, entities.dtype), np.empty(0))
        among = None if len(candidates) == entities.count else entities.row_ids[candidates]
        if not self.is_nearest:
            rows, scores = bm25(run.view, *self.column, query, among, limit)
            return _rank_rows(entities, rows, scores, -scores, limit)
        vector = query if embedder is None else embedder.embed([query], self._dimension, Purpose.QUERY)[0]
        rows, distances = nearest(run.view, *self.column, vector, among, limit)
        return _rank_rows(entities, rows, distances, distances, limit)

    def _check(self, run: QueryRun, query: Any) -> Embedder | None:
        """Check the model that embeds a query text, and return it; or check a query vector."""
        if not isinstance(query, str):
            check_vector(query, self._dimension, self.column[1])
            return None
        embedder = run.embedder if run.embedder is not None else default_embedder(run.view)
        check_model(embedder, self._model)
        return embedder


def _rank_rows(entities: Entities, rows: RowIds, scores: Scores, keys: Scores, limit: int | None) -> Ranked:
    """Return the entities of the first rows; rows come in the order of their keys, of which the lowest is the best.

    Those of equal score are put in order, by id, only where it matters.
    """
    end = _end_of_ties(keys, limit)
    ids, scores, keys = entities.from_row_ids(rows[:end]), scores[:end], keys[:end]
    if len(ids) > 1 and not bool((keys[1:] > keys[:-1]).all()):
        entity_ids = entities.values("id", ids)
        assert isinstance(entity_ids, Strings)
        order = np.lexsort((string_ranks(entity_ids.array), keys))
        ids, scores = ids[order], scores[order]
    return Ranked(ids, scores).first(limit)


def _end_of_ties(keys: Scores, limit: int | None) -> int:
    """Return where the entities that tie with the last wanted one end."""
    if not limit or limit >= len(keys):
        return 0 if limit == 0 else len(keys)
    return int(np.searchsorted(keys, keys[limit - 1], "right"))
