"""Occurrences of terms at a pinned version, from the segments of a full-text index and without deleted rows.

Lance answers scores, computed from all it ever indexed, deleted rows included. A score of one term shows how often a
row holds it, once the length of the row is known and the weight of the term: lengths lie in the index, and the weight
follows from the number of rows that hold the term, or from one row whose text is read. So the caller can compute scores
from the rows that live.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from lance.dataset import Index
from lance.query import MatchQuery

from omnigraph.store.index import text_analysis
from omnigraph.store.index.index_build import open_files
from omnigraph.store.index.text_analysis import Ints, count_terms
from omnigraph.store.read.dataset import Dataset, lance_errors
from omnigraph.store.read.live_rows import Flags, LiveRows, Positions, RowIds
from omnigraph.store.read.lookup import ROW_ID

_SCORE: Final = "_score"
_LENGTH: Final = "_num_tokens"
# Scores are of single precision: how far one may be off, as a part of itself.
ROUNDING: Final = 2e-6
# A count that is farther from an integer than this, rounding aside, was not computed by the formula that we invert.
_OFF_MAX: Final = 0.1


class Unreadable(Exception):
    """The index cannot answer; the texts have to be read."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """The rows of one segment that have words, and how many each."""

    rows: RowIds
    counts: Ints

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.counts.nbytes


def read_lengths(dataset: Dataset, segment: Index) -> Lengths:
    """Read the lengths of all rows that a segment was built on; they never change."""
    folder = f"_indices/{segment.uuid}"
    with lance_errors(f"reading an index of {dataset.ref}", dataset):
        session = open_files(dataset, segment)
        names = sorted(name for name in session.list(folder) if name.endswith("_docs.lance"))
        parts = [session.open_reader(name, columns=[ROW_ID, _LENGTH]).read_all().to_table() for name in names]
    if not parts:
        raise Unreadable
    dataset.store.meter.count("search", str(dataset.ref))
    table = pa.concat_tables(parts)
    return Lengths(table.column(ROW_ID).to_numpy(), table.column(_LENGTH).to_numpy().astype(np.int32))


class Answer(NamedTuple):
    """What the index answered: how many rows, with which least score, and those of them that are known here."""

    total: int
    least: float
    positions: Positions
    scores: text_analysis.Scores


class IndexedTexts:
    """The segments of one column's index, seen from one version."""

    def __init__(
        self, dataset: Dataset, column: str, live: LiveRows, segments: Mapping[str, tuple[Lengths, frozenset[int]]]
    ) -> None:
        """Take by segment the lengths that it knows, and the fragments whose rows it knows."""
        self.segments = frozenset(segments)
        self._dataset = dataset
        self._column = column
        self._live = live
        self.known: Flags = live.in_fragments(frozenset().union(*(covered for _, covered in segments.values())))
        self.lengths = np.zeros(len(live.ids), np.int32)
        segment_counts = np.zeros(len(live.ids), np.int8)
        documents = 0
        for lengths, covered in segments.values():
            documents += len(lengths.rows)
            positions = live.positions(lengths.rows)
            np.add.at(segment_counts, positions[positions >= 0], 1)
            is_known = np.append(live.in_fragments(covered), False)[positions]
            self.lengths[positions[is_known]] = lengths.counts[is_known]
        # Results do not distinguish two texts that segments hold of the same row.
        self.known &= segment_counts < 2
        self.lengths[~self.known] = 0
        words = sum(int(lengths.counts.sum(dtype=np.int64)) for lengths, _ in segments.values())
        self._built_on = text_analysis.Statistics(documents, words)
        # What the index weighs a term with, of those whose occurrences were asked for.
        self._weights: dict[str, float] = {}
        # The last one is what a row that is gone, at position -1, reads.
        self._is_known = np.append(self.lengths > 0, False)
        self.has_gone_rows = int(np.count_nonzero(self.lengths)) < documents

    def matches(self, terms: Iterable[str]) -> Positions:
        """Return the rows that hold any of some terms, in order."""
        return np.unique(self._search(terms, None).positions)

    def occurrences(self, term: str, most: int | None = None) -> tuple[Positions, Ints] | None:
        """Return the rows that hold a term, in order, and how often each does; None if there are more than `most`."""
        answer = self._search([term], None if most is None else most + 1)
        if most is not None and answer.total > most:
            return None
        order = np.argsort(answer.positions, kind="stable")
        positions, scores = answer.positions[order], answer.scores[order]
        if len(positions) == 0:
            return positions, np.empty(0, np.int32)
        norms = self._built_on.norms(self.lengths[positions])
        # Invert BM25: score = weight * saturated(count, norm), and `saturated` is strictly increasing in the count.
        self._weights[term] = weight = self._weight(term, positions, scores, norms, is_whole=True)
        worth = scores / weight
        with np.errstate(all="ignore"):
            exact = text_analysis.occurrences(worth, norms)
            counts = np.rint(exact)
            doubt = ROUNDING * exact * (exact + norms) / norms
        if not bool((np.abs(exact - counts) <= _OFF_MAX + doubt)[np.isfinite(doubt)].all()):
            raise Unreadable
        # Where a term is very frequent within a text, one more or less hardly shows in the score.
        unclear = np.flatnonzero(~(doubt < _OFF_MAX))
        counts[unclear] = self._counted(term, positions[unclear])
        return positions, counts.astype(np.int32)

    def best(self, terms: Iterable[str], limit: int) -> Answer:
        """Return the best rows by the scores of the index, of which some may be gone since."""
        return self._search(terms, limit)

    def score_ratio(self, statistics: text_analysis.Statistics, frequencies: Mapping[str, int]) -> float:
        """Return how many times its score in the index the score of a row may be at most, by newer statistics.

        Scores are sums over terms, so no ratio is larger than that of some term: of its weights, and of how lengths
        are normalised, where a longer average length is worth at most as many times as much.
        """
        weights = {term: self._weights[term] for term in frequencies if term in self._weights}
        heavier = [statistics.weight(frequencies[term]) / weight for term, weight in weights.items()]
        longer = (statistics.words / statistics.documents) / (self._built_on.words / self._built_on.documents)
        return max(heavier, default=1.0) * max(longer, 1.0)

    def frequency(self, term: str) -> int | None:
        """Return how many of the rows that the index was built on hold a term; None if that is not certain."""
        _, _, positions, scores = self._search([term], 1)
        if len(positions) == 0:
            return 0
        weight = self._weight(term, positions, scores, self._built_on.norms(self.lengths[positions]), is_whole=False)
        frequency = (self._built_on.documents + 1.0) / float(np.exp(weight)) - 0.5
        is_certain = frequency * max(weight, 1.0) * ROUNDING < _OFF_MAX
        return round(frequency) if is_certain and abs(frequency - round(frequency)) < 2 * _OFF_MAX else None

    def _weight(self, term: str, positions: Positions, scores: Any, norms: Any, *, is_whole: bool) -> float:
        """Return the weight of a term in the scores of an answer, from the shortest row in it."""
        if is_whole and not self.has_gone_rows:
            return self._built_on.weight(len(positions))
        shortest = int(np.argmin(self.lengths[positions]))
        [count] = (
            [1] if self.lengths[positions[shortest]] == 1 else self._counted(term, positions[shortest : shortest + 1])
        )
        if count == 0:
            raise Unreadable
        return float(scores[shortest] / text_analysis.saturated(np.array([count]), norms[shortest : shortest + 1])[0])

    def _counted(self, term: str, positions: Positions) -> Ints:
        if len(positions) == 0:
            return np.empty(0, np.int32)
        texts = self._dataset.take(self._live.ids[positions].tolist(), [self._column]).column(self._column)
        return count_terms(texts.combine_chunks(), [term])[term]

    def _search(self, terms: Iterable[str], limit: int | None) -> Answer:
        """Query the index; rows that it does not cover are left out."""
        with self._dataset.reading(f"searching `{self._column}` of {self._dataset.ref}", counted_as="search"):
            table = self._dataset.lance.scanner(
                columns=[_SCORE],
                full_text_query=MatchQuery(" ".join(terms), self._column),
                limit=limit,
                with_row_id=True,
                fast_search=True,
            ).to_table()
        positions = self._live.positions(table.column(ROW_ID).to_numpy().astype(np.uint64, copy=False))
        scores = table.column(_SCORE).to_numpy().astype(np.float64)
        kept = self._is_known[positions]
        return Answer(table.num_rows, float(scores.min(initial=np.inf)), positions[kept], scores[kept])
