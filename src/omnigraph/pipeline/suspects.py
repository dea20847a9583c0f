"""Suspects: keys of an input that may break a set rule, found by comparing hashes alone.

Numpy on sorted arrays; no value is looked at. Whoever is not a suspect is certainly right, but for a chance of 2⁻⁶⁴.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from omnigraph.rules.kernels import Numbers


@dataclass(frozen=True, slots=True)
class Found:
    """Rows that are suspects, the first ones of all, each with a mark: its hash, or the row that it repeats."""

    rows: Numbers
    marks: Numbers

    @classmethod
    def first(cls, rows: Numbers, marks: Numbers, limit: int) -> Found:
        order = np.argsort(rows, kind="stable")[:limit]
        return cls(rows[order], marks[order])

    def moved(self, first: int) -> Found:
        """Return rows that repeat others, counted from elsewhere."""
        return Found(self.rows + first, self.marks + first)

    def __len__(self) -> int:
        return len(self.rows)


NOTHING = Found(np.zeros(0, np.int64), np.zeros(0, np.uint64))


def gathered(parts: Sequence[Found], limit: int) -> Found:
    """Return the first ones of several."""
    parts = [one for one in parts if len(one)]
    if not parts:
        return NOTHING
    return Found.first(np.concatenate([one.rows for one in parts]), np.concatenate([one.marks for one in parts]), limit)


def repeated(ordered: Numbers) -> Numbers:
    """Return the hashes that come more than once in a sorted array.

    >>> repeated(np.array([1, 2, 3, 3, 3], np.uint64)).tolist()
    [3]
    """
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def missing(ordered: Numbers, known: Sequence[Numbers]) -> Numbers:
    """Return the hashes of a sorted array that are in none of the known sorted arrays, in order, each once."""
    # Looking up sorted values in a sorted array walks through memory once; unsorted ones jump about in it.
    for one in known:
        ordered = ordered[~_is_among_sorted(ordered, one)]
    return np.unique(ordered)


def common(ordered: Numbers, others: Numbers) -> Numbers:
    """Return the hashes that are in both of two sorted arrays, in order, each once."""
    return np.unique(ordered[_is_among_sorted(ordered, others)])


def _is_among_sorted(values: Numbers, others: Numbers) -> Any:
    if len(others) == 0:
        return np.zeros(len(values), bool)
    places = np.minimum(np.searchsorted(others, values), len(others) - 1)
    return others[places] == values


def is_among(values: Numbers, chosen: Numbers) -> Any:
    """Return for each hash whether it is one of the chosen."""
    return _is_among_sorted(values, np.sort(chosen))


def later_rows(hashes: Numbers, rows: Numbers, limit: int) -> Found:
    """Return the first rows that repeat an earlier one's hash, each with the earliest of them."""
    order = np.argsort(rows)
    hashes, rows = hashes[order], rows[order]
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    later = np.ones(len(rows), bool)
    later[first] = False
    chosen = np.flatnonzero(later)[:limit]
    return Found(rows[chosen], rows[first[inverse[chosen]]])


def superseded(hashes: Numbers, checks: Numbers, rows: Numbers) -> Numbers:
    """Return in order the rows whose key comes again in a later row."""
    order = np.lexsort((rows, checks, hashes))
    hashes, checks, rows = hashes[order], checks[order], rows[order]
    again = (hashes[1:] == hashes[:-1]) & (checks[1:] == checks[:-1])
    return np.sort(rows[:-1][again])


def is_matched(hashes: Numbers, checks: Numbers, known: Numbers, known_checks: Numbers) -> Any:
    """Return for each key whether it is one of the known ones, by both of its hashes."""
    order = np.argsort(known)
    known, known_checks = known[order], known_checks[order]
    found = np.zeros(len(hashes), bool)
    asked: Numbers = np.arange(len(hashes))
    places: Numbers = np.searchsorted(known, hashes)
    # More than one round only for keys whose first hash is that of several known ones.
    while len(asked):
        inside = places < len(known)
        asked, places = asked[inside], places[inside]
        same = known[places] == hashes[asked]
        asked, places = asked[same], places[same]
        found[asked] |= known_checks[places] == checks[asked]
        places = places + 1
    return found


def degrees(sources: Sequence[tuple[Numbers, Numbers]], taken: tuple[Numbers, Numbers]) -> tuple[Numbers, Numbers]:
    """Return sources and how many edges each has: the counts of several sides, without those that are taken away."""
    hashes = np.concatenate([*(one for one, _ in sources), taken[0]])
    counts = np.concatenate([*(count.astype(np.int64) for _, count in sources), -taken[1].astype(np.int64)])
    found, inverse = np.unique(hashes, return_inverse=True)
    totals = np.zeros(len(found), np.int64)
    np.add.at(totals, inverse, counts)
    return found, totals
