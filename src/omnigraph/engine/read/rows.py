"""Rows: a table of bindings, one array of dense ids per variable.

A node or edge variable holds dense ids, a hop variable its number; -1 is null, which only optional blocks make.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np

from omnigraph.engine.read.vectors import Ids, Mask


@dataclass(frozen=True, slots=True)
class Rows:
    """Bindings of a pattern so far; without variables it is only a number of rows."""

    count: int
    columns: Mapping[str, Ids] = field(default_factory=dict)

    def take(self, places: Ids) -> Rows:
        """Return the rows at some places, in that order."""
        return Rows(len(places), {name: array[places] for name, array in self.columns.items()})

    def where(self, mask: Mask) -> Rows:
        """Return the rows that a mask keeps; itself when it keeps all."""
        # Gathering at places is several times faster than numpy's selection by a mask.
        places = np.flatnonzero(mask)
        return self if len(places) == self.count else self.take(places)

    def with_columns(self, columns: Mapping[str, Ids]) -> Rows:
        return Rows(self.count, {**self.columns, **columns})

    def only(self, names: Iterable[str]) -> Rows:
        """Return the rows with these variables alone; equal rows stay apart."""
        wanted = set(names)
        if wanted >= self.columns.keys():
            return self
        return Rows(self.count, {name: array for name, array in self.columns.items() if name in wanted})

    @property
    def row_bytes(self) -> int:
        return sum(array.dtype.itemsize for array in self.columns.values())


UNIT = Rows(1)


def concatenate(first: Rows, second: Rows) -> Rows:
    """Return all rows of two tables over the same variables."""
    if second.count == 0:
        return first
    names = first.columns.keys()
    return Rows(
        first.count + second.count,
        {name: np.concatenate([first.columns[name], second.columns[name]]) for name in names},
    )


def distinct(rows: Rows) -> Rows:
    """Return equal rows once; the order may change."""
    if rows.count < 2:
        return rows
    if not rows.columns:
        return UNIT
    if len(rows.columns) == 1:
        [(name, ids)] = rows.columns.items()
        if bool((ids[1:] > ids[:-1]).all()):
            return rows
        size = int(ids.max()) + 2
        if size <= 64 * rows.count:
            # A flag per entity is faster than sorting as long as the flags are not many more than the rows.
            flags = np.zeros(size, np.bool_)
            flags[ids] = True
            found = np.flatnonzero(flags).astype(ids.dtype)
            if flags[-1]:
                found[-1] = -1
            return Rows(len(found), {name: found})
    sizes = [int(ids.max()) + 2 for ids in rows.columns.values()]
    return _distinct_by_numbers(rows, sizes) if prod(sizes) < 2**62 else _distinct_by_sorting(rows)


def _distinct_by_numbers(rows: Rows, sizes: list[int]) -> Rows:
    """Return equal rows once: as numbers they are sorted far faster than their places are, and read back from those."""
    numbers = packed(rows)
    if bool((numbers[1:] > numbers[:-1]).all()):
        return rows
    numbers.sort()
    fresh = np.empty(len(numbers), np.bool_)
    fresh[0] = True
    np.not_equal(numbers[1:], numbers[:-1], out=fresh[1:])
    rest = numbers[np.flatnonzero(fresh)]
    columns: dict[str, Ids] = {}
    for (name, ids), size in reversed(list(zip(rows.columns.items(), sizes, strict=True))):
        above = rest // size
        columns[name] = (rest - (above * size + 1)).astype(ids.dtype)
        rest = above
    return Rows(len(rest), {name: columns[name] for name in rows.columns})


def _distinct_by_sorting(rows: Rows) -> Rows:
    _, places = np.unique(packed(rows), return_index=True)
    return rows if len(places) == rows.count else rows.take(places)


def packed(rows: Rows) -> Ids:
    """Return one number per row, equal for equal rows."""
    numbers = np.zeros(rows.count, np.int64)
    room = 2**62
    for ids in rows.columns.values():
        size = int(ids.max(initial=-1)) + 2
        if size > room:
            numbers = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
            room = 2**62 // max(rows.count, 1)
        numbers = numbers * size + (ids.astype(np.int64) + 1)
        room //= size
    return numbers
