"""Text search on one pinned version: words, words within an edit distance, and BM25 over the rows that live there.

Occurrences of words come from the full-text index where it knows the rows, and from texts analysed in memory where it
does not; statistics and scores are computed from both together, so an index changes neither results nor scores. Typing
errors are looked up among the words that occur, because an index keeps stems and a stem is no measure of how a word was
misspelt.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock, RLock
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.limits import TEXT_CACHE_BYTES_MAX
from omnigraph.lru import LruCache
from omnigraph.store.index import text_analysis
from omnigraph.store.index.index_build import IndexKind, is_outdated, segments_of, unindexed_rows
from omnigraph.store.index.text_analysis import (
    Corpus,
    Ints,
    Scores,
    analyse,
    count_terms,
    spellings_of,
    terms_of,
    terms_of_spellings,
)
from omnigraph.store.index.text_occurrences import ROUNDING, IndexedTexts, Lengths, Unreadable, read_lengths
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.read.live_rows import Flags, LiveRows, Positions, RowIds, live_rows
from omnigraph.store.read.lookup import ROW_ID

Letters: TypeAlias = NDArray[np.uint32]


# Written here because it measured better: among 200,000 words a search takes 1 to 5 ms, with `rapidfuzz.process.cdist`
# 13 to 20 ms.
class Words:
    """Distinct words in the order of their lengths: those of one length are a matrix of letters, compared all at once.

    >>> words = Words(pa.array(["sea", "seas", "tee", "wind"]))
    >>> words.within("sea", 1), words.within("seat", 2), words.within("xyz", 2)
    (['sea', 'seas'], ['sea', 'seas'], [])
    """

    def __init__(self, words: Any) -> None:
        lengths = pc.utf8_length(words).to_numpy(zero_copy_only=False)
        order = np.argsort(lengths, kind="stable")
        self._words = words.take(pa.array(order))
        self._lengths = lengths[order].astype(np.int64)
        self._starts = np.concatenate([[0], np.cumsum(self._lengths)])
        joined = "".join(self._words.to_pylist())
        self._letters: Letters = np.frombuffer(joined.encode("utf-32-le"), np.uint32)

    def within(self, word: str, edits: int) -> list[str]:
        """Return the words within a number of edits, short ones first."""
        sought: Letters = np.frombuffer(word.encode("utf-32-le"), np.uint32)
        matches = [self._alike(sought, length, edits) for length in range(len(word) - edits, len(word) + edits + 1)]
        words: list[str] = self._words.take(pa.array(np.concatenate(matches))).to_pylist()
        return words

    def _alike(self, sought: Letters, length: int, edits: int) -> NDArray[np.int64]:
        first, last = np.searchsorted(self._lengths, [length, length + 1])
        if length < 1 or first == last:
            return np.empty(0, np.int64)
        letters = self._letters[self._starts[first] : self._starts[last]].reshape(-1, length)
        positions: NDArray[np.int64] = first + np.flatnonzero(_distances(letters, sought, edits) <= edits)
        return positions


def _distances(words: Letters, sought: Letters, edits: int) -> NDArray[np.int8]:
    """Return the distance of each word; larger distances count as one more than the edits.

    Levenshtein's dynamic programme in a band around the diagonal (Ukkonen), for all words of one length at once.
    """
    count, length = words.shape
    far = np.int8(edits + 1)
    # Row j holds the distances between what was seen of the sought word and the first j letters of each word; rows
    # further than the edits from the diagonal are always too far.
    rows = np.full((length + 1, count), far, np.int8)
    rows[: edits + 1] = np.arange(min(edits, length) + 1, dtype=np.int8)[:, None]
    for prefix, letter in enumerate(sought, 1):
        low, high = max(1, prefix - edits), min(length, prefix + edits)
        diagonal = rows[low - 1].copy()
        rows[low - 1] = prefix if low == 1 else far
        for column in range(low, high + 1):
            replaced = diagonal + (words[:, column - 1] != letter)
            diagonal = rows[column].copy()
            added = np.minimum(diagonal, rows[column - 1]) + np.int8(1)
            np.minimum(np.minimum(added, replaced), far, out=rows[column])
    return rows[length]


# Equal scores are frequent, so more than the limit are requested at once, and more again if that was too few.
_ASKED_MORE: Final = 64
_ASKED_AGAIN: Final = 8
_ASKED_MAX: Final = 65_536
# A term is rare if at most so many rows hold it; these are read once, and kept.
_RARE_MAX: Final = 65_536
# Up to this many matches of rare terms are all scored, which takes less time than asking the index for the best.
_SCORED_MAX: Final = 16_384
# A query of more different words is answered from the texts: asking an index for each of them would take longer.
_INDEXED_WORDS_MAX: Final = 64
# Up to this many documents all that match are scored; that asks the index once for each word, and later not at all.
_SCORED_DOCUMENTS_MAX: Final = 65_536
_SHORT_TEXT_MAX: Final = 1_024
# Occurrences that are kept for the next query on the same version.
_KEPT_OCCURRENCES_MAX: Final = 4_000_000

_NO_ROWS: Final[RowIds] = np.empty(0, np.uint64)

# Indexes, and words of each, whose frequencies are kept.
_KEPT_FREQUENCIES_MAX: Final = 16
_KEPT_WORDS_MAX: Final = 100_000

# Rows by position, in order, with how often each holds a word.
Occurrences: TypeAlias = tuple[Positions, Ints]


@dataclass(frozen=True, slots=True)
class Hits:
    """Rows that match, best first, and their scores; equal scores are in row id order."""

    rows: RowIds
    scores: Scores


NO_HITS: Final = Hits(_NO_ROWS, np.empty(0, np.float64))


def describe_texts(dataset: Dataset, column: str) -> str:
    """Describe how the texts of a column would be searched; reads metadata only."""
    if is_outdated(dataset, column):
        return "in memory, since another analyser built the index; run `omnigraph optimize`"
    unknown = unindexed_rows(dataset, column, IndexKind.FULLTEXT)
    if unknown == 0:
        return "by the index"
    is_indexed = unknown < dataset.count()
    return f"by the index, {unknown} entities that it does not know in memory" if is_indexed else "in memory"


class TextCache:
    """Analysed texts of fragments, and lengths that segments of indexes hold: neither depends on a version."""

    def __init__(self, bytes_max: int = TEXT_CACHE_BYTES_MAX) -> None:
        self.entries: LruCache[Hashable, Any] = LruCache(sys.maxsize, bytes_max)
        self._frequencies: LruCache[frozenset[str], dict[str, int]] = LruCache(_KEPT_FREQUENCIES_MAX)

    def frequencies(self, segments: frozenset[str]) -> dict[str, int]:
        """Return how many rows hold a word, of the words that were asked for, while all rows of some segments live."""
        cached = self._frequencies.get_or_create(segments, dict)
        if len(cached) > _KEPT_WORDS_MAX:
            cached.clear()
        return cached


def distinct_words(text: str) -> list[str]:
    """Return the distinct whole words of a text, without stop words."""
    words: list[str] = spellings_of(pa.array([text])).to_pylist()
    return words


@lru_cache(256)
def _short_terms(text: str) -> tuple[str, ...]:
    """Return the terms of a query; pages of one result ask for them again, and they take as long as the search."""
    return tuple(terms_of(text))


class TextSearch:
    """How to search one column of one pinned version."""

    def __init__(self, dataset: Dataset, column: str, cache: TextCache | None = None) -> None:
        self._dataset = dataset
        self._column = column
        self._cache = cache or TextCache()
        self._live = live_rows(dataset)
        self._lock = RLock()
        self._vocabulary: Words | None = None
        self._indexed = self._index()
        self._prepared: _Texts | None = None

    def search(self, text: str, candidates: RowIds | None = None, limit: int | None = None) -> Hits:
        """Return the rows that hold any word of the text, among the candidates if there are any, best first.

        Rows as good as the last one within the limit come along, so that the caller can break the tie.
        """
        repeats = Counter(_short_terms(text) if len(text) <= _SHORT_TEXT_MAX else terms_of(text))
        if not repeats or limit == 0 or (candidates is not None and len(candidates) == 0):
            return NO_HITS
        is_indexed = len(repeats) <= _INDEXED_WORDS_MAX
        flags = None if candidates is None else self._flags(candidates)
        if is_indexed and limit:
            best: Hits | None = self._attempt(lambda texts: texts.best(repeats, limit, flags))
            if best is not None:
                return best
        scored = self._attempt(lambda texts: texts.scored(repeats)) if is_indexed else None
        positions, scores = scored or self._unindexed().scored(repeats)
        if flags is not None:
            positions, scores = positions[flags[positions]], scores[flags[positions]]
        return _best(self._live.ids[positions], scores, limit)

    def _flags(self, rows: RowIds) -> Flags:
        """Return which positions are those of some rows."""
        positions = self._live.positions(rows)
        flags = np.zeros(len(self._live.ids), np.bool_)
        flags[positions[positions >= 0]] = True
        return flags

    def matches(self, text: str) -> RowIds:
        """Return the rows that hold any word of the text."""
        return self._holding(set(terms_of(text)))

    def _holding(self, terms: Collection[str]) -> RowIds:
        positions = self._texts().matches(sorted(terms)) if terms else np.empty(0, np.intp)
        return self._live.ids[positions]

    def matches_misspelt(self, text: str, edits: int, check: Callable[[], None] = lambda: None) -> RowIds:
        """Return the rows that hold a word within a number of edits of any word of the text.

        `check` is called before each word is compared with all that occur, and may raise.
        """
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = Words(spellings_of(_one_array(self._read().column(self._column))))
        near: set[str] = set()
        for sought in distinct_words(text):
            check()
            near.update(self._vocabulary.within(sought, edits))
        words = sorted(near)
        # Rows are known by terms: those propose every row with a form of these words, and the words themselves decide.
        rows = self._holding(terms_of_spellings(words))
        return rows[self._holds_any(rows, words)] if len(rows) else rows

    def _holds_any(self, rows: RowIds, words: Sequence[str]) -> NDArray[np.bool_]:
        """Return which rows hold one of some words as it is written."""
        analysis = analyse(_one_array(self._dataset.take(rows.tolist(), [self._column]).column(self._column)))
        is_sought = pc.is_in(analysis.spellings, value_set=pa.array(list(words), analysis.spellings.type))
        holds = np.zeros(len(rows), np.bool_)
        holds[analysis.texts[is_sought.to_numpy(zero_copy_only=False)[analysis.words]]] = True
        return holds

    def _attempt(self, ask: Any) -> Any:
        """Query with the index as long as it can be read; without it afterwards."""
        try:
            return ask(self._texts())
        except Unreadable:
            self._unindexed()
            return None

    def _texts(self) -> _Texts:
        with self._lock:
            if self._prepared is None:
                self._prepared = self._assembled(self._indexed)
            return self._prepared

    def _unindexed(self) -> _Texts:
        with self._lock:
            if self._prepared is None or self._prepared.indexed is not None:
                self._prepared = self._assembled(None)
            return self._prepared

    def _assembled(self, indexed: IndexedTexts | None) -> _Texts:
        corpora = []
        for fragment in self._dataset.fragments:
            span = self._live.span(fragment.id)
            if indexed is None or not indexed.known[span].all():
                corpora.append(self._corpus(fragment, span))
        is_whole = indexed is not None and not corpora and not indexed.has_gone_rows
        frequencies = self._cache.frequencies(indexed.segments) if indexed is not None and is_whole else {}
        return _Texts(self._dataset, self._column, self._live, indexed, corpora, frequencies)

    def _corpus(self, fragment: Any, span: slice) -> Corpus:
        """Analyse the texts of a fragment; of an older one of the same files only rows may have gone since."""
        number = self._dataset.field_ids[self._column]
        key = (self._dataset.ref.path, number, *(file.path for file in fragment.files))
        corpus: Corpus | None = self._cache.entries.get(key)
        if corpus is None or not np.isin(self._live.ids[span], corpus.rows, assume_unique=True).all():
            texts = self._read({fragment.id})
            corpus = Corpus(texts.column(ROW_ID).to_numpy(), _one_array(texts.column(self._column)))
            self._cache.entries.put(key, corpus, corpus.nbytes)
        return corpus

    def _read(self, fragment_ids: Collection[int] | None = None) -> pa.Table:
        with self._dataset.reading(f"reading `{self._column}` of {self._dataset.ref}"):
            return self._dataset.scanner([self._column], fragment_ids, with_row_id=True).to_table()

    def _index(self) -> IndexedTexts | None:
        segments = {}
        try:
            for segment, covered in segments_of(self._dataset, self._column, IndexKind.FULLTEXT):
                lengths: Lengths | None = self._cache.entries.get(segment.uuid)
                if lengths is None:
                    lengths = read_lengths(self._dataset, segment)
                    self._cache.entries.put(segment.uuid, lengths, lengths.nbytes)
                segments[segment.uuid] = (lengths, covered)
        except Unreadable:
            return None
        return IndexedTexts(self._dataset, self._column, self._live, segments) if segments else None


class _Texts:
    """All texts of a version: those that an index knows, and those in memory, as one collection."""

    def __init__(
        self,
        dataset: Dataset,
        column: str,
        live: LiveRows,
        indexed: IndexedTexts | None,
        corpora: Sequence[Corpus],
        frequencies: dict[str, int],
    ) -> None:
        """Take texts that an index knows, and others; `frequencies` are those of words, if the index is whole."""
        self._dataset = dataset
        self._column = column
        self._live = live
        self.indexed = indexed
        self._lengths = np.zeros(len(live.ids), np.int32) if indexed is None else indexed.lengths.copy()
        # Where each row in memory is among the positions; -1 for those that are gone, or known to the index.
        self._parts = []
        for corpus in corpora:
            positions = live.positions(corpus.rows)
            if indexed is not None:
                positions[np.append(indexed.known, False)[positions]] = -1
            self._lengths[positions[positions >= 0]] = corpus.lengths[positions >= 0]
            self._parts.append((corpus, positions))
        self._statistics = text_analysis.Statistics(
            int(np.count_nonzero(self._lengths)), int(self._lengths.sum(dtype=np.int64))
        )
        self._cached: dict[str, Occurrences] = {}
        self._frequent: set[str] = set()
        self._frequencies = frequencies
        self._lock = Lock()

    def matches(self, terms: Sequence[str]) -> Positions:
        unindexed = self._unindexed_matches(terms)
        return unindexed if self.indexed is None else np.union1d(unindexed, self.indexed.matches(terms))

    def scored(self, repeats: Counter[str]) -> tuple[Positions, Scores]:
        """Return the positions of all rows that match, and their scores."""
        occurrences = {term: self._occurrences(term) for term in repeats}
        # Runs in order sort faster than `unique` hashes them.
        matching = np.sort(np.concatenate([positions for positions, _ in occurrences.values()]), kind="stable")
        matching = matching[np.append(np.diff(matching) > 0, True)[: len(matching)]]
        counts = {}
        for term, (positions, numbers) in occurrences.items():
            counts[term] = np.zeros(len(matching), np.int32)
            counts[term][np.searchsorted(matching, positions)] = numbers
        frequencies = {term: len(positions) for term, (positions, _) in occurrences.items()}
        lengths = self._lengths[matching]
        return matching, text_analysis.scores(self._statistics, lengths, counts, frequencies, repeats)

    def best(self, repeats: Counter[str], limit: int, flags: Flags | None) -> Hits | None:
        """Return the best hits, of the flagged rows if there are flags, without scoring all that match.

        None when there are few enough to score them all, or the index cannot find the best. Otherwise the index
        proposes by its own scores, of single precision and from what it was built on; those of the proposed rows are
        computed again.
        """
        if self.indexed is None or self._statistics.documents <= _SCORED_DOCUMENTS_MAX:
            return None
        rare = [term for term in repeats if self._is_rare(term)]
        if len(rare) == len(repeats) and sum(len(self._occurrences(term)[0]) for term in rare) <= _SCORED_MAX:
            return None
        frequencies = self._frequencies_of(repeats)
        ratio = 1.0 if self._is_whole else self.indexed.score_ratio(self._statistics, frequencies)
        unindexed = self._unindexed_matches(repeats)
        share = 1.0 if flags is None else max(int(np.count_nonzero(flags)), 1) / len(flags)
        requested = int((limit + max(limit // 2, _ASKED_MORE)) / share)
        while requested <= _ASKED_MAX:
            answer = self.indexed.best(repeats.elements(), requested)
            positions = np.concatenate([answer.positions, unindexed])
            if flags is not None:
                positions = positions[flags[positions]]
            scores = self._rescored(positions, repeats, frequencies)
            hits = _best(self._live.ids[positions], scores, limit)
            # What was not proposed is worse for certain only if it is worse than the last of the best by more than
            # what single precision may hide.
            bound = answer.least * ratio * (1.0 + 2 * ROUNDING * len(repeats))
            if answer.total < requested or (len(hits.scores) >= limit and hits.scores[-1] > bound):
                return hits
            requested *= _ASKED_AGAIN
        return None

    @property
    def _is_whole(self) -> bool:
        """Whether the index knows all rows, and no others."""
        return self.indexed is not None and not self._parts and not self.indexed.has_gone_rows

    def _is_rare(self, term: str) -> bool:
        """Whether few rows hold a term, which are then known; of an index that is not whole all are read once."""
        if term in self._frequent:
            return False
        if term not in self._cached and self._is_whole:
            assert self.indexed is not None
            occurrences = self.indexed.occurrences(term, _RARE_MAX)
            if occurrences is None:
                self._frequent.add(term)
                return False
            self._keep(term, occurrences)
        return True

    def _unindexed_matches(self, terms: Iterable[str]) -> Positions:
        """Return the rows that hold any of the terms, of those that the index does not know."""
        matching = [positions[corpus.occurrences(term)[0]] for term in terms for corpus, positions in self._parts]
        positions = np.unique(np.concatenate([np.empty(0, np.intp), *matching]))
        return positions[positions >= 0]

    def _rescored(self, positions: Positions, repeats: Counter[str], frequencies: dict[str, int]) -> Scores:
        frequent = [term for term in repeats if term in self._frequent]
        counts: dict[str, Ints] = {}
        if frequent:
            texts = self._dataset.take(self._live.ids[positions].tolist(), [self._column]).column(self._column)
            counts = count_terms(_one_array(texts), frequent)
        for term in repeats.keys() - counts.keys():
            counts[term] = _counts_at(positions, *self._occurrences(term))
        return text_analysis.scores(self._statistics, self._lengths[positions], counts, frequencies, repeats)

    def _frequencies_of(self, repeats: Counter[str]) -> dict[str, int]:
        assert self.indexed is not None
        for term in repeats:
            if term not in self._frequencies:
                number = self.indexed.frequency(term) if term in self._frequent else None
                self._frequencies[term] = len(self._occurrences(term)[0]) if number is None else number
        return {term: self._frequencies[term] for term in repeats}

    def _occurrences(self, term: str) -> Occurrences:
        cached = self._cached.get(term)
        if cached is not None:
            return cached
        parts = []
        if self.indexed is not None and (indexed := self.indexed.occurrences(term)) is not None:
            parts.append(indexed)
        for corpus, positions in self._parts:
            documents, counts = corpus.occurrences(term)
            is_here = positions[documents] >= 0
            parts.append((positions[documents[is_here]], counts[is_here]))
        rows = np.concatenate([np.empty(0, np.intp), *(part for part, _ in parts)])
        counts = np.concatenate([np.empty(0, np.int32), *(numbers for _, numbers in parts)])
        order = np.argsort(rows, kind="stable")
        return self._keep(term, (rows[order], counts[order]))

    def _keep(self, term: str, occurrences: Occurrences) -> Occurrences:
        with self._lock:
            total = sum(len(part) for part, _ in self._cached.values()) + len(occurrences[0])
            if total > _KEPT_OCCURRENCES_MAX:
                self._cached.clear()
            self._cached[term] = occurrences
        return occurrences


def _counts_at(positions: Positions, holders: Positions, numbers: Ints) -> Ints:
    """Return how often rows hold a term, of which the holders are known in order."""
    if len(holders) == 0:
        return np.zeros(len(positions), np.int32)
    places = np.minimum(np.searchsorted(holders, positions), len(holders) - 1)
    return np.where(holders[places] == positions, numbers[places], 0).astype(np.int32)


def _best(rows: RowIds, scores: Scores, limit: int | None) -> Hits:
    """Return the best in order, and all that are as good as the last of them."""
    if limit is not None and limit < len(rows):
        kept = np.flatnonzero(scores >= np.partition(scores, len(scores) - limit)[len(scores) - limit])
        rows, scores = rows[kept], scores[kept]
    order = np.lexsort((rows, -scores))
    return Hits(rows[order], scores[order])


def _one_array(column: Any) -> Any:
    """Return a column as one array; texts beyond what 32-bit offsets reach get wide ones."""
    if column.nbytes > 2**31 - 2**20:
        column = column.cast(pa.large_string())
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
