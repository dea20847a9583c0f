"""Suggests the known name nearest to an unknown one.

Pure; used in hints only.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_CANDIDATES_MAX: Final = 1_000
_LENGTH_MAX: Final = 100


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return a hint that names the nearest known name, or None when none is near.

    >>> did_you_mean("Vesel", ["Port", "Vessel"])
    'did you mean `Vessel`?'
    >>> did_you_mean("Zebra", ["Port", "Vessel"]) is None
    True
    """
    if len(name) > _LENGTH_MAX:
        return None
    by_lower = {known_name.lower(): known_name for known_name in sorted(known)[:_CANDIDATES_MAX]}
    near = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f"did you mean `{by_lower[near[0]]}`?" if near else None
