"""Text search on one pinned version: its full-text index where that is right, an index in memory where it is not.

Both analyse text alike, so an entity is found or not whether or not the column is indexed; only scores may differ
slightly while an index lags behind the data. Typing errors are looked up among the words that occur, because an index
keeps stems and a stem is no measure of how a word was misspelt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import Any, Final, TypeAlias

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.dataset import serialize_row_addrs
from lance.query import MatchQuery
from numpy.typing import NDArray

from omnigraph.store.dataset import Dataset, lance_errors
from omnigraph.store.fields import field_ids
from omnigraph.store.index import IndexKind
from omnigraph.store.spelling import Words

RowIds: TypeAlias = NDArray[np.uint64]
Scores: TypeAlias = NDArray[np.float64]

# Up to this many candidates Lance is told where to look; above it, telling costs more than looking everywhere.
TOLD_ROWS_MAX: Final = 10_000

# Equal scores are frequent, so more are asked for at once than are wanted, and far more if that was too few.
_ASKED_MORE: Final = 4

_ROW_ID: Final = "_rowid"
_SCORE: Final = "_score"
_TEXT: Final = "text"
_BETWEEN_WORDS: Final = r"[^\p{L}\p{N}\p{M}]+"
_MOVED: Final = "_row_last_updated_at_version > _row_created_at_version"
_NO_ROWS: Final[RowIds] = np.empty(0, np.uint64)
_NO_TEXTS: Final = pa.table({_TEXT: pa.array([], pa.string()), _ROW_ID: pa.array([], pa.uint64())})
_names: Final = count()


@dataclass(frozen=True, slots=True)
class Hits:
    """Rows that match, best first, and their scores; equal scores are in row id order."""

    rows: RowIds
    scores: Scores

    def among(self, candidates: RowIds) -> Hits:
        keep = np.isin(self.rows, candidates)
        return Hits(self.rows[keep], self.scores[keep])

    def without(self, rows: RowIds) -> Hits:
        keep = ~np.isin(self.rows, rows)
        return Hits(self.rows[keep], self.scores[keep])

    def joined(self, other: Hits) -> Hits:
        return _ranked(np.concatenate([self.rows, other.rows]), np.concatenate([self.scores, other.scores]))

    def best(self, limit: int | None) -> Hits:
        """Return the best, and all that are as good as the last of them."""
        if limit is None or limit >= len(self.rows):
            return self
        end = int(np.searchsorted(-self.scores, -self.scores[limit - 1], "right")) if limit else 0
        return Hits(self.rows[:end], self.scores[:end])


NO_HITS: Final = Hits(_NO_ROWS, np.empty(0, np.float64))


class MemoryIndex:
    """A full-text index of some texts, in memory; it is gone with the last reference."""

    def __init__(self, texts: pa.Table, **options: Any) -> None:
        self._rows = _row_ids(texts)
        if texts.num_rows == 0:
            return
        with lance_errors("indexing text in memory"):
            self._lance = lance.write_dataset(texts.select([_TEXT]), f"memory://text-{next(_names)}")
            self._lance.create_scalar_index(_TEXT, "INVERTED", with_position=False, **options)

    def search(self, text: str) -> Hits:
        if len(self._rows) == 0:
            return NO_HITS
        query = MatchQuery(text, _TEXT)
        with lance_errors("searching text in memory"):
            # Without stable row ids and with one fragment, a row id is the position of the text.
            found = self._lance.to_table(columns=[_SCORE], full_text_query=query, with_row_id=True)
        return _ranked(self._rows[_row_ids(found)], _scores(found))


class Vocabulary:
    """The distinct words of a column, to be asked for those that resemble a given one."""

    def __init__(self, texts: pa.Table) -> None:
        self._words = Words(_words(texts.column(_TEXT).combine_chunks()))

    def similar(self, text: str, edits: int) -> str:
        """Return a text of all words that are within so many edits of any word of the given one."""
        sought = _words(pa.array([text])).to_pylist()
        return " ".join(sorted({word for one in sought for word in self._words.within(one, edits)}))


def _words(texts: Any) -> Any:
    """Return the distinct words of texts, in lower case."""
    words: Any = pc.unique(pc.list_flatten(pc.split_pattern_regex(pc.utf8_lower(texts), _BETWEEN_WORDS)))
    return words.filter(pc.not_equal(words, pa.scalar("")))


class TextSearch:
    """How to search one column of one pinned version: which index, and what it does not know."""

    def __init__(self, dataset: Dataset, column: str) -> None:
        self._dataset = dataset
        self._column = column
        self._segments = _segments(dataset, column)
        self._lock = Lock()
        self._extra: MemoryIndex | None = None
        self._vocabulary: Vocabulary | None = None
        # Segments of different ages can both know a row that was rewritten in between, and Lance then finds it by
        # its old text too. Such rows are searched in memory.
        self._moved = self._moved_rows() if len(self._segments) > 1 else _NO_ROWS
        self._is_complete = len(self._segments) == 1 and self._covered() >= {one.id for one in dataset.fragments}

    def search(self, text: str, candidates: RowIds | None = None, limit: int | None = None) -> Hits:
        """Return the rows that hold any word of the text, among the candidates if there are any, best first.

        Rows as good as the last one within the limit come along, so that the caller can break the tie.
        """
        if self._is_complete and candidates is None and limit:
            return self._best_indexed(text, limit)
        if not self._segments:
            hits = self._unknown().search(text)
        elif len(self._segments) == 1:
            # Lance scans what one segment does not cover with the same analyser.
            hits = self._indexed(text, candidates, None, fast_search=False)
        else:
            known = self._indexed(text, candidates, None, fast_search=True).without(self._moved)
            hits = known.joined(self._unknown().search(text))
        if candidates is not None:
            hits = hits.among(candidates)
        return hits.best(limit)

    def _best_indexed(self, text: str, limit: int) -> Hits:
        asked = _ASKED_MORE * limit + _ASKED_MORE
        while True:
            hits = self._indexed(text, None, asked, fast_search=True)
            best = hits.best(limit)
            # What is cut off is worse for certain only if something worse was seen.
            if len(hits.rows) < asked or len(best.rows) < len(hits.rows):
                return best
            asked *= _ASKED_MORE**2

    def search_misspelt(self, text: str, edits: int) -> Hits:
        """Return the rows that hold a word within so many edits of any word of the text."""
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = Vocabulary(self._texts(lambda fragment: True))
        return self.search(self._vocabulary.similar(text, edits))

    def _indexed(self, text: str, candidates: RowIds | None, limit: int | None, *, fast_search: bool) -> Hits:
        is_told = candidates is not None and len(candidates) <= TOLD_ROWS_MAX
        if candidates is not None and len(candidates) == 0:
            return NO_HITS
        self._dataset.store.meter.count("search", str(self._dataset.ref))
        with lance_errors(f"searching `{self._column}` of {self._dataset.ref}", self._dataset):
            found = self._dataset.lance.scanner(
                columns=[_SCORE],
                full_text_query=MatchQuery(text, self._column),
                limit=limit,
                with_row_id=True,
                fast_search=fast_search,
                row_addr_allowlist=serialize_row_addrs(candidates.tolist())
                if is_told and candidates is not None
                else None,
            ).to_table()
        return _ranked(_row_ids(found), _scores(found))

    def _unknown(self) -> MemoryIndex:
        """Index what the built index does not know, or knows wrongly, once per version."""
        with self._lock:
            if self._extra is None:
                self._extra = MemoryIndex(self._unknown_texts())
            return self._extra

    def _unknown_texts(self) -> pa.Table:
        covered = self._covered()
        parts = [self._texts(lambda fragment: fragment not in covered)]
        if len(self._moved):
            parts.append(self._texts(lambda fragment: fragment in covered, _MOVED))
        return pa.concat_tables(parts)

    def _texts(self, is_wanted: Callable[[int], bool], filter_: str | None = None) -> pa.Table:
        fragments = [one for one in self._dataset.lance.get_fragments() if is_wanted(one.fragment_id)]
        if not fragments:
            return _NO_TEXTS
        self._dataset.store.meter.count("scan", str(self._dataset.ref))
        with lance_errors(f"reading `{self._column}` of {self._dataset.ref}", self._dataset):
            found = self._dataset.lance.scanner(
                columns=[self._column], filter=filter_, fragments=fragments, with_row_id=True
            ).to_table()
        return found.select([self._column, _ROW_ID]).rename_columns([_TEXT, _ROW_ID]).cast(_NO_TEXTS.schema)

    def _moved_rows(self) -> RowIds:
        covered = self._covered()
        fragments = [one for one in self._dataset.lance.get_fragments() if one.fragment_id in covered]
        with lance_errors(f"reading {self._dataset.ref}", self._dataset):
            found = self._dataset.lance.scanner(
                columns=[], filter=_MOVED, fragments=fragments, with_row_id=True
            ).to_table()
        return _row_ids(found)

    def _covered(self) -> set[int]:
        return {fragment for segment in self._segments for fragment in segment}


def _segments(dataset: Dataset, column: str) -> list[frozenset[int]]:
    """Return the fragments of every segment of the column's full-text index."""
    number = field_ids(dataset.lance.lance_schema)[column]
    with lance_errors(f"listing the indexes of {dataset.ref}"):
        indexes: Iterable[Any] = dataset.lance.describe_indices()
        return [
            frozenset(segment.fragment_ids)
            for index in indexes
            if index.index_type.lower() == IndexKind.FULLTEXT.lower() and list(index.fields) == [number]
            for segment in index.segments
        ]


def _ranked(rows: RowIds, scores: Scores) -> Hits:
    order = np.lexsort((rows, -scores))
    return Hits(rows[order], scores[order])


def _row_ids(table: pa.Table) -> RowIds:
    return table.column(_ROW_ID).to_numpy().astype(np.uint64, copy=False)


def _scores(table: pa.Table) -> Scores:
    return table.column(_SCORE).to_numpy().astype(np.float64)
