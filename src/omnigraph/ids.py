"""Identifiers: ULIDs from one seam, and a distinct type for each kind of id.

Ground layer: imports only `clock` and `errors`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, Final, NewType
from zlib import crc32

from ulid import ULID

from omnigraph import clock
from omnigraph.errors import UsageError

CommitId = NewType("CommitId", str)
OperationId = NewType("OperationId", str)
BranchId = NewType("BranchId", str)

ULID_LENGTH: Final = 26
ULID_PATTERN: Final = re.compile("[0-7][0-9A-HJKMNP-TV-Z]{25}")
# Ids of graphs on a server and in a cluster; the reserved ones are routes of a server.
GRAPH_ID: Final = re.compile(r"[a-zA-Z0-9-]{1,64}")
_RESERVED_GRAPH_IDS: Final = frozenset({"policies", "healthz", "openapi", "graphs"})
_DIGITS: Final = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_HALF: Final = 2**40 - 1
# Twenty bits: among thousands of branches, about one hint in a hundred also matches another branch.
_HINT_CHARACTERS: Final = 4
# A checksum of thirty bits distinguishes generated operation ids from those that a caller has chosen.
_MARK_CHARACTERS: Final = 6
_MAIN_HINT: Final = "0000"
# The one source of randomness, which tests replace.
_random: Callable[[int], bytes] = os.urandom


def new_ulid() -> str:
    """Return a new ULID: 26 upper-case characters that sort by time of creation.

    >>> len(new_ulid()), new_ulid().isupper() or new_ulid().isdigit()
    (26, True)
    """
    milliseconds = max(clock.now_us(), 0) // 1_000
    return str(ULID.from_bytes(milliseconds.to_bytes(6, "big") + _random(10)))


def new_ulids(count: int) -> Any:
    """Return new ULIDs in ascending order as a numpy array of bytes: one timestamp, one random start, counted up.

    >>> [first, second] = new_ulids(2)
    >>> len(first), first < second
    (26, True)
    """
    import numpy as np

    timestamp = max(clock.now_us(), 0) // 1_000
    # Half of the random range stays free above the start, so that counting never overflows.
    start = int.from_bytes(_random(10), "big") >> 1
    low = np.arange(count) + (start & _HALF)
    high = (start >> 40) + (low >> 40)
    # Two digits at a time: ten bits are an index into all pairs.
    digits = np.frombuffer(_DIGITS, np.uint8)
    pairs = np.stack([np.repeat(digits, 32), np.tile(digits, 32)], axis=1).view(np.uint16).ravel()
    texts = np.empty((count, 13), np.uint16)
    for column in range(5):
        texts[:, column] = pairs[timestamp >> 40 - 10 * column & 1023]
    for column in range(4):
        texts[:, 5 + column] = pairs[high >> 30 - 10 * column & 1023]
        texts[:, 9 + column] = pairs[low >> 30 - 10 * column & 1023]
    return texts.view("S26").reshape(count)


def new_uuids(count: int) -> Any:
    """Return random UUIDs (version 4) as a numpy array of bytes.

    >>> [text] = new_uuids(1)
    >>> len(text), text[14:15], text.count(b"-")
    (36, b'4', 4)
    """
    import numpy as np

    raw = np.frombuffer(_random(16 * count), np.uint8).reshape(count, 16).copy()
    raw[:, 6] = raw[:, 6] & 0x0F | 0x40
    raw[:, 8] = raw[:, 8] & 0x3F | 0x80
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    positions = np.array([index for index in range(36) if index not in (8, 13, 18, 23)])
    texts = np.full((count, 36), ord("-"), np.uint8)
    texts[:, positions[0::2]] = digits[raw >> 4]
    texts[:, positions[1::2]] = digits[raw & 0x0F]
    return texts.view("S36").reshape(count)


def is_ulid(text: str) -> bool:
    """Return True if a string has the format of a ULID.

    >>> is_ulid(new_ulid()), is_ulid("release-2026-01-31")
    (True, False)
    """
    return ULID_PATTERN.fullmatch(text) is not None


def branch_hint(text: CommitId | BranchId) -> str:
    """Return the suffix that a branch id shares with the ids of its commits; it says where to look for a commit."""
    return text[-_HINT_CHARACTERS:]


def new_operation_id(branch_id: BranchId | None) -> OperationId:
    """Return a new operation id that carries a hint at its branch, and a checksum that marks it as generated.

    >>> operation_id = new_operation_id(BranchId("01ARZ3NDEKTSV4RRFFQ69G5FAV"))
    >>> is_ulid(operation_id), branch_hint(operation_id), is_operation_id(operation_id), is_operation_id(new_ulid())
    (True, '5FAV', True, False)
    """
    hint = _hint_at(branch_id)
    start = new_ulid()[: -_MARK_CHARACTERS - _HINT_CHARACTERS]
    return OperationId(start + _mark(start, hint) + hint)


def is_operation_id(text: str) -> bool:
    """Return True if an id was made by `new_operation_id`; one in a billion other ids matches by chance."""
    start, hint = text[: -_MARK_CHARACTERS - _HINT_CHARACTERS], text[-_HINT_CHARACTERS:]
    return is_ulid(text) and text == start + _mark(start, hint) + hint


def hints_at(text: str, branch_id: BranchId | None) -> bool:
    """Return True if an operation id hints at a branch; an id chosen by a caller may do so by chance."""
    return text.endswith(_hint_at(branch_id))


def _hint_at(branch_id: BranchId | None) -> str:
    return _MAIN_HINT if branch_id is None else branch_hint(branch_id)


def _mark(start: str, hint: str) -> str:
    bits = crc32(f"{start}-{hint}".encode())
    return "".join(chr(_DIGITS[bits >> 5 * position & 31]) for position in range(_MARK_CHARACTERS))


def on_branch(commit_id: CommitId, branch_id: BranchId | None) -> CommitId:
    """Return a commit id with the hint of its branch; main has none.

    >>> commit_id = on_branch(CommitId(new_ulid()), BranchId("01ARZ3NDEKTSV4RRFFQ69G5FAV"))
    >>> len(commit_id), branch_hint(commit_id)
    (26, '5FAV')
    """
    if branch_id is None:
        return commit_id
    return CommitId(commit_id[:-_HINT_CHARACTERS] + branch_hint(branch_id))


def fraction() -> float:
    """Return a random number in [0, 1)."""
    return int.from_bytes(_random(4), "big") / 2**32


def check_graph_id(graph_id: str) -> None:
    """Raise `UsageError` for an id that no server can serve."""
    if not GRAPH_ID.fullmatch(graph_id) or graph_id in _RESERVED_GRAPH_IDS:
        raise UsageError(
            f"`{graph_id}` cannot be the id of a graph: 1 to 64 letters, digits and `-`, and none of"
            f" {', '.join(sorted(_RESERVED_GRAPH_IDS))}",
            graph_id=graph_id,
        )
