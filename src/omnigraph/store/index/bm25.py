"""BM25: the relevance of documents to a query, from one set of statistics.

Pure. Whether an index or a scan finds the occurrences of a word, the score of a document is computed here, in one
order of operations, so that it is the same to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.store.index.text_analysis import analyse
from omnigraph.store.read.live_rows import RowIds

Scores: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[Any]

K1: Final = 1.2
B: Final = 0.75


@dataclass(frozen=True, slots=True)
class Statistics:
    """How many documents have a word at all, and how many words they have together."""

    documents: int
    words: int

    def weight(self, frequency: int) -> float:
        """Return the weight of a word by the number of documents that have it (its inverse document frequency)."""
        return math.log(1.0 + (self.documents - frequency + 0.5) / (frequency + 0.5))

    def norms(self, lengths: Counts) -> Scores:
        """Return the length normalisation of documents."""
        average = self.words / self.documents if self.documents else 1.0
        norms: Scores = K1 * (1.0 - B + B * (lengths.astype(np.float64) / average))
        return norms


def saturated(counts: Counts, norms: Scores) -> Scores:
    """Return the saturated frequencies of a word in documents, before the weight of the word."""
    wide = counts.astype(np.float64)
    worth: Scores = wide * (K1 + 1.0) / (wide + norms)
    return worth


def occurrences(worth: Scores, norms: Scores) -> Scores:
    """Return the inverse of `saturated`."""
    counts: Scores = norms * worth / (K1 + 1.0 - worth)
    return counts


def scores(
    statistics: Statistics,
    lengths: Counts,
    counts: Mapping[str, Counts],
    frequencies: Mapping[str, int],
    repeats: Mapping[str, int],
) -> Scores:
    """Return the scores of documents of these lengths, in which each word occurs so often.

    `frequencies` are the numbers of documents that hold a word, `repeats` how often the query asks for it.

    >>> found = scores(Statistics(2, 6), np.array([4, 2]), {"sea": np.array([2, 1])}, {"sea": 2}, {"sea": 1})
    >>> found.round(4).tolist()
    [0.2292, 0.2111]
    """
    norms = statistics.norms(lengths)
    total = np.zeros(len(lengths))
    # A fixed order of additions: floating-point sums depend on it, and equal documents must tie exactly.
    for word in sorted(counts):
        total += repeats[word] * statistics.weight(frequencies[word]) * saturated(counts[word], norms)
    return total


Ints: TypeAlias = NDArray[np.int32]


class Corpus:
    """The terms of some rows: an inverted index as arrays."""

    def __init__(self, rows: RowIds, texts: Any) -> None:
        """Analyse texts, given as one Arrow array of strings with nulls."""
        self.rows = rows
        analysis = analyse(texts)
        encoded = analysis.terms().dictionary_encode()
        self._vocabulary: dict[str, int] = {term: code for code, term in enumerate(encoded.dictionary.to_pylist())}
        codes = encoded.indices.to_numpy().astype(np.int64)[analysis.words]
        self.lengths: Ints = np.bincount(analysis.texts, minlength=len(rows)).astype(np.int32)
        # A posting is one integer, term * rows + row, so that sorting the integers sorts postings by term and then by
        # row.
        keys, counts = np.unique(codes * len(rows) + analysis.texts, return_counts=True)
        self._starts = np.searchsorted(keys, np.arange(len(self._vocabulary) + 1, dtype=np.int64) * len(rows))
        self._documents: Ints = (keys % max(len(rows), 1)).astype(np.int32)
        self._counts: Ints = counts.astype(np.int32)

    def occurrences(self, term: str) -> tuple[Ints, Ints]:
        """Return the positions of the rows that hold a term, in order, and how often each does."""
        code = self._vocabulary.get(term)
        span = slice(0, 0) if code is None else slice(self._starts[code], self._starts[code + 1])
        return self._documents[span], self._counts[span]

    @property
    def nbytes(self) -> int:
        arrays = (self.rows, self.lengths, self._starts, self._documents, self._counts)
        # A Python dictionary of words takes about this much for each of them.
        return sum(array.nbytes for array in arrays) + 120 * len(self._vocabulary)
