"""The words of the language: functions with their arity, and the nearest known word to a misspelt one.

Pure; used by the parser and by the checker alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

from omnigraph.limits import SUGGESTION_NAMES_MAX

AGGREGATES: Final = frozenset({"count", "sum", "avg", "min", "max"})
RANKS: Final = frozenset({"nearest", "bm25", "rrf"})
TEXT_PREDICATES: Final = frozenset({"search", "fuzzy", "match_text"})

# Function -> the fewest and the most arguments it takes.
FUNCTIONS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        "now": (0, 0),
        "date": (1, 1),
        "datetime": (1, 1),
        "count": (1, 1),
        "sum": (1, 1),
        "avg": (1, 1),
        "min": (1, 1),
        "max": (1, 1),
        "nearest": (2, 2),
        "bm25": (2, 2),
        "rrf": (2, 3),
        "search": (2, 2),
        "match_text": (2, 2),
        "fuzzy": (2, 3),
    }
)


def nearest_word(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most like the given one, if any is like it at all.

    >>> nearest_word("Vesel", ["Port", "Vessel"]), nearest_word("x", ["Port"])
    ('Vessel', None)
    """
    # Matching is quadratic in word length and linear in words, so an absurd schema or word is not matched at all.
    names = sorted(set(known))
    if len(word) > 100 or len(names) > SUGGESTION_NAMES_MAX:
        return None
    folded = {name.lower(): name for name in reversed(names)}
    found = get_close_matches(word.lower(), folded, n=1, cutoff=0.6)
    return folded[found[0]] if found else None


def suggestion(word: str, known: Iterable[str], *, prefix: str = "", otherwise: str | None = None) -> str | None:
    """Return a hint naming the nearest known word, or the fallback.

    >>> suggestion("sails", ["callsAt"], otherwise="traverse an edge"), suggestion("callsat", ["callsAt"])
    ('traverse an edge', 'did you mean `callsAt`?')
    """
    near = nearest_word(word, known)
    return f"did you mean `{prefix}{near}`?" if near else otherwise


def listed(words: Iterable[str], *, conjunction: str = "or") -> str:
    """Join words as a sentence does.

    >>> listed(["a", "b", "c"])
    'a, b or c'
    """
    items = list(words)
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {conjunction} {items[-1]}"
