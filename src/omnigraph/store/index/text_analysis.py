"""How a text becomes terms that are searched for, and BM25, the relevance of documents to the terms of a query.

The one definition, for texts that are indexed, texts that are not, and queries. docs/languages.md describes it in the
words of a user. A full-text index is built on the terms, so it holds what this module says and nothing else. Work is
done on distinct pieces of text; Lance contributes the dictionaries of scripts without spaces, the folding of Latin
letters and the English stemmer.

Pure. Whether an index or a scan finds the occurrences of a word, the score of a document is computed here, in one
order of operations, so that it is the same to the last bit.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.limits import WORD_LETTERS_MAX
from omnigraph.store.read.live_rows import RowIds

Codes: TypeAlias = NDArray[np.int64]

# The number of this definition, carried by indexes that are built on its terms. Any change of any term needs a new one.
ANALYSER: Final = 1

# In the order of the alphabet; `no`, `not` and `nor` are words like others.
_STOP_WORDS: Final = """
    a about above after again against all am an and any are as at be because been before being below between both but by
    can did do does doing down during each few for from further had has have having he her here hers herself him himself
    his how i if in into is it its itself just me more most my myself now of off on once only or other our ours
    ourselves out over own re same she should so some such than that the their theirs them themselves then there
    these they this those through to too under until up very was we were what when where which while who whom
    why will with you your yours yourself yourselves
    """
STOP_WORDS: Final = frozenset(_STOP_WORDS.split())
_STOP_WORD_SET: Final = pa.array(sorted(STOP_WORDS))

# ASCII that separates words; everything beyond ASCII is looked at in distinct pieces only.
_ASCII_SEPARATORS: Final = r"[\x00-/:-@\[-`{-\x7f]+"
# Marks belong to the letter before them; those without one separate.
_SEPARATORS: Final = r"[^\p{L}\p{N}\p{M}]+\p{M}*|^\p{M}+"
# Invisible: joiners, marks of direction, hyphens that are not shown, variants of glyphs. A zero-width space separates.
_INVISIBLE: Final = (
    r"[\x{ad}\x{34f}\x{61c}\x{115f}\x{1160}\x{17b4}\x{17b5}\x{180b}-\x{180f}\x{200c}-\x{200f}\x{202a}-\x{202e}"
    r"\x{2060}-\x{206f}\x{3164}\x{fe00}-\x{fe0f}\x{feff}\x{ffa0}\x{1d173}-\x{1d17a}\x{e0000}-\x{e0fff}]+"
)
# What lower case alone leaves different although it differs only in case, and what NFKC tears apart although the
# dictionaries know it as one letter.
_SAME_LETTERS: Final[Mapping[str, str]] = {
    "\u00df": "ss",
    "i\u0307": "i",
    "\u03c2": "\u03c3",
    "\u0e4d\u0e32": "\u0e33",
    "\u0ecd\u0eb2": "\u0eb3",
}
_UNSPACED: Final = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}]"
_ACCENTED: Final = r"([\p{Latin}\p{Greek}])\p{Mn}+"
# Marks on other letters that Unicode does not compose with them, and the vowel points of Hebrew and Arabic.
_POINTS: Final = (
    r"[\x{300}-\x{36f}\x{591}-\x{5bd}\x{5bf}\x{5c1}\x{5c2}\x{5c4}\x{5c5}\x{5c7}\x{640}\x{64b}-\x{652}\x{656}-\x{65f}"
    r"\x{670}\x{1ab0}-\x{1aff}\x{1dc0}-\x{1dff}\x{20d0}-\x{20f0}\x{fe20}-\x{fe2f}]+"
)

_PLAIN: Final[Mapping[str, Any]] = {
    "lower_case": False,
    "stem": False,
    "remove_stop_words": False,
    "ascii_folding": False,
    "max_token_length": None,
}
_MARK: Final = 1_000_000
# How an index takes terms that are separated by spaces.
INDEX_OPTIONS: Final[Mapping[str, Any]] = {
    **_PLAIN,
    "base_tokenizer": "whitespace",
    "with_position": False,
    # Lance keeps this number with the index, and uses it for n-grams only: free to say which analyser chose the terms.
    "max_ngram_length": _MARK + ANALYSER,
}

# Stands between pieces while they are cut; no text has it.
_BOUNDARY: Final = f"q{secrets.randbelow(10**24):024}"
_PIECES_AT_ONCE: Final = 65_536


def analyser_of(index_details: Mapping[str, Any]) -> int:
    """Return the number of the analyser that chose the terms of an index, 0 for any that is not ours."""
    return max(int(index_details.get("max_ngram_length") or 0) - _MARK, 0)


@dataclass(frozen=True, slots=True)
class Analysis:
    """The words of some texts, without stop words: which text each word is from, and which of the distinct words it is.

    Spellings are the whole of each distinct word, as `fuzzy` compares it; different words may have the same spelling.
    """

    texts: Codes
    words: Codes
    spellings: Any

    def terms(self) -> Any:
        """Return the term of each distinct word, which is what is searched for."""
        return _stemmed(self.spellings)


def analyse(texts: Any) -> Analysis:
    """Return the words of texts, which are one Arrow array of strings with nulls."""
    pieces = _pieces_of(texts)
    encoded = pieces.flatten().dictionary_encode()
    owners = np.repeat(np.arange(len(texts), dtype=np.int64), np.diff(pieces.offsets.to_numpy()))
    starts, codes, words = _words_in(encoded.dictionary)
    owners, codes = _spread(owners, encoded.indices.to_numpy(), starts, codes)
    spellings = _folded(words)
    kept = _is_searched(words, spellings).to_numpy(zero_copy_only=False)[codes]
    return Analysis(owners[kept], codes[kept], spellings)


def terms_of(text: str) -> list[str]:
    """Return the terms of a text.

    >>> terms_of("The running Boats of Besançon"), terms_of("東京都に行く")
    (['run', 'boat', 'besancon'], ['東京', '都', 'に', '行く'])
    """
    analysis = analyse(pa.array([text]))
    terms: list[str] = analysis.terms().take(pa.array(analysis.words)).to_pylist()
    return terms


def spellings_of(texts: Any) -> Any:
    """Return the distinct whole words of texts, in lower case and without accents."""
    _, _, words = _words_in(_pieces_of(texts).flatten().unique())
    spellings = _folded(words)
    return spellings.filter(_is_searched(words, spellings)).unique()


def terms_of_spellings(spellings: Sequence[str]) -> set[str]:
    """Return the terms that represent whole words."""
    return set(_stemmed(pa.array(spellings, pa.string())).to_pylist())


def joined_terms(texts: Any) -> Any:
    """Return the terms of each text, separated by spaces: what an index is built on."""
    analysis = analyse(texts)
    starts = pa.array(np.searchsorted(analysis.texts, np.arange(len(texts) + 1)), pa.int64())
    terms = analysis.terms().take(pa.array(analysis.words))
    return pc.binary_join(pa.LargeListArray.from_arrays(starts, terms), " ")


def count_terms(texts: Any, terms: Sequence[str]) -> dict[str, NDArray[np.int32]]:
    """Return how often each text holds each of some terms."""
    analysis = analyse(texts)
    words = analysis.spellings
    # A stemmer takes endings away, so the first letter decides which words are worth stemming.
    letters = pa.array(sorted({term[:1] for term in terms}), words.type)
    is_near = pc.is_in(pc.utf8_slice_codeunits(words, 0, 1), value_set=letters)
    term_indexes = pc.index_in(_where(is_near, words, _stemmed), value_set=pa.array(terms, words.type))
    term_indexes = pc.if_else(is_near, term_indexes, None).fill_null(-1)
    sought = term_indexes.to_numpy(zero_copy_only=False)[analysis.words]
    return {
        term: np.bincount(analysis.texts[sought == index], minlength=len(texts)).astype(np.int32)
        for index, term in enumerate(terms)
    }


def _pieces_of(texts: Any) -> Any:
    return pc.split_pattern_regex(pc.ascii_lower(texts.fill_null("")), _ASCII_SEPARATORS)


def _is_searched(words: Any, spellings: Any) -> Any:
    """Return which words are not stop words; a word of nothing but points has no letter left."""
    is_stop_word = pc.is_in(words, value_set=_STOP_WORD_SET)
    return pc.and_not(pc.not_equal(spellings, pa.scalar("")), is_stop_word)


def _words_in(pieces: Any) -> tuple[Codes, Codes, Any]:
    """Cut pieces; return where the words of each begin, their codes one after the other, and the distinct words."""
    is_ascii = pc.string_is_ascii(pieces).to_numpy(zero_copy_only=False)
    positions = np.arange(len(pieces), dtype=np.int64)
    # Pieces of ASCII are words, if they are anything.
    plain = is_ascii & (pc.binary_length(pieces).to_numpy(zero_copy_only=False) > 0)
    owners, words = positions[plain], pieces.filter(pa.array(plain))
    if not is_ascii.all():
        more, others = _other_words_in(pieces.filter(pa.array(~is_ascii)))
        owners, words = np.append(owners, positions[~is_ascii][more]), pa.concat_arrays([words, others])
    order = np.argsort(owners, kind="stable")
    encoded = pc.utf8_slice_codeunits(words, 0, WORD_LETTERS_MAX).dictionary_encode()
    starts = np.searchsorted(owners[order], np.arange(len(pieces) + 1))
    return starts, encoded.indices.to_numpy().astype(np.int64)[order], encoded.dictionary


def _other_words_in(pieces: Any) -> tuple[Codes, Any]:
    """Cut pieces beyond ASCII; return the piece of each word, and the words."""
    lists: Any = pc.split_pattern_regex(_composed(pieces), _SEPARATORS)
    runs = lists.flatten().dictionary_encode()
    starts, words = _cut(runs.dictionary)
    owners = np.repeat(np.arange(len(pieces), dtype=np.int64), np.diff(lists.offsets.to_numpy()))
    owners, codes = _spread(owners, runs.indices.to_numpy(), starts, np.arange(len(words)))
    return owners, words.take(pa.array(codes))


def _composed(texts: Any) -> Any:
    """Return texts composed (NFKC), without case and without what is invisible."""
    # Lower case may be decomposed where upper case is composed, and what was invisible kept letters apart.
    texts = _normalised(pc.utf8_lower(_normalised(texts, "NFKC")), "NFKC")
    return _with_same_letters(_normalised(pc.replace_substring_regex(texts, _INVISIBLE, ""), "NFKC"))


def _with_same_letters(texts: Any) -> Any:
    for letters, same in _SAME_LETTERS.items():
        texts = pc.replace_substring(texts, letters, same)
    return texts


def _cut(runs: Any) -> tuple[Codes, Any]:
    """Cut runs of letters: by dictionary where the script has no spaces, elsewhere they are words.

    Return where the words of each run begin, and the words.
    """
    is_unspaced = pc.match_substring_regex(runs, _UNSPACED).to_numpy(zero_copy_only=False)
    sizes = (pc.utf8_length(runs).to_numpy(zero_copy_only=False) > 0).astype(np.int64)
    spaced = runs.filter(pa.array((sizes > 0) & ~is_unspaced))
    counts, segments = _segmented(runs.filter(pa.array(is_unspaced)).to_pylist())
    sizes[is_unspaced] = counts
    # Words of spaced scripts come first, then those of the others; both in the order of their runs.
    words = pa.concat_arrays([spaced, pa.array(segments, runs.type)])
    positions = np.empty(len(words), np.int64)
    owner_is_unspaced = np.repeat(is_unspaced, sizes)
    positions[~owner_is_unspaced] = np.arange(len(spaced))
    positions[owner_is_unspaced] = np.arange(len(spaced), len(words))
    return np.concatenate([[0], np.cumsum(sizes)]), words.take(pa.array(positions))


def _segmented(runs: Sequence[str]) -> tuple[Codes, list[str]]:
    """Cut runs by the dictionaries of ICU; return how many words each has, and the words."""
    counts: list[Codes] = [np.empty(0, np.int64)]
    words: list[str] = []
    for start in range(0, len(runs), _PIECES_AT_ONCE):
        part = runs[start : start + _PIECES_AT_ONCE]
        tokens = [token.text for token in lance.tokenize(f" {_BOUNDARY} ".join(part), base_tokenizer="icu", **_PLAIN)]
        ends = np.array([-1, *(position for position, token in enumerate(tokens) if token == _BOUNDARY), len(tokens)])
        assert len(ends) == len(part) + 1, "every boundary between runs is a word of its own"
        counts.append(ends[1:] - ends[:-1] - 1)
        words += [token for token in tokens if token != _BOUNDARY]
    return np.concatenate(counts), words


def _folded(words: Any) -> Any:
    """Return words without accents and vowel points, and with plain Latin letters."""
    return _where(pc.invert(pc.string_is_ascii(words)), words, _fold)


def _fold(words: Any) -> Any:
    bare = pc.replace_substring_regex(_normalised(words, "NFKD"), _ACCENTED, r"\1")
    bare = _with_same_letters(pc.replace_substring_regex(_normalised(bare, "NFKC"), _POINTS, ""))
    return _mapped(bare, ascii_folding=True)


def _stemmed(words: Any) -> Any:
    """Return words without the endings of English, those of other alphabets as they are."""
    return _where(pc.string_is_ascii(words), words, lambda plain: _mapped(plain, stem=True, language="English"))


def _mapped(words: Any, **options: Any) -> Any:
    """Let Lance map words one by one."""

    def map_all(chosen: Any) -> Any:
        tokens = lance.tokenize(" ".join(chosen.to_pylist()), base_tokenizer="whitespace", **{**_PLAIN, **options})
        assert len(tokens) == len(chosen), "a word without spaces is one word"
        return pa.array([token.text for token in tokens], words.type)

    return _where(pc.not_equal(words, pa.scalar("")), words, map_all)


def _where(mask: Any, texts: Any, change: Any) -> Any:
    """Change the texts that a mask chooses."""
    chosen = texts.filter(mask)
    return texts if len(chosen) == 0 else pc.replace_with_mask(texts, mask, change(chosen))


def _normalised(texts: Any, form: str) -> Any:
    return pc.utf8_normalize(texts, form=form)  # type: ignore[attr-defined]  # the stubs lack it


def _spread(owners: Codes, codes: Any, starts: Codes, values: Codes) -> tuple[Codes, Codes]:
    """Replace each code by the values of its list, in order, with the owner of the code."""
    sizes = np.diff(starts)[codes]
    if sizes.max(initial=0) <= 1:
        kept = sizes == 1
        return owners[kept], values[starts[:-1][codes[kept]]]
    # The values of one list follow each other, so the place of each is that of the first and a number.
    numbers = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.repeat(owners, sizes), values[np.repeat(starts[:-1][codes], sizes) + numbers]


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
