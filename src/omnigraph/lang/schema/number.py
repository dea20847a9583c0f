"""Reads the numbers of `@range` and `@card`.

Pure. Bounds are compared as 64-bit floats, so one number has one spelling here: `1.0` and `1` are the same bound.
"""

from __future__ import annotations

from math import isfinite
from typing import Final

COUNT_MAX: Final = 2**32 - 1
_COUNT_DIGITS_MAX: Final = 10
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


def parse_count(digits: str) -> int | None:
    """Return a cardinality bound, or None when it does not fit 32 bits.

    >>> parse_count("007"), parse_count("4294967296"), parse_count("0" * 9_999)
    (7, None, 0)
    """
    # Python refuses to read very long numbers, so leading zeros go first and length decides next.
    significant = digits.lstrip("0") or "0"
    if len(significant) > _COUNT_DIGITS_MAX or int(significant) > COUNT_MAX:
        return None
    return int(significant)
