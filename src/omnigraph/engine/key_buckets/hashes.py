"""64-bit hashes of columns, and set operations on sorted arrays of them, in pure numpy.

Different hashes prove that two values differ; equal hashes make them candidates. The hash is keyed by the operation, so
that an input cannot be crafted to collide.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.lang.schema.arrow_schema import PHYSICAL
from omnigraph.rules.arrow_typing import Column, Numbers, pc
from omnigraph.rules.delta import one_array

Hashes: TypeAlias = Numbers

_U64: Final = np.uint64
_SLICE_ROWS: Final = 16_384
# Strings of more than this many 8-byte words are hashed one by one.
_WORDS_MAX: Final = 64
# Masks that keep the first 0 to 8 bytes of a word.
_MASKS: Final = np.array([(1 << (8 * count)) - 1 for count in range(9)], np.uint64)


@lru_cache(maxsize=8)
def _factors(seed: str) -> Hashes:
    digest = hashlib.blake2b(seed.encode(), digest_size=24).digest()
    return np.frombuffer(digest, np.uint64) | _U64(1)


def hash_column(column: Column, seed: str) -> Hashes:
    """Return a hash per row. Equal values of one type have equal hashes; a null has an arbitrary one."""
    column = one_array(column)
    if pa.types.is_string(column.type):
        # Slices of this size keep all intermediate arrays in the CPU cache.
        slices = (column.slice(start, _SLICE_ROWS) for start in range(0, len(column), _SLICE_ROWS))
        return np.concatenate([np.zeros(0, np.uint64), *(_hash_strings(piece, seed) for piece in slices)])
    if pa.types.is_floating(column.type):
        # Negative zero equals zero.
        numbers = pc.add(column, pa.scalar(0.0, column.type)).cast(pa.float64())
        bits = pc.fill_null(numbers, 0.0).to_numpy(zero_copy_only=False).view(np.uint64)
    elif pa.types.is_boolean(column.type):
        bits = pc.fill_null(column, False).cast(pa.uint8()).to_numpy().astype(np.uint64)
    else:
        plain = column.view(PHYSICAL.get(column.type, column.type))
        bits = pc.fill_null(plain, 0).to_numpy(zero_copy_only=False).astype(np.uint64)
    # Mixing is a bijection with full avalanche, so it adds no collision.
    return mix_bits(bits * _factors(seed)[0] + _factors(seed)[2])


def bucket_of(column: Column, seed: str, buckets: int) -> Numbers:
    """Return the bucket of each value; equal values are in the same one."""
    return hash_column(column, seed) % _U64(buckets)


def hash_rows(columns: Sequence[Column], seed: str) -> Hashes:
    total = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        total = mix_bits(total * _factors(seed)[1] + hash_column(column, seed))
    return total


def _hash_strings(column: Any, seed: str) -> Hashes:
    if column.null_count:
        column = pc.fill_null(column, "")
    start, factor = _factors(seed)[:2]
    _, offset_buffer, data_buffer = column.buffers()
    if len(column) == 0 or data_buffer is None:
        return np.full(len(column), start, np.uint64)
    offsets = np.frombuffer(offset_buffer, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    # Padding, so that the last word can be read in full.
    used = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    data, offsets = np.concatenate([used, np.zeros(8, np.uint8)]), offsets - offsets[0]
    words = np.ndarray((len(data) - 7,), np.uint64, buffer=data.data, strides=(1,))
    lengths = np.diff(offsets)
    hashes = np.where(lengths > 0, start + lengths.astype(np.uint64) * factor, start)
    rows, positions, remaining = np.arange(len(column)), offsets[:-1], lengths
    for _ in range(_WORDS_MAX):
        if not (remaining > 0).all():
            inside = remaining > 0
            rows, positions, remaining = rows[inside], positions[inside], remaining[inside]
        if len(rows) == 0:
            return hashes
        word = words[positions] & _MASKS[np.minimum(remaining, 8)]
        hashes[rows] = mix_bits((hashes[rows] ^ word) * factor)
        positions, remaining = positions + 8, remaining - 8
    for row in rows[remaining > 0].tolist():
        string = data[offsets[row] : offsets[row + 1]].tobytes()
        hashes[row] = int.from_bytes(hashlib.blake2b(string, digest_size=8, key=seed.encode()[:64]).digest(), "little")
    return hashes


@dataclass(frozen=True, slots=True)
class Candidates:
    """The first rows that may break a rule, each with a mark: its hash, or the row that it repeats."""

    rows: Numbers
    marks: Numbers

    @classmethod
    def first(cls, rows: Numbers, marks: Numbers, limit: int) -> Candidates:
        order = np.argsort(rows, kind="stable")[:limit]
        return cls(rows[order], marks[order])

    def shift(self, first: int) -> Candidates:
        """Return duplicates with rows counted from another first row."""
        return Candidates(self.rows + first, self.marks + first)

    def __len__(self) -> int:
        return len(self.rows)


NO_CANDIDATES = Candidates(np.zeros(0, np.int64), np.zeros(0, np.uint64))


def merge_candidates(parts: Sequence[Candidates], limit: int) -> Candidates:
    """Return the first rows of several candidates."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return NO_CANDIDATES
    return Candidates.first(
        np.concatenate([part.rows for part in parts]), np.concatenate([part.marks for part in parts]), limit
    )


def duplicate_hashes(ordered: Numbers) -> Numbers:
    """Return the hashes that occur more than once in a sorted array.

    >>> duplicate_hashes(np.array([1, 2, 3, 3, 3], np.uint64)).tolist()
    [3]
    """
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def subtract(ordered: Numbers, others: Sequence[Numbers]) -> Numbers:
    """Return the distinct hashes of a sorted array that are in none of the other sorted arrays."""
    # Binary searches of sorted values touch memory in order, which is much faster than at random.
    for hashes in others:
        ordered = ordered[~is_among_sorted(ordered, hashes)]
    return np.unique(ordered)


def intersect(ordered: Numbers, others: Numbers) -> Numbers:
    """Return the distinct hashes that are in both of two sorted arrays."""
    return np.unique(ordered[is_among_sorted(ordered, others)])


def is_among(values: Numbers, chosen: Numbers) -> Any:
    """Return a mask of the hashes that are among the chosen ones."""
    return is_among_sorted(values, np.sort(chosen))


def find_duplicates(hashes: Numbers, rows: Numbers, limit: int) -> Candidates:
    """Return the first rows that repeat the hash of an earlier row, each marked with the earliest such row."""
    order = np.argsort(rows)
    hashes, rows = hashes[order], rows[order]
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    later = np.ones(len(rows), bool)
    later[first] = False
    chosen = np.flatnonzero(later)[:limit]
    return Candidates(rows[chosen], rows[first[inverse[chosen]]])


def find_superseded_rows(hashes: Numbers, checks: Numbers, rows: Numbers) -> Numbers:
    """Return, sorted, the rows whose key occurs again in a later row."""
    order = np.lexsort((rows, checks, hashes))
    hashes, checks, rows = hashes[order], checks[order], rows[order]
    is_repeated = (hashes[1:] == hashes[:-1]) & (checks[1:] == checks[:-1])
    return np.sort(rows[:-1][is_repeated])


def is_known_key(hashes: Numbers, checks: Numbers, known: Numbers, known_checks: Numbers) -> Any:
    """Return a mask of the keys that are among the known ones, by both hashes (128 bits)."""
    order = np.argsort(known)
    known, known_checks = known[order], known_checks[order]
    is_known = np.zeros(len(hashes), bool)
    pending: Numbers = np.arange(len(hashes))
    positions: Numbers = np.searchsorted(known, hashes)
    # A second round is needed only where several known keys share the first hash.
    while len(pending):
        inside = positions < len(known)
        pending, positions = pending[inside], positions[inside]
        same = known[positions] == hashes[pending]
        pending, positions = pending[same], positions[same]
        is_known[pending] |= known_checks[positions] == checks[pending]
        positions = positions + 1
    return is_known


def sum_degrees(
    sources: Sequence[tuple[Numbers, Numbers]], removed: tuple[Numbers, Numbers]
) -> tuple[Numbers, Numbers]:
    """Return the sources of edges and their degrees: the sum of several sides less the removed edges."""
    hashes = np.concatenate([*(side for side, _ in sources), removed[0]])
    counts = np.concatenate([*(count.astype(np.int64) for _, count in sources), -removed[1].astype(np.int64)])
    nodes, inverse = np.unique(hashes, return_inverse=True)
    totals = np.zeros(len(nodes), np.int64)
    np.add.at(totals, inverse, counts)
    return nodes, totals


def is_among_sorted(values: Hashes, sorted_values: Hashes) -> NDArray[np.bool_]:
    """Return which values occur in a sorted array.

    >>> is_among_sorted(np.array([1, 3], np.uint64), np.array([2, 3], np.uint64)).tolist()
    [False, True]
    """
    if len(sorted_values) == 0:
        return np.zeros(len(values), np.bool_)
    positions = np.minimum(np.searchsorted(sorted_values, values), len(sorted_values) - 1)
    is_member: NDArray[np.bool_] = sorted_values[positions] == values
    return is_member


def mix_bits(words: Hashes) -> Hashes:
    """Mix all bits (the splitmix64 finaliser)."""
    words = (words ^ (words >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> _U64(27))) * _U64(0x94D049BB133111EB)
    return words ^ (words >> _U64(31))
