"""Reads the numbers of a `@range`.

Pure. Bounds are compared as 64-bit floats, so one number has one spelling here: `1.0` and `1` are the same bound.
"""

from __future__ import annotations

from math import isfinite
from typing import Final

_EXACT_MAX: Final = 2**53


def parse_bound(text: str) -> int | float | None:
    """Return the bound as an int where that is exact, else as a float; None when it is no finite float.

    >>> parse_bound("-1.0"), parse_bound("0.5"), parse_bound("9" * 400)
    (-1, 0.5, None)
    """
    value = float(text)
    if not isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) <= _EXACT_MAX else value
