"""Texts analysed in memory: which terms occur in which of them, and how often."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.store.analyser import analyse
from omnigraph.store.live import RowIds

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
        keys, counts = np.unique(codes * len(rows) + analysis.texts, return_counts=True)
        self._starts = np.searchsorted(keys, np.arange(len(self._vocabulary) + 1, dtype=np.int64) * len(rows))
        self._documents: Ints = (keys % max(len(rows), 1)).astype(np.int32)
        self._counts: Ints = counts.astype(np.int32)

    def occurrences(self, term: str) -> tuple[Ints, Ints]:
        """Return the places of the rows that hold a term, in order, and how often each does."""
        code = self._vocabulary.get(term)
        span = slice(0, 0) if code is None else slice(self._starts[code], self._starts[code + 1])
        return self._documents[span], self._counts[span]

    @property
    def nbytes(self) -> int:
        arrays = (self.rows, self.lengths, self._starts, self._documents, self._counts)
        # A Python dictionary of words takes about this much for each of them.
        return sum(array.nbytes for array in arrays) + 120 * len(self._vocabulary)
