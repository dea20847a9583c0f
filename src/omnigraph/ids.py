"""Identifiers: ULIDs from one seam, and a distinct type for each kind of id.

Ground layer: imports only `clock`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NewType
from zlib import crc32

from ulid import ULID

from omnigraph import clock

CommitId = NewType("CommitId", str)
OperationId = NewType("OperationId", str)
BranchId = NewType("BranchId", str)

ULID_PATTERN: Final = re.compile("[0-7][0-9A-HJKMNP-TV-Z]{25}")
_DIGITS: Final = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_HALF: Final = 2**40 - 1
# Twenty bits: among thousands of branches a hint is right but for one in a hundred.
_HINT_CHARACTERS: Final = 4
# Thirty bits, by which an operation id of ours is told from one that a caller has chosen.
_MARK_CHARACTERS: Final = 6
_MAIN_HINT: Final = "0000"
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

    moment = max(clock.now_us(), 0) // 1_000
    # Half of the random range stays free above the start, so that counting never runs over.
    start = int.from_bytes(_random(10), "big") >> 1
    low = np.arange(count) + (start & _HALF)
    high = (start >> 40) + (low >> 40)
    # Two digits at a time: ten bits are an index into all pairs.
    digits = np.frombuffer(_DIGITS, np.uint8)
    pairs = np.stack([np.repeat(digits, 32), np.tile(digits, 32)], axis=1).view(np.uint16).ravel()
    texts = np.empty((count, 13), np.uint16)
    for place in range(5):
        texts[:, place] = pairs[moment >> 40 - 10 * place & 1023]
    for place in range(4):
        texts[:, 5 + place] = pairs[high >> 30 - 10 * place & 1023]
        texts[:, 9 + place] = pairs[low >> 30 - 10 * place & 1023]
    return texts.view("S26").reshape(count)


def is_ulid(text: str) -> bool:
    """Tell whether a text could be one of our ids.

    >>> is_ulid(new_ulid()), is_ulid("release-2026-01-31")
    (True, False)
    """
    return ULID_PATTERN.fullmatch(text) is not None


def branch_hint(text: CommitId | BranchId) -> str:
    """Return what the ids of a branch and of its commits have in common, so that a commit can be looked for there."""
    return text[-_HINT_CHARACTERS:]


def new_operation_id(branch_id: BranchId | None) -> OperationId:
    """Return a fresh id of an operation on one branch, at which it hints, with a mark that it is one of ours.

    >>> operation_id = new_operation_id(BranchId("01ARZ3NDEKTSV4RRFFQ69G5FAV"))
    >>> is_ulid(operation_id), branch_hint(operation_id), is_operation_id(operation_id), is_operation_id(new_ulid())
    (True, '5FAV', True, False)
    """
    hint = _hint_at(branch_id)
    start = new_ulid()[: -_MARK_CHARACTERS - _HINT_CHARACTERS]
    return OperationId(start + _mark(start, hint) + hint)


def is_operation_id(text: str) -> bool:
    """Tell whether an id was made by `new_operation_id`; of a billion others one looks like it."""
    start, hint = text[: -_MARK_CHARACTERS - _HINT_CHARACTERS], text[-_HINT_CHARACTERS:]
    return is_ulid(text) and text == start + _mark(start, hint) + hint


def hints_at(text: str, branch_id: BranchId | None) -> bool:
    """Tell whether an id of an operation hints at a branch; one that a caller has chosen may do so by chance."""
    return text.endswith(_hint_at(branch_id))


def _hint_at(branch_id: BranchId | None) -> str:
    return _MAIN_HINT if branch_id is None else branch_hint(branch_id)


def _mark(start: str, hint: str) -> str:
    bits = crc32(f"{start}-{hint}".encode())
    return "".join(chr(_DIGITS[bits >> 5 * place & 31]) for place in range(_MARK_CHARACTERS))


def on_branch(commit_id: CommitId, branch_id: BranchId | None) -> CommitId:
    """Return the id of a commit with a hint at its branch; main needs none.

    >>> commit_id = on_branch(CommitId(new_ulid()), BranchId("01ARZ3NDEKTSV4RRFFQ69G5FAV"))
    >>> len(commit_id), branch_hint(commit_id)
    (26, '5FAV')
    """
    if branch_id is None:
        return commit_id
    return CommitId(commit_id[:-_HINT_CHARACTERS] + branch_hint(branch_id))


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
