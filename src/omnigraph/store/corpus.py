"""Texts analysed in memory: which words occur in which of them, and how often.

The analyser is Lance's, so that a text has the same words here and in a full-text index. It is asked about distinct
words only: letters, digits and everything beyond ASCII belong to a word until the analyser says otherwise.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.store.live import RowIds

Ints: TypeAlias = NDArray[np.int32]

# Between words for certain, whatever the analyser takes for a letter beyond ASCII.
_SEPARATORS: Final = r"[\x00-/:-@\[-`{-\x7f]+"
# Stands between words while they are analysed; no text has it, and digits at the end leave nothing to stem.
_BOUNDARY: Final = f"q{secrets.randbelow(10**24):024}"
_ANALYSED_WORDS: Final = 65_536


def words_of(text: str) -> list[str]:
    """Return the words of a text as they are indexed.

    >>> words_of("The running Boats")
    ['run', 'boat']
    """
    return [token.text for token in lance.tokenize(text)]


def spellings(text: str) -> dict[str, str]:
    """Return the words of a text as they are indexed, each with a text that has this word alone.

    An analysed word need not be analysed to itself.
    """
    found: dict[str, str] = {}
    pieces = pc.split_pattern_regex(pa.array([text]), _SEPARATORS)[0].as_py()
    for piece in pieces:
        words = words_of(piece)
        if len(words) == 1:
            found.setdefault(words[0], piece)
        for word in words:
            if word not in found and words_of(word) == [word]:
                found[word] = word
    return found


def count_words(texts: Iterable[str | None]) -> list[Counter[str]]:
    """Return the words of a few texts with how often each occurs."""
    return [Counter(words_of(text or "")) for text in texts]


class Corpus:
    """The words of some rows: an inverted index as arrays."""

    def __init__(self, rows: RowIds, texts: Any) -> None:
        """Analyse texts, given as one Arrow array of strings with nulls."""
        self.rows = rows
        pieces: Any = pc.split_pattern_regex(pc.ascii_lower(texts.fill_null("")), _SEPARATORS)
        encoded = pieces.flatten().dictionary_encode()
        documents = np.repeat(np.arange(len(rows), dtype=np.int64), np.diff(pieces.offsets.to_numpy()))
        starts, codes, vocabulary = _analysed(encoded.dictionary.to_pylist())
        documents, codes = _spread(documents, encoded.indices.to_numpy(), starts, codes)
        self._vocabulary = {word: code for code, word in enumerate(vocabulary)}
        self.lengths: Ints = np.bincount(documents, minlength=len(rows)).astype(np.int32)
        keys, counts = np.unique(codes * len(rows) + documents, return_counts=True)
        self._starts = np.searchsorted(keys, np.arange(len(vocabulary) + 1, dtype=np.int64) * len(rows))
        self._documents: Ints = (keys % max(len(rows), 1)).astype(np.int32)
        self._counts: Ints = counts.astype(np.int32)

    def occurrences(self, word: str) -> tuple[Ints, Ints]:
        """Return the places of the rows that hold a word, in order, and how often each does."""
        code = self._vocabulary.get(word)
        span = slice(0, 0) if code is None else slice(self._starts[code], self._starts[code + 1])
        return self._documents[span], self._counts[span]

    @property
    def nbytes(self) -> int:
        arrays = (self.rows, self.lengths, self._starts, self._documents, self._counts)
        # A Python dictionary of words takes about this much for each of them.
        return sum(array.nbytes for array in arrays) + 120 * len(self._vocabulary)


def _analysed(pieces: Sequence[str]) -> tuple[Ints, NDArray[np.int64], list[str]]:
    """Return the codes of the words of each piece, one after the other, where those of each begin, and all words."""
    sizes: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]
    codes: list[NDArray[np.int64]] = []
    vocabulary: dict[str, int] = {}
    for start in range(0, len(pieces), _ANALYSED_WORDS):
        part = pieces[start : start + _ANALYSED_WORDS]
        words = words_of(f" {_BOUNDARY} ".join(part))
        numbers = np.fromiter(
            (-1 if word == _BOUNDARY else vocabulary.setdefault(word, len(vocabulary)) for word in words),
            np.int64,
            len(words),
        )
        ends = np.append(np.flatnonzero(numbers < 0), len(numbers))
        assert len(ends) == len(part), "every boundary between pieces is analysed as itself"
        sizes.append(np.diff(ends, prepend=-1) - 1)
        codes.append(numbers[numbers >= 0])
    starts = np.cumsum(np.concatenate(sizes)).astype(np.int32)
    return starts, np.concatenate([np.empty(0, np.int64), *codes]), list(vocabulary)


def _spread(documents: NDArray[np.int64], pieces: Ints, starts: Ints, codes: NDArray[np.int64]) -> Any:
    """Return document and code of every word, from document and piece of every piece."""
    sizes = np.diff(starts)[pieces]
    if sizes.max(initial=0) <= 1:
        kept = sizes == 1
        return documents[kept], codes[starts[:-1][pieces[kept]]]
    # The words of one piece follow each other, so the place of each is that of the first and a number.
    numbers = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.repeat(documents, sizes), codes[np.repeat(starts[:-1][pieces], sizes) + numbers]
