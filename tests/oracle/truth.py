"""Conditions of the reference evaluator: true, false or None for unknown."""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any

ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
STOP_WORDS = frozenset({"the", "of", "and", "a"})


def compare(op: str, left: Any, right: Any) -> bool | None:
    """Compare two values; Python compares integers with floats exactly and text by code point, as the language does.

    >>> compare("=", 2**53 + 1, float(2**53)), compare("!=", None, 1), compare("contains", (1, None), 1)
    (False, None, True)
    """
    if left is None or right is None:
        return None
    if op == "contains":
        return right in left
    if op == "starts_with":
        return bool(left.startswith(right))
    if op == "ends_with":
        return bool(left.endswith(right))
    if op == "matches":
        return re.search(right, left) is not None
    return ORDER[op](left, right)


def all_of(parts: list[bool | None]) -> bool | None:
    if False in parts:
        return False
    return None if None in parts else True


def any_of(parts: list[bool | None]) -> bool | None:
    if True in parts:
        return True
    return None if None in parts else False


def opposite(value: bool | None) -> bool | None:
    return None if value is None else not value


def member(value: Any, items: tuple[Any, ...] | None) -> bool | None:
    """Tell whether a value is in a list, or None when a null leaves it open.

    >>> member(1, (2, None)), member(1, (1, None)), member(1, ()), member(None, ())
    (None, True, False, None)
    """
    if value is None or items is None:
        return None
    if any(item is not None and item == value for item in items):
        return True
    return None if None in items else False


def text_match(text: str | None, query: str | None, edits: int) -> bool | None:
    """Tell whether any word of the query is in the text, up to so many edits; the texts of the tests have no stems.

    >>> text_match("North star", "STAR", 0), text_match("North star", "nrth", 1), text_match("the", "the", 0)
    (True, True, False)
    """
    if text is None or query is None:
        return None
    held = set(re.findall(r"\w+", text.lower())) - STOP_WORDS
    return any(distance(word, one) <= edits for word in re.findall(r"\w+", query.lower()) for one in held)


def distance(a: str, b: str) -> int:
    """Return how many letters must be inserted, dropped or replaced to turn one word into the other.

    >>> distance("north", "nrth"), distance("north", "nroth"), distance("", "ab")
    (1, 2, 2)
    """
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


def narrowed(value: Any) -> Any:
    """Return a float as a 32-bit column would store it, if it can.

    >>> narrowed(0.1), narrowed(1e300), narrowed(3)
    (0.10000000149011612, 1e+300, 3)
    """
    if isinstance(value, tuple):
        return tuple(narrowed(item) for item in value)
    if not isinstance(value, float):
        return value
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return value
