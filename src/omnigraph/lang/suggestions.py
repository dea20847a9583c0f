"""Hints for unknown names: the nearest known name, and lists of names in a sentence.

Pure; used by both languages and by the messages of the engine and the pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from omnigraph.limits import SUGGESTION_NAMES_MAX

_WORD_LENGTH_MAX: Final = 100


def nearest_word(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most similar to `word`, ignoring case, or None if none is similar.

    >>> nearest_word("Vesel", ["Port", "Vessel"]), nearest_word("x", ["Port"])
    ('Vessel', None)
    """
    # Matching is quadratic in the length of a word and linear in the number of words, so both are bounded.
    names = sorted(set(known))
    if len(word) > _WORD_LENGTH_MAX or len(names) > SUGGESTION_NAMES_MAX:
        return None
    by_lower_case = {name.lower(): name for name in reversed(names)}
    matches = get_close_matches(word.lower(), by_lower_case, n=1, cutoff=0.6)
    return by_lower_case[matches[0]] if matches else None


def did_you_mean(word: str, known: Iterable[str], *, prefix: str = "", otherwise: str | None = None) -> str | None:
    """Return a hint that names the nearest known word, or `otherwise` if none is similar.

    >>> did_you_mean("callsat", ["callsAt"]), did_you_mean("sails", ["callsAt"], otherwise="traverse an edge")
    ('did you mean `callsAt`?', 'traverse an edge')
    """
    near = nearest_word(word, known)
    return f"did you mean `{prefix}{near}`?" if near else otherwise


def join_words(words: Iterable[str], *, conjunction: str = "or") -> str:
    """Join words as a sentence does.

    >>> join_words(["a", "b", "c"])
    'a, b or c'
    """
    items = list(words)
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {conjunction} {items[-1]}"
