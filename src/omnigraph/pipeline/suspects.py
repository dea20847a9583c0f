"""Suspects: rows of an input that may break a set rule, found by comparing hashes alone.

Numpy on sorted arrays; no value is looked at. Whoever is not a suspect is certainly right, but for a chance of 2⁻⁶⁴.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from omnigraph.engine.write.loaded import Type
from omnigraph.pipeline.keyfile import Keys
from omnigraph.rules.kernels import Numbers


@dataclass(frozen=True, slots=True)
class TypeKeys:
    """The keys of all rows of one type. Rows are numbered through all splits; `bounds` are where each one begins."""

    type: Type
    keys: Keys
    bounds: Numbers

    def places(self, rows: Numbers) -> list[tuple[int, Numbers]]:
        """Return for each split that holds some of the rows their numbers within it."""
        splits = np.searchsorted(self.bounds, rows, side="right") - 1
        return [(int(one), rows[splits == one] - self.bounds[one]) for one in np.unique(splits)]


def repeated(values: Numbers) -> Numbers:
    """Return the hashes that come more than once.

    >>> repeated(np.array([3, 1, 3, 2, 3], np.uint64)).tolist()
    [3]
    """
    ordered = np.sort(values)
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def missing(values: Numbers, known: Sequence[Numbers]) -> Numbers:
    """Return the hashes that are in none of the known arrays, in order."""
    # Looking up sorted values in a sorted array walks through memory once; unsorted ones jump about in it.
    left = np.sort(values)
    for one in known:
        left = left[~_is_among_sorted(left, np.sort(one))]
    return np.unique(left)


def common(values: Numbers, others: Numbers) -> Numbers:
    """Return the hashes that are in both arrays, in order."""
    ordered = np.sort(values)
    return np.unique(ordered[_is_among_sorted(ordered, np.sort(others))])


def _is_among_sorted(values: Numbers, others: Numbers) -> Any:
    if len(others) == 0:
        return np.zeros(len(values), bool)
    places = np.minimum(np.searchsorted(others, values), len(others) - 1)
    return others[places] == values


def rows_of(values: Numbers, chosen: Numbers) -> Numbers:
    """Return the places of chosen hashes."""
    return np.flatnonzero(is_among(values, chosen)) if len(chosen) else np.zeros(0, np.int64)


def is_among(values: Numbers, chosen: Numbers) -> Any:
    """Return for each hash whether it is one of the chosen."""
    return _is_among_sorted(values, np.sort(chosen))


def first_repeats(values: Numbers, rows: Numbers, count: int) -> Numbers:
    """Return the first rows that repeat an earlier one's hash, up to a count, together with those earliest ones."""
    hashes = values[rows]
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    later = np.ones(len(rows), bool)
    later[first] = False
    chosen = np.flatnonzero(later)[:count]
    return np.unique(rows[np.concatenate([first[inverse[chosen]], chosen])])


def superseded(values: Numbers) -> Numbers:
    """Return the rows whose hash comes again later, in order."""
    rows = rows_of(values, repeated(values))
    # The last of each is the first from behind.
    _, last = np.unique(values[rows][::-1], return_index=True)
    stays = np.zeros(len(rows), bool)
    stays[len(rows) - 1 - last] = True
    return rows[~stays]


def out_of_bounds(sources: Numbers, touched: Numbers, minimum: int, maximum: int | None) -> Numbers:
    """Return the touched sources that have fewer or more edges than they may."""
    found, counts = np.unique(sources, return_counts=True)
    touched = np.unique(touched)
    places = np.minimum(np.searchsorted(found, touched), max(len(found) - 1, 0))
    held = np.where(found[places] == touched, counts[places], 0) if len(found) else np.zeros(len(touched), np.int64)
    too_many = held > maximum if maximum is not None else np.zeros(len(held), bool)
    return touched[(held < minimum) | too_many]
