"""The bounds of regular expressions: their length, and what RE2 makes of their repetitions. Pure."""

from __future__ import annotations

from typing import Final

from omnigraph.limits import REGEX_CHARACTERS_MAX

SHORTER_PATTERN: Final = "shorten it, or repeat less of it"
# What RE2 says of a pattern that would take too much memory.
_TOO_LARGE: Final = ("too large", "repetition size")


def find_excess(pattern: str) -> str | None:
    """Return how a regular expression exceeds a bound, or None; one that is malformed exceeds none.

    >>> find_excess("^[a-z]+$") is None
    True
    >>> find_excess("(a{1000}){1000}")
    'invalid repetition size: {1000}'
    """
    if len(pattern) > REGEX_CHARACTERS_MAX:
        return f"it has {len(pattern):,} characters; the limit is {REGEX_CHARACTERS_MAX:,}"
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        reason = str(error).partition(": ")[2]
        return reason if any(words in reason for words in _TOO_LARGE) else None
    return None
