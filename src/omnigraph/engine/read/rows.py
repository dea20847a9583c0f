"""Rows: a table of bindings, one array of dense ids per variable.

A node or edge variable holds dense ids, a hop variable its number; -1 is null, which only optional blocks make.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

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
        kept = int(np.count_nonzero(mask))
        if kept == self.count:
            return self
        return Rows(kept, {name: array[mask] for name, array in self.columns.items()})

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

# How many flags telling rows apart may take.
_FLAGS_MAX = 1 << 28


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
        size = int(ids.max()) + 2
        if size <= 64 * rows.count:
            # A flag per entity is faster than sorting as long as the flags are not many more than the rows.
            flags = np.zeros(size, np.bool_)
            flags[ids] = True
            found = np.flatnonzero(flags).astype(ids.dtype)
            if flags[-1]:
                found[-1] = -1
            return Rows(len(found), {name: found})
    return _distinct_by_flags(rows) or _distinct_by_sorting(rows)


def _distinct_by_flags(rows: Rows) -> Rows | None:
    """Return equal rows once by flagging all combinations of what occurs; None when those are too many."""
    found = [np.flatnonzero(_flags(ids)) for ids in rows.columns.values()]
    total = 1
    for values in found:
        total *= len(values)
    if total > min(_FLAGS_MAX, 128 * rows.count):
        return None
    numbers = np.zeros(rows.count, np.int64)
    for ids, values in zip(rows.columns.values(), found, strict=True):
        codes = np.zeros(int(values[-1]) + 1, np.int64)
        codes[values] = np.arange(len(values))
        numbers = numbers * len(values) + codes[ids.astype(np.int64) + 1]
    flags = np.zeros(total, np.bool_)
    flags[numbers] = True
    rest = np.flatnonzero(flags)
    columns: dict[str, Ids] = {}
    for (name, ids), values in reversed(list(zip(rows.columns.items(), found, strict=True))):
        rest, places = np.divmod(rest, len(values))
        columns[name] = (values[places] - 1).astype(ids.dtype)
    return Rows(len(rest), {name: columns[name] for name in rows.columns})


def _flags(ids: Ids) -> Mask:
    """Return which values occur, null first."""
    flags = np.zeros(int(ids.max()) + 2, np.bool_)
    flags[ids.astype(np.int64) + 1] = True
    return flags


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
