"""Identifiers: ULIDs from one seam, and a distinct type for each kind of id.

Ground layer: imports only `clock`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NewType

from ulid import ULID

from omnigraph import clock

CommitId = NewType("CommitId", str)
OperationId = NewType("OperationId", str)
BranchId = NewType("BranchId", str)

_ULID: Final = re.compile("[0-7][0-9A-HJKMNP-TV-Z]{25}")
_DIGITS: Final = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_HALF: Final = 2**40 - 1
_random: Callable[[int], bytes] = os.urandom


def new_ulid() -> str:
    """Return a fresh ULID: 26 upper-case characters that sort by time of creation.

    >>> len(new_ulid()), new_ulid().isupper() or new_ulid().isdigit()
    (26, True)
    """
    milliseconds = max(clock.now_us(), 0) // 1_000
    return str(ULID.from_bytes(milliseconds.to_bytes(6, "big") + _random(10)))


def new_ulids(count: int) -> Any:
    """Return fresh ULIDs in ascending order as a numpy array of bytes: one moment, one random start, then one by one.

    >>> [first, second] = new_ulids(2)
    >>> len(first), first < second
    (26, True)
    """
    import numpy as np

    milliseconds = max(clock.now_us(), 0) // 1_000
    # Half of the random range stays free above the start, so that counting never runs over.
    start = int.from_bytes(_random(10), "big") >> 1
    low = np.arange(count, dtype=np.uint64) + np.uint64(start & _HALF)
    halves = (np.uint64(start >> 40) + (low >> np.uint64(40)), low & np.uint64(_HALF))
    shifts = np.arange(35, -1, -5, dtype=np.uint64)
    digits = [(half[:, None] >> shifts & np.uint64(31)).astype(np.uint8) for half in halves]
    moment = [milliseconds >> shift & 31 for shift in range(45, -1, -5)]
    times = np.broadcast_to(np.array(moment, np.uint8), (count, 10))
    texts = np.frombuffer(_DIGITS, np.uint8)[np.concatenate([times, *digits], axis=1)]
    return texts.view("S26").reshape(count)


def is_ulid(text: str) -> bool:
    """Tell whether a text could be one of our ids.

    >>> is_ulid(new_ulid()), is_ulid("release-2026-01-31")
    (True, False)
    """
    return _ULID.fullmatch(text) is not None


def fraction() -> float:
    """Return a random number from 0 up to, not including, 1."""
    return int.from_bytes(_random(4), "big") / 2**32


@contextmanager
def seeded(random: Callable[[int], bytes]) -> Iterator[None]:
    """Let tests supply the randomness, so that a seed controls every id."""
    global _random
    before, _random = _random, random
    try:
        yield
    finally:
        _random = before
